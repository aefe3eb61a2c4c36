// RUN: fovea-opt %s --transform-interpreter --verify-diagnostics --mlir-print-op-on-diagnostic=false

func.func @part(%u1: tensor<3x6x9x5xf32>, %u2: tensor<3x3x9x5xf32>, %o: tensor<3x6x9x5xf32>) -> tensor<3x6x9x5xf32> {
  // expected-error @below {{'attn.low_rank' op with shared key heads can be tiled only by one query head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.low_rank ins(%u1, %u2, %u2 : tensor<3x6x9x5xf32>, tensor<3x3x9x5xf32>, tensor<3x3x9x5xf32>)
      outs(%o : tensor<3x6x9x5xf32>) {mask = #attn.row_mask<causal>} -> tensor<3x6x9x5xf32>
  return %0 : tensor<3x6x9x5xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.low_rank"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
