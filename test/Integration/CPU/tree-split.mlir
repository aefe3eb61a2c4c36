// Choosing among many equal scores, NaN and minus infinity, in both types,
// against the reference.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=single --target=cpu --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=single --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=double --target=cpu --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=double --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=one --target=cpu --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=one --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

#map = affine_map<(b, c) -> (b, c)>

// Numbers in steps of a quarter; zeros become NaN, and the least ones minus infinity.
func.func private @spoil(%s: tensor<3x67xf32>) -> tensor<3x67xf32> {
  %0 = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel"]}
      outs(%s : tensor<3x67xf32>) {
  ^bb0(%x: f32):
    %four = arith.constant 4.0 : f32
    %zero = arith.constant 0.0 : f32
    // Sums with it are whole numbers.
    %magic = arith.constant 12582912.0 : f32
    %infinity = arith.constant 0x7F800000 : f32
    %least = arith.constant -0.5 : f32
    %0 = arith.mulf %x, %four : f32
    %a = arith.addf %0, %magic : f32
    %1 = arith.subf %a, %magic : f32
    %2 = arith.divf %1, %four : f32
    %3 = arith.cmpf olt, %2, %least : f32
    %4 = arith.subf %zero, %infinity : f32
    %5 = arith.select %3, %4, %2 : f32
    %6 = arith.divf %2, %2 : f32
    %7 = arith.mulf %5, %6 : f32
    linalg.yield %7 : f32
  } -> tensor<3x67xf32>
  return %0 : tensor<3x67xf32>
}

func.func @single(%s: tensor<3x67xf32>) -> (tensor<3x105xi32>, tensor<3x105xi32>, tensor<3x57xi32>) {
  %scores = call @spoil(%s) : (tensor<3x67xf32>) -> tensor<3x67xf32>
  %k = tensor.empty() : tensor<3x105xi32>
  %c = tensor.empty() : tensor<3x57xi32>
  %r:3 = attn.tree_split scores(%scores : tensor<3x67xf32>) outs(%k, %k, %c : tensor<3x105xi32>, tensor<3x105xi32>, tensor<3x57xi32>)
      {shape = #attn.tree<ratio = 3, levels = 2>, at = 2 : i64, split = 19 : i64}
      -> tensor<3x105xi32>, tensor<3x105xi32>, tensor<3x57xi32>
  return %r#0, %r#1, %r#2 : tensor<3x105xi32>, tensor<3x105xi32>, tensor<3x57xi32>
}

// Nearly all are split, so that minus infinity is the least score of some.
func.func @double(%s: tensor<3x67xf32>) -> (tensor<3x129xi32>, tensor<3x129xi32>, tensor<3x124xi32>) {
  %narrow = call @spoil(%s) : (tensor<3x67xf32>) -> tensor<3x67xf32>
  %scores = arith.extf %narrow : tensor<3x67xf32> to tensor<3x67xf64>
  %k = tensor.empty() : tensor<3x129xi32>
  %c = tensor.empty() : tensor<3x124xi32>
  %r:3 = attn.tree_split scores(%scores : tensor<3x67xf64>) outs(%k, %k, %c : tensor<3x129xi32>, tensor<3x129xi32>, tensor<3x124xi32>)
      {shape = #attn.tree<ratio = 2, levels = 1>, at = 1 : i64, split = 62 : i64}
      -> tensor<3x129xi32>, tensor<3x129xi32>, tensor<3x124xi32>
  return %r#0, %r#1, %r#2 : tensor<3x129xi32>, tensor<3x129xi32>, tensor<3x124xi32>
}

func.func @one(%s: tensor<2x1xf32>) -> (tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>) {
  %k = tensor.empty() : tensor<2x2xi32>
  %r:3 = attn.tree_split scores(%s : tensor<2x1xf32>) outs(%k, %k, %k : tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>)
      {shape = #attn.tree<ratio = 2, levels = 1>, at = 1 : i64, split = 1 : i64}
      -> tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>
  return %r#0, %r#1, %r#2 : tensor<2x2xi32>, tensor<2x2xi32>, tensor<2x2xi32>
}
