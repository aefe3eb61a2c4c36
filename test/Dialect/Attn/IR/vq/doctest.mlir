// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnVQOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @vq(
// CHECK: attn.vq ins
// CHECK-SAME: bias(
func.func @vq(%q: tensor<1x8x1024x64xf32>, %codes: tensor<1x2x1024xi32>, %v: tensor<1x2x1024x64xf32>, %codebook: tensor<2x512x64xf32>,
    %bias: tensor<1x8x1024x256xf32>, %init: tensor<1x8x1024x64xf32>) -> tensor<1x8x1024x64xf32> {
    %out = attn.vq
        ins(%q, %codes, %v, %codebook : tensor<1x8x1024x64xf32>, tensor<1x2x1024xi32>,
            tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        bias(%bias : tensor<1x8x1024x256xf32>)
        outs(%init : tensor<1x8x1024x64xf32>) {block = 128 : i64, causal}
        -> tensor<1x8x1024x64xf32>
  return %out : tensor<1x8x1024x64xf32>
}

// CHECK-LABEL: func @vq_decode(
// CHECK: attn.vq_decode ins
func.func @vq_decode(%q: tensor<1x8x1x64xf32>, %code: tensor<1x2x1xi32>, %v: tensor<1x2x1x64xf32>, %codebook: tensor<2x512x64xf32>,
    %init: tensor<1x8x1x64xf32>, %mean: tensor<1x2x512x64xf32>, %count: tensor<1x2x512xi32>, %codes: tensor<1x2x256xi32>,
    %values: tensor<1x2x256x64xf32>, %position: tensor<i64>) -> (tensor<1x8x1x64xf32>, tensor<i64>) {
    %out, %mean1, %count1, %codes1, %values1, %position1 = attn.vq_decode
        ins(%q, %code, %v, %codebook : tensor<1x8x1x64xf32>, tensor<1x2x1xi32>,
            tensor<1x2x1x64xf32>, tensor<2x512x64xf32>)
        outs(%init : tensor<1x8x1x64xf32>)
        state(%mean, %count, %codes, %values, %position : tensor<1x2x512x64xf32>,
            tensor<1x2x512xi32>, tensor<1x2x256xi32>, tensor<1x2x256x64xf32>, tensor<i64>)
        {block = 128 : i64}
        -> tensor<1x8x1x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512xi32>,
           tensor<1x2x256xi32>, tensor<1x2x256x64xf32>, tensor<i64>
  return %out, %position1 : tensor<1x8x1x64xf32>, tensor<i64>
}

// CHECK-LABEL: func @vq_backward(
// CHECK: attn.vq_backward ins
// CHECK-SAME: forward(
// CHECK-SAME: gradient(
func.func @vq_backward(%q: tensor<1x8x1024x64xf32>, %codes: tensor<1x2x1024xi32>, %v: tensor<1x2x1024x64xf32>, %codebook: tensor<2x512x64xf32>,
    %out: tensor<1x8x1024x64xf32>, %lse: tensor<1x8x1024xf32>, %dout: tensor<1x8x1024x64xf32>,
    %iq: tensor<1x8x1024x64xf32>, %ik: tensor<1x2x1024x64xf32>, %iv: tensor<1x2x1024x64xf32>) -> tensor<1x8x1024x64xf32> {
    %dq, %dk, %dv = attn.vq_backward
        ins(%q, %codes, %v, %codebook : tensor<1x8x1024x64xf32>, tensor<1x2x1024xi32>,
            tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        forward(%out, %lse : tensor<1x8x1024x64xf32>, tensor<1x8x1024xf32>)
        gradient(%dout : tensor<1x8x1024x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>)
        {block = 128 : i64, causal}
        -> tensor<1x8x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>
  return %dq : tensor<1x8x1024x64xf32>
}
