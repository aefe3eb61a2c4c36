// RUN: fovea-opt %s --attn-expand-patterns | FileCheck %s

// The example of the pass description.

// CHECK: #[[$ALL:.+]] = affine_map<(d0)[s0, s1] -> (0, s0)>
// CHECK-LABEL: func @doctest
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: {{.*}}, %[[V:[a-z0-9]+]]: {{.*}}, %[[O:[a-z0-9]+]]: {{.*}})
// CHECK-NEXT: %[[OUT:.+]] = attn.stream query(%[[Q]] : tensor<1x8x512x64xf32>)
// CHECK-NEXT:   source(%[[K]], %[[V]] : tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>) ranges [#[[$ALL]]] mask <causal>
// CHECK-NEXT:   outs(%[[O]] : tensor<1x8x512x64xf32>) {block = 0 : i64, scale = 1.250000e-01 : f64} -> tensor<1x8x512x64xf32>
// CHECK-NEXT: return %[[OUT]]
func.func @doctest(%q: tensor<1x8x512x64xf32>, %k: tensor<1x2x512x64xf32>,
                   %v: tensor<1x2x512x64xf32>, %o: tensor<1x8x512x64xf32>)
    -> tensor<1x8x512x64xf32> {
  %out = attn.dense
      ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
      outs(%o : tensor<1x8x512x64xf32>)
      {mask = #attn.mask<causal>} -> tensor<1x8x512x64xf32>
  return %out : tensor<1x8x512x64xf32>
}
