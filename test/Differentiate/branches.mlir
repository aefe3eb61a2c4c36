// RUN: fovea-opt %s --split-input-file --attn-differentiate --canonicalize --cse | FileCheck %s

// The gradient of a branch is a branch, which computes again what it needs.

// CHECK-LABEL: func.func @branch_vjp(
//  CHECK-SAME:     %[[C:.*]]: i1, %[[X:.*]]: tensor<4xf32>, %[[Y:.*]]: tensor<4xf32>, %[[D:.*]]: tensor<4xf32>)
//       CHECK:   %[[R:.*]]:2 = scf.if %[[C]] -> (tensor<4xf32>, tensor<4xf32>) {
//       CHECK:     %[[G:.*]]:2 = linalg.generic {{.*}} ins(%[[X]], %[[Y]], %[[D]] :
//       CHECK:     scf.yield %[[G]]#{{[01]}}, %[[G]]#{{[01]}}
//       CHECK:   } else {
//       CHECK:     math.cos
//       CHECK:     scf.yield
//       CHECK:   return %[[R]]#{{[01]}}, %[[R]]#{{[01]}} : tensor<4xf32>, tensor<4xf32>
func.func @branch(%c: i1, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = scf.if %c -> tensor<4xf32> {
    %p = arith.mulf %x, %y : tensor<4xf32>
    scf.yield %p : tensor<4xf32>
  } else {
    %s = math.sin %y : tensor<4xf32>
    scf.yield %s : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

// A loop of unknown length is counted, run again to keep its states, and then backwards.

// CHECK-LABEL: func.func @unknown_vjp(
//  CHECK-SAME:     %[[X:.*]]: f32, %[[N:.*]]: i32, %[[D:.*]]: f32)
// Counting needs no sine.
//       CHECK:   %[[COUNT:.*]]:2 = scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : (i32, index) -> (i32, index)
//       CHECK:     arith.cmpi slt
//       CHECK:     scf.condition
//   CHECK-NOT:     math.sin
//       CHECK:     scf.yield
//       CHECK:   %[[SIZE:.*]] = arith.maxsi %[[COUNT]]#
//       CHECK:   tensor.empty(%[[SIZE]]) : tensor<?xf32>
//       CHECK:   scf.for %{{.*}} = %{{.*}} to %[[COUNT]]#
//       CHECK:     tensor.insert
//       CHECK:   scf.for %{{.*}} = %{{.*}} to %[[SIZE]]
//       CHECK:     tensor.extract
//       CHECK:     math.cos
func.func @unknown(%x: f32, %n: i32) -> f32 {
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %r:2 = scf.while (%s = %x, %i = %zero) : (f32, i32) -> (f32, i32) {
    %more = arith.cmpi slt, %i, %n : i32
    scf.condition(%more) %s, %i : f32, i32
  } do {
  ^bb0(%s: f32, %i: i32):
    %t = math.sin %s : f32
    %j = arith.addi %i, %one : i32
    scf.yield %t, %j : f32, i32
  }
  return %r#0 : f32
}

// -----

// What decides may depend on itself through the body, in another order there, and through an inner loop.

// CHECK-LABEL: func.func @deciding_vjp(
//       CHECK:   scf.while (%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : (f32, f32, index) -> (f32, index)
//   CHECK-NOT:     math.sin
//       CHECK:     scf.for
//   CHECK-NOT:     math.sin
//       CHECK:   scf.for
func.func @deciding(%x: f32, %y: f32, %n: index) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %half = arith.constant 0.5 : f32
  %r:3 = scf.while (%a = %x, %s = %x, %e = %y) : (f32, f32, f32) -> (f32, f32, f32) {
    %more = arith.cmpf ogt, %e, %half : f32
    scf.condition(%more) %s, %a, %x : f32, f32, f32
  } do {
  ^bb0(%s: f32, %a: f32, %unused: f32):
    %t = math.sin %s : f32
    %d = scf.for %i = %zero to %n step %one iter_args(%d = %a) -> f32 {
      %h = arith.mulf %d, %half : f32
      scf.yield %h : f32
    }
    scf.yield %d, %t, %a : f32, f32, f32
  }
  return %r#0 : f32
}
