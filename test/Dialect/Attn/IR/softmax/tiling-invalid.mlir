// RUN: fovea-opt %s --transform-interpreter --split-input-file --verify-diagnostics --mlir-print-op-on-diagnostic=false

// Two query heads of a tile could read one key head or two.
func.func @dense_two_of_four_heads(%q: tensor<1x4x64x16xf32>, %k: tensor<1x2x64x16xf32>) -> tensor<1x4x64x16xf32> {
  // expected-error @below {{'attn.dense' op with shared key heads can be tiled only by one query head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.dense ins(%q, %k, %k : tensor<1x4x64x16xf32>, tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) outs(%q : tensor<1x4x64x16xf32>) -> tensor<1x4x64x16xf32>
  return %0 : tensor<1x4x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @stream_two_of_four_heads(%q: tensor<1x4x64x16xf32>, %k: tensor<1x2x64x16xf32>) -> tensor<1x4x64x16xf32> {
  // expected-error @below {{'attn.stream' op with shared key heads can be tiled only by one query head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.stream query(%q : tensor<1x4x64x16xf32>) source(%k, %k : tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x64x16xf32>) {scale = 1.0} -> tensor<1x4x64x16xf32>
  return %0 : tensor<1x4x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A mask counts rows from the end of the sequence, which a tile does not know.
func.func @dense_masked_rows(%q: tensor<1x4x64x16xf32>, %k: tensor<1x2x64x16xf32>) -> tensor<1x4x64x16xf32> {
  // expected-error @below {{'attn.dense' op with a mask, query_lengths or a score region cannot be tiled along its query rows; expand it to attn.stream first}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.dense ins(%q, %k, %k : tensor<1x4x64x16xf32>, tensor<1x2x64x16xf32>, tensor<1x2x64x16xf32>) outs(%q : tensor<1x4x64x16xf32>) {mask = #attn.mask<causal>} -> tensor<1x4x64x16xf32>
  return %0 : tensor<1x4x64x16xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @dense_memref(%q: memref<1x4x64x16xf32>, %o: memref<1x4x64x16xf32>) {
  // expected-error @below {{'attn.dense' op can be tiled only on tensors}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  attn.dense ins(%q, %q, %q : memref<1x4x64x16xf32>, memref<1x4x64x16xf32>, memref<1x4x64x16xf32>) outs(%o : memref<1x4x64x16xf32>)
  return
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.dense"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @stream_dynamic_memref(%q: memref<?x?x?x16xf32>, %o: memref<?x?x?x16xf32>) {
  // expected-error @below {{'attn.stream' op can be tiled only on tensors}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  attn.stream query(%q : memref<?x?x?x16xf32>) source(%q, %q : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%o : memref<?x?x?x16xf32>) {scale = 1.0}
  return
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.stream"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 32] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
