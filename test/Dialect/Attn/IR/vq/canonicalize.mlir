// RUN: fovea-opt %s --canonicalize --split-input-file | FileCheck %s

// A bias of zeros goes, and then no block is longer than the sequence.
// CHECK-LABEL: func @zero_bias(
// CHECK: attn.vq ins
// CHECK-NOT: bias(
// CHECK-SAME: {block = 16 : i64, causal}
func.func @zero_bias(%q: tensor<1x1x16x8xf32>, %z: tensor<1x1x16xi32>, %c: tensor<1x4x8xf32>) -> tensor<1x1x16x8xf32> {
  %b = arith.constant dense<0.0> : tensor<1x1x16x64xf32>
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x16x8xf32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<1x4x8xf32>)
      bias(%b : tensor<1x1x16x64xf32>) outs(%q : tensor<1x1x16x8xf32>) {block = 32 : i64, causal} -> tensor<1x1x16x8xf32>
  return %0 : tensor<1x1x16x8xf32>
}

// -----

// A bias says where blocks begin.
// CHECK-LABEL: func @keeps_block_of_bias(
// CHECK: block = 32
func.func @keeps_block_of_bias(%q: tensor<1x1x16x8xf32>, %z: tensor<1x1x16xi32>, %c: tensor<1x4x8xf32>, %b: tensor<1x1x16x64xf32>) -> tensor<1x1x16x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x16x8xf32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<1x4x8xf32>)
      bias(%b : tensor<1x1x16x64xf32>) outs(%q : tensor<1x1x16x8xf32>) {block = 32 : i64, causal} -> tensor<1x1x16x8xf32>
  return %0 : tensor<1x1x16x8xf32>
}

// -----

// So does a state; and a bias of ones is no bias of zeros.
// CHECK-LABEL: func @keeps_block_of_state(
// CHECK: bias(
// CHECK: block = 32
func.func @keeps_block_of_state(%q: tensor<1x1x16x8xf32>, %z: tensor<1x1x16xi32>, %c: tensor<1x4x8xf32>,
    %m: tensor<1x1x4x8xf32>, %n: tensor<1x1x4xi32>, %kz: tensor<1x1x64xi32>, %kv: tensor<1x1x64x8xf32>, %p: tensor<i64>) -> tensor<1x1x16x8xf32> {
  %b = arith.constant dense<1.0> : tensor<1x1x1x64xf32>
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x16x8xf32>, tensor<1x1x16xi32>, tensor<1x1x16x8xf32>, tensor<1x4x8xf32>)
      bias(%b : tensor<1x1x1x64xf32>)
      state(%m, %n, %kz, %kv, %p : tensor<1x1x4x8xf32>, tensor<1x1x4xi32>, tensor<1x1x64xi32>, tensor<1x1x64x8xf32>, tensor<i64>)
      outs(%q : tensor<1x1x16x8xf32>) {block = 32 : i64, causal} -> tensor<1x1x16x8xf32>
  return %0 : tensor<1x1x16x8xf32>
}

// -----

// CHECK-LABEL: func @dynamic(
// CHECK: block = 32
func.func @dynamic(%q: tensor<1x1x?x8xf32>, %z: tensor<1x1x?xi32>, %c: tensor<1x4x8xf32>) -> tensor<1x1x?x8xf32> {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x?x8xf32>, tensor<1x1x?xi32>, tensor<1x1x?x8xf32>, tensor<1x4x8xf32>)
      outs(%q : tensor<1x1x?x8xf32>) {block = 32 : i64, causal} -> tensor<1x1x?x8xf32>
  return %0 : tensor<1x1x?x8xf32>
}
