// RUN: fovea-opt %s --attn-expand-patterns | FileCheck %s --check-prefix=WIDE
// RUN: fovea-opt %s --attn-expand-patterns=narrow-summaries | FileCheck %s --check-prefix=NARROW

// Summaries of narrow tokens are f32, unless the target multiplies one type only.

// WIDE-COUNT-2: attn.summarize {{.*}} -> tensor<1x1x8x16xf32>
// NARROW-COUNT-2: attn.summarize {{.*}} -> tensor<1x1x8x16xbf16>
func.func @multipole(%q: tensor<1x1x128x16xbf16>, %w: tensor<1x2x32x16xbf16>) -> tensor<1x1x128x16xbf16> {
  %out = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x128x16xbf16>, tensor<1x1x128x16xbf16>, tensor<1x1x128x16xbf16>)
      key_weights(%w : tensor<1x2x32x16xbf16>) value_weights(%w : tensor<1x2x32x16xbf16>)
      outs(%q : tensor<1x1x128x16xbf16>) {group = 32 : i64} -> tensor<1x1x128x16xbf16>
  return %out : tensor<1x1x128x16xbf16>
}
