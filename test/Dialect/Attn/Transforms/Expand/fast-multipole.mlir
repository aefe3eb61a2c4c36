// RUN: fovea-opt %s --attn-expand-patterns --split-input-file | FileCheck %s

// Two levels: 8 and 4 intervals. Rank 2. A summary of level 1 stands for 16
// tokens (ln 16 = 2.77), one of level 2 for 32 (ln 32 = 3.47).

// One source holds both levels, 16 rows and then 8; ranges are clamped to their
// level.

// CHECK-DAG: #[[$NEAR:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 32 - 32, d0 * 32 + 64)>
// CHECK-DAG: #[[$LEFT1:.+]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 2) * 4 - 4, d0 * 2 - 2, 0, 16)>
// CHECK-DAG: #[[$RIGHT1:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 + 4, (d0 floordiv 2) * 4 + 8, 0, 16)>
// CHECK-DAG: #[[$LEFT2:.+]] = affine_map<(d0)[s0, s1] -> (16, (d0 floordiv 2) * 2 + 14, 16, 24)>
// CHECK-DAG: #[[$RIGHT2:.+]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 2) * 2 + 20, 24, 16, 24)>
// CHECK-LABEL: func @full
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: {{.*}}, %[[V:[a-z0-9]+]]: {{.*}}, %[[KW1:[a-z0-9]+]]: {{.*}}, %[[KW2:[a-z0-9]+]]: {{.*}}, %[[VW1:[a-z0-9]+]]: {{.*}}, %[[VW2:[a-z0-9]+]]: {{.*}}, %[[O:[a-z0-9]+]]: {{.*}})
// CHECK: %[[EK:.+]] = tensor.empty() : tensor<2x2x24x16xf32>
// CHECK: %[[S1:.+]] = tensor.extract_slice %[[EK]][0, 0, 0, 0] [2, 2, 16, 16] [1, 1, 1, 1]
// CHECK: %[[K1:.+]] = attn.summarize ins(%[[K]] : {{.*}}) weights(%[[KW1]] : {{.*}}) outs(%[[S1]] :
// CHECK: %[[P1:.+]] = tensor.insert_slice %[[K1]] into %[[EK]][0, 0, 0, 0] [2, 2, 16, 16] [1, 1, 1, 1]
// CHECK: %[[S2:.+]] = tensor.extract_slice %[[P1]][0, 0, 16, 0] [2, 2, 8, 16] [1, 1, 1, 1]
// CHECK: %[[K2:.+]] = attn.summarize ins(%[[K]] : {{.*}}) weights(%[[KW2]] : {{.*}}) outs(%[[S2]] :
// CHECK: %[[KEYS:.+]] = tensor.insert_slice %[[K2]] into %[[P1]][0, 0, 16, 0] [2, 2, 8, 16] [1, 1, 1, 1]
// CHECK: %[[EV:.+]] = tensor.empty() : tensor<2x2x24x8xf32>
// CHECK: attn.summarize ins(%[[V]] : {{.*}}) weights(%[[VW1]] : {{.*}}) outs(
// CHECK: attn.summarize ins(%[[V]] : {{.*}}) weights(%[[VW2]] : {{.*}}) outs(
// CHECK: %[[VALUES:.+]] = tensor.insert_slice %{{.*}} into %{{.*}}[0, 0, 16, 0] [2, 2, 8, 8] [1, 1, 1, 1]
// CHECK: %[[W:.+]] = arith.constant dense<{{\[\[\[(2.77258873, ){16}(3.46573591, ){7}3.46573591]]]}}> : tensor<1x1x24xf32>
// CHECK: %[[OUT:.+]] = attn.stream query(%[[Q]] : tensor<2x4x256x16xf32>)
// CHECK-NEXT: source(%[[K]], %[[V]] : tensor<2x2x256x16xf32>, tensor<2x2x256x8xf32>) ranges [#[[$NEAR]]]{{$}}
// CHECK-NEXT: source(%[[KEYS]], %[[VALUES]] : {{.*}}) log_weight(%[[W]] : {{.*}}) ranges [#[[$LEFT1]], #[[$RIGHT1]], #[[$LEFT2]], #[[$RIGHT2]]]{{$}}
// CHECK-NEXT: outs(%[[O]] : tensor<2x4x256x8xf32>) {block = 32 : i64, scale = 2.500000e-01 : f64}
// CHECK: return %[[OUT]]
func.func @full(%q: tensor<2x4x256x16xf32>, %k: tensor<2x2x256x16xf32>,
                %v: tensor<2x2x256x8xf32>, %kw1: tensor<1x2x32x16xf32>,
                %kw2: tensor<2x2x64x16xf32>, %vw1: tensor<1x2x32x8xf32>,
                %vw2: tensor<1x2x64x8xf32>, %o: tensor<2x4x256x8xf32>)
    -> tensor<2x4x256x8xf32> {
  %out = attn.fast_multipole
      ins(%q, %k, %v : tensor<2x4x256x16xf32>, tensor<2x2x256x16xf32>, tensor<2x2x256x8xf32>)
      key_weights(%kw1, %kw2 : tensor<1x2x32x16xf32>, tensor<2x2x64x16xf32>)
      value_weights(%vw1, %vw2 : tensor<1x2x32x8xf32>, tensor<1x2x64x8xf32>)
      outs(%o : tensor<2x4x256x8xf32>) {group = 32 : i64} -> tensor<2x4x256x8xf32>
  return %out : tensor<2x4x256x8xf32>
}

// -----

// Causal: left ranges alone, the near field masked. Level 1 has a summary per
// token, hence log weight 0. The last interval of level 2 lacks two tokens, but
// no query reads it: ln 2 for all. Biases, lse, dynamic extents.

// CHECK-DAG: #[[$NEAR:.+]] = affine_map<(d0)[s0, s1] -> (d0 * 2 - 2, d0 * 2 + 2)>
// CHECK-DAG: #[[$LEFT1:.+]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 2) * 4 - 4, d0 * 2 - 2, 0, 10)>
// CHECK-DAG: #[[$LEFT2:.+]] = affine_map<(d0)[s0, s1] -> (10, (d0 floordiv 2) * 2 + 8, 10, 16)>
// CHECK-LABEL: func @causal
// CHECK-SAME: (%[[Q:[a-z0-9]+]]: {{.*}}, %[[K:[a-z0-9]+]]: {{.*}}, %[[V:[a-z0-9]+]]: {{.*}}, %[[W1:[a-z0-9]+]]: {{.*}}, %[[W2:[a-z0-9]+]]: {{.*}}, %[[B1:[a-z0-9]+]]: {{.*}}, %[[B2:[a-z0-9]+]]: {{.*}}, %[[O:[a-z0-9]+]]: {{.*}}, %[[L:[a-z0-9]+]]: {{.*}})
// CHECK-DAG: %[[BATCH:.+]] = tensor.dim %[[K]], %c0
// CHECK-DAG: %[[HEADS:.+]] = tensor.dim %[[K]], %c1
// CHECK: tensor.empty(%[[BATCH]], %[[HEADS]]) : tensor<?x?x16x4xf32>
// CHECK: attn.summarize ins(%[[K]] : {{.*}}) weights(%[[W1]] : {{.*}}) bias(%[[B1]] : {{.*}}) outs(%{{.*}} : tensor<?x?x10x4xf32>)
// CHECK: attn.summarize ins(%[[K]] : {{.*}}) weights(%[[W2]] : {{.*}}) bias(%[[B2]] : {{.*}}) outs(%{{.*}} : tensor<?x?x6x4xf32>)
// CHECK: attn.summarize ins(%[[V]] : {{.*}}) weights(%[[W1]] : {{.*}}) outs(
// CHECK: attn.summarize ins(%[[V]] : {{.*}}) weights(%[[W2]] : {{.*}}) outs(
// CHECK: %[[LOG:.+]] = arith.constant dense<{{\[\[\[(0.000000e\+00, ){10}(0.693147182, ){5}0.693147182]]]}}> : tensor<1x1x16xf32>
// CHECK: attn.stream query(%[[Q]] :
// CHECK-NEXT: source(%[[K]], %[[V]] : {{.*}}) ranges [#[[$NEAR]]] mask <causal>{{$}}
// CHECK-NEXT: source({{.*}}xf32>) log_weight(%[[LOG]] : {{.*}}) ranges [#[[$LEFT1]], #[[$LEFT2]]]{{$}}
// CHECK-NEXT: outs(%[[O]], %[[L]] : tensor<?x?x10x4xbf16>, tensor<?x?x10xf32>) {block = 2 : i64, scale = 3.000000e-01 : f64}
func.func @causal(%q: tensor<?x?x10x4xbf16>, %k: tensor<?x?x10x4xbf16>,
                  %v: tensor<?x?x10x4xbf16>, %w1: tensor<1x2x2x4xbf16>,
                  %w2: tensor<1x2x4x4xbf16>, %b1: tensor<1x2x4xbf16>,
                  %b2: tensor<1x2x4xbf16>, %o: tensor<?x?x10x4xbf16>,
                  %l: tensor<?x?x10xf32>)
    -> (tensor<?x?x10x4xbf16>, tensor<?x?x10xf32>) {
  %out:2 = attn.fast_multipole
      ins(%q, %k, %v : tensor<?x?x10x4xbf16>, tensor<?x?x10x4xbf16>, tensor<?x?x10x4xbf16>)
      key_weights(%w1, %w2 : tensor<1x2x2x4xbf16>, tensor<1x2x4x4xbf16>)
      value_weights(%w1, %w2 : tensor<1x2x2x4xbf16>, tensor<1x2x4x4xbf16>)
      key_biases(%b1, %b2 : tensor<1x2x4xbf16>, tensor<1x2x4xbf16>)
      outs(%o, %l : tensor<?x?x10x4xbf16>, tensor<?x?x10xf32>)
      {group = 2 : i64, causal, scale = 0.3 : f64}
      -> tensor<?x?x10x4xbf16>, tensor<?x?x10xf32>
  return %out#0, %out#1 : tensor<?x?x10x4xbf16>, tensor<?x?x10xf32>
}

// -----

// 11 tokens in groups of 4, rank 2: the summaries of the third interval stand
// for 2 tokens and for 1.

// CHECK-LABEL: func @ragged
// CHECK: %[[LOG:.+]] = arith.constant dense<{{\[\[\[}}0.69314718055994{{[0-9]*}}, 0.69314718055994{{[0-9]*}}, 0.69314718055994{{[0-9]*}}, 0.69314718055994{{[0-9]*}}, 0.69314718055994{{[0-9]*}}, 0.000000e+00]]]> : tensor<1x1x6xf64>
// CHECK: log_weight(%[[LOG]] : tensor<1x1x6xf64>)
func.func @ragged(%x: tensor<1x1x11x4xf64>, %w: tensor<1x2x4x4xf64>) -> tensor<1x1x11x4xf64> {
  %out = attn.fast_multipole
      ins(%x, %x, %x : tensor<1x1x11x4xf64>, tensor<1x1x11x4xf64>, tensor<1x1x11x4xf64>)
      key_weights(%w : tensor<1x2x4x4xf64>) value_weights(%w : tensor<1x2x4x4xf64>)
      outs(%x : tensor<1x1x11x4xf64>) {group = 4 : i64} -> tensor<1x1x11x4xf64>
  return %out : tensor<1x1x11x4xf64>
}

// -----

// Without multiplicity a summary counts once, if one of its tokens is present:
// here the last is masked, where N = 10 leaves its two tokens absent.

// CHECK-LABEL: func @once
// CHECK: %[[LOG:.+]] = arith.constant dense<{{\[\[\[}}0.000000e+00, 0.000000e+00, 0.000000e+00, 0.000000e+00, 0.000000e+00, 0xFF800000]]]> : tensor<1x1x6xf32>
// CHECK: log_weight(%[[LOG]] : tensor<1x1x6xf32>)
func.func @once(%x: tensor<1x1x10x4xf32>, %w: tensor<1x2x4x4xf32>) -> tensor<1x1x10x4xf32> {
  %out = attn.fast_multipole
      ins(%x, %x, %x : tensor<1x1x10x4xf32>, tensor<1x1x10x4xf32>, tensor<1x1x10x4xf32>)
      key_weights(%w : tensor<1x2x4x4xf32>) value_weights(%w : tensor<1x2x4x4xf32>)
      outs(%x : tensor<1x1x10x4xf32>) {group = 4 : i64, multiplicity = false} -> tensor<1x1x10x4xf32>
  return %out : tensor<1x1x10x4xf32>
}

// CHECK-LABEL: func @once_none_absent
// CHECK-NOT: arith.constant dense
// CHECK-NOT: log_weight
// CHECK: return
func.func @once_none_absent(%x: tensor<1x1x16x4xf32>, %w: tensor<1x2x4x4xf32>) -> tensor<1x1x16x4xf32> {
  %out = attn.fast_multipole
      ins(%x, %x, %x : tensor<1x1x16x4xf32>, tensor<1x1x16x4xf32>, tensor<1x1x16x4xf32>)
      key_weights(%w : tensor<1x2x4x4xf32>) value_weights(%w : tensor<1x2x4x4xf32>)
      outs(%x : tensor<1x1x16x4xf32>) {group = 4 : i64, multiplicity = false} -> tensor<1x1x16x4xf32>
  return %out : tensor<1x1x16x4xf32>
}

// -----

// Two groups neighbour each other: dense attention.

// CHECK: #[[$ALL:.+]] = affine_map<(d0)[s0, s1] -> (0, s0)>
// CHECK-LABEL: func @no_levels
// CHECK-NOT: attn.summarize
// CHECK: attn.stream
// CHECK-NEXT: source({{.*}}) ranges [#[[$ALL]]] mask <causal>{{$}}
// CHECK-NEXT: outs({{.*}}) {block = 0 : i64, scale = 5.000000e-01 : f64}
func.func @no_levels(%x: tensor<1x1x8x4xf32>) -> tensor<1x1x8x4xf32> {
  %out = attn.fast_multipole
      ins(%x, %x, %x : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>)
      outs(%x : tensor<1x1x8x4xf32>) {group = 4 : i64, causal} -> tensor<1x1x8x4xf32>
  return %out : tensor<1x1x8x4xf32>
}

// Absent rows are zeros, and absent keys have no weight; a summary weighs as
// much as it has tokens that are present.
// CHECK-LABEL: func @masked(
// CHECK-COUNT-3: arith.select
// CHECK: attn.log_count
// CHECK: attn.stream
// CHECK: arith.select
func.func @masked(%q: tensor<?x1x65x8xf32>, %w: tensor<1x2x32x8xf32>, %m: tensor<?x65xi1>, %o: tensor<?x1x65x8xf32>) -> tensor<?x1x65x8xf32> {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>) mask(%m : tensor<?x65xi1>)
      outs(%o : tensor<?x1x65x8xf32>) {group = 32 : i64} -> tensor<?x1x65x8xf32>
  return %0 : tensor<?x1x65x8xf32>
}
