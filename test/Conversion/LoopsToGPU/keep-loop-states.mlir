// RUN: fovea-opt %s --attn-keep-loop-states --split-input-file | FileCheck %s

// What the next iteration begins with is copied at the end of one.

// CHECK-LABEL: func.func @sums(
//  CHECK-SAME:     %[[X:.*]]: memref<8xf32>, %[[N:.*]]: index)
//       CHECK:   %[[STATE:.*]] = memref.alloc() : memref<8xf32>
//       CHECK:   memref.copy %[[X]], %[[STATE]]
//       CHECK:   scf.for %{{.*}} = %{{.*}} to %[[N]] step %{{[^ ]*}} {
//       CHECK:     %[[NEXT:.*]] = memref.alloc() : memref<8xf32>
//       CHECK:     linalg.add ins(%[[STATE]], %[[X]] : {{.*}}) outs(%[[NEXT]] :
//       CHECK:     memref.copy %[[NEXT]], %[[STATE]]
//   CHECK-NOT:     scf.yield %
//       CHECK:   return %[[STATE]]
func.func @sums(%x: memref<8xf32>, %n: index) -> memref<8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> memref<8xf32> {
    %t = memref.alloc() : memref<8xf32>
    linalg.add ins(%s, %x : memref<8xf32>, memref<8xf32>) outs(%t : memref<8xf32>)
    scf.yield %t : memref<8xf32>
  }
  return %r : memref<8xf32>
}

// -----

// States that change places are read before either is overwritten. An extent that is not known stays.

// CHECK-LABEL: func.func @swap(
//       CHECK:   %[[A:.*]] = memref.alloc() : memref<8xf32>
//       CHECK:   %[[B:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
//       CHECK:   %[[C:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
//       CHECK:   scf.for
//       CHECK:     cf.assert %{{.*}}, "a loop changes the shape of its state"
//       CHECK:     %[[OLD_C:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
//       CHECK:     memref.copy %[[C]], %[[OLD_C]]
//       CHECK:     %[[OLD_B:.*]] = memref.alloc(%{{.*}}) : memref<?xf32>
//       CHECK:     memref.copy %[[B]], %[[OLD_B]]
//       CHECK:     memref.copy %[[OLD_C]], %[[B]]
//       CHECK:     memref.copy %[[OLD_B]], %[[C]]
//       CHECK:   return %[[A]], %[[B]], %[[C]]
func.func @swap(%x: memref<8xf32>, %y: memref<?xf32>, %z: memref<?xf32>, %n: index)
    -> (memref<8xf32>, memref<?xf32>, memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r:3 = scf.for %i = %c0 to %n step %c1 iter_args(%a = %x, %b = %y, %c = %z)
      -> (memref<8xf32>, memref<?xf32>, memref<?xf32>) {
    %t = memref.alloc() : memref<8xf32>
    linalg.add ins(%a, %a : memref<8xf32>, memref<8xf32>) outs(%t : memref<8xf32>)
    scf.yield %t, %c, %b : memref<8xf32>, memref<?xf32>, memref<?xf32>
  }
  return %r#0, %r#1, %r#2 : memref<8xf32>, memref<?xf32>, memref<?xf32>
}

// -----

// CHECK-LABEL: func.func @until(
//  CHECK-SAME:     %[[X:.*]]: memref<f32>, %[[END:.*]]: f32)
//       CHECK:   %[[STATE:.*]] = memref.alloc() : memref<f32>
//       CHECK:   memref.copy %[[X]], %[[STATE]]
//       CHECK:   scf.while : () -> () {
//       CHECK:     memref.load %[[STATE]][]
//       CHECK:   } do {
//       CHECK:     linalg.add ins(%[[STATE]], %[[STATE]] : {{.*}}) outs(%[[NEXT:.*]] :
//       CHECK:     memref.copy %[[NEXT]], %[[STATE]]
//       CHECK:   return %[[STATE]]
func.func @until(%x: memref<f32>, %end: f32) -> memref<f32> {
  %r = scf.while (%s = %x) : (memref<f32>) -> memref<f32> {
    %v = memref.load %s[] : memref<f32>
    %c = arith.cmpf olt, %v, %end : f32
    scf.condition(%c) %s : memref<f32>
  } do {
  ^bb0(%s: memref<f32>):
    %t = memref.alloc() : memref<f32>
    linalg.add ins(%s, %s : memref<f32>, memref<f32>) outs(%t : memref<f32>)
    scf.yield %t : memref<f32>
  }
  return %r : memref<f32>
}

// -----

// CHECK-LABEL: func.func @branch(
//  CHECK-SAME:     %[[C:.*]]: i1, %[[X:.*]]: memref<8xf32>)
//       CHECK:   %[[R:.*]] = memref.alloc() : memref<8xf32>
//       CHECK:   scf.if %[[C]] {
//       CHECK:     memref.copy %{{.*}}, %[[R]]
//       CHECK:   } else {
//       CHECK:     memref.copy %[[X]], %[[R]]
//       CHECK:   return %[[R]]
func.func @branch(%c: i1, %x: memref<8xf32>) -> memref<8xf32> {
  %r = scf.if %c -> memref<8xf32> {
    %t = memref.alloc() : memref<8xf32>
    linalg.add ins(%x, %x : memref<8xf32>, memref<8xf32>) outs(%t : memref<8xf32>)
    scf.yield %t : memref<8xf32>
  } else {
    scf.yield %x : memref<8xf32>
  }
  return %r : memref<8xf32>
}
