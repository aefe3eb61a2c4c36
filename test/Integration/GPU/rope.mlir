// Halves, a part of the columns, tables and magnitudes, at positions per batch
// entry: an odd number of rows, lanes that do not fill a vector, in place.

// RUN: fovea-run %s --entry=half --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=half --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=part --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=part --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=gradient --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=gradient --target=gpu-sim --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

func.func @half(%x: tensor<2x3x37x70xf16>) -> tensor<2x3x37x70xf16> {
  %at = arith.constant dense<[[[5]], [[1048576]]]> : tensor<2x1x1xi32>
  %r = attn.rope ins(%x, %at : tensor<2x3x37x70xf16>, tensor<2x1x1xi32>) outs(%x : tensor<2x3x37x70xf16>)
      {style = #attn.rope_style<half>} -> tensor<2x3x37x70xf16>
  return %r : tensor<2x3x37x70xf16>
}

func.func @part(%x: tensor<2x3x37x70xf32>) -> tensor<2x3x37x70xf32> {
  %at = arith.constant dense<[[[5]], [[1048576]]]> : tensor<2x1x1xi32>
  %o = tensor.empty() : tensor<2x3x37x70xf32>
  %r = attn.rope ins(%x, %at : tensor<2x3x37x70xf32>, tensor<2x1x1xi32>) outs(%o : tensor<2x3x37x70xf32>)
      {style = #attn.rope_style<half>, width = 6 : i64, frequencies = array<f64: 1.0, 3.0e-2, 0.0>, magnitude = 1.25 : f64}
      -> tensor<2x3x37x70xf32>
  return %r : tensor<2x3x37x70xf32>
}

func.func @gradient(%d: tensor<2x3x37x70xbf16>) -> tensor<2x3x37x70xf32> {
  %at = arith.constant dense<[[[5]], [[1048576]]]> : tensor<2x1x1xi32>
  %o = tensor.empty() : tensor<2x3x37x70xf32>
  %r = attn.rope_backward ins(%at : tensor<2x1x1xi32>) gradient(%d : tensor<2x3x37x70xbf16>) outs(%o : tensor<2x3x37x70xf32>)
      {width = 34 : i64, magnitude = 0.5 : f64} -> tensor<2x3x37x70xf32>
  return %r : tensor<2x3x37x70xf32>
}
