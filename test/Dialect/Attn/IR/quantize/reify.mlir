// RUN: fovea-opt %s --resolve-ranked-shaped-type-result-dims --canonicalize | FileCheck %s

// Results have the shapes of their destinations.
// CHECK-LABEL: func @shapes(
// CHECK-SAME: %[[Z:[^:]*]]: tensor<?x?x?xi32>, %[[M:[^:]*]]: tensor<?x?x?x4xf32>, %[[N:[^:]*]]: tensor<?x?x?xi32>
// CHECK-DAG: %[[C0:.*]] = arith.constant 0 : index
// CHECK-DAG: %[[C1:.*]] = arith.constant 1 : index
// CHECK-DAG: %[[C2:.*]] = arith.constant 2 : index
// CHECK-DAG: %[[A:.*]] = tensor.dim %[[Z]], %[[C2]]
// CHECK-DAG: %[[B:.*]] = tensor.dim %[[M]], %[[C1]]
// CHECK-DAG: %[[C:.*]] = tensor.dim %[[N]], %[[C0]]
// CHECK-NOT: attn.
// CHECK: return %[[A]], %[[B]], %[[C]]
func.func @shapes(%k: tensor<?x?x?x4xf32>, %c: tensor<1x5x4xf32>, %z: tensor<?x?x?xi32>, %m: tensor<?x?x?x4xf32>, %n: tensor<?x?x?xi32>) -> (index, index, index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %0 = attn.quantize ins(%k, %c : tensor<?x?x?x4xf32>, tensor<1x5x4xf32>) outs(%z : tensor<?x?x?xi32>) -> tensor<?x?x?xi32>
  %1:2 = attn.codebook_accumulate ins(%0, %k : tensor<?x?x?xi32>, tensor<?x?x?x4xf32>) outs(%m, %n : tensor<?x?x?x4xf32>, tensor<?x?x?xi32>)
      -> tensor<?x?x?x4xf32>, tensor<?x?x?xi32>
  %a = tensor.dim %0, %c2 : tensor<?x?x?xi32>
  %b = tensor.dim %1#0, %c1 : tensor<?x?x?x4xf32>
  %r = tensor.dim %1#1, %c0 : tensor<?x?x?xi32>
  return %a, %b, %r : index, index, index
}
