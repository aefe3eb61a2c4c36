// RUN: fovea-opt %s --pass-pipeline='builtin.module(func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,attn-raise),canonicalize)' \
// RUN:   | FileCheck %s

// TOSA divides by a reciprocal.
// CHECK-LABEL: func.func @tosa(
// CHECK-NOT:     math.exp
// CHECK:         attn.dense {{.*}} {scale = 1.000000e+00 : f64} -> tensor<4x1x12x8xf32>
func.func @tosa(%q: tensor<4x12x8xf32>, %k: tensor<4x8x12xf32>, %v: tensor<4x12x8xf32>) -> tensor<4x12x8xf32> {
  %z = "tosa.const"() {values = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
  %s = tosa.matmul %q, %k, %z, %z : (tensor<4x12x8xf32>, tensor<4x8x12xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<4x12x12xf32>
  %m = tosa.reduce_max %s {axis = 2 : i32} : (tensor<4x12x12xf32>) -> tensor<4x12x1xf32>
  %d = tosa.sub %s, %m : (tensor<4x12x12xf32>, tensor<4x12x1xf32>) -> tensor<4x12x12xf32>
  %e = tosa.exp %d : (tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %l = tosa.reduce_sum %e {axis = 2 : i32} : (tensor<4x12x12xf32>) -> tensor<4x12x1xf32>
  %r = tosa.reciprocal %l : (tensor<4x12x1xf32>) -> tensor<4x12x1xf32>
  %sh = "tosa.const"() {values = dense<0> : tensor<1xi8>} : () -> tensor<1xi8>
  %p = tosa.mul %e, %r, %sh : (tensor<4x12x12xf32>, tensor<4x12x1xf32>, tensor<1xi8>) -> tensor<4x12x12xf32>
  %o = tosa.matmul %p, %v, %z, %z : (tensor<4x12x12xf32>, tensor<4x12x8xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<4x12x8xf32>
  return %o : tensor<4x12x8xf32>
}
