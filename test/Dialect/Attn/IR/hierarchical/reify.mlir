// RUN: fovea-opt %s --resolve-ranked-shaped-type-result-dims --canonicalize | FileCheck %s

// CHECK-LABEL: func @summarize(
// CHECK-SAME: %{{[^:]*}}: tensor<?x4x?x8xf32>, %{{[^:]*}}: tensor<1x2x16x8xf32>, %[[O:[^:]*]]: tensor<?x4x?x8xf32>
// CHECK: %[[C2:.*]] = arith.constant 2 : index
// CHECK: %[[R:.*]] = tensor.dim %[[O]], %[[C2]]
// CHECK-NOT: attn.summarize
// CHECK: return %[[R]]
func.func @summarize(%x: tensor<?x4x?x8xf32>, %w: tensor<1x2x16x8xf32>, %o: tensor<?x4x?x8xf32>) -> index {
  %c2 = arith.constant 2 : index
  %0 = attn.summarize ins(%x : tensor<?x4x?x8xf32>) weights(%w : tensor<1x2x16x8xf32>) outs(%o : tensor<?x4x?x8xf32>) -> tensor<?x4x?x8xf32>
  %r = tensor.dim %0, %c2 : tensor<?x4x?x8xf32>
  return %r : index
}

// CHECK-LABEL: func @fast_multipole(
// CHECK-SAME: %{{[^:]*}}: tensor<?x?x128x8xf32>, %{{[^:]*}}: tensor<1x2x32x8xf32>, %[[O:[^:]*]]: tensor<?x?x128x8xf32>, %[[L:[^:]*]]: tensor<?x?x128xf32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C128:.*]] = arith.constant 128 : index
// CHECK-DAG: %[[B:.*]] = tensor.dim %[[O]], %[[C0]]
// CHECK-DAG: %[[H:.*]] = tensor.dim %[[L]], %[[C1]]
// CHECK-DAG: %[[G:.*]] = tensor.dim %[[O]], %[[C1]]
// CHECK-NOT: attn.
// CHECK: return %[[B]], %[[C128]], %[[H]], %[[G]]
func.func @fast_multipole(%q: tensor<?x?x128x8xf32>, %w: tensor<1x2x32x8xf32>, %o: tensor<?x?x128x8xf32>, %l: tensor<?x?x128xf32>) -> (index, index, index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %0, %1 = attn.fast_multipole ins(%q, %q, %q : tensor<?x?x128x8xf32>, tensor<?x?x128x8xf32>, tensor<?x?x128x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      outs(%o, %l : tensor<?x?x128x8xf32>, tensor<?x?x128xf32>) {group = 32 : i64} -> tensor<?x?x128x8xf32>, tensor<?x?x128xf32>
  %2 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<?x?x128x8xf32>, tensor<?x?x128x8xf32>, tensor<?x?x128x8xf32>)
      query_weights(%w : tensor<1x2x32x8xf32>) key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      outs(%0 : tensor<?x?x128x8xf32>) {group = 32 : i64} -> tensor<?x?x128x8xf32>
  %b = tensor.dim %0, %c0 : tensor<?x?x128x8xf32>
  %n = tensor.dim %0, %c2 : tensor<?x?x128x8xf32>
  %h = tensor.dim %1, %c1 : tensor<?x?x128xf32>
  %g = tensor.dim %2, %c1 : tensor<?x?x128x8xf32>
  return %b, %n, %h, %g : index, index, index, index
}
