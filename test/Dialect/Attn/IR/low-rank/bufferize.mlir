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
