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
