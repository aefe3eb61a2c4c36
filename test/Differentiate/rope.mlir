// RUN: fovea-opt %s --attn-differentiate | FileCheck %s

// The gradient turns back as the operation turns.

// CHECK-LABEL: func.func @rope_vjp(
// CHECK: attn.rope_backward
// CHECK-SAME: {frequencies = array<f64: 1.000000e+00, 5.000000e-01>, magnitude = 1.250000e+00 : f64, style = #attn.rope_style<half>, width = 4 : i64}
func.func @rope(%x: tensor<1x2x20x6xf32>, %p: tensor<1x1x20xi32>) -> tensor<1x2x20x6xf32> {
  %o = tensor.empty() : tensor<1x2x20x6xf32>
  %r = attn.rope ins(%x, %p : tensor<1x2x20x6xf32>, tensor<1x1x20xi32>) outs(%o : tensor<1x2x20x6xf32>)
      {style = #attn.rope_style<half>, width = 4 : i64, frequencies = array<f64: 1.0, 0.5>, magnitude = 1.25 : f64} -> tensor<1x2x20x6xf32>
  return %r : tensor<1x2x20x6xf32>
}
