// RUN: fovea-opt %s -attn-lower-to-reference -split-input-file -verify-diagnostics

func.func @tensors(%q: tensor<1x1x8x4xf64>) -> tensor<1x1x8x4xf64> {
  // expected-error @below {{'attn.dense' op expects operands to be memrefs, but got tensors}}
  %o = attn.dense ins(%q, %q, %q : tensor<1x1x8x4xf64>, tensor<1x1x8x4xf64>, tensor<1x1x8x4xf64>)
      outs(%q : tensor<1x1x8x4xf64>) -> tensor<1x1x8x4xf64>
  return %o : tensor<1x1x8x4xf64>
}
