// RUN: fovea-opt %s --attn-expand-patterns --canonicalize --cse | FileCheck %s

// Levels lie where the number of tokens says, and ranges are those of levels
// between others. No two of them can overlap.
//   CHECK-DAG: #[[$ROWS:.*]] = affine_map<()[s0] -> (s0 ceildiv 8)>
//   CHECK-DAG: #[[$ALL:.*]] = affine_map<()[s0] -> (s0 ceildiv 8 + s0 ceildiv 16)>
//   CHECK-DAG: #[[$COARSE:.*]] = affine_map<()[s0] -> (s0 ceildiv 16)>
//   CHECK-DAG: #[[$FIRST:.*]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 2) * 2 - 2, d0 - 1, 0, s1 ceildiv 8)>
//   CHECK-DAG: #[[$SECOND:.*]] = affine_map<(d0)[s0, s1] -> ((d0 floordiv 4) * 2 + s1 ceildiv 8 - 2, d0 floordiv 2 + s1 ceildiv 8 - 1, s1 ceildiv 8, s1 ceildiv 8 + s1 ceildiv 16)>
// CHECK-LABEL: func.func @causal(
//  CHECK-SAME:   %[[Q:.*]]: tensor<1x1x?x4xf32>, %[[W1:.*]]: tensor<1x1x8x4xf32>, %[[W2:[^:]*]]:
//       CHECK:   %[[N:.*]] = tensor.dim %[[Q]]
//       CHECK:   affine.apply #[[$ALL]]()[%[[N]]]
//       CHECK:   affine.apply #[[$ROWS]]()[%[[N]]]
//       CHECK:   attn.summarize ins(%[[Q]] : tensor<1x1x?x4xf32>) weights(%[[W1]]
//       CHECK:   affine.apply #[[$COARSE]]()[%[[N]]]
//       CHECK:   attn.summarize ins(%[[Q]] : tensor<1x1x?x4xf32>) weights(%[[W2]]
// A summary of whole intervals counts as often as it has tokens.
//       CHECK:   linalg.fill ins(%c8_i32
//       CHECK:   linalg.fill ins(%c16_i32
//       CHECK:   attn.log_count
//       CHECK:   ranges [#[[$FIRST]], #[[$SECOND]]]
func.func @causal(%q: tensor<1x1x?x4xf32>, %w1: tensor<1x1x8x4xf32>, %w2: tensor<1x1x16x4xf32>,
                  %o: tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32> {
  %r = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
      key_weights(%w1, %w2 : tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>)
      value_weights(%w1, %w2 : tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>)
      outs(%o : tensor<1x1x?x4xf32>) {group = 8 : i64, causal} -> tensor<1x1x?x4xf32>
  return %r : tensor<1x1x?x4xf32>
}

// Of a static number of tokens, those of more levels are not used.
// CHECK-LABEL: func.func @surplus(
//  CHECK-SAME:   %[[Q:.*]]: tensor<1x1x32x4xf32>, %[[W1:.*]]: tensor<1x1x8x4xf32>, %[[W2:[^:]*]]:
//   CHECK-NOT:   %[[W2]]
//       CHECK:   attn.summarize ins(%[[Q]] : tensor<1x1x32x4xf32>) weights(%[[W1]]
//   CHECK-NOT:   %[[W2]]
//       CHECK:   return
func.func @surplus(%q: tensor<1x1x32x4xf32>, %w1: tensor<1x1x8x4xf32>, %w2: tensor<1x1x16x4xf32>,
                   %o: tensor<1x1x32x4xf32>) -> tensor<1x1x32x4xf32> {
  %r = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x32x4xf32>, tensor<1x1x32x4xf32>, tensor<1x1x32x4xf32>)
      key_weights(%w1, %w2 : tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>)
      value_weights(%w1, %w2 : tensor<1x1x8x4xf32>, tensor<1x1x16x4xf32>)
      outs(%o : tensor<1x1x32x4xf32>) {group = 8 : i64} -> tensor<1x1x32x4xf32>
  return %r : tensor<1x1x32x4xf32>
}
