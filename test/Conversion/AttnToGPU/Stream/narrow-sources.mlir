// RUN: fovea-opt %s --attn-narrow-sources | FileCheck %s

// Values that all heads of a group and all queries read are rounded once.
// CHECK-LABEL: func @attend
// CHECK-SAME: %[[K:[^:]*]]: tensor<1x2x512x64xbf16>, %[[V:[^:]*]]: tensor<1x2x512x64xf32>
// CHECK: %[[N:.*]] = arith.truncf %[[V]] : tensor<1x2x512x64xf32> to tensor<1x2x512x64xbf16>
// CHECK: source(%[[K]], %[[N]] : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xbf16>)
func.func @attend(%q: tensor<1x8x512x64xbf16>, %k: tensor<1x2x512x64xbf16>, %v: tensor<1x2x512x64xf32>) -> tensor<1x8x512x64xbf16> {
  %r = attn.stream query(%q : tensor<1x8x512x64xbf16>)
      source(%k, %v : tensor<1x2x512x64xbf16>, tensor<1x2x512x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x8x512x64xbf16>) {scale = 1.0 : f64} -> tensor<1x8x512x64xbf16>
  return %r : tensor<1x8x512x64xbf16>
}

// Blocks of 16 queries read values of their own: 4 heads, 64 queries.
// CHECK-LABEL: func @blocks
// CHECK-NOT: truncf
func.func @blocks(%q: tensor<1x8x512x64xbf16>, %k: tensor<1x2x64x64xbf16>, %v: tensor<1x2x32x64x64xf32>) -> tensor<1x8x512x64xbf16> {
  %r = attn.stream query(%q : tensor<1x8x512x64xbf16>)
      source(%k, %v : tensor<1x2x64x64xbf16>, tensor<1x2x32x64x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x8x512x64xbf16>) {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x8x512x64xbf16>
  return %r : tensor<1x8x512x64xbf16>
}

// Products are f32, because the result is.
// CHECK-LABEL: func @wide
// CHECK-NOT: truncf
func.func @wide(%q: tensor<1x1x512x64xf16>, %v: tensor<1x1x512x64xf32>) -> tensor<1x1x512x64xf32> {
  %r = attn.stream query(%q : tensor<1x1x512x64xf16>)
      source(%q, %v : tensor<1x1x512x64xf16>, tensor<1x1x512x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%v : tensor<1x1x512x64xf32>) {scale = 1.0 : f64} -> tensor<1x1x512x64xf32>
  return %r : tensor<1x1x512x64xf32>
}
