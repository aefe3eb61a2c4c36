// A state that keeps one row, which every token of a window replaces.

// RUN: fovea-run %s --random --shape=1x2x7x8 --shape=1x2x7 --shape=1x2x7x8 --compare=reference | FileCheck %s
// RUN: fovea-run %s --random --shape=1x2x7x8 --shape=1x2x7 --shape=1x2x7x8 --compare=reference --target=gpu-sim | FileCheck %s
// CHECK-COUNT-6: agrees with the reference
// CHECK-NOT: differs

func.func @window(%q: tensor<1x2x?x8xf32>, %z: tensor<1x2x?xi32>, %v: tensor<1x2x?x8xf32>, %c: tensor<1x3x8xf32>)
    -> (tensor<1x2x?x8xf32>, tensor<1x2x3x8xf32>, tensor<1x2x3xi32>, tensor<1x2x1xi32>, tensor<1x2x1x8xf32>, tensor<i64>) {
  %m = tensor.empty() : tensor<1x2x3x8xf32>
  %n = tensor.empty() : tensor<1x2x3xi32>
  %kz = tensor.empty() : tensor<1x2x1xi32>
  %kv = tensor.empty() : tensor<1x2x1x8xf32>
  %p = tensor.empty() : tensor<i64>
  %zero = arith.constant 0 : i32
  %codes = linalg.fill ins(%zero : i32) outs(%z : tensor<1x2x?xi32>) -> tensor<1x2x?xi32>
  %r:6 = attn.vq ins(%q, %codes, %v, %c : tensor<1x2x?x8xf32>, tensor<1x2x?xi32>, tensor<1x2x?x8xf32>, tensor<1x3x8xf32>)
      outs(%q : tensor<1x2x?x8xf32>)
      next_state(%m, %n, %kz, %kv, %p : tensor<1x2x3x8xf32>, tensor<1x2x3xi32>, tensor<1x2x1xi32>, tensor<1x2x1x8xf32>, tensor<i64>)
      {block = 1 : i64, memory = 0 : i64, causal}
      -> tensor<1x2x?x8xf32>, tensor<1x2x3x8xf32>, tensor<1x2x3xi32>, tensor<1x2x1xi32>, tensor<1x2x1x8xf32>, tensor<i64>
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5
      : tensor<1x2x?x8xf32>, tensor<1x2x3x8xf32>, tensor<1x2x3xi32>, tensor<1x2x1xi32>, tensor<1x2x1x8xf32>, tensor<i64>
}
