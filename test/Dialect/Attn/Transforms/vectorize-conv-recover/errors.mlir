// RUN: fovea-opt %s --convert-attn-to-vector -verify-diagnostics

func.func @tensors(%q: tensor<1x1x9x6xf32>, %b: tensor<1x1x2x9xf32>, %m: tensor<1x1x2xi32>, %n: tensor<1x1xi32>) -> tensor<1x1x2x9xf32> {
  // expected-error @below {{'attn.conv_recover' op expects operands to be memrefs, but got tensors}}
  %0:3 = attn.conv_recover ins(%q, %q : tensor<1x1x9x6xf32>, tensor<1x1x9x6xf32>) outs(%b, %m, %n : tensor<1x1x2x9xf32>, tensor<1x1x2xi32>, tensor<1x1xi32>)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<1x1x2x9xf32>, tensor<1x1x2xi32>, tensor<1x1xi32>
  return %0#0 : tensor<1x1x2x9xf32>
}
