// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnTokenOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @list(
// CHECK: attn.list_tokens ins
func.func @list(%mask: tensor<2x1024xi1>, %t: tensor<2x1024xi32>, %p: tensor<2x1024xi32>, %c: tensor<2xi32>) -> tensor<2x1024xi32> {
    %tokens, %places, %counts = attn.list_tokens ins(%mask : tensor<2x1024xi1>)
        outs(%t, %p, %c : tensor<2x1024xi32>, tensor<2x1024xi32>, tensor<2xi32>)
        -> tensor<2x1024xi32>, tensor<2x1024xi32>, tensor<2xi32>
      return %tokens : tensor<2x1024xi32>
}

// CHECK-LABEL: func @take(
// CHECK: attn.take_rows ins
func.func @take(%x: tensor<2x8x1024x64xf32>, %tokens: tensor<2x1024xi32>, %init: tensor<2x8x1024x64xf32>) -> tensor<2x8x1024x64xf32> {
    %packed = attn.take_rows ins(%x, %tokens : tensor<2x8x1024x64xf32>, tensor<2x1024xi32>)
        outs(%init : tensor<2x8x1024x64xf32>) -> tensor<2x8x1024x64xf32>
      return %packed : tensor<2x8x1024x64xf32>
}
