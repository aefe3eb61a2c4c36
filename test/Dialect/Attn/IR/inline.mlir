// RUN: fovea-opt %s --inline | FileCheck %s

// A function that attends is a part of its callers, with the region of scores
// and its names.

// CHECK-NOT: func.func private
// CHECK-LABEL: func.func @layers
// CHECK-SAME: %[[X:.*]]: tensor<1x2x8x4xf32>, %[[SLOPES:.*]]: tensor<2xf32>)
// CHECK: %[[FIRST:.*]] = attn.dense ins(%[[X]], %[[X]], %[[X]] : {{.*}} score(%[[SLOPES]] :
// CHECK-NEXT: ^bb0(
// CHECK: attn.dense ins(%[[FIRST]], %[[FIRST]], %[[FIRST]] : {{.*}} score(%[[SLOPES]] :
// CHECK-NEXT: ^bb0(
// CHECK-NOT: call
func.func @layers(%x: tensor<1x2x8x4xf32>, %slopes: tensor<2xf32>) -> tensor<1x2x8x4xf32> {
  %0 = call @layer(%x, %slopes) : (tensor<1x2x8x4xf32>, tensor<2xf32>) -> tensor<1x2x8x4xf32>
  %1 = call @layer(%0, %slopes) : (tensor<1x2x8x4xf32>, tensor<2xf32>) -> tensor<1x2x8x4xf32>
  return %1 : tensor<1x2x8x4xf32>
}

func.func private @layer(%x: tensor<1x2x8x4xf32>, %slopes: tensor<2xf32>) -> tensor<1x2x8x4xf32> {
  %init = tensor.empty() : tensor<1x2x8x4xf32>
  %0 = attn.dense ins(%x, %x, %x : tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
    score(%slopes : tensor<2xf32>) {
    ^bb0(%score: f32, %batch: index, %head: index, %query: index, %key: index,
         %capture: tensor<2xf32>):
      %slope = tensor.extract %capture[%head] : tensor<2xf32>
      %distance = arith.subi %query, %key : index
      %integer = arith.index_cast %distance : index to i64
      %number = arith.sitofp %integer : i64 to f32
      %term = arith.mulf %slope, %number : f32
      %new = arith.subf %score, %term : f32
      attn.yield %new : f32
    }
    outs(%init : tensor<1x2x8x4xf32>) {causal, scale = 0.5 : f64} -> tensor<1x2x8x4xf32>
  return %0 : tensor<1x2x8x4xf32>
}
