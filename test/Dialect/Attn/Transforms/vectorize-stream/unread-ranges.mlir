// RUN: fovea-opt %s --attn-cpu-pipeline | FileCheck %s

// The only query block reads no row of the second source, which then has no
// table of rows.
// CHECK-LABEL: llvm.func @unread
func.func @unread(%q: tensor<1x1x64x16xf32>, %s: tensor<1x1x4x16xf32>, %w: tensor<1x1x4xf32>, %o: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
  %0 = attn.stream query(%q : tensor<1x1x64x16xf32>)
      source(%q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%s, %s : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>) log_weight(%w : tensor<1x1x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
      outs(%o : tensor<1x1x64x16xf32>) {block = 64 : i64, scale = 0.25} -> tensor<1x1x64x16xf32>
  return %0 : tensor<1x1x64x16xf32>
}
