// RUN: fovea-opt %s --canonicalize | FileCheck %s

// A multipole without levels is dense.
// CHECK-LABEL: func @no_levels(
// CHECK: attn.dense_backward
// CHECK-SAME: mask = #attn.mask<causal>
func.func @no_levels(%x: tensor<1x1x8x3xf32>, %l: tensor<1x1x8xf32>) -> tensor<1x1x8x3xf32> {
  %r:3 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>)
      forward(%x, %l : tensor<1x1x8x3xf32>, tensor<1x1x8xf32>) gradient(%x : tensor<1x1x8x3xf32>)
      outs(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) {group = 4 : i64, causal}
      -> tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>
  return %r#0 : tensor<1x1x8x3xf32>
}

// A bias of zero goes, unless its gradient is wanted; so does a mask that
// admits everything.
// CHECK-LABEL: func @zero_terms(
// CHECK: attn.dense_backward
// CHECK-NOT: bias
// CHECK-NOT: mask
// CHECK-LABEL: func @wanted_terms(
// CHECK: attn.dense_backward
// CHECK-SAME: bias(
// CHECK-SAME: d_bias(
func.func @zero_terms(%x: tensor<1x1x8x3xf32>, %l: tensor<1x1x8xf32>) -> tensor<1x1x8x3xf32> {
  %b = arith.constant dense<0.0> : tensor<1x1x8x8xf32>
  %r:3 = attn.dense_backward ins(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) bias(%b : tensor<1x1x8x8xf32>)
      forward(%x, %l : tensor<1x1x8x3xf32>, tensor<1x1x8xf32>) gradient(%x : tensor<1x1x8x3xf32>)
      outs(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) {mask = #attn.mask<window = 8>}
      -> tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>
  return %r#0 : tensor<1x1x8x3xf32>
}
func.func @wanted_terms(%x: tensor<1x1x8x3xf32>, %l: tensor<1x1x8xf32>, %db: tensor<1x1x8x8xf32>) -> tensor<1x1x8x8xf32> {
  %b = arith.constant dense<0.0> : tensor<1x1x8x8xf32>
  %r:4 = attn.dense_backward ins(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) bias(%b : tensor<1x1x8x8xf32>)
      forward(%x, %l : tensor<1x1x8x3xf32>, tensor<1x1x8xf32>) gradient(%x : tensor<1x1x8x3xf32>)
      outs(%x, %x, %x : tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>) d_bias(%db : tensor<1x1x8x8xf32>)
      -> tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x3xf32>, tensor<1x1x8x8xf32>
  return %r#3 : tensor<1x1x8x8xf32>
}

// -----

// A sink is in lse: without a gradient of its own it is not read.
// CHECK-LABEL: func @unused_sink(
// CHECK: attn.dense_backward ins({{[^)]*}}) forward
func.func @unused_sink(%q: tensor<2x4x8x16xf32>, %l: tensor<2x4x8xf32>, %s: tensor<1x4xf32>) -> tensor<2x4x8x16xf32> {
  %r:3 = attn.dense_backward ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      sink(%s : tensor<1x4xf32>)
      forward(%q, %l : tensor<2x4x8x16xf32>, tensor<2x4x8xf32>) gradient(%q : tensor<2x4x8x16xf32>)
      outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>
  return %r#0 : tensor<2x4x8x16xf32>
}
