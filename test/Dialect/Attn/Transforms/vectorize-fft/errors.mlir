// RUN: fovea-opt %s --attn-vectorize-fft --verify-diagnostics

func.func @tensors(%x: tensor<2x16x64xf32>, %s: tensor<2x32x64xf32>) {
  // expected-error @below {{'attn.fft_forward' op expects operands to be memrefs, but got tensors}}
  %r = attn.fft_forward ins(%x : tensor<2x16x64xf32>) outs(%s : tensor<2x32x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
  return
}
