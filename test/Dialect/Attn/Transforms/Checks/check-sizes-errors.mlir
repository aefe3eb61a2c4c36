// RUN: fovea-opt %s --attn-check-sizes --verify-diagnostics

func.func @tensors(%b: tensor<1x2x3x9xf32>, %m: tensor<1x2x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x2x9x5xf32>, %c: tensor<1x2xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects operands to be memrefs, but got tensors}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x2x3x9xf32>, tensor<1x2x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x2x9x5xf32>, tensor<1x2xi32>) -> tensor<1x2x9x5xf32>, tensor<1x2xi32>
  return
}
