// RUN: fovea-opt %s --split-input-file --verify-diagnostics

!q = tensor<2x4x9x6xf32>
!n = tensor<2x4xi32>

func.func @conv(%q: !q, %m: tensor<2x8xi1>, %n: !n) {
  // expected-error @below {{expects extent 1 of mask to be 9 (extent 2 of query), but got 8}}
  %0:3 = attn.conv ins(%q, %q, %q : !q, !q, !q) mask(%m : tensor<2x8xi1>) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  return
}

// -----

!q = tensor<2x4x9x6xf32>
!n = tensor<2x4xi32>

func.func @conv(%q: !q, %m: tensor<2x9xi32>, %n: !n) {
  // expected-error @below {{must be rank-2 tensor or memref of i1, but got 'tensor<2x9xi32>'}}
  %0:3 = attn.conv ins(%q, %q, %q : !q, !q, !q) mask(%m : tensor<2x9xi32>) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  return
}

// -----

!q = tensor<2x4x9x6xf32>
!k = tensor<2x4x7x6xf32>

func.func @low_rank(%q: !q, %k: !k, %m: tensor<2x9xi1>) {
  // expected-error @below {{expects extent 1 of key_mask to be 7 (extent 2 of u2), but got 9}}
  %0 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) query_mask(%m : tensor<2x9xi1>) key_mask(%m : tensor<2x9xi1>)
      outs(%q : !q) {mask = #attn.row_mask<causal>} -> !q
  return
}

// -----

!q = tensor<2x4x9x6xf32>

func.func @low_rank_backward(%q: !q, %m: tensor<1x9xi1>) {
  // expected-error @below {{expects extent 0 of query_mask to be 2 (extent 0 of u1), but got 1}}
  %0:3 = attn.low_rank_backward ins(%q, %q, %q : !q, !q, !q) query_mask(%m : tensor<1x9xi1>) forward(%q : !q) gradient(%q : !q)
      outs(%q, %q, %q : !q, !q, !q) {mask = #attn.row_mask<causal>} -> !q, !q, !q
  return
}

// -----

func.func @tree_score(%q: tensor<2x1x9x6xf32>, %m: tensor<2x8xi1>, %w: tensor<2x9xf32>) {
  // expected-error @below {{expects extent 1 of mask to be 9 (extent 2 of query), but got 8}}
  %0 = attn.tree_score ins(%q, %q : tensor<2x1x9x6xf32>, tensor<2x1x9x6xf32>) mask(%m : tensor<2x8xi1>) outs(%w : tensor<2x9xf32>) -> tensor<2x9xf32>
  return
}
