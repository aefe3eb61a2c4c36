// RUN: fovea-opt %s --convert-attn-to-vector --verify-diagnostics
// RUN: fovea-opt %s --convert-attn-to-gpu --verify-diagnostics
// RUN: fovea-opt %s --attn-lower-to-reference --verify-diagnostics

func.func @tensors(%n: tensor<1x2x8xi32>, %w: tensor<1x2x8xf32>) -> tensor<1x2x8xf32> {
  // expected-error @+1 {{'attn.log_count' op expects operands to be memrefs, but got tensors}}
  %r = attn.log_count ins(%n : tensor<1x2x8xi32>) outs(%w : tensor<1x2x8xf32>) -> tensor<1x2x8xf32>
  return %r : tensor<1x2x8xf32>
}
