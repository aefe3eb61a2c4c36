// RUN: fovea-opt %s --attn-lower-reshapes --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-lower-reshapes --expand-strided-metadata -o /dev/null

// CHECK-LABEL: func.func @unknown(
//  CHECK-SAME:   %[[X:[a-z0-9]+]]: memref<4x?xf32, strided<[?, 1], offset: ?>>, %[[N:[a-z0-9]+]]: index, %[[M:[a-z0-9]+]]: index
//       CHECK:   %{{.*}}, %[[OFFSET:.*]], %{{.*}}:2, %[[STRIDES:.*]]:2 = memref.extract_strided_metadata %[[X]]
//       CHECK:   %[[R:.*]] = memref.reinterpret_cast %[[X]] to offset: [%[[OFFSET]]], sizes: [4, %[[N]], %[[M]]], strides: [%[[STRIDES]]#0, %[[M]], 1]
//       CHECK:   return %[[R]]
func.func @unknown(%x: memref<4x?xf32, strided<[?, 1], offset: ?>>, %n: index, %m: index)
    -> memref<4x?x?xf32, strided<[?, ?, 1], offset: ?>> {
  %r = memref.expand_shape %x [[0], [1, 2]] output_shape [4, %n, %m]
      : memref<4x?xf32, strided<[?, 1], offset: ?>> into memref<4x?x?xf32, strided<[?, ?, 1], offset: ?>>
  return %r : memref<4x?x?xf32, strided<[?, ?, 1], offset: ?>>
}

// One unknown extent is for upstream.
// CHECK-LABEL: func.func @computed(
//       CHECK:   memref.expand_shape
func.func @computed(%x: memref<?xf32>, %n: index) -> memref<?x8xf32> {
  %r = memref.expand_shape %x [[0, 1]] output_shape [%n, 8] : memref<?xf32> into memref<?x8xf32>
  return %r : memref<?x8xf32>
}
