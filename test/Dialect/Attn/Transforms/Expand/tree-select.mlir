// RUN: fovea-opt %s --attn-expand-tree-select --split-input-file | FileCheck %s

#tree = #attn.tree<ratio = 4, levels = 2>

// At level 2 all of the one root is split, without scores; at level 1 two of four.

// CHECK-LABEL: func @two_levels(
// CHECK-SAME: %[[T:[^:]*]]: tensor<1x21x8xf32>, %[[LI:[^:]*]]: tensor<1x10xi32>, %[[II:[^:]*]]: tensor<1x10xi32>
// CHECK: %[[S2:.*]]:3 = attn.tree_split outs({{.*}} : tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>) {at = 2 : i64, {{.*}}split = 1 : i64}
// CHECK: %[[LEVELS:.*]] = linalg.generic
// CHECK: %[[ROWS:.*]] = attn.tree_fetch ins(%[[T]] : tensor<1x21x8xf32>) nodes(%[[LEVELS]], %[[S2]]#2 : tensor<1x4xi32>, tensor<1x4xi32>)
// CHECK: %[[CAST:.*]] = tensor.cast %[[ROWS]] : tensor<1x4x8xf32> to tensor<1x?x8xf32>
// CHECK: %[[SLICE:.*]] = tensor.extract_slice %[[CAST]]
// CHECK: %[[SCORES:.*]] = tensor.cast %[[SLICE]] : tensor<1x?xf32> to tensor<1x4xf32>
// A column is copied, so that it lies in memory as a list.
// CHECK: %[[LIST:.*]] = bufferization.alloc_tensor() copy(%[[SCORES]]) : tensor<1x4xf32>
// CHECK: %[[S1:.*]]:3 = attn.tree_split scores(%[[LIST]] : tensor<1x4xf32>) frontier(%[[S2]]#2, %[[S2]]#0, %[[S2]]#1 : {{.*}}) outs(%[[LI]], %[[II]], %{{.*}} : tensor<1x10xi32>, tensor<1x10xi32>, tensor<1x8xi32>) {at = 1 : i64, {{.*}}split = 2 : i64}
// CHECK: return %[[S1]]#0, %[[S1]]#1
func.func @two_levels(%t: tensor<1x21x8xf32>, %l: tensor<1x10xi32>, %i: tensor<1x10xi32>) -> (tensor<1x10xi32>, tensor<1x10xi32>) {
  %level, %index = attn.tree_select ins(%t : tensor<1x21x8xf32>) outs(%l, %i : tensor<1x10xi32>, tensor<1x10xi32>)
      {shape = #tree, budgets = array<i64: 2, 1>} -> tensor<1x10xi32>, tensor<1x10xi32> score {
  ^bb0(%rows: tensor<1x?x8xf32>):
    %c1 = arith.constant 1 : index
    %n = tensor.dim %rows, %c1 : tensor<1x?x8xf32>
    %s = tensor.extract_slice %rows[0, 0, 0] [1, %n, 1] [1, 1, 1] : tensor<1x?x8xf32> to tensor<1x?xf32>
    attn.yield %s : tensor<1x?xf32>
  }
  return %level, %index : tensor<1x10xi32>, tensor<1x10xi32>
}

// -----

// The rows of the roots are a view of the tree.

// CHECK-LABEL: func @roots(
// CHECK-SAME: %[[T:[^:]*]]: tensor<1x20x8xf32>
// CHECK-NOT: attn.tree_fetch
// CHECK: tensor.extract_slice %[[T]][0, 0, 0] [1, 4, 8] [1, 1, 1] : tensor<1x20x8xf32> to tensor<1x4x8xf32>
// CHECK: attn.tree_split scores(
// CHECK-NOT: attn.tree_split
// CHECK: return
func.func @roots(%t: tensor<1x20x8xf32>, %l: tensor<1x7xi32>, %i: tensor<1x7xi32>) -> tensor<1x7xi32> {
  %level, %index = attn.tree_select ins(%t : tensor<1x20x8xf32>) outs(%l, %i : tensor<1x7xi32>, tensor<1x7xi32>)
      {shape = #attn.tree<ratio = 4, levels = 1>, budgets = array<i64: 1>} -> tensor<1x7xi32>, tensor<1x7xi32> score {
  ^bb0(%rows: tensor<1x4x8xf32>):
    %s = tensor.extract_slice %rows[0, 0, 0] [1, 4, 1] [1, 1, 1] : tensor<1x4x8xf32> to tensor<1x4xf32>
    attn.yield %s : tensor<1x4xf32>
  }
  return %index : tensor<1x7xi32>
}

// -----

// The factor of every node is 1.

// CHECK-LABEL: func @factor(
// CHECK-SAME: %[[F:[^:]*]]: tensor<1x7xf32>)
// CHECK: %[[ONE:.*]] = arith.constant 1.000000e+00 : f32
// CHECK: %[[ONES:.*]] = linalg.fill ins(%[[ONE]] : f32) outs(%[[F]] : tensor<1x7xf32>)
// CHECK: return %[[ONES]]
func.func @factor(%t: tensor<1x20x8xf32>, %l: tensor<1x7xi32>, %f: tensor<1x7xf32>) -> tensor<1x7xf32> {
  %level, %index, %factor = attn.tree_select ins(%t : tensor<1x20x8xf32>) outs(%l, %l : tensor<1x7xi32>, tensor<1x7xi32>)
      straight_through(%f : tensor<1x7xf32>)
      {shape = #attn.tree<ratio = 4, levels = 1>, budgets = array<i64: 1>} -> tensor<1x7xi32>, tensor<1x7xi32>, tensor<1x7xf32> score {
  ^bb0(%rows: tensor<1x4x8xf32>):
    %s = tensor.extract_slice %rows[0, 0, 0] [1, 4, 1] [1, 1, 1] : tensor<1x4x8xf32> to tensor<1x4xf32>
    attn.yield %s : tensor<1x4xf32>
  }
  return %factor : tensor<1x7xf32>
}
