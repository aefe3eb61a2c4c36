// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnLowRankOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @rope(
// CHECK: attn.rope ins
// CHECK: attn.rope ins
func.func @rope(%q: tensor<1x8x1024x64xf32>, %positions: tensor<1x1x1024xi32>, %init: tensor<1x8x1024x64xf32>) -> tensor<1x8x1024x64xf32> {
    %r = attn.rope ins(%q, %positions : tensor<1x8x1024x64xf32>, tensor<1x1x1024xi32>)
        outs(%init : tensor<1x8x1024x64xf32>) {base = 1.0e+04 : f64} -> tensor<1x8x1024x64xf32>
    %s = attn.rope ins(%q, %positions : tensor<1x8x1024x64xf32>, tensor<1x1x1024xi32>)
        outs(%init : tensor<1x8x1024x64xf32>)
        {style = #attn.rope_style<half>, width = 4 : i64, frequencies = array<f64: 1.0, 1.25e-02>,
         magnitude = 1.1 : f64} -> tensor<1x8x1024x64xf32>
  return %r : tensor<1x8x1024x64xf32>
}

// CHECK-LABEL: func @polynomial_features(
// CHECK: attn.polynomial_features ins
func.func @polynomial_features(%q: tensor<1x8x1024x16xf32>, %init: tensor<1x8x1024x153xf32>) -> tensor<1x8x1024x153xf32> {
    %phi = attn.polynomial_features ins(%q : tensor<1x8x1024x16xf32>)
        outs(%init : tensor<1x8x1024x153xf32>) {degree = 2 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x8x1024x153xf32>
  return %phi : tensor<1x8x1024x153xf32>
}

// CHECK-LABEL: func @low_rank(
// CHECK: attn.low_rank ins
func.func @low_rank(%u1: tensor<1x8x256x16xf32>, %u2: tensor<1x2x256x16xf32>, %v: tensor<1x2x256x64xf32>,
    %first: tensor<1x1x256xi32>, %last: tensor<1x1x256xi32>, %init: tensor<1x8x256x64xf32>) -> tensor<1x8x256x64xf32> {
    %out = attn.low_rank
        ins(%u1, %u2, %v : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        mask(%first, %last : tensor<1x1x256xi32>, tensor<1x1x256xi32>)
        outs(%init : tensor<1x8x256x64xf32>)
        {mask = #attn.row_mask<row_interval>} -> tensor<1x8x256x64xf32>
  return %out : tensor<1x8x256x64xf32>
}

// CHECK-LABEL: func @check_intervals(
// CHECK: attn.check_intervals %{{.*}}, %{{.*}} below
func.func @check_intervals(%first: tensor<1x1x256xi32>, %last: tensor<1x1x256xi32>, %bound: index) {
    attn.check_intervals %first, %last below %bound
        {name = "attn.low_rank: interval"} : tensor<1x1x256xi32>, tensor<1x1x256xi32>
  return
}

// CHECK-LABEL: func @row_mask(
// CHECK-SAME: #attn.row_mask<row_interval>
#intervals = #attn.row_mask<row_interval>
func.func @row_mask() attributes {test.mask = #intervals} {
  return
}

// CHECK-LABEL: func @polynomial_features_backward(
// CHECK: attn.polynomial_features_backward ins
func.func @polynomial_features_backward(%x: tensor<1x8x1024x16xf32>, %dphi: tensor<1x8x1024x153xf32>, %init: tensor<1x8x1024x16xf32>) -> tensor<1x8x1024x16xf32> {
    %dx = attn.polynomial_features_backward ins(%x : tensor<1x8x1024x16xf32>)
        gradient(%dphi : tensor<1x8x1024x153xf32>)
        outs(%init : tensor<1x8x1024x16xf32>) {degree = 2 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x8x1024x16xf32>
  return %dx : tensor<1x8x1024x16xf32>
}

// CHECK-LABEL: func @low_rank_backward(
// CHECK: attn.low_rank_backward ins
func.func @low_rank_backward(%u1: tensor<1x8x256x16xf32>, %u2: tensor<1x2x256x16xf32>, %v: tensor<1x2x256x64xf32>,
    %first: tensor<1x1x256xi32>, %last: tensor<1x1x256xi32>, %out: tensor<1x8x256x64xf32>, %dout: tensor<1x8x256x64xf32>,
    %iu1: tensor<1x8x256x16xf32>, %iu2: tensor<1x2x256x16xf32>, %iv: tensor<1x2x256x64xf32>) -> tensor<1x2x256x64xf32> {
    %du1, %du2, %dv = attn.low_rank_backward
        ins(%u1, %u2, %v : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        mask(%first, %last : tensor<1x1x256xi32>, tensor<1x1x256xi32>)
        forward(%out : tensor<1x8x256x64xf32>) gradient(%dout : tensor<1x8x256x64xf32>)
        outs(%iu1, %iu2, %iv : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        {mask = #attn.row_mask<row_interval>}
        -> tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>
  return %dv : tensor<1x2x256x64xf32>
}

// CHECK-LABEL: func @rope_style(
// CHECK-SAME: #attn.rope_style<half>
#style = #attn.rope_style<half>
func.func @rope_style() attributes {test.style = #style} {
  return
}
