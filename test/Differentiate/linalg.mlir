// RUN: fovea-opt %s --split-input-file --attn-differentiate="recompute=false" --canonicalize | FileCheck %s

// What is broadcast is summed.

// CHECK-LABEL: func.func @bias_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
//       CHECK:   %[[DB:.*]] = linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%[[D]]
//       CHECK:     arith.addf
//       CHECK:   return %[[D]], %[[DB]]
func.func @bias(%x: tensor<4x8xf32>, %b: tensor<8xf32>) -> tensor<4x8xf32> {
  %init = tensor.empty() : tensor<4x8xf32>
  %wide = linalg.broadcast ins(%b : tensor<8xf32>) outs(%init : tensor<4x8xf32>) dimensions = [0]
  %sum = linalg.add ins(%x, %wide : tensor<4x8xf32>, tensor<4x8xf32>)
      outs(%init : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %sum : tensor<4x8xf32>
}

// -----

// What is summed is broadcast; a sum starts from what it is given.

// CHECK-DAG:   #[[$ROW:.*]] = affine_map<(d0, d1) -> (d0)>
// CHECK-DAG:   #[[$ALL:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-LABEL: func.func @sum_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
//       CHECK:   %[[DX:.*]] = linalg.generic {indexing_maps = [#[[$ROW]], #[[$ALL]]], iterator_types = ["parallel", "parallel"]} ins(%[[D]]
//       CHECK:   return %[[DX]], %[[D]]
func.func @sum(%x: tensor<4x8xf32>, %start: tensor<4xf32>) -> tensor<4xf32> {
  %sum = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%start : tensor<4xf32>) dimensions = [1]
      (%in: f32, %out: f32) {
        %0 = arith.addf %in, %out : f32
        linalg.yield %0 : f32
      }
  return %sum : tensor<4xf32>
}

// -----

// Equal maxima share the adjoint.

// CHECK-LABEL: func.func @maximum_vjp(
//  CHECK-SAME:     %[[X:[a-z0-9]*]]: tensor<4x8xf32>, %[[D:[a-z0-9]*]]: tensor<4xf32>)
//       CHECK:   %[[MAX:.*]] = linalg.reduce ins(%[[X]]
//       CHECK:   %[[TIES:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[MAX]] :
//       CHECK:     arith.cmpf oeq
//       CHECK:   %[[DX:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[D]], %[[MAX]], %[[TIES]] :
//       CHECK:     arith.divf
//       CHECK:     arith.cmpf oeq
//       CHECK:     arith.select
//       CHECK:   return %[[DX]]
func.func @maximum(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %low = arith.constant dense<0xFF800000> : tensor<4xf32>
  %max = linalg.reduce ins(%x : tensor<4x8xf32>) outs(%low : tensor<4xf32>) dimensions = [1]
      (%in: f32, %out: f32) {
        %0 = arith.maximumf %in, %out : f32
        linalg.yield %0 : f32
      }
  return %max : tensor<4xf32>
}

// -----

// The map of an input becomes the map of its adjoint, and the other way round.

// CHECK-DAG:   #[[$OUT:.*]] = affine_map<(d0, d1) -> (d0, d1)>
// CHECK-DAG:   #[[$IN:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK-LABEL: func.func @transpose_vjp(
//       CHECK:   linalg.generic {indexing_maps = [#[[$OUT]], #[[$IN]]], iterator_types = ["parallel", "parallel"]}
//  CHECK-SAME:       ins(%{{.*}} : tensor<8x4xf32>) outs(%{{.*}} : tensor<4x8xf32>)
func.func @transpose(%x: tensor<4x8xf32>) -> tensor<8x4xf32> {
  %init = tensor.empty() : tensor<8x4xf32>
  %y = linalg.transpose ins(%x : tensor<4x8xf32>) outs(%init : tensor<8x4xf32>) permutation = [1, 0]
  return %y : tensor<8x4xf32>
}

// -----

// Narrow data: products and sums in f32, rounded once at the end.

// CHECK-LABEL: func.func @narrow_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<4x16xbf16>) -> (tensor<4x8xbf16>, tensor<8x16xbf16>)
//       CHECK:   %[[WIDE:.*]] = arith.extf %[[D]]
//       CHECK:   %[[DX:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x8xf32>)
//       CHECK:     arith.extf
//  CHECK-NEXT:     arith.mulf %{{.*}} : f32
//  CHECK-NEXT:     arith.addf %{{.*}} : f32
//       CHECK:   %[[DW:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<8x16xf32>)
//       CHECK:   arith.truncf %[[DX]]
//       CHECK:   arith.truncf %[[DW]]
func.func @narrow(%x: tensor<4x8xbf16>, %w: tensor<8x16xbf16>) -> tensor<4x16xbf16> {
  %zero = arith.constant 0.0 : bf16
  %empty = tensor.empty() : tensor<4x16xbf16>
  %init = linalg.fill ins(%zero : bf16) outs(%empty : tensor<4x16xbf16>) -> tensor<4x16xbf16>
  %y = linalg.matmul ins(%x, %w : tensor<4x8xbf16>, tensor<8x16xbf16>)
      outs(%init : tensor<4x16xbf16>) -> tensor<4x16xbf16>
  return %y : tensor<4x16xbf16>
}

// -----

// What adds to its output does so once, not for each element that reads it from a dimension of extent 1.

// CHECK-LABEL: func.func @accumulate_vjp(
//       CHECK:   %[[SUM:.*]] = linalg.generic {{.*}} outs(%{{.*}} : tensor<4x1xf32>)
//       CHECK:     arith.addf
//       CHECK:   linalg.generic {{.*}} ins(%[[SUM]] : tensor<4x1xf32>) outs(%{{.*}} : tensor<4x8xf32>)
//       CHECK:     math.exp
func.func @accumulate(%x: tensor<4x1xf32>, %start: tensor<4x1xf32>) -> tensor<4xf32> {
  %sum = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x1xf32>) outs(%start : tensor<4x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = arith.addf %in, %out : f32
    linalg.yield %0 : f32
  } -> tensor<4x1xf32>
  %init = tensor.empty() : tensor<4x8xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, 0)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%sum : tensor<4x1xf32>) outs(%init : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %0 = math.exp %in : f32
    linalg.yield %0 : f32
  } -> tensor<4x8xf32>
  %low = arith.constant dense<0xFF800000> : tensor<4xf32>
  %max = linalg.reduce ins(%wide : tensor<4x8xf32>) outs(%low : tensor<4xf32>) dimensions = [1]
      (%in: f32, %out: f32) {
        %0 = arith.maximumf %in, %out : f32
        linalg.yield %0 : f32
      }
  return %max : tensor<4xf32>
}
