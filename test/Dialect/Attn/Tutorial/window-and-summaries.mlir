// RUN: fovea-opt %s | FileCheck %s
// RUN: fovea-opt %s --attn-select-tiles --attn-tile-stream | FileCheck %s --check-prefix=TILE

// The pattern that docs/Patterns.md builds up; test/Docs checks that the page
// shows this function.

// CHECK-DAG: #[[$NEAR:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 16 - 16, d0 * 16 + 16)>
// CHECK-DAG: #[[$FAR:.+]] = affine_map<(d0)[s0, s1] -> (0, d0 - 1)>
// CHECK-LABEL: func @window_and_summaries
// CHECK: attn.stream
// CHECK-NEXT: source({{.*}}) ranges [#[[$NEAR]]] mask <causal>
// CHECK-NEXT: source({{.*}}) log_weight({{.*}}) ranges [#[[$FAR]]]

// TILE-LABEL: func @window_and_summaries
// TILE: scf.forall
// TILE: attn.stream
// TILE: tile(

func.func @window_and_summaries(%q: tensor<1x4x64x8xf32>, %k: tensor<1x2x64x8xf32>, %v: tensor<1x2x64x8xf32>,
                                %init: tensor<1x4x64x8xf32>) -> tensor<1x4x64x8xf32> {
  %mean = arith.constant dense<6.25e-02> : tensor<1x1x16x8xf32>
  %count = arith.constant dense<2.77258873> : tensor<1x1x4xf32>
  %empty = tensor.empty() : tensor<1x2x4x8xf32>
  %ks = attn.summarize ins(%k : tensor<1x2x64x8xf32>) weights(%mean : tensor<1x1x16x8xf32>)
      outs(%empty : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %vs = attn.summarize ins(%v : tensor<1x2x64x8xf32>) weights(%mean : tensor<1x1x16x8xf32>)
      outs(%empty : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %out = attn.stream query(%q : tensor<1x4x64x8xf32>)
      source(%k, %v : tensor<1x2x64x8xf32>, tensor<1x2x64x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%ks, %vs : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>)
          log_weight(%count : tensor<1x1x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
      outs(%init : tensor<1x4x64x8xf32>)
      {block = 16 : i64, scale = 0.35355339059327379 : f64} -> tensor<1x4x64x8xf32>
  return %out : tensor<1x4x64x8xf32>
}
