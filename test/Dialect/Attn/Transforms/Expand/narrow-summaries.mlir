// RUN: fovea-opt %s --attn-expand-patterns=auto-reduction=associative | FileCheck %s --check-prefix=WIDE
// RUN: fovea-opt %s --attn-expand-patterns="auto-reduction=associative narrow-summaries" | FileCheck %s --check-prefix=NARROW

// Summaries of narrow tokens are f32, unless the target multiplies one type only.

// WIDE-COUNT-2: attn.summarize {{.*}} -> tensor<1x1x8x16xf32>
// NARROW-COUNT-2: attn.summarize {{.*}} -> tensor<1x1x8x16xbf16>
func.func @multipole(%q: tensor<1x1x128x16xbf16>, %w: tensor<1x2x32x16xbf16>) -> tensor<1x1x128x16xbf16> {
  %out = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x128x16xbf16>, tensor<1x1x128x16xbf16>, tensor<1x1x128x16xbf16>)
      key_weights(%w : tensor<1x2x32x16xbf16>) value_weights(%w : tensor<1x2x32x16xbf16>)
      outs(%q : tensor<1x1x128x16xbf16>) {group = 32 : i64} -> tensor<1x1x128x16xbf16>
  return %out : tensor<1x1x128x16xbf16>
}

// So are means of codes, whose log counts stay f32.

// WIDE-LABEL: func.func @means
// WIDE: attn.codebook_scan {{.*}} -> tensor<1x1x4x6x16xf32>, tensor<1x1x4x6xi32>
// NARROW-LABEL: func.func @means
// NARROW: %[[E:.*]]:2 = attn.codebook_scan {{.*}} -> tensor<1x1x4x6x16xbf16>, tensor<1x1x4x6xi32>
// NARROW: %[[W:.*]] = attn.log_count {{.*}} -> tensor<1x1x4x6xf32>
// NARROW: source(%{{.*}}, %[[E]]#0 : tensor<1x1x6x16xbf16>, tensor<1x1x4x6x16xbf16>) log_weight(%[[W]]
func.func @means(%q: tensor<1x1x32x16xbf16>, %z: tensor<1x1x32xi32>, %c: tensor<1x6x16xbf16>) -> tensor<1x1x32x16xbf16> {
  %out = attn.vq ins(%q, %z, %q, %c : tensor<1x1x32x16xbf16>, tensor<1x1x32xi32>, tensor<1x1x32x16xbf16>, tensor<1x6x16xbf16>)
      outs(%q : tensor<1x1x32x16xbf16>) {block = 8 : i64, causal} -> tensor<1x1x32x16xbf16>
  return %out : tensor<1x1x32x16xbf16>
}

// The first entries are no results of the scan, which goes on from the one that `memory` blocks have left.

// NARROW-LABEL: func.func @memory
// NARROW: attn.codebook_scan {{.*}} tensor<1x1x6x16xf32>, tensor<1x1x6xi32>) {{.*}} -> tensor<1x1x3x6x16xbf16>, tensor<1x1x3x6xi32>
// NARROW-NOT: tensor<1x1x5x6x16xf32>
// NARROW: return
func.func @memory(%q: tensor<1x1x32x16xbf16>, %z: tensor<1x1x32xi32>, %c: tensor<1x6x16xbf16>, %b: tensor<1x1x32x16xbf16>)
    -> tensor<1x1x32x16xbf16> {
  %out = attn.vq ins(%q, %z, %q, %c : tensor<1x1x32x16xbf16>, tensor<1x1x32xi32>, tensor<1x1x32x16xbf16>, tensor<1x6x16xbf16>)
      bias(%b : tensor<1x1x32x16xbf16>) outs(%q : tensor<1x1x32x16xbf16>) {block = 8 : i64, causal} -> tensor<1x1x32x16xbf16>
  return %out : tensor<1x1x32x16xbf16>
}

// Products with a wide codebook are f32.

// NARROW-LABEL: func.func @codebook
// NARROW: attn.codebook_scan {{.*}} -> tensor<1x1x4x6x16xf32>, tensor<1x1x4x6xi32>
func.func @codebook(%q: tensor<1x1x32x16xbf16>, %z: tensor<1x1x32xi32>, %c: tensor<1x6x16xf32>) -> tensor<1x1x32x16xbf16> {
  %out = attn.vq ins(%q, %z, %q, %c : tensor<1x1x32x16xbf16>, tensor<1x1x32xi32>, tensor<1x1x32x16xbf16>, tensor<1x6x16xf32>)
      outs(%q : tensor<1x1x32x16xbf16>) {block = 8 : i64, causal} -> tensor<1x1x32x16xbf16>
  return %out : tensor<1x1x32x16xbf16>
}

// The next state is one of the entries.

// NARROW-LABEL: func.func @state
// NARROW: attn.codebook_scan {{.*}} -> tensor<1x1x3x6x16xf32>, tensor<1x1x3x6xi32>
func.func @state(%q: tensor<1x1x32x16xbf16>, %z: tensor<1x1x32xi32>, %c: tensor<1x6x16xbf16>,
                 %m: tensor<1x1x6x16xf32>, %n: tensor<1x1x6xi32>, %kz: tensor<1x1x16xi32>, %kv: tensor<1x1x16x16xbf16>, %p: tensor<i64>)
    -> (tensor<1x1x32x16xbf16>, tensor<1x1x6x16xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x16xbf16>, tensor<i64>) {
  %out:6 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x32x16xbf16>, tensor<1x1x32xi32>, tensor<1x1x32x16xbf16>, tensor<1x6x16xbf16>)
      outs(%q : tensor<1x1x32x16xbf16>)
      next_state(%m, %n, %kz, %kv, %p : tensor<1x1x6x16xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x16xbf16>, tensor<i64>)
      {block = 8 : i64, causal}
      -> tensor<1x1x32x16xbf16>, tensor<1x1x6x16xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x16xbf16>, tensor<i64>
  return %out#0, %out#1, %out#2, %out#3, %out#4, %out#5 : tensor<1x1x32x16xbf16>, tensor<1x1x6x16xf32>, tensor<1x1x6xi32>, tensor<1x1x16xi32>, tensor<1x1x16x16xbf16>, tensor<i64>
}
