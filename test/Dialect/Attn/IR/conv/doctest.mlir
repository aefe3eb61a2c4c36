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

// CHECK-LABEL: func @conv_apply_backward(
// CHECK: attn.conv_apply_backward ins
func.func @conv_apply_backward(%b: tensor<1x4x8x2048xf32>, %m: tensor<1x4x8xi32>, %v: tensor<1x2x2048x64xf32>, %out: tensor<1x4x2048x64xf32>, %dout: tensor<1x4x2048x64xf32>, %ib: tensor<1x4x8x2048xf32>, %iv: tensor<1x2x2048x64xf32>) -> (tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>) {
    %db, %dv = attn.conv_apply_backward
        ins(%b, %m, %v : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x2x2048x64xf32>)
        forward(%out : tensor<1x4x2048x64xf32>) gradient(%dout : tensor<1x4x2048x64xf32>)
        outs(%ib, %iv : tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>)
        {algorithm = #attn.conv_algorithm<partitioned>, block = 256 : i64}
        -> tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>
      return %db, %dv : tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>
}

// CHECK-LABEL: func @conv_recover_backward(
// CHECK: attn.conv_recover_backward ins
func.func @conv_recover_backward(%q: tensor<1x4x2048x64xf32>, %k: tensor<1x2x2048x64xf32>, %m: tensor<1x4x8xi32>, %db: tensor<1x4x8x2048xf32>, %iq: tensor<1x4x2048x64xf32>, %ik: tensor<1x2x2048x64xf32>) -> (tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>) {
    %dq, %dk = attn.conv_recover_backward
        ins(%q, %k, %m : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x4x8xi32>)
        gradient(%db : tensor<1x4x8x2048xf32>)
        outs(%iq, %ik : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>)
        -> tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>
      return %dq, %dk : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>
}

// CHECK-LABEL: func @conv_backward(
// CHECK: attn.conv_backward ins
func.func @conv_backward(%q: tensor<1x4x2048x64xf32>, %k: tensor<1x2x2048x64xf32>, %v: tensor<1x2x2048x64xf32>, %out: tensor<1x4x2048x64xf32>, %dout: tensor<1x4x2048x64xf32>, %iq: tensor<1x4x2048x64xf32>, %ik: tensor<1x2x2048x64xf32>, %iv: tensor<1x2x2048x64xf32>) -> (tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>) {
    %dq, %dk, %dv = attn.conv_backward
        ins(%q, %k, %v : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        forward(%out : tensor<1x4x2048x64xf32>) gradient(%dout : tensor<1x4x2048x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        {num_basis = 8 : i64, window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>
      return %dq, %dk, %dv : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>
}

// CHECK-LABEL: func @rope_backward(
// CHECK: attn.rope_backward ins
func.func @rope_backward(%positions: tensor<1x1x1024xi32>, %dout: tensor<1x8x1024x64xf32>, %init: tensor<1x8x1024x64xf32>) -> tensor<1x8x1024x64xf32> {
    %dx = attn.rope_backward ins(%positions : tensor<1x1x1024xi32>)
        gradient(%dout : tensor<1x8x1024x64xf32>)
        outs(%init : tensor<1x8x1024x64xf32>) {base = 1.0e+04 : f64} -> tensor<1x8x1024x64xf32>
      return %dx : tensor<1x8x1024x64xf32>
}
