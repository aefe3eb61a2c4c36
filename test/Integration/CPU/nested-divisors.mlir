// Ranges whose lengths repeat themselves after as many blocks as all divisors of an
// expression say together: room is made for the longest one.

// RUN: fovea-run %s --random --shape=1x2x64x16 --shape=1x1x64x16 --compare=reference | FileCheck %s
// RUN: fovea-run %s --random --shape=1x2x64x16 --shape=1x1x64x16 --compare=reference --target=gpu-sim | FileCheck %s
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs

// Lengths 8, 8, 4, 4, 0, 0, 12, 12 of blocks, again and again.
func.func @nested(%q: tensor<1x2x?x16xf32>, %k: tensor<1x1x?x16xf32>) -> tensor<1x2x?x16xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x2x?x16xf32>
  %o = tensor.empty(%n) : tensor<1x2x?x16xf32>
  %r = attn.stream query(%q : tensor<1x2x?x16xf32>)
      source(%k, %k : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 2, b * 2 + (((b floordiv 2) * 3 + 2) mod 4) * 4)>]
      outs(%o : tensor<1x2x?x16xf32>) {block = 4 : i64, scale = 0.25 : f64} -> tensor<1x2x?x16xf32>
  return %r : tensor<1x2x?x16xf32>
}
