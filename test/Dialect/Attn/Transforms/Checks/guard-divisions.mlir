// RUN: fovea-opt %s --attn-guard-divisions | FileCheck %s
// RUN: fovea-run %s --entry=by_zero | FileCheck %s --check-prefix=NUMBERS
// RUN: fovea-run %s --entry=by_zero --target=reference | FileCheck %s --check-prefix=NUMBERS
// RUN: fovea-run %s --entry=by_zero --target=gpu-sim --chip=sm_80 | FileCheck %s --check-prefix=NUMBERS

// CHECK-LABEL: func.func @unsigned(
// CHECK-SAME: %[[A:.*]]: i64, %[[B:.*]]: i64
// CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[B]], %c0{{.*}} : i64
// CHECK: %[[SAFE:.*]] = arith.select %[[ZERO]], %c1{{.*}}, %[[B]] : i64
// CHECK: %[[Q:.*]] = arith.divui %[[A]], %[[SAFE]] : i64
// CHECK: %[[R:.*]] = arith.select %[[ZERO]], %c-1{{.*}}, %[[Q]] : i64
// CHECK: return %[[R]]
func.func @unsigned(%a: i64, %b: i64) -> i64 {
  %q = arith.divui %a, %b : i64
  return %q : i64
}

// The least number over -1 does not fit.
// CHECK-LABEL: func.func @signed(
// CHECK-SAME: %[[A:.*]]: index, %[[B:.*]]: index
// CHECK: %[[ZERO:.*]] = arith.cmpi eq, %[[B]], %c0
// CHECK: %[[LEAST:.*]] = arith.cmpi eq, %[[A]], %c-9223372036854775808
// CHECK: %[[MINUS:.*]] = arith.cmpi eq, %[[B]], %c-1
// CHECK: %[[BOTH:.*]] = arith.andi %[[LEAST]], %[[MINUS]]
// CHECK: %[[ONE:.*]] = arith.ori %[[ZERO]], %[[BOTH]]
// CHECK: %[[SAFE:.*]] = arith.select %[[ONE]], %c1, %[[B]]
// CHECK: %[[Q:.*]] = arith.remsi %[[A]], %[[SAFE]]
// CHECK: arith.select %[[ZERO]], %[[A]], %[[Q]]
func.func @signed(%a: index, %b: index) -> index {
  %q = arith.remsi %a, %b : index
  return %q : index
}

// CHECK-LABEL: func.func @safe
// CHECK-NOT: arith.select
// CHECK: return
func.func @safe(%a: i32) -> i32 {
  %c = arith.constant -3 : i32
  %d = arith.constant -1 : i32
  %q = arith.floordivsi %a, %c : i32
  %r = arith.divui %q, %d : i32
  return %r : i32
}

// Those of whole tensors become linalg before.
// CHECK-LABEL: func.func @tensors
// CHECK-NOT: arith.select
// CHECK: return
func.func @tensors(%a: tensor<?xi32>, %b: tensor<?xi32>) -> tensor<?xi32> {
  %q = arith.divsi %a, %b : tensor<?xi32>
  return %q : tensor<?xi32>
}

// The body of a named operation is what its name says.
// CHECK-LABEL: func.func @named
// CHECK-NOT: linalg.div
// CHECK: linalg.generic
// CHECK: arith.divsi
// CHECK: arith.select
func.func @named(%a: tensor<?xi32>, %b: tensor<?xi32>, %o: tensor<?xi32>) -> tensor<?xi32> {
  %q = linalg.div ins(%a, %b : tensor<?xi32>, tensor<?xi32>) outs(%o : tensor<?xi32>) -> tensor<?xi32>
  return %q : tensor<?xi32>
}

// Quotients are 2 or 3, -1, the least number and -1; remainders 1, 5, 0, 0.
// NUMBERS: result 0: i32[4], min -2.14748e+09, max 2, mean -5.36871e+08
// NUMBERS: result 1: i32[4], min 0, max 5, mean 1.5
// NUMBERS: result 2: i32[4], min -2.14748e+09, max 3, mean -5.36871e+08
func.func @by_zero() -> (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>) {
  %a = arith.constant dense<[5, 5, -2147483648, 0]> : tensor<4xi32>
  %b = arith.constant dense<[2, 0, -1, 0]> : tensor<4xi32>
  %zero = arith.constant 0 : i32
  %e = tensor.empty() : tensor<4xi32>
  // Nothing folds what comes from a loop.
  %z = linalg.map outs(%e : tensor<4xi32>) (%old: i32) {
    %i = linalg.index 0 : index
    %c = arith.index_cast %i : index to i32
    %n = arith.muli %c, %zero : i32
    linalg.yield %n : i32
  }
  %x = arith.addi %a, %z : tensor<4xi32>
  %y = arith.addi %b, %z : tensor<4xi32>
  %q = arith.divsi %x, %y : tensor<4xi32>
  %r = arith.remsi %x, %y : tensor<4xi32>
  %u = arith.ceildivsi %x, %y : tensor<4xi32>
  return %q, %r, %u : tensor<4xi32>, tensor<4xi32>, tensor<4xi32>
}
