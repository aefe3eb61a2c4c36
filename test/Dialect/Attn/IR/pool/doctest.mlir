// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnPoolOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @pool(
// CHECK: attn.pool ins
func.func @pool(%x: tensor<1x1x1024x64xf32>, %gate: tensor<1x1x1024x64xf32>, %p: tensor<128x64xf32>, %init: tensor<1x1x8x64xf32>, %init4: tensor<1x1x256x64xf32>) -> tensor<1x1x8x64xf32> {
    %summaries = attn.pool ins(%x, %gate : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>)
        position_bias(%p : tensor<128x64xf32>)
        outs(%init : tensor<1x1x8x64xf32>) {interval = 128 : i64} -> tensor<1x1x8x64xf32>
    %overlapping = attn.pool ins(%x, %gate : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>)
        outs(%init4 : tensor<1x1x256x64xf32>) {interval = 4 : i64, overlap = 4 : i64}
        -> tensor<1x1x256x64xf32>
    return %summaries : tensor<1x1x8x64xf32>
}

// CHECK-LABEL: func @pool_backward(
// CHECK: attn.pool_backward ins
func.func @pool_backward(%x: tensor<1x1x1024x64xf32>, %gate: tensor<1x1x1024x64xf32>, %dout: tensor<1x1x8x64xf32>, %p: tensor<128x64xf32>, %ix: tensor<1x1x1024x64xf32>, %ig: tensor<1x1x1024x64xf32>, %ip: tensor<128x64xf32>) -> tensor<128x64xf32> {
    %dx, %dg, %dp = attn.pool_backward
        ins(%x, %gate, %dout : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<1x1x8x64xf32>)
        position_bias(%p : tensor<128x64xf32>)
        outs(%ix, %ig, %ip : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<128x64xf32>)
        {interval = 128 : i64}
        -> tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<128x64xf32>
    return %dp : tensor<128x64xf32>
}

// CHECK-LABEL: func @top_k(
// CHECK: attn.top_k ins
func.func @top_k(%scores: tensor<1x2x512x8xf32>, %init: tensor<1x2x512x4xi32>) -> tensor<1x2x512x4xi32> {
    %blocks = attn.top_k ins(%scores : tensor<1x2x512x8xf32>)
        outs(%init : tensor<1x2x512x4xi32>) {mask = #attn.mask<causal, stride = 64>}
        -> tensor<1x2x512x4xi32>
    return %blocks : tensor<1x2x512x4xi32>
}
