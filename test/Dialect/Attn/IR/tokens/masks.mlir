// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --canonicalize | FileCheck %s --check-prefix=FOLD

// Masks of tokens of operations of all families that have them. One that is true
// everywhere goes.

!q = tensor<2x4x9x6xf32>
!k = tensor<2x2x9x6xf32>
!n = tensor<2x4xi32>

// CHECK-LABEL: func @conv(
// CHECK: attn.conv ins({{.*}}) mask(%{{.*}} : tensor<2x9xi1>) outs(
// CHECK: attn.conv_backward ins({{.*}}) mask(%{{.*}} : tensor<2x9xi1>) forward(
// FOLD-LABEL: func @conv(
// FOLD: attn.conv ins({{.*}}) mask(%{{.*}} : tensor<2x9xi1>) outs(
func.func @conv(%q: !q, %k: !k, %m: tensor<2x9xi1>, %n: !n) -> (!q, !q) {
  %0:3 = attn.conv ins(%q, %k, %k : !q, !k, !k) mask(%m : tensor<2x9xi1>) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  %1:3 = attn.conv_backward ins(%q, %k, %k : !q, !k, !k) mask(%m : tensor<2x9xi1>) forward(%0#0 : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !k, !k
  return %0#0, %1#0 : !q, !q
}

// CHECK-LABEL: func @low_rank(
// CHECK: attn.low_rank ins({{.*}}) query_mask(%{{.*}} : tensor<2x9xi1>) key_mask(%{{.*}} : tensor<2x9xi1>) outs(
// CHECK: attn.low_rank ins({{.*}}) mask(%{{.*}}, %{{.*}}) key_mask(%{{.*}} : tensor<2x9xi1>) outs(
// CHECK: attn.low_rank_backward ins({{.*}}) query_mask(%{{.*}} : tensor<2x9xi1>) forward(
func.func @low_rank(%q: !q, %k: !k, %m: tensor<2x9xi1>, %p: tensor<1x1x9xi32>) -> (!q, !q, !q) {
  %0 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) query_mask(%m : tensor<2x9xi1>) key_mask(%m : tensor<2x9xi1>)
      outs(%q : !q) {mask = #attn.row_mask<causal>} -> !q
  %1 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) mask(%p, %p : tensor<1x1x9xi32>, tensor<1x1x9xi32>) key_mask(%m : tensor<2x9xi1>)
      outs(%q : !q) {mask = #attn.row_mask<row_interval>} -> !q
  %2:3 = attn.low_rank_backward ins(%q, %k, %k : !q, !k, !k) query_mask(%m : tensor<2x9xi1>) forward(%0 : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {mask = #attn.row_mask<causal>} -> !q, !k, !k
  return %0, %1, %2#0 : !q, !q, !q
}

// CHECK-LABEL: func @tree(
// CHECK: attn.tree_score ins({{.*}}) log_weight({{.*}}) mask(%{{.*}} : tensor<2x9xi1>) outs(
// CHECK: attn.tree_score ins({{.*}}) mask(%{{.*}} : tensor<2x9xi1>) outs({{.*}}) {exponential}
// CHECK: attn.tree_fetch {{.*}} whole_segments
// FOLD-LABEL: func @tree(
// FOLD: attn.tree_score ins({{[^)]*}}) log_weight({{[^)]*}}) outs(
func.func @tree(%q: tensor<2x1x9x6xf32>, %m: tensor<2x9xi1>, %w: tensor<2x9xf32>, %t: tensor<2x7x5xf32>, %n: tensor<2x3xi32>, %r: tensor<2x3x5xf32>, %l: tensor<2x3xf32>, %c: tensor<2x7xi32>) -> (tensor<2x9xf32>, tensor<2x9xf32>, tensor<2x3xf32>) {
  %true = arith.constant dense<true> : tensor<2x9xi1>
  %0 = attn.tree_score ins(%q, %q : tensor<2x1x9x6xf32>, tensor<2x1x9x6xf32>) log_weight(%w : tensor<2x9xf32>) mask(%true : tensor<2x9xi1>)
      outs(%w : tensor<2x9xf32>) -> tensor<2x9xf32>
  %1 = attn.tree_score ins(%q, %q : tensor<2x1x9x6xf32>, tensor<2x1x9x6xf32>) mask(%m : tensor<2x9xi1>)
      outs(%w : tensor<2x9xf32>) {exponential} -> tensor<2x9xf32>
  %2:2 = attn.tree_fetch ins(%t : tensor<2x7x5xf32>) nodes(%n, %n : tensor<2x3xi32>, tensor<2x3xi32>) counts(%c : tensor<2x7xi32>)
      outs(%r, %l : tensor<2x3x5xf32>, tensor<2x3xf32>) {shape = #attn.tree<ratio = 2, levels = 2>, whole_segments} -> tensor<2x3x5xf32>, tensor<2x3xf32>
  return %0, %1, %2#1 : tensor<2x9xf32>, tensor<2x9xf32>, tensor<2x3xf32>
}

// FOLD-LABEL: func @full(
// FOLD: attn.low_rank ins({{[^)]*}}) query_mask(%{{[^)]*}}) outs(
// FOLD: attn.conv ins({{[^)]*}}) outs(
// FOLD: attn.low_rank_backward ins({{[^)]*}}) forward(
// FOLD: attn.conv_backward ins({{[^)]*}}) forward(
func.func @full(%q: !q, %k: !k, %m: tensor<2x9xi1>, %n: !n) -> (!q, !q, !q, !q) {
  %true = arith.constant dense<true> : tensor<2x9xi1>
  %0 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) query_mask(%m : tensor<2x9xi1>) key_mask(%true : tensor<2x9xi1>)
      outs(%q : !q) {mask = #attn.row_mask<causal>} -> !q
  %1:3 = attn.conv ins(%q, %k, %k : !q, !k, !k) mask(%true : tensor<2x9xi1>) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  %2:3 = attn.low_rank_backward ins(%q, %k, %k : !q, !k, !k) query_mask(%true : tensor<2x9xi1>) forward(%0 : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {mask = #attn.row_mask<causal>} -> !q, !k, !k
  %3:3 = attn.conv_backward ins(%q, %k, %k : !q, !k, !k) mask(%true : tensor<2x9xi1>) forward(%1#0 : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !k, !k
  return %0, %1#0, %2#0, %3#0 : !q, !q, !q, !q
}
