// RUN: fovea-opt %s -attn-separate-results | FileCheck %s --check-prefixes=CHECK,HOST
// RUN: fovea-opt %s -attn-set-target=gpu -attn-separate-results | FileCheck %s --check-prefixes=CHECK,DEVICE

// CHECK-LABEL: func.func @separate(
//       CHECK:   %[[A:.*]] = memref.alloc
//       CHECK:   %[[B:.*]] = memref.alloc
//   CHECK-NOT:   bufferization.clone
//       CHECK:   return %[[A]], %[[B]]
func.func @separate() -> (memref<4xf32>, memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  %b = memref.alloc() : memref<4xf32>
  return %a, %b : memref<4xf32>, memref<4xf32>
}

// CHECK-LABEL: func.func @view(
//       CHECK:   %[[A:.*]] = memref.alloc
//       CHECK:   %[[FLAT:.*]] = memref.collapse_shape %[[A]]
//        HOST:   %[[COPY:.*]] = bufferization.clone %[[FLAT]]
//      DEVICE:   %[[COPY:.*]] = memref.alloc() : memref<4xf32>
//      DEVICE:   memref.copy %[[FLAT]], %[[COPY]]
//       CHECK:   return %[[A]], %[[COPY]]
func.func @view() -> (memref<2x2xf32>, memref<4xf32>) {
  %a = memref.alloc() : memref<2x2xf32>
  %flat = memref.collapse_shape %a [[0, 1]] : memref<2x2xf32> into memref<4xf32>
  return %a, %flat : memref<2x2xf32>, memref<4xf32>
}

// Where a buffer comes from is not known: it may be the other one.

// CHECK-LABEL: func.func @unknown(
// CHECK-SAME:    %{{.*}}: i1, %[[X:.*]]: memref<4xf32>)
//       CHECK:   %[[CHOICE:.*]] = arith.select
//    HOST-DAG:   %[[COPY:.*]] = bufferization.clone %[[CHOICE]]
//    HOST-DAG:   %[[ARGUMENT:.*]] = bufferization.clone %[[X]]
//  DEVICE-DAG:   memref.copy %[[CHOICE]], %[[COPY:.*]] :
//  DEVICE-DAG:   memref.copy %[[X]], %[[ARGUMENT:.*]] :
//       CHECK:   return %{{.*}}, %[[COPY]], %[[ARGUMENT]]
func.func @unknown(%p: i1, %x: memref<4xf32>) -> (memref<4xf32>, memref<4xf32>, memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  %choice = arith.select %p, %a, %x : memref<4xf32>
  return %a, %choice, %x : memref<4xf32>, memref<4xf32>, memref<4xf32>
}

// CHECK-LABEL: func.func @one(
//    HOST-NOT:   bufferization.clone
//      DEVICE:   memref.copy
//       CHECK:   return
func.func @one(%x: memref<4xf32>, %n: index) -> (memref<4xf32>, index) {
  return %x, %n : memref<4xf32>, index
}

// The first rows of a buffer: memory of the host for a result is all of one.

// CHECK-LABEL: func.func @part(
//       CHECK:   %[[PART:.*]] = memref.subview
//       CHECK:   %[[PLAIN:.*]] = memref.cast %[[PART]]
//    HOST-NOT:   bufferization.clone
//        HOST:   return %[[PLAIN]]
//      DEVICE:   %[[COPY:.*]] = memref.alloc() : memref<2x4xf32>
//      DEVICE:   memref.copy %[[PLAIN]], %[[COPY]]
//      DEVICE:   return %[[COPY]]
func.func @part() -> memref<2x4xf32> {
  %a = memref.alloc() : memref<8x4xf32>
  %part = memref.subview %a[0, 0] [2, 4] [1, 1] : memref<8x4xf32> to memref<2x4xf32, strided<[4, 1]>>
  %plain = memref.cast %part : memref<2x4xf32, strided<[4, 1]>> to memref<2x4xf32>
  return %plain : memref<2x4xf32>
}

// CHECK-LABEL: func.func private @private(
//   CHECK-NOT:   bufferization.clone
//       CHECK:   return
func.func private @private(%x: memref<4xf32>) -> (memref<4xf32>, memref<4xf32>) {
  return %x, %x : memref<4xf32>, memref<4xf32>
}
