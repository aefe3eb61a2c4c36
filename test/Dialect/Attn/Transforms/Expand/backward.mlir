// RUN: fovea-opt %s --attn-expand-patterns --canonicalize | FileCheck %s

// CHECK-DAG: #[[$ALL:.*]] = affine_map<(d0)[s0, s1] -> (0, s0)>
// CHECK-DAG: #[[$NEAR:.*]] = affine_map<(d0)[s0, s1] -> (d0 * 4 - 4, d0 * 4 + 4)>

// Narrow gradients are summed in f32 and rounded behind; one that is f32 is not.
// CHECK-LABEL: func @dense(
// CHECK: %[[SUMS:.*]] = tensor.empty() : tensor<1x1x8x4xf32>
// CHECK: %[[R:.*]]:3 = attn.stream_backward query(%{{.*}} : tensor<1x1x8x4xbf16>)
// CHECK-NEXT: ranges [#[[$ALL]]] mask <causal>
// CHECK-NEXT: forward
// CHECK-NEXT: outs(%[[SUMS]], %{{.*}}, %{{.*}} : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>)
// CHECK: %[[Q:.*]] = arith.truncf %[[R]]#0 : tensor<1x1x8x4xf32> to tensor<1x1x8x4xbf16>
// CHECK: return %[[Q]], %[[R]]#1
func.func @dense(%q: tensor<1x1x8x4xbf16>, %l: tensor<1x1x8xf32>, %dk: tensor<1x1x8x4xf32>) -> (tensor<1x1x8x4xbf16>, tensor<1x1x8x4xf32>) {
  %r:3 = attn.dense_backward ins(%q, %q, %q : tensor<1x1x8x4xbf16>, tensor<1x1x8x4xbf16>, tensor<1x1x8x4xbf16>)
      forward(%q, %l : tensor<1x1x8x4xbf16>, tensor<1x1x8xf32>) gradient(%q : tensor<1x1x8x4xbf16>)
      outs(%q, %dk, %q : tensor<1x1x8x4xbf16>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xbf16>) {mask = #attn.mask<causal>}
      -> tensor<1x1x8x4xbf16>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xbf16>
  return %r#0, %r#1 : tensor<1x1x8x4xbf16>, tensor<1x1x8x4xf32>
}

// The sources of the forward; the gradients of summaries go back to the tokens,
// on top of those of the near field, and to the weights.
// CHECK-LABEL: func @fast_multipole(
// CHECK-COUNT-2: attn.summarize ins
// CHECK: %[[R:.*]]:5 = attn.stream_backward
// CHECK: ranges [#[[$NEAR]]] mask <causal>
// CHECK: %[[K:.*]]:2 = attn.summarize_backward ins(%[[KEY:.*]] : tensor<1x1x16x3xf32>) weights(%[[KW:.*]] : tensor<1x2x4x3xf32>)
// CHECK-SAME: gradient(%[[R]]#2 : tensor<1x1x8x3xf32>) outs(%[[R]]#1, %[[ZERO:.*]] : tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>)
// CHECK: %[[V:.*]]:2 = attn.summarize_backward
// CHECK-SAME: gradient(%[[R]]#4 : tensor<1x1x8x3xf32>) outs(%[[R]]#3, %{{.*}} : tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>)
// CHECK: return %[[R]]#0, %[[K]]#0, %[[V]]#0, %[[K]]#1, %[[V]]#1
func.func @fast_multipole(%q: tensor<1x1x16x3xf32>, %k: tensor<1x1x16x3xf32>, %v: tensor<1x1x16x3xf32>, %kw: tensor<1x2x4x3xf32>, %vw: tensor<1x2x4x3xf32>,
    %l: tensor<1x1x16xf32>) -> (tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>) {
  %x = tensor.empty() : tensor<1x1x16x3xf32>
  %w = tensor.empty() : tensor<1x2x4x3xf32>
  %r:5 = attn.fast_multipole_backward ins(%q, %k, %v : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      key_weights(%kw : tensor<1x2x4x3xf32>) value_weights(%vw : tensor<1x2x4x3xf32>)
      forward(%q, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%v : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>) {group = 4 : i64, causal}
      -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return %r#0, %r#1, %r#2, %r#3, %r#4 : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
}

// The linear form: its parts once more, and the gradient of a row of a level is
// the sum over the tokens that it stands for.
// CHECK-LABEL: func @fast_multipole_linear(
// CHECK-DAG: arith.constant dense<1.000000e+00> : tensor<1x1x2x3xf32>
// CHECK: attn.stream query
// CHECK: attn.stream_backward query(%{{.*}} : tensor<1x1x16x3xf32>)
// CHECK: %[[ROWS:.*]] = attn.summarize ins(%{{.*}} : tensor<1x1x16x3xf32>) weights(%{{.*}} : tensor<1x1x2x3xf32>)
// CHECK: attn.stream query
// CHECK: attn.stream_backward query(%{{.*}} : tensor<1x1x8x3xf32>)
// CHECK: gradient(%[[ROWS]] : tensor<1x1x8x3xf32>)
// CHECK-COUNT-3: attn.summarize_backward
func.func @fast_multipole_linear(%q: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>) -> (tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) {
  %r:6 = attn.fast_multipole_linear_backward ins(%q, %q, %q : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      query_weights(%w : tensor<1x2x4x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      gradient(%q : tensor<1x1x16x3xf32>)
      outs(%q, %q, %q : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      d_query_weights(%w : tensor<1x2x4x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>) {group = 4 : i64}
      -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return %r#0, %r#1, %r#2 : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>
}
