// RUN: fovea-opt %s --transform-interpreter --canonicalize --cse --split-input-file --verify-diagnostics | FileCheck %s

// Keys, codes and copies are cut along batch, head and key; a head has its own
// codebook.
// CHECK-LABEL: func @quantize(
// CHECK-SAME: %[[K:[^:]*]]: tensor<3x4x50x8xf32>, %[[C:[^:]*]]: tensor<4x5x8xf32>, %[[Z:[^:]*]]: tensor<3x4x50xi32>, %[[O:[^:]*]]: tensor<3x4x50x8xf32>
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]], %[[T:.*]]) in (3, 4, 4) shared_outs(%[[ZO:.*]] = %[[Z]], %[[KO:.*]] = %[[O]])
// CHECK-DAG: %[[ROW:.*]] = affine.apply {{.*}}(%[[T]])
// CHECK-DAG: %[[ROWS:.*]] = affine.min {{.*}}(%[[T]])
// CHECK-DAG: %[[KT:.*]] = tensor.extract_slice %[[K]][%[[I]], %[[H]], %[[ROW]], 0] [1, 1, %[[ROWS]], 8]
// CHECK-DAG: %[[CT:.*]] = tensor.extract_slice %[[C]][%[[H]], 0, 0] [1, 5, 8]
// CHECK-DAG: %[[ZT:.*]] = tensor.extract_slice %[[ZO]][%[[I]], %[[H]], %[[ROW]]] [1, 1, %[[ROWS]]]
// CHECK-DAG: %[[OT:.*]] = tensor.extract_slice %[[KO]][%[[I]], %[[H]], %[[ROW]], 0] [1, 1, %[[ROWS]], 8]
// CHECK: %[[R:.*]]:2 = attn.quantize ins(%[[KT]], %[[CT]] : {{.*}}) outs(%[[ZT]], %[[OT]] :
// CHECK: tensor.parallel_insert_slice %[[R]]#0 into %[[ZO]][%[[I]], %[[H]], %[[ROW]]] [1, 1, %[[ROWS]]]
// CHECK: tensor.parallel_insert_slice %[[R]]#1 into %[[KO]][%[[I]], %[[H]], %[[ROW]], 0] [1, 1, %[[ROWS]], 8]
func.func @quantize(%k: tensor<3x4x50x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<3x4x50xi32>, %o: tensor<3x4x50x8xf32>) -> (tensor<3x4x50xi32>, tensor<3x4x50x8xf32>) {
  %0:2 = attn.quantize ins(%k, %c : tensor<3x4x50x8xf32>, tensor<4x5x8xf32>) outs(%z, %o : tensor<3x4x50xi32>, tensor<3x4x50x8xf32>)
      -> tensor<3x4x50xi32>, tensor<3x4x50x8xf32>
  return %0#0, %0#1 : tensor<3x4x50xi32>, tensor<3x4x50x8xf32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.quantize"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A mask is cut along batch and key.
// CHECK-LABEL: func @masked(
// CHECK-SAME: %[[M:[^:]*]]: tensor<3x50xi1>
// CHECK: scf.forall (%[[I:.*]], %{{.*}}, %[[T:.*]]) in (3, 4, 4)
// CHECK-DAG: %[[ROW:.*]] = affine.apply {{.*}}(%[[T]])
// CHECK-DAG: %[[ROWS:.*]] = affine.min {{.*}}(%[[T]])
// CHECK-DAG: %[[MT:.*]] = tensor.extract_slice %[[M]][%[[I]], %[[ROW]]] [1, %[[ROWS]]]
// CHECK: attn.quantize ins({{.*}}) mask(%[[MT]] : tensor<1x?xi1>) outs(%{{.*}} : tensor<1x1x?xi32>)
func.func @masked(%m: tensor<3x50xi1>, %k: tensor<3x4x50x8xf32>, %c: tensor<1x5x8xf32>, %z: tensor<3x4x50xi32>) -> tensor<3x4x50xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<3x4x50x8xf32>, tensor<1x5x8xf32>) mask(%m : tensor<3x50xi1>) outs(%z : tensor<3x4x50xi32>) -> tensor<3x4x50xi32>
  return %0 : tensor<3x4x50xi32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.quantize"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1, 16] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// A shared codebook stays whole; codes alone.
// CHECK-LABEL: func @shared(
// CHECK-SAME: %{{[^:]*}}: tensor<3x4x50x8xf32>, %[[C:[^:]*]]: tensor<1x5x8xf32>
// CHECK: scf.forall
// CHECK: attn.quantize ins(%{{.*}}, %[[C]] : tensor<3x2x50x8xf32>, tensor<1x5x8xf32>) outs(%{{.*}} : tensor<3x2x50xi32>)
func.func @shared(%k: tensor<3x4x50x8xf32>, %c: tensor<1x5x8xf32>, %z: tensor<3x4x50xi32>) -> tensor<3x4x50xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<3x4x50x8xf32>, tensor<1x5x8xf32>) outs(%z : tensor<3x4x50xi32>) -> tensor<3x4x50xi32>
  return %0 : tensor<3x4x50xi32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.quantize"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// States are cut along batch and head.
// CHECK-LABEL: func @states(
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 4)
// CHECK: attn.codebook_accumulate ins(%{{.*}}, %{{.*}} : tensor<1x1x50xi32>, tensor<1x1x50x8xf32>) outs(%{{.*}}, %{{.*}} : tensor<1x1x5x8xf32>, tensor<1x1x5xi32>)
// CHECK: scf.forall (%[[I:.*]], %[[H:.*]]) in (3, 2)
// CHECK: attn.codebook_scan ins(%{{.*}} : tensor<1x2x50xi32>, tensor<1x2x50x8xf32>, tensor<1x2x5x8xf32>, tensor<1x2x5xi32>) outs(%{{.*}} : tensor<1x2x6x5x8xf32>, tensor<1x2x6x5xi32>) {block = 10 : i64, reduction = #attn.reduction<serial>}
// CHECK: tensor.parallel_insert_slice {{.*}} [1, 2, 6, 5, 8]
// CHECK: tensor.parallel_insert_slice {{.*}} [1, 2, 6, 5]
func.func @states(%z: tensor<3x4x50xi32>, %v: tensor<3x4x50x8xf32>, %m: tensor<3x4x5x8xf32>, %n: tensor<3x4x5xi32>, %ms: tensor<3x4x6x5x8xf32>, %ns: tensor<3x4x6x5xi32>) -> (tensor<3x4x6x5x8xf32>, tensor<3x4x6x5xi32>) {
  %0:2 = attn.codebook_accumulate ins(%z, %v : tensor<3x4x50xi32>, tensor<3x4x50x8xf32>) outs(%m, %n : tensor<3x4x5x8xf32>, tensor<3x4x5xi32>)
      -> tensor<3x4x5x8xf32>, tensor<3x4x5xi32>
  %1:2 = attn.codebook_scan ins(%z, %v, %0#0, %0#1 : tensor<3x4x50xi32>, tensor<3x4x50x8xf32>, tensor<3x4x5x8xf32>, tensor<3x4x5xi32>)
      outs(%ms, %ns : tensor<3x4x6x5x8xf32>, tensor<3x4x6x5xi32>) {block = 10 : i64, reduction = #attn.reduction<serial>} -> tensor<3x4x6x5x8xf32>, tensor<3x4x6x5xi32>
  return %1#0, %1#1 : tensor<3x4x6x5x8xf32>, tensor<3x4x6x5xi32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.codebook_accumulate"]} in %m : (!transform.any_op) -> !transform.any_op
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1, 1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %1 = transform.structured.match ops{["attn.codebook_scan"]} in %m : (!transform.any_op) -> !transform.any_op
    %t1, %l1 = transform.structured.tile_using_forall %1 tile_sizes [1, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

func.func @memrefs(%k: memref<3x4x50x8xf32>, %c: memref<1x5x8xf32>, %z: memref<3x4x50xi32>) {
  // expected-error @below {{'attn.quantize' op can be tiled only on tensors}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  attn.quantize ins(%k, %c : memref<3x4x50x8xf32>, memref<1x5x8xf32>) outs(%z : memref<3x4x50xi32>)
  return
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.quantize"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [1] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}

// -----

// Whether heads share a codebook is not known.
func.func @dynamic_codebooks(%k: tensor<3x4x50x8xf32>, %c: tensor<?x5x8xf32>, %z: tensor<3x4x50xi32>) -> tensor<3x4x50xi32> {
  // expected-error @below {{'attn.quantize' op with a dynamic number of codebooks can be tiled only by one head or all of them}}
  // expected-error @below {{to tile operation}}
  // expected-error @below {{failed to generate tiling loops}}
  // expected-note @below {{when applied to this op}}
  %0 = attn.quantize ins(%k, %c : tensor<3x4x50x8xf32>, tensor<?x5x8xf32>) outs(%z : tensor<3x4x50xi32>) -> tensor<3x4x50xi32>
  return %0 : tensor<3x4x50xi32>
}

module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%m: !transform.any_op {transform.readonly}) {
    %0 = transform.structured.match ops{["attn.quantize"]} in %m : (!transform.any_op) -> !transform.any_op
    // expected-error @below {{transform.structured.tile_using_forall failed to apply}}
    %t, %l = transform.structured.tile_using_forall %0 tile_sizes [0, 2] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }
}
