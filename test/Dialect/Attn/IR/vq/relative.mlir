// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --canonicalize | FileCheck %s --check-prefix=SIMPLE

// CHECK-LABEL: func @relative(
// CHECK: relative(%{{.*}}, %{{.*}} : tensor<1x33x8xf32>, tensor<4x8xf32>) distance_bias(%{{.*}} : tensor<4x33xf32>) outs
// SIMPLE-LABEL: func @relative(
// SIMPLE: relative(%{{.*}}) distance_bias(%{{.*}}) outs(%{{.*}}) {block = 16
func.func @relative(%q: tensor<2x4x8x8xf32>, %z: tensor<2x2x8xi32>, %v: tensor<2x2x8x8xf32>, %c: tensor<2x5x8xf32>,
    %r: tensor<1x33x8xf32>, %u: tensor<4x8xf32>, %t: tensor<4x33xf32>) -> tensor<2x4x8x8xf32> {
  %0 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x8x8xf32>, tensor<2x2x8xi32>, tensor<2x2x8x8xf32>, tensor<2x5x8xf32>)
      relative(%r, %u : tensor<1x33x8xf32>, tensor<4x8xf32>) distance_bias(%t : tensor<4x33xf32>)
      outs(%q : tensor<2x4x8x8xf32>) {block = 16 : i64, causal} -> tensor<2x4x8x8xf32>
  return %0 : tensor<2x4x8x8xf32>
}

// Terms that are zero; blocks are free then.
// SIMPLE-LABEL: func @zero(
// SIMPLE-NOT: distance_bias
// SIMPLE: block = 8
func.func @zero(%q: tensor<2x4x8x8xf32>, %z: tensor<2x2x8xi32>, %v: tensor<2x2x8x8xf32>, %c: tensor<2x5x8xf32>)
    -> tensor<2x4x8x8xf32> {
  %t = arith.constant dense<0.0> : tensor<4x33xf32>
  %0 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x8x8xf32>, tensor<2x2x8xi32>, tensor<2x2x8x8xf32>, tensor<2x5x8xf32>)
      distance_bias(%t : tensor<4x33xf32>)
      outs(%q : tensor<2x4x8x8xf32>) {block = 16 : i64, causal} -> tensor<2x4x8x8xf32>
  return %0 : tensor<2x4x8x8xf32>
}

// CHECK-LABEL: func @backward(
// CHECK: relative(%{{.*}}) distance_bias(%{{.*}}) forward
// CHECK-SAME: d_relative(%{{.*}}, %{{.*}} : tensor<1x33x8xf32>, tensor<4x8xf32>) d_distance_bias(%{{.*}} : tensor<4x33xf32>)
func.func @backward(%q: tensor<2x4x8x8xf32>, %z: tensor<2x2x8xi32>, %v: tensor<2x2x8x8xf32>, %c: tensor<2x5x8xf32>, %l: tensor<2x4x8xf32>,
    %r: tensor<1x33x8xf32>, %u: tensor<4x8xf32>, %t: tensor<4x33xf32>) -> tensor<1x33x8xf32> {
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x8x8xf32>, tensor<2x2x8xi32>, tensor<2x2x8x8xf32>, tensor<2x5x8xf32>)
      relative(%r, %u : tensor<1x33x8xf32>, tensor<4x8xf32>) distance_bias(%t : tensor<4x33xf32>)
      forward(%q, %l : tensor<2x4x8x8xf32>, tensor<2x4x8xf32>) gradient(%q : tensor<2x4x8x8xf32>)
      outs(%q, %v, %v : tensor<2x4x8x8xf32>, tensor<2x2x8x8xf32>, tensor<2x2x8x8xf32>)
      d_relative(%r, %u : tensor<1x33x8xf32>, tensor<4x8xf32>) d_distance_bias(%t : tensor<4x33xf32>)
      {block = 16 : i64, causal}
      -> tensor<2x4x8x8xf32>, tensor<2x2x8x8xf32>, tensor<2x2x8x8xf32>, tensor<1x33x8xf32>, tensor<4x8xf32>, tensor<4x33xf32>
  return %0#3 : tensor<1x33x8xf32>
}
