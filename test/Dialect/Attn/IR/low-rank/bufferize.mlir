// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s
// RUN: fovea-opt %s --resolve-ranked-shaped-type-result-dims --canonicalize | FileCheck %s --check-prefix=SHAPE

// Destinations are overwritten in place.
// CHECK-LABEL: func @low_rank(
// CHECK-SAME: %[[U1:[^:]*]]: memref<?x2x9x4xf32>, %[[O:[^:]*]]: memref<?x2x9x4xf32>, %[[X:[^:]*]]: memref<?x2x9x4xf32>, %[[I:[^:]*]]: memref<1x1x9xi32>, %[[N:[^:]*]]: index
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.check_intervals %[[I]], %[[I]] below %[[N]] {name = "x"} : memref<1x1x9xi32>, memref<1x1x9xi32>
// CHECK-NEXT: attn.low_rank ins(%[[U1]], %[[U1]], %[[U1]] : {{.*}}) mask(%[[I]], %[[I]] : {{.*}}) outs(%[[O]] : memref<?x2x9x4xf32>) {mask = #attn.row_mask<row_interval>}{{$}}
// CHECK-NEXT: attn.rope ins(%[[O]], %[[I]] : {{.*}}) outs(%[[X]] : memref<?x2x9x4xf32>){{$}}

// SHAPE-LABEL: func @low_rank(
// SHAPE: %[[D:.*]] = tensor.dim %{{.*}}, %c0
// SHAPE: return %{{.*}}, %[[D]]
func.func @low_rank(%u: tensor<?x2x9x4xf32>, %o: tensor<?x2x9x4xf32>, %x: tensor<?x2x9x4xf32>, %i: tensor<1x1x9xi32>, %n: index) -> (tensor<?x2x9x4xf32>, index) {
  %c0 = arith.constant 0 : index
  attn.check_intervals %i, %i below %n {name = "x"} : tensor<1x1x9xi32>, tensor<1x1x9xi32>
  %0 = attn.low_rank ins(%u, %u, %u : tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>)
      mask(%i, %i : tensor<1x1x9xi32>, tensor<1x1x9xi32>) outs(%o : tensor<?x2x9x4xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<?x2x9x4xf32>
  %1 = attn.rope ins(%0, %i : tensor<?x2x9x4xf32>, tensor<1x1x9xi32>) outs(%x : tensor<?x2x9x4xf32>) -> tensor<?x2x9x4xf32>
  %d = tensor.dim %1, %c0 : tensor<?x2x9x4xf32>
  return %1, %d : tensor<?x2x9x4xf32>, index
}

// CHECK-LABEL: func @backward(
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.low_rank_backward {{.*}} outs(%{{.*}}, %{{.*}}, %[[DV:.*]] : memref<?x2x9x4xf32>, memref<?x2x9x4xf32>, memref<?x2x9x4xf32>) {mask = #attn.row_mask<causal>}{{$}}
// CHECK-NEXT: attn.polynomial_features_backward ins(%[[DV]] : {{.*}}) gradient({{.*}}) outs(%{{.*}} : memref<?x2x9x4xf32>)

// SHAPE-LABEL: func @backward(
// SHAPE: %[[D:.*]] = tensor.dim %{{.*}}, %c0
// SHAPE: return %{{.*}}, %[[D]]
func.func @backward(%u: tensor<?x2x9x4xf32>, %p: tensor<?x2x9x5xf32>, %a: tensor<?x2x9x4xf32>, %b: tensor<?x2x9x4xf32>, %c: tensor<?x2x9x4xf32>) -> (tensor<?x2x9x4xf32>, index) {
  %c0 = arith.constant 0 : index
  %0:3 = attn.low_rank_backward ins(%u, %u, %u : tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>)
      forward(%u : tensor<?x2x9x4xf32>) gradient(%u : tensor<?x2x9x4xf32>)
      outs(%a, %b, %c : tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>) {mask = #attn.row_mask<causal>}
      -> tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>, tensor<?x2x9x4xf32>
  %1 = attn.polynomial_features_backward ins(%0#2 : tensor<?x2x9x4xf32>) gradient(%p : tensor<?x2x9x5xf32>)
      outs(%0#0 : tensor<?x2x9x4xf32>) {degree = 1 : i64, scale = 1.0 : f64} -> tensor<?x2x9x4xf32>
  %d = tensor.dim %1, %c0 : tensor<?x2x9x4xf32>
  return %1, %d : tensor<?x2x9x4xf32>, index
}
