// RUN: fovea-opt %s --attn-expand-patterns --split-input-file | FileCheck %s

// 10 tokens in groups of 2, rank 2: two levels. Level 1 keeps a row per token;
// level 2 one for two tokens, and its last row stands for absent tokens alone.

// CHECK-DAG: #[[$NEAR:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 - 2, d0 * 2 + 4)>
// CHECK-DAG: #[[$LEFT1:.+]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 2) * 4 - 4, d0 * 2 - 2)>
// CHECK-DAG: #[[$RIGHT1:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 + 4, (d0 floordiv 2) * 4 + 8)>
// CHECK-DAG: #[[$LEFT2:.+]] = affine_map<(d0)[s0, s1] -> (0, d0 * 2 - 2)>
// CHECK-DAG: #[[$RIGHT2:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 + 4, 6)>
// CHECK-DAG: #[[$ID:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
// CHECK-DAG: #[[$PAIRS:.+]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2 floordiv 2, d3)>
// CHECK-LABEL: func @full
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: {{.*}}, %[[V:[a-z0-9]+]]: {{.*}}, %[[QW1:[a-z0-9]+]]: {{.*}}, %[[QW2:[a-z0-9]+]]: {{.*}}, %[[QB1:[a-z0-9]+]]: {{.*}}, %[[QB2:[a-z0-9]+]]: {{.*}}, %[[VW1:[a-z0-9]+]]: {{.*}}, %[[VW2:[a-z0-9]+]]: {{.*}}, %[[O:[a-z0-9]+]]: {{.*}})
// CHECK: %[[NEAR_OUT:.+]] = attn.stream query(%[[Q]] :
// CHECK-NEXT: source(%[[K]], %[[V]] : {{.*}}) ranges [#[[$NEAR]]]{{$}}
// CHECK-NEXT: outs(%{{.*}} : tensor<1x2x10x8xf32>) {block = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK: %[[Q1:.+]] = attn.summarize ins(%[[Q]] : {{.*}}) weights(%[[QW1]] : {{.*}}) bias(%[[QB1]] : {{.*}}) outs(%{{.*}} : tensor<1x2x10x4xf32>)
// CHECK: %[[K1:.+]] = attn.summarize ins(%[[K]] : {{.*}}) weights(%[[QW1]] : {{.*}}) outs(%{{.*}} : tensor<1x1x10x4xf32>)
// CHECK: %[[V1:.+]] = attn.summarize ins(%[[V]] : {{.*}}) weights(%[[VW1]] : {{.*}}) outs(%{{.*}} : tensor<1x1x10x8xf32>)
// CHECK: %[[OUT1:.+]] = attn.stream query(%[[Q1]] :
// CHECK-NEXT: source(%[[K1]], %[[V1]] : {{.*}}xf32>) ranges [#[[$LEFT1]], #[[$RIGHT1]]]{{$}}
// CHECK-NEXT: outs(%{{.*}} : tensor<1x2x10x8xf32>) {block = 2 : i64, scale = 5.000000e-01 : f64}
// CHECK: %[[Q2:.+]] = attn.summarize ins(%[[Q]] : {{.*}}) weights(%[[QW2]] : {{.*}}) bias(%[[QB2]] : {{.*}}) outs(%{{.*}} : tensor<1x2x6x4xf32>)
// CHECK: %[[LOG:.+]] = arith.constant dense<{{\[\[\[}}0.000000e+00, 0.000000e+00, 0.000000e+00, 0.000000e+00, 0.000000e+00, 0xFF800000]]]> : tensor<1x1x6xf32>
// CHECK: %[[OUT2:.+]] = attn.stream query(%[[Q2]] :
// CHECK-NEXT: source({{.*}}) log_weight(%[[LOG]] : {{.*}}) ranges [#[[$LEFT2]], #[[$RIGHT2]]]{{$}}
// CHECK-NEXT: outs(%{{.*}} : tensor<1x2x6x8xf32>) {block = 2 : i64
// CHECK: %[[SUM:.+]] = linalg.generic {indexing_maps = [#[[$ID]], #[[$ID]], #[[$PAIRS]], #[[$ID]]], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
// CHECK-SAME: ins(%[[NEAR_OUT]], %[[OUT1]], %[[OUT2]] :
// CHECK-SAME: outs(%[[O]] :
// Added in f32, rounded once.
// CHECK-NEXT: ^bb0(%[[A:.+]]: f32, %[[B:.+]]: f32, %[[C:.+]]: f32, %{{.*}}: bf16):
// CHECK-NEXT: %[[AB:.+]] = arith.addf %[[A]], %[[B]] : f32
// CHECK-NEXT: %[[ABC:.+]] = arith.addf %[[AB]], %[[C]] : f32
// CHECK-NEXT: %[[R:.+]] = arith.truncf %[[ABC]] : f32 to bf16
// CHECK-NEXT: linalg.yield %[[R]] : bf16
// CHECK: return %[[SUM]]
func.func @full(%q: tensor<1x2x10x4xbf16>, %k: tensor<1x1x10x4xbf16>,
                %v: tensor<1x1x10x8xbf16>, %qw1: tensor<1x2x2x4xbf16>,
                %qw2: tensor<1x2x4x4xbf16>, %qb1: tensor<1x2x4xbf16>,
                %qb2: tensor<1x2x4xbf16>, %vw1: tensor<1x2x2x8xbf16>,
                %vw2: tensor<1x2x4x8xbf16>, %o: tensor<1x2x10x8xbf16>)
    -> tensor<1x2x10x8xbf16> {
  %out = attn.fast_multipole_linear
      ins(%q, %k, %v : tensor<1x2x10x4xbf16>, tensor<1x1x10x4xbf16>, tensor<1x1x10x8xbf16>)
      query_weights(%qw1, %qw2 : tensor<1x2x2x4xbf16>, tensor<1x2x4x4xbf16>)
      key_weights(%qw1, %qw2 : tensor<1x2x2x4xbf16>, tensor<1x2x4x4xbf16>)
      value_weights(%vw1, %vw2 : tensor<1x2x2x8xbf16>, tensor<1x2x4x8xbf16>)
      query_biases(%qb1, %qb2 : tensor<1x2x4xbf16>, tensor<1x2x4xbf16>)
      outs(%o : tensor<1x2x10x8xbf16>) {group = 2 : i64} -> tensor<1x2x10x8xbf16>
  return %out : tensor<1x2x10x8xbf16>
}

// -----

// Causal: left ranges alone, so no query reads the summaries that lack tokens
// and a weight common to a level cancels: no log weights. With a row per token
// and an absent token, the rows of absent tokens are cut off.

// CHECK-DAG: #[[$NEAR:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 - 2, d0 * 2 + 2)>
// CHECK-DAG: #[[$LEFT:.+]] = affine_map<(d0)[s0, s1] -> (0, d0 * 2 - 2)>
// CHECK-LABEL: func @causal
// CHECK: attn.stream
// CHECK-NEXT: source({{.*}}) ranges [#[[$NEAR]]] mask <causal>{{$}}
// CHECK-NOT: log_weight
// CHECK: %[[LEVEL:.+]] = attn.stream query(%{{.*}} : tensor<?x?x8x4xf32>)
// CHECK-NEXT: source({{.*}}) ranges [#[[$LEFT]]]{{$}}
// CHECK: %[[ROWS:.+]] = tensor.extract_slice %[[LEVEL]][0, 0, 0, 0] [%{{.*}}, %{{.*}}, 7, 4] [1, 1, 1, 1] : tensor<?x?x8x4xf32> to tensor<?x?x7x4xf32>
// CHECK: linalg.generic
// CHECK-SAME: ins(%{{.*}}, %[[ROWS]] : tensor<?x?x7x4xf32>, tensor<?x?x7x4xf32>)
// CHECK-NOT: arith.truncf
// CHECK: arith.addf
func.func @causal(%x: tensor<?x?x7x4xf32>, %w: tensor<1x2x2x4xf32>) -> tensor<?x?x7x4xf32> {
  %out = attn.fast_multipole_linear
      ins(%x, %x, %x : tensor<?x?x7x4xf32>, tensor<?x?x7x4xf32>, tensor<?x?x7x4xf32>)
      query_weights(%w : tensor<1x2x2x4xf32>) key_weights(%w : tensor<1x2x2x4xf32>)
      value_weights(%w : tensor<1x2x2x4xf32>)
      outs(%x : tensor<?x?x7x4xf32>) {group = 2 : i64, causal, allow_query_lookahead} -> tensor<?x?x7x4xf32>
  return %out : tensor<?x?x7x4xf32>
}

// -----

// CHECK-LABEL: func @no_levels
// CHECK-NOT: attn.summarize
// CHECK: attn.stream
// CHECK-NOT: linalg.generic
// CHECK: return
func.func @no_levels(%x: tensor<1x1x8x4xf32>) -> tensor<1x1x8x4xf32> {
  %out = attn.fast_multipole_linear
      ins(%x, %x, %x : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>)
      outs(%x : tensor<1x1x8x4xf32>) {group = 4 : i64} -> tensor<1x1x8x4xf32>
  return %out : tensor<1x1x8x4xf32>
}
