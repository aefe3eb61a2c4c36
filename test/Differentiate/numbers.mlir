// RUN: fovea-opt %s --attn-differentiate="function=scalars" --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @scalars_vjp(
//  CHECK-SAME:     %[[A:.*]]: f32, %[[B:.*]]: f32, %[[D:.*]]: f32) -> (f32, f32)
//       CHECK:   %[[P:.*]] = arith.mulf %[[A]], %[[B]]
//       CHECK:   %[[COS:.*]] = math.cos %[[P]]
//       CHECK:   %[[DP:.*]] = arith.mulf %[[D]], %[[COS]]
//       CHECK:   %[[TERM:.*]] = arith.mulf %[[DP]], %[[B]]
//       CHECK:   %[[DA:.*]] = arith.addf %[[D]], %[[TERM]]
//       CHECK:   %[[DB:.*]] = arith.mulf %[[DP]], %[[A]]
//       CHECK:   return %[[DA]], %[[DB]]
func.func @scalars(%a: f32, %b: f32) -> f32 {
  %0 = arith.mulf %a, %b : f32
  %1 = math.sin %0 : f32
  %2 = arith.addf %1, %a : f32
  return %2 : f32
}
