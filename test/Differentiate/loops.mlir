// RUN: fovea-opt %s --split-input-file --attn-differentiate --canonicalize --cse | FileCheck %s

// A state that a product reads is kept, one entry for each iteration, before an
// iteration changes it. The outputs, which nothing reads, are not even computed.

// CHECK-LABEL: func.func @recurrent_vjp(
//  CHECK-SAME:     %[[X:.*]]: tensor<?x4xf64>, %[[W:.*]]: tensor<4x4xf64>, %[[H:.*]]: tensor<4xf64>, %[[D:.*]]: tensor<?x4xf64>)
//       CHECK:   %[[N:.*]] = tensor.dim %[[X]]
//       CHECK:   %[[COUNT:.*]] = arith.maxsi %[[N]], %{{.*}} : index
//       CHECK:   %[[EMPTY:.*]] = tensor.empty(%[[COUNT]]) : tensor<?x4xf64>
//       CHECK:   %[[KEPT:.*]]:2 = scf.for %[[I:.*]] = {{.*}} iter_args(%[[STATE:.*]] = %[[H]], %[[TAPE:.*]] = %[[EMPTY]])
//  CHECK-NEXT:     tensor.insert_slice %[[STATE]] into %[[TAPE]][%[[I]], 0] [1, 4] [1, 1]
//   CHECK-NOT:   tensor.insert_slice
//       CHECK:   %[[BACK:.*]]:4 = scf.for %[[J:.*]] = %{{.*}} to %[[COUNT]] {{.*}} iter_args(
//       CHECK:     %[[AT:.*]] = arith.subi %{{.*}}, %[[J]]
//       CHECK:     %[[OLD:.*]] = tensor.extract_slice %[[KEPT]]#1[%[[AT]], 0] [1, 4] [1, 1]
//       CHECK:     linalg.matvec ins(%[[W]], %[[OLD]]
//       CHECK:   return %[[BACK]]#2, %[[BACK]]#3, %[[BACK]]#0
func.func @recurrent(%x: tensor<?x4xf64>, %w: tensor<4x4xf64>, %h: tensor<4xf64>) -> tensor<?x4xf64> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f64
  %n = tensor.dim %x, %c0 : tensor<?x4xf64>
  %all = tensor.empty(%n) : tensor<?x4xf64>
  %r:2 = scf.for %i = %c0 to %n step %c1 iter_args(%s = %h, %o = %all) -> (tensor<4xf64>, tensor<?x4xf64>) {
    %xi = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<?x4xf64> to tensor<4xf64>
    %e = tensor.empty() : tensor<4xf64>
    %z = linalg.fill ins(%zero : f64) outs(%e : tensor<4xf64>) -> tensor<4xf64>
    %m = linalg.matvec ins(%w, %s : tensor<4x4xf64>, tensor<4xf64>) outs(%z : tensor<4xf64>) -> tensor<4xf64>
    %a = arith.addf %m, %xi : tensor<4xf64>
    %t = math.tanh %a : tensor<4xf64>
    %o2 = tensor.insert_slice %t into %o[%i, 0] [1, 4] [1, 1] : tensor<4xf64> into tensor<?x4xf64>
    scf.yield %t, %o2 : tensor<4xf64>, tensor<?x4xf64>
  }
  return %r#1 : tensor<?x4xf64>
}

// -----

// A sum needs nothing kept, and so no loop but the one that runs backwards.

// CHECK-LABEL: func.func @sum_vjp(
//  CHECK-SAME:     %[[X:.*]]: tensor<7x4xf32>, %[[D:.*]]: tensor<4xf32>)
//       CHECK:   %[[R:.*]] = scf.for {{.*}} -> (tensor<7x4xf32>)
//   CHECK-NOT:   scf.for
//       CHECK:   return %[[R]]
func.func @sum(%x: tensor<7x4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c7 = arith.constant 7 : index
  %zero = arith.constant dense<0.0> : tensor<4xf32>
  %r = scf.for %i = %c0 to %c7 step %c1 iter_args(%s = %zero) -> tensor<4xf32> {
    %xi = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<7x4xf32> to tensor<4xf32>
    %t = arith.addf %s, %xi : tensor<4xf32>
    scf.yield %t : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// -----

// Counters by arguments, of any integer type, and a number that is carried.

// CHECK-LABEL: func.func @number_vjp(
//  CHECK-SAME:     %[[X:.*]]: f32, %[[LOWER:.*]]: i32, %[[UPPER:.*]]: i32, %[[STEP:.*]]: i32, %[[D:.*]]: f32) -> f32
//   CHECK-DAG:   %[[L:.*]] = arith.index_cast %[[LOWER]] : i32 to index
//   CHECK-DAG:   %[[S:.*]] = arith.index_cast %[[STEP]] : i32 to index
//       CHECK:   %[[COUNT:.*]] = arith.divui %{{.*}}, %[[S]] : index
//       CHECK:   %[[EMPTY:.*]] = tensor.empty(%[[COUNT]]) : tensor<?xf32>
//       CHECK:   scf.for %[[I:.*]] = %[[LOWER]] to %[[UPPER]] step %[[STEP]] iter_args(%[[STATE:.*]] = %[[X]], %[[TAPE:.*]] = %[[EMPTY]])
//       CHECK:     %[[AT:.*]] = arith.index_cast %[[I]] : i32 to index
//       CHECK:     %[[FROM:.*]] = arith.subi %[[AT]], %[[L]]
//       CHECK:     %[[NUMBER:.*]] = arith.divui %[[FROM]], %[[S]]
//       CHECK:     tensor.insert %[[STATE]] into %[[TAPE]][%[[NUMBER]]]
//       CHECK:   scf.for
//       CHECK:     tensor.extract
func.func @number(%x: f32, %lower: i32, %upper: i32, %step: i32) -> f32 {
  %r = scf.for %i = %lower to %upper step %step iter_args(%s = %x) -> f32 : i32 {
    %t = math.sin %s : f32
    scf.yield %t : f32
  }
  return %r : f32
}

// -----

// What one iteration of the outer loop carries within is computed again: the
// tensor that both loops fill is not kept anywhere.

// CHECK-LABEL: func.func @nested_vjp(
//   CHECK-NOT:   tensor.empty() : tensor<3x3x2x4xf32>
//       CHECK:   return
func.func @nested(%x: tensor<3x2x4xf32>) -> tensor<3x2x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %all = tensor.empty() : tensor<3x2x4xf32>
  %start = arith.constant dense<1.0> : tensor<4xf32>
  %r:2 = scf.for %i = %c0 to %c3 step %c1 iter_args(%o = %all, %s = %start) -> (tensor<3x2x4xf32>, tensor<4xf32>) {
    %t:2 = scf.for %j = %c0 to %c2 step %c1 iter_args(%p = %o, %u = %s) -> (tensor<3x2x4xf32>, tensor<4xf32>) {
      %xi = tensor.extract_slice %x[%i, %j, 0] [1, 1, 4] [1, 1, 1] : tensor<3x2x4xf32> to tensor<4xf32>
      %m = arith.mulf %u, %xi : tensor<4xf32>
      %p2 = tensor.insert_slice %m into %p[%i, %j, 0] [1, 1, 4] [1, 1, 1] : tensor<4xf32> into tensor<3x2x4xf32>
      scf.yield %p2, %m : tensor<3x2x4xf32>, tensor<4xf32>
    }
    scf.yield %t#0, %t#1 : tensor<3x2x4xf32>, tensor<4xf32>
  }
  return %r#0 : tensor<3x2x4xf32>
}

// -----

// Assertions hold when an iteration is computed again.

// CHECK-LABEL: func.func @asserted_vjp(
//       CHECK:   scf.for
//       CHECK:     cf.assert
//       CHECK:   scf.for
func.func @asserted(%x: f32, %n: index) -> f32 {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %y = scf.for %i = %zero to %n step %one iter_args(%y = %x) -> f32 {
    %s = math.sin %y : f32
    %holds = arith.cmpi ult, %i, %n : index
    cf.assert %holds, "too many"
    scf.yield %s : f32
  }
  return %y : f32
}

// -----

// Of a tensor that is read by slices, these are kept.

// CHECK-LABEL: func.func @slices_vjp(
//       CHECK:   %[[TAPE:.*]] = tensor.empty() : tensor<4x6xf32>
//       CHECK:   scf.for {{.*}} iter_args(%{{.*}} = %{{.*}}, %{{.*}} = %[[TAPE]]) -> (tensor<5x6xf32>, tensor<4x6xf32>)
//   CHECK-NOT:   tensor<4x5x6xf32>
func.func @slices(%x: tensor<5x6xf32>) -> tensor<5x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %r = scf.for %i = %c0 to %c4 step %c1 iter_args(%s = %x) -> tensor<5x6xf32> {
    %xi = tensor.extract_slice %s[%i, 0] [1, 6] [1, 1] : tensor<5x6xf32> to tensor<6xf32>
    %t = math.sin %xi : tensor<6xf32>
    %j = arith.addi %i, %c1 : index
    %o = tensor.insert_slice %t into %s[%j, 0] [1, 6] [1, 1] : tensor<6xf32> into tensor<5x6xf32>
    scf.yield %o : tensor<5x6xf32>
  }
  return %r : tensor<5x6xf32>
}
