// RUN: fovea-opt %s --attn-lower-copies --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @strided(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?x4xf32, strided<[8, 2]>>, %[[Y:[a-z0-9]+]]: memref<?x4xf32>)
//   CHECK-NOT:   memref.copy
//       CHECK:   %[[ROWS:.*]] = memref.dim %[[X]]
//       CHECK:   scf.for %[[I:.*]] = %{{.*}} to %[[ROWS]]
//       CHECK:     scf.for %[[J:.*]] =
//       CHECK:       %[[VALUE:.*]] = memref.load %[[X]][%[[I]], %[[J]]]
//       CHECK:       memref.store %[[VALUE]], %[[Y]][%[[I]], %[[J]]]
func.func @strided(%x: memref<?x4xf32, strided<[8, 2]>>, %y: memref<?x4xf32>) {
  memref.copy %x, %y : memref<?x4xf32, strided<[8, 2]>> to memref<?x4xf32>
  return
}

// CHECK-LABEL: func.func @contiguous(
//       CHECK:   memref.copy
//       CHECK:   memref.copy
//   CHECK-NOT:   scf.for
func.func @contiguous(%x: memref<?x4xf32>, %y: memref<?x4xf32>,
                      %z: memref<2x4xf32, strided<[4, 1], offset: 8>>, %w: memref<2x4xf32>) {
  memref.copy %x, %y : memref<?x4xf32> to memref<?x4xf32>
  memref.copy %z, %w : memref<2x4xf32, strided<[4, 1], offset: 8>> to memref<2x4xf32>
  return
}

// CHECK-LABEL: func.func @scalar(
//       CHECK:   memref.copy
func.func @scalar(%x: memref<f32, strided<[], offset: ?>>, %y: memref<f32>) {
  memref.copy %x, %y : memref<f32, strided<[], offset: ?>> to memref<f32>
  return
}
