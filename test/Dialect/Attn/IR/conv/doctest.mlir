// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnConvOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @conv_apply(
// CHECK: attn.conv_apply ins
func.func @conv_apply(%b: tensor<1x4x8x2048xf32>, %m: tensor<1x4x8xi32>, %v: tensor<1x2x2048x64xf32>,
    %init: tensor<1x4x2048x64xf32>, %count: tensor<1x4xi32>) -> (tensor<1x4x2048x64xf32>, tensor<1x4xi32>) {
    %out, %recomputed = attn.conv_apply
        ins(%b, %m, %v : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x2x2048x64xf32>)
        outs(%init, %count : tensor<1x4x2048x64xf32>, tensor<1x4xi32>)
        {algorithm = #attn.conv_algorithm<partitioned>, block = 256 : i64}
        -> tensor<1x4x2048x64xf32>, tensor<1x4xi32>
  return %out, %recomputed : tensor<1x4x2048x64xf32>, tensor<1x4xi32>
}

// CHECK: func private @attributes() attributes {attn.algorithm = #attn.conv_algorithm<toeplitz>}
#direct = #attn.conv_algorithm<toeplitz>
func.func private @attributes() attributes {attn.algorithm = #direct}

// CHECK-LABEL: func @conv_recover(
// CHECK: attn.conv_recover ins
func.func @conv_recover(%q: tensor<1x4x2048x64xf32>, %k: tensor<1x2x2048x64xf32>, %b_init: tensor<1x4x8x2048xf32>,
    %m_init: tensor<1x4x8xi32>, %n_init: tensor<1x4xi32>) -> (tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>) {
    %b, %m, %n = attn.conv_recover ins(%q, %k : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>)
        outs(%b_init, %m_init, %n_init : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>)
        {window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>
  return %b, %m, %n : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>
}

// CHECK-LABEL: func @conv(
// CHECK: attn.conv ins
func.func @conv(%q: tensor<1x4x2048x64xf32>, %k: tensor<1x2x2048x64xf32>, %v: tensor<1x2x2048x64xf32>, %init: tensor<1x4x2048x64xf32>,
    %n_init: tensor<1x4xi32>, %c_init: tensor<1x4xi32>) -> (tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>) {
    %out, %found, %recomputed = attn.conv
        ins(%q, %k, %v : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        outs(%init, %n_init, %c_init : tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>)
        {num_basis = 8 : i64, window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>
  return %out, %found, %recomputed : tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>
}
