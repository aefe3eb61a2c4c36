// RUN: fovea-opt %s --attn-expand-patterns --attn-expand-conv | FileCheck %s
// RUN: fovea-opt %s --attn-expand-patterns --attn-expand-conv --attn-cpu-pipeline -o %t

!q = tensor<2x4x9x6xf32>
!k = tensor<2x2x9x6xf32>
!m = tensor<2x9xi1>
!n = tensor<2x4xi32>

// The tokens that are present are packed, and searched up to their number.

// CHECK-LABEL: func @conv(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x4x9x6xf32>, %[[K:[^:]*]]: tensor<2x2x9x6xf32>, %[[M:[^:]*]]: tensor<2x9xi1>
// CHECK: %[[T:.*]]:3 = attn.list_tokens ins(%[[M]]
// CHECK: %[[QP:.*]] = attn.take_rows ins(%[[Q]], %[[T]]#0
// CHECK: %[[KP:.*]] = attn.take_rows ins(%[[K]], %[[T]]#0
// CHECK: %[[VP:.*]] = attn.take_rows ins(%[[K]], %[[T]]#0
// CHECK: attn.conv_recover ins(%[[QP]], %[[KP]] {{.*}}) lengths(%[[T]]#2 : tensor<2xi32>)
// CHECK: %[[OUT:.*]]:2 = attn.conv_apply ins({{.*}}, %[[VP]]
// CHECK: attn.take_rows ins(%[[OUT]]#0, %[[T]]#1
func.func @conv(%q: !q, %k: !k, %m: !m, %n: !n) -> !q {
  %0:3 = attn.conv ins(%q, %k, %k : !q, !k, !k) mask(%m : !m) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  return %0#0 : !q
}

// A pair of groups has what is left of the tokens from its first row on.

// CHECK-LABEL: func @groups(
// CHECK: %[[T:.*]]:3 = attn.list_tokens
// CHECK: attn.conv_recover {{.*}} lengths(%[[T]]#2 : tensor<2xi32>)
// CHECK: scf.for
// CHECK: %[[REST:.*]] = linalg.generic {{.*}} ins(%[[T]]#2
// CHECK: arith.subi
// CHECK: attn.conv_recover {{.*}} lengths(%[[REST]] : tensor<2xi32>)
func.func @groups(%q: !q, %k: !k, %m: !m, %n: !n) -> !q {
  %0:3 = attn.conv ins(%q, %k, %k : !q, !k, !k) mask(%m : !m) outs(%q, %n, %n : !q, !n, !n)
      {num_basis = 2 : i64, window = 2 : i64, group = 3 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !n, !n
  return %0#0 : !q
}

// CHECK-LABEL: func @conv_backward(
// CHECK: %[[T:.*]]:3 = attn.list_tokens
// CHECK-COUNT-5: attn.take_rows ins(%{{.*}}, %[[T]]#0
// CHECK: attn.conv_recover_backward
// CHECK-COUNT-3: attn.take_rows ins(%{{.*}}, %[[T]]#1
func.func @conv_backward(%q: !q, %k: !k, %m: !m) -> (!q, !k, !k) {
  %0:3 = attn.conv_backward ins(%q, %k, %k : !q, !k, !k) mask(%m : !m) forward(%q : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {num_basis = 2 : i64, window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> !q, !k, !k
  return %0#0, %0#1, %0#2 : !q, !k, !k
}

// Factors of absent tokens are zeros.

// CHECK-LABEL: func @low_rank(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x4x9x6xf32>, %[[K:[^:]*]]: tensor<2x2x9x6xf32>, %[[M:[^:]*]]: tensor<2x9xi1>
// CHECK: %[[U1:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[M]]
// CHECK: arith.select
// CHECK: %[[U2:.*]] = linalg.generic {{.*}} ins(%[[K]], %[[M]]
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[K]], %[[M]]
// CHECK: attn.low_rank ins(%[[U1]], %[[U2]], %[[V]] : {{[^)]*}}) outs(
func.func @low_rank(%q: !q, %k: !k, %m: !m) -> !q {
  %0 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) query_mask(%m : !m) key_mask(%m : !m)
      outs(%q : !q) {mask = #attn.row_mask<causal>} -> !q
  return %0 : !q
}

// CHECK-LABEL: func @low_rank_backward(
// CHECK-COUNT-5: arith.select
// CHECK: %[[G:.*]]:3 = attn.low_rank_backward ins({{[^)]*}}) forward(
// CHECK: linalg.generic {{.*}} ins(%[[G]]#1,
// CHECK-NOT: linalg.generic
func.func @low_rank_backward(%q: !q, %k: !k, %m: !m) -> (!q, !k, !k) {
  %0:3 = attn.low_rank_backward ins(%q, %k, %k : !q, !k, !k) query_mask(%m : !m) key_mask(%m : !m) forward(%q : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {mask = #attn.row_mask<causal>} -> !q, !k, !k
  return %0#0, %0#1, %0#2 : !q, !k, !k
}
