// RUN: fovea-opt %s -attn-separate-results | FileCheck %s

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
//       CHECK:   %[[COPY:.*]] = bufferization.clone %[[FLAT]]
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
//   CHECK-DAG:   %[[COPY:.*]] = bufferization.clone %[[CHOICE]]
//   CHECK-DAG:   %[[ARGUMENT:.*]] = bufferization.clone %[[X]]
//       CHECK:   return %{{.*}}, %[[COPY]], %[[ARGUMENT]]
func.func @unknown(%p: i1, %x: memref<4xf32>) -> (memref<4xf32>, memref<4xf32>, memref<4xf32>) {
  %a = memref.alloc() : memref<4xf32>
  %choice = arith.select %p, %a, %x : memref<4xf32>
  return %a, %choice, %x : memref<4xf32>, memref<4xf32>, memref<4xf32>
}

// CHECK-LABEL: func.func @one(
//   CHECK-NOT:   bufferization.clone
//       CHECK:   return
func.func @one(%x: memref<4xf32>, %n: index) -> (memref<4xf32>, index) {
  return %x, %n : memref<4xf32>, index
}

// CHECK-LABEL: func.func private @private(
//   CHECK-NOT:   bufferization.clone
//       CHECK:   return
func.func private @private(%x: memref<4xf32>) -> (memref<4xf32>, memref<4xf32>) {
  return %x, %x : memref<4xf32>, memref<4xf32>
}
