// RUN: fovea-opt %s --resolve-ranked-shaped-type-result-dims --canonicalize | FileCheck %s

// A result has the shape of its destination.
// CHECK-LABEL: func @dense(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x?x?x8xf32>, %[[K:[^:]*]]: tensor<?x?x?x8xf32>, %[[O:[^:]*]]: tensor<?x?x?x8xf32>, %[[L:[^:]*]]: tensor<?x4x?xf32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[C4:.*]] = arith.constant 4 : index
// CHECK-DAG: %[[C8:.*]] = arith.constant 8 : index
// CHECK-DAG: %[[B:.*]] = tensor.dim %[[O]], %[[C0]]
// CHECK-DAG: %[[N:.*]] = tensor.dim %[[O]], %[[C2]]
// CHECK-DAG: %[[R:.*]] = tensor.dim %[[L]], %[[C2]]
// CHECK-NOT: attn.dense
// CHECK: return %[[B]], %[[N]], %[[C8]], %[[C4]], %[[R]]
func.func @dense(%q: tensor<?x?x?x8xf32>, %k: tensor<?x?x?x8xf32>, %o: tensor<?x?x?x8xf32>, %l: tensor<?x4x?xf32>) -> (index, index, index, index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %0, %1 = attn.dense ins(%q, %k, %k : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>)
      outs(%o, %l : tensor<?x?x?x8xf32>, tensor<?x4x?xf32>) -> tensor<?x?x?x8xf32>, tensor<?x4x?xf32>
  %b = tensor.dim %0, %c0 : tensor<?x?x?x8xf32>
  %n = tensor.dim %0, %c2 : tensor<?x?x?x8xf32>
  %e = tensor.dim %0, %c3 : tensor<?x?x?x8xf32>
  %h = tensor.dim %1, %c1 : tensor<?x4x?xf32>
  %r = tensor.dim %1, %c2 : tensor<?x4x?xf32>
  return %b, %n, %e, %h, %r : index, index, index, index, index
}

// CHECK-LABEL: func @stream(
// CHECK-SAME: %[[Q:[^:]*]]: tensor<?x?x?x8xf32>, %[[O:[^:]*]]: tensor<?x?x?x8xf32>)
// CHECK: %[[C1:.*]] = arith.constant 1 : index
// CHECK: %[[H:.*]] = tensor.dim %[[O]], %[[C1]]
// CHECK-NOT: attn.stream
// CHECK: return %[[H]]
func.func @stream(%q: tensor<?x?x?x8xf32>, %o: tensor<?x?x?x8xf32>) -> index {
  %c1 = arith.constant 1 : index
  %0 = attn.stream query(%q : tensor<?x?x?x8xf32>) source(%q, %q : tensor<?x?x?x8xf32>, tensor<?x?x?x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : tensor<?x?x?x8xf32>) {scale = 1.0} -> tensor<?x?x?x8xf32>
  %h = tensor.dim %0, %c1 : tensor<?x?x?x8xf32>
  return %h : index
}
