// RUN: fovea-opt %s --convert-elementwise-to-linalg --attn-fuse-elementwise | FileCheck %s

// A chain becomes one loop nest.

// CHECK-LABEL: func.func @chain(
//       CHECK:   linalg.generic
//       CHECK:     arith.mulf
//       CHECK:     math.exp
//   CHECK-NOT:   linalg.generic
func.func @chain(%a: tensor<8x16xf32>, %b: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %0 = arith.mulf %a, %b : tensor<8x16xf32>
  %1 = math.exp %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}

// A product keeps its operands: the exponential is taken once an element.

// CHECK-LABEL: func.func @product(
//       CHECK:   %[[EXP:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   linalg.generic {{.*}} ins(%[[EXP]], %{{.*}} :
//   CHECK-NOT:     math.exp
#left = affine_map<(i, j, k) -> (i, k)>
#right = affine_map<(i, j, k) -> (k, j)>
#out = affine_map<(i, j, k) -> (i, j)>
func.func @product(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>,
                   %init: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = math.exp %a : tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#left, #right, #out],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%0, %b : tensor<8x16xf32>, tensor<16x4xf32>)
      outs(%init : tensor<8x4xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %2 = arith.mulf %x, %y : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// Nor is it taken again for every patch that an element is in.

// CHECK-LABEL: func.func @patches(
//       CHECK:   %[[EXP:.*]] = linalg.generic
//       CHECK:     math.exp
//       CHECK:   linalg.generic {{.*}} ins(%[[EXP]] :
//   CHECK-NOT:     math.exp
#window = affine_map<(i, j) -> (i + j)>
#identity = affine_map<(i, j) -> (i, j)>
func.func @patches(%a: tensor<18xf32>, %init: tensor<16x3xf32>) -> tensor<16x3xf32> {
  %0 = math.exp %a : tensor<18xf32>
  %1 = linalg.generic {indexing_maps = [#window, #identity], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<18xf32>) outs(%init : tensor<16x3xf32>) {
  ^bb0(%x: f32, %old: f32):
    linalg.yield %x : f32
  } -> tensor<16x3xf32>
  return %1 : tensor<16x3xf32>
}

// Numbers are widened by each user.

// CHECK-LABEL: func.func @widened(
//  CHECK-SAME:   %[[X:.*]]: tensor<8x16xf32>
//       CHECK:   linalg.generic {{.*}} ins(%[[X]] : tensor<8x16xf32>)
//       CHECK:     arith.extf
//       CHECK:   linalg.generic {{.*}} ins(%[[X]], %{{.*}} : tensor<8x16xf32>, tensor<8xf64>)
//       CHECK:     arith.extf
#row = affine_map<(i, j) -> (i)>
func.func @widened(%x: tensor<8x16xf32>, %zeros: tensor<8xf64>) -> tensor<8xf64> {
  %0 = arith.extf %x : tensor<8x16xf32> to tensor<8x16xf64>
  %1 = linalg.generic {indexing_maps = [#identity, #row], iterator_types = ["parallel", "reduction"]}
      ins(%0 : tensor<8x16xf64>) outs(%zeros : tensor<8xf64>) {
  ^bb0(%a: f64, %sum: f64):
    %3 = arith.addf %a, %sum : f64
    linalg.yield %3 : f64
  } -> tensor<8xf64>
  %2 = linalg.generic {indexing_maps = [#identity, #row, #row], iterator_types = ["parallel", "reduction"]}
      ins(%0, %1 : tensor<8x16xf64>, tensor<8xf64>) outs(%zeros : tensor<8xf64>) {
  ^bb0(%a: f64, %b: f64, %sum: f64):
    %3 = arith.subf %a, %b : f64
    %4 = arith.addf %3, %sum : f64
    linalg.yield %4 : f64
  } -> tensor<8xf64>
  return %2 : tensor<8xf64>
}
