// RUN: fovea-opt %s --attn-expand-patterns | FileCheck %s
// RUN: fovea-opt %s --attn-expand-patterns --attn-cpu-pipeline -o %t

!q = tensor<2x4x9x6xf32>
!k = tensor<2x2x9x6xf32>
!m = tensor<2x9xi1>

// Factors of absent tokens are zeros.

// CHECK-LABEL: func @low_rank(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<2x4x9x6xf32>, %[[K:[^:]*]]: tensor<2x2x9x6xf32>, %[[M:[^:]*]]: tensor<2x9xi1>
// CHECK: %[[U1:.*]] = linalg.generic {{.*}} ins(%[[Q]], %[[M]]
// CHECK: arith.select
// CHECK: %[[U2:.*]] = linalg.generic {{.*}} ins(%[[K]], %[[M]]
// CHECK: %[[V:.*]] = linalg.generic {{.*}} ins(%[[K]], %[[M]]
// CHECK: %[[OUT:.*]] = attn.low_rank ins(%[[U1]], %[[U2]], %[[V]] : {{[^)]*}}) outs(
// CHECK: linalg.generic {{.*}} ins(%[[M]] : {{.*}}) outs(%[[OUT]] :
func.func @low_rank(%q: !q, %k: !k, %m: !m) -> !q {
  %0 = attn.low_rank ins(%q, %k, %k : !q, !k, !k) query_mask(%m : !m) key_mask(%m : !m)
      outs(%q : !q) {mask = #attn.row_mask<causal>} -> !q
  return %0 : !q
}

// CHECK-LABEL: func @low_rank_backward(
// CHECK-COUNT-5: arith.select
// CHECK: %[[G:.*]]:3 = attn.low_rank_backward ins({{[^)]*}}) forward(
// CHECK: linalg.generic {{.*}} outs(%[[G]]#0 :
// CHECK: linalg.generic {{.*}} outs(%[[G]]#1 :
// CHECK: linalg.generic {{.*}} outs(%[[G]]#2 :
// CHECK-NOT: linalg.generic
func.func @low_rank_backward(%q: !q, %k: !k, %m: !m) -> (!q, !k, !k) {
  %0:3 = attn.low_rank_backward ins(%q, %k, %k : !q, !k, !k) query_mask(%m : !m) key_mask(%m : !m) forward(%q : !q) gradient(%q : !q)
      outs(%q, %k, %k : !q, !k, !k) {mask = #attn.row_mask<causal>} -> !q, !k, !k
  return %0#0, %0#1, %0#2 : !q, !k, !k
}

// Keys as wide as the codebook; codes and codewords of absent tokens.

// CHECK-LABEL: func @quantize(
// CHECK-SAME: %[[K:[^:]*]]: tensor<2x2x9x6xbf16>, %[[M:[^:]*]]: tensor<2x9xi1>, %[[C:[^:]*]]: tensor<1x5x6xf32>
// CHECK: %[[WIDE:.*]] = arith.extf %[[K]]
// CHECK: %[[R:.*]]:2 = attn.quantize ins(%[[WIDE]], %[[C]] : {{[^)]*}}) outs(
// CHECK: %[[ROUNDED:.*]] = arith.truncf %[[R]]#1
// CHECK: linalg.generic {{.*}} ins(%[[M]] : {{.*}}) outs(%[[R]]#0 :
// CHECK: %[[NONE:.*]] = arith.constant -1 : i32
// CHECK: arith.select %{{.*}}, %{{.*}}, %[[NONE]]
// CHECK: linalg.generic {{.*}} ins(%[[M]] : {{.*}}) outs(%[[ROUNDED]] :
func.func @quantize(%k: tensor<2x2x9x6xbf16>, %m: !m, %c: tensor<1x5x6xf32>, %z: tensor<2x2x9xi32>) -> (tensor<2x2x9xi32>, tensor<2x2x9x6xbf16>) {
  %0:2 = attn.quantize ins(%k, %c : tensor<2x2x9x6xbf16>, tensor<1x5x6xf32>) mask(%m : !m)
      outs(%z, %k : tensor<2x2x9xi32>, tensor<2x2x9x6xbf16>) -> tensor<2x2x9xi32>, tensor<2x2x9x6xbf16>
  return %0#0, %0#1 : tensor<2x2x9xi32>, tensor<2x2x9x6xbf16>
}
