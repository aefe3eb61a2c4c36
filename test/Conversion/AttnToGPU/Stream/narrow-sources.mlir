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

// Gradients are rounded where they are summed, unless something else reads the sums.
// CHECK-LABEL: func @gradients
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x1x?x64xbf16>
// CHECK: %[[N:.*]] = tensor.dim %[[Q]]
// CHECK: %[[R:.*]] = tensor.empty(%[[N]]) : tensor<1x1x?x64xbf16>
// CHECK: %[[B:.*]]:3 = attn.stream_backward
// CHECK: -> tensor<1x1x?x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xbf16>
// CHECK: %[[K:.*]] = arith.truncf %[[B]]#1
// CHECK: return %[[B]]#0, %[[K]], %[[B]]#1, %[[B]]#2
func.func @gradients(%q: tensor<1x1x?x64xbf16>, %k: tensor<1x1x32x64xbf16>, %l: tensor<1x1x?xf32>)
    -> (tensor<1x1x?x64xbf16>, tensor<1x1x32x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xbf16>) {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x1x?x64xbf16>
  %iq = tensor.empty(%n) : tensor<1x1x?x64xf32>
  %ik = tensor.empty() : tensor<1x1x32x64xf32>
  %iv = tensor.empty() : tensor<1x1x32x64xf32>
  %r:3 = attn.stream_backward query(%q : tensor<1x1x?x64xbf16>)
      source(%k, %k : tensor<1x1x32x64xbf16>, tensor<1x1x32x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : tensor<1x1x?x64xbf16>, tensor<1x1x?xf32>) gradient(%q : tensor<1x1x?x64xbf16>)
      outs(%iq, %ik, %iv : tensor<1x1x?x64xf32>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>) {scale = 1.0 : f64}
      -> tensor<1x1x?x64xf32>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>
  %dq = arith.truncf %r#0 : tensor<1x1x?x64xf32> to tensor<1x1x?x64xbf16>
  %dk = arith.truncf %r#1 : tensor<1x1x32x64xf32> to tensor<1x1x32x64xbf16>
  %dv = arith.truncf %r#2 : tensor<1x1x32x64xf32> to tensor<1x1x32x64xbf16>
  return %dq, %dk, %r#1, %dv : tensor<1x1x?x64xbf16>, tensor<1x1x32x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xbf16>
}

// Sums of rows that are f32 have no other type.
// CHECK-LABEL: func @gradients_of_wide
// CHECK: -> tensor<1x1x64x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>
// CHECK: truncf
func.func @gradients_of_wide(%q: tensor<1x1x64x64xbf16>, %k: tensor<1x1x32x64xf32>, %l: tensor<1x1x64xf32>) -> tensor<1x1x32x64xbf16> {
  %ik = tensor.empty() : tensor<1x1x32x64xf32>
  %r:3 = attn.stream_backward query(%q : tensor<1x1x64x64xbf16>)
      source(%k, %k : tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : tensor<1x1x64x64xbf16>, tensor<1x1x64xf32>) gradient(%q : tensor<1x1x64x64xbf16>)
      outs(%q, %ik, %ik : tensor<1x1x64x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>) {scale = 1.0 : f64}
      -> tensor<1x1x64x64xbf16>, tensor<1x1x32x64xf32>, tensor<1x1x32x64xf32>
  %dk = arith.truncf %r#1 : tensor<1x1x32x64xf32> to tensor<1x1x32x64xbf16>
  return %dk : tensor<1x1x32x64xbf16>
}

// Gradients of weights of summaries that begin with zeros are rounded where they are summed, others behind it.
// CHECK-LABEL: func @weights
// CHECK-SAME: %[[W:[^:]*]]: tensor<1x2x16x64xbf16>
// CHECK: %[[E:.*]] = tensor.empty() : tensor<1x2x16x64xbf16>
// CHECK: %[[Z:.*]] = linalg.fill ins(%{{.*}} : bf16) outs(%[[E]]
// CHECK: %[[A:.*]]:2 = attn.summarize_backward {{.*}} outs(%{{.*}}, %[[Z]] :
// CHECK: %[[B:.*]]:2 = attn.summarize_backward
// CHECK: %[[T:.*]] = arith.truncf %[[B]]#1
// CHECK: return %[[B]]#0, %[[A]]#1, %[[T]]
func.func @weights(%x: tensor<1x1x32x64xbf16>, %dx: tensor<1x1x32x64xf32>, %w: tensor<1x2x16x64xbf16>, %d: tensor<1x1x4x64xf32>,
                   %start: tensor<1x2x16x64xf32>) -> (tensor<1x1x32x64xf32>, tensor<1x2x16x64xbf16>, tensor<1x2x16x64xbf16>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2x16x64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2x16x64xf32>) -> tensor<1x2x16x64xf32>
  %a:2 = attn.summarize_backward ins(%x : tensor<1x1x32x64xbf16>) weights(%w : tensor<1x2x16x64xbf16>) gradient(%d : tensor<1x1x4x64xf32>)
      outs(%dx, %z : tensor<1x1x32x64xf32>, tensor<1x2x16x64xf32>) -> tensor<1x1x32x64xf32>, tensor<1x2x16x64xf32>
  %b:2 = attn.summarize_backward ins(%x : tensor<1x1x32x64xbf16>) weights(%w : tensor<1x2x16x64xbf16>) gradient(%d : tensor<1x1x4x64xf32>)
      outs(%a#0, %start : tensor<1x1x32x64xf32>, tensor<1x2x16x64xf32>) -> tensor<1x1x32x64xf32>, tensor<1x2x16x64xf32>
  %ra = arith.truncf %a#1 : tensor<1x2x16x64xf32> to tensor<1x2x16x64xbf16>
  %rb = arith.truncf %b#1 : tensor<1x2x16x64xf32> to tensor<1x2x16x64xbf16>
  return %b#0, %ra, %rb : tensor<1x1x32x64xf32>, tensor<1x2x16x64xbf16>, tensor<1x2x16x64xbf16>
}
