// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnHierarchicalOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK-LABEL: func @summarize(
// CHECK: attn.summarize ins
func.func @summarize(%x: tensor<1x8x1024x64xf32>, %w: tensor<1x4x64x64xf32>, %init: tensor<1x8x64x64xf32>) -> tensor<1x8x64x64xf32> {
    %s = attn.summarize ins(%x : tensor<1x8x1024x64xf32>)
        weights(%w : tensor<1x4x64x64xf32>)
        outs(%init : tensor<1x8x64x64xf32>) -> tensor<1x8x64x64xf32>
  return %s : tensor<1x8x64x64xf32>
}

// CHECK-LABEL: func @fast_multipole(
// CHECK: attn.fast_multipole ins
func.func @fast_multipole(%q: tensor<1x8x256x64xf32>, %k: tensor<1x8x256x64xf32>, %v: tensor<1x8x256x64xf32>,
    %kw: tensor<1x4x64x64xf32>, %vw: tensor<1x4x64x64xf32>, %init: tensor<1x8x256x64xf32>) -> tensor<1x8x256x64xf32> {
    %out = attn.fast_multipole
        ins(%q, %k, %v : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        key_weights(%kw : tensor<1x4x64x64xf32>) value_weights(%vw : tensor<1x4x64x64xf32>)
        outs(%init : tensor<1x8x256x64xf32>)
        {group = 64 : i64, causal} -> tensor<1x8x256x64xf32>
  return %out : tensor<1x8x256x64xf32>
}

// CHECK-LABEL: func @fast_multipole_linear(
// CHECK: attn.fast_multipole_linear ins
func.func @fast_multipole_linear(%q: tensor<1x2x128x16xf32>, %k: tensor<1x2x128x16xf32>, %v: tensor<1x2x128x16xf32>,
    %qw: tensor<1x2x32x16xf32>, %kw: tensor<1x2x32x16xf32>, %vw: tensor<1x2x32x16xf32>, %init: tensor<1x2x128x16xf32>) -> tensor<1x2x128x16xf32> {
    %out = attn.fast_multipole_linear
        ins(%q, %k, %v : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        query_weights(%qw : tensor<1x2x32x16xf32>) key_weights(%kw : tensor<1x2x32x16xf32>)
        value_weights(%vw : tensor<1x2x32x16xf32>)
        outs(%init : tensor<1x2x128x16xf32>)
        {group = 32 : i64} -> tensor<1x2x128x16xf32>
  return %out : tensor<1x2x128x16xf32>
}
