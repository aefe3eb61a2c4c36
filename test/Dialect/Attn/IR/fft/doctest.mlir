// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnFFTOps.td, word for word:
// utils/check_doc_examples.py compares them.

#short = #attn.spectrum<lanes = 16, radices = [8, 4]>
// CHECK: func private @form() attributes {attn.form = #attn.spectrum<lanes = 16, radices = [8, 4]>}
func.func private @form() attributes {attn.form = #short}

// CHECK-LABEL: func @products(
// CHECK: attn.fft_forward ins
// CHECK: attn.fft_multiply ins
// CHECK: attn.fft_accumulate ins
func.func @products(%x: tensor<2x20x48xf32>, %k: tensor<1x32x32xf32>, %init: tensor<2x32x64xf32>) -> tensor<2x32x64xf32> {
    %s = attn.fft_forward ins(%x : tensor<2x20x48xf32>)
        outs(%init : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
    %t = attn.fft_multiply ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf32>)
        outs(%init : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
    %u = attn.fft_accumulate ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf32>)
        outs(%t : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return %u : tensor<2x32x64xf32>
}

// CHECK-LABEL: func @inverse(
// CHECK: attn.fft_inverse ins
func.func @inverse(%s: tensor<2x32x64xf32>, %init: tensor<2x16x48xf32>) -> tensor<2x16x48xf32> {
    %y = attn.fft_inverse ins(%s : tensor<2x32x64xf32>)
        outs(%init : tensor<2x16x48xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>, first = 16 : i64}
        -> tensor<2x16x48xf32>
  return %y : tensor<2x16x48xf32>
}
