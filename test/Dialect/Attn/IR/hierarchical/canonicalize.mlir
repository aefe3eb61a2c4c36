// RUN: fovea-opt %s --canonicalize --split-input-file | FileCheck %s

// Up to two groups, every group neighbours every other.
// CHECK-LABEL: func @no_levels_is_dense(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<1x4x64x8xf32>, %[[K:[^:]*]]: tensor<1x2x64x8xf32>, %[[V:[^:]*]]: tensor<1x2x64x4xf32>, %[[O:[^:]*]]: tensor<1x4x64x4xf32>, %[[L:[^:]*]]: tensor<1x4x64xf32>
// CHECK: %{{.*}}:2 = attn.dense ins(%[[Q]], %[[K]], %[[V]] : {{.*}}) outs(%[[O]], %[[L]] : {{.*}}) {mask = #attn.mask<causal>, scale = 5.000000e-01 : f64} -> tensor<1x4x64x4xf32>, tensor<1x4x64xf32>
func.func @no_levels_is_dense(%q: tensor<1x4x64x8xf32>, %k: tensor<1x2x64x8xf32>, %v: tensor<1x2x64x4xf32>, %o: tensor<1x4x64x4xf32>, %l: tensor<1x4x64xf32>)
    -> (tensor<1x4x64x4xf32>, tensor<1x4x64xf32>) {
  %0, %1 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x64x8xf32>, tensor<1x2x64x8xf32>, tensor<1x2x64x4xf32>)
      outs(%o, %l : tensor<1x4x64x4xf32>, tensor<1x4x64xf32>) {group = 32 : i64, causal, scale = 0.5} -> tensor<1x4x64x4xf32>, tensor<1x4x64xf32>
  return %0, %1 : tensor<1x4x64x4xf32>, tensor<1x4x64xf32>
}

// -----

// CHECK-LABEL: func @full_and_empty(
// CHECK: attn.dense ins({{.*}}) outs(%{{.*}} : tensor<1x1x2x8xf32>) -> tensor<1x1x2x8xf32>
// CHECK: attn.dense ins({{.*}}) outs(%{{.*}} : tensor<1x1x0x8xf32>) -> tensor<1x1x0x8xf32>
func.func @full_and_empty(%q: tensor<1x1x2x8xf32>, %e: tensor<1x1x0x8xf32>) -> (tensor<1x1x2x8xf32>, tensor<1x1x0x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>)
      outs(%q : tensor<1x1x2x8xf32>) {group = 9223372036854775807 : i64, multiplicity = false} -> tensor<1x1x2x8xf32>
  %1 = attn.fast_multipole ins(%e, %e, %e : tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>)
      outs(%e : tensor<1x1x0x8xf32>) {group = 1 : i64} -> tensor<1x1x0x8xf32>
  return %0, %1 : tensor<1x1x2x8xf32>, tensor<1x1x0x8xf32>
}

// -----

// The causal linear form without levels is the causal dense one.
// CHECK-LABEL: func @linear_no_levels_is_dense(
// CHECK: attn.dense {{.*}} {mask = #attn.mask<causal>} -> tensor<1x1x2x8xf32>
// CHECK: attn.dense ins({{.*}}) outs(%{{.*}} : tensor<1x1x2x8xf32>) {scale = 2.000000e+00 : f64} -> tensor<1x1x2x8xf32>
func.func @linear_no_levels_is_dense(%q: tensor<1x1x2x8xf32>) -> (tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>) {
  %0 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>)
      outs(%q : tensor<1x1x2x8xf32>) {group = 1 : i64, causal, allow_query_lookahead} -> tensor<1x1x2x8xf32>
  %1 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>)
      outs(%q : tensor<1x1x2x8xf32>) {group = 1 : i64, scale = 2.0} -> tensor<1x1x2x8xf32>
  return %0, %1 : tensor<1x1x2x8xf32>, tensor<1x1x2x8xf32>
}

// -----

// CHECK-LABEL: func @memref_no_levels(
// CHECK: attn.dense ins({{.*}}) outs(%{{.*}}, %{{.*}} : memref<1x1x2x8xf32>, memref<1x1x2xf32>){{$}}
func.func @memref_no_levels(%q: memref<1x1x2x8xf32>, %o: memref<1x1x2x8xf32>, %l: memref<1x1x2xf32>) {
  attn.fast_multipole ins(%q, %q, %q : memref<1x1x2x8xf32>, memref<1x1x2x8xf32>, memref<1x1x2x8xf32>)
      outs(%o, %l : memref<1x1x2x8xf32>, memref<1x1x2xf32>) {group = 1 : i64}
  return
}

// -----

// One level is not dense.
// CHECK-LABEL: func @keep_levels(
// CHECK: attn.fast_multipole ins
// CHECK: attn.fast_multipole_linear ins
func.func @keep_levels(%q: tensor<1x1x65x8xf32>, %w: tensor<1x2x32x8xf32>) -> (tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      outs(%q : tensor<1x1x65x8xf32>) {group = 32 : i64} -> tensor<1x1x65x8xf32>
  %1 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>)
      query_weights(%w : tensor<1x2x32x8xf32>) key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      outs(%q : tensor<1x1x65x8xf32>) {group = 32 : i64} -> tensor<1x1x65x8xf32>
  return %0, %1 : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>
}

// -----

// A mask of all tokens is none.
// CHECK-LABEL: func @full_mask(
// CHECK-NOT: mask(
// CHECK: attn.fast_multipole ins
// CHECK: attn.fast_multipole_linear ins
// CHECK: return
func.func @full_mask(%q: tensor<1x1x65x8xf32>, %w: tensor<1x2x32x8xf32>) -> (tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>) {
  %m = arith.constant dense<true> : tensor<1x65xi1>
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>) mask(%m : tensor<1x65xi1>)
      outs(%q : tensor<1x1x65x8xf32>) {group = 32 : i64} -> tensor<1x1x65x8xf32>
  %1 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>)
      query_weights(%w : tensor<1x2x32x8xf32>) key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      mask(%m : tensor<1x65xi1>) outs(%q : tensor<1x1x65x8xf32>) {group = 32 : i64} -> tensor<1x1x65x8xf32>
  return %0, %1 : tensor<1x1x65x8xf32>, tensor<1x1x65x8xf32>
}

// -----

// Dense attention has no mask of tokens.
// CHECK-LABEL: func @masked_without_levels(
// CHECK: attn.fast_multipole ins
func.func @masked_without_levels(%q: tensor<1x1x64x8xf32>, %m: tensor<1x64xi1>) -> tensor<1x1x64x8xf32> {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
      mask(%m : tensor<1x64xi1>) outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
  return %0 : tensor<1x1x64x8xf32>
}
