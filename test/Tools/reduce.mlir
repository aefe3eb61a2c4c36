// RUN: fovea-reduce %s --reduction-tree='traversal-mode=0 test=%S/Inputs/has_dense.sh' | FileCheck %s
// CHECK: @kept
// CHECK-NOT: @dropped

func.func @dropped(%x: i32) -> i32 {
  %0 = arith.addi %x, %x : i32
  return %0 : i32
}
func.func @kept(%q: tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32> {
  %out = attn.dense
      ins(%q, %q, %q : tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>,
                       tensor<1x1x4x4xf32>)
      outs(%q : tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  return %out : tensor<1x1x4x4xf32>
}
