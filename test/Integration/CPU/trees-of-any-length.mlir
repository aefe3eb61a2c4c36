// Trees whose numbers of sequences, tokens and roots are known at run time.

// RUN: fovea-run %s --entry=any --random --shape=3x20x8 --shape=3x2x3x8 --shape=3x8x8 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=any --random --shape=1x400x8 --shape=1x2x1x8 --shape=1x103x8 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=any --random --shape=3x20x8 --shape=3x2x3x8 --shape=3x8x8 --compare=reference --target=gpu-sim | FileCheck %s
// Two runs of a build, whatever the number of roots.
// RUN: fovea-run %s --entry=deep --random --shape=2x32x5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=deep --random --shape=1x96x5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=deep --random --shape=1x3200x5 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=deep --random --shape=1x96x5 --compare=reference --target=gpu-sim | FileCheck %s
// Fewer roots than the budget are all split.
// RUN: fovea-run %s --entry=any --random --shape=2x4x8 --shape=2x2x3x8 --shape=2x4x8 --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

// RUN: not fovea-run %s --entry=any --random --shape=3x22x8 --shape=3x2x3x8 --shape=3x8x8 2>&1 | FileCheck %s --check-prefix=TOKENS
// TOKENS: attn.tree_build: extent 1 of input must be a multiple of 4, the tokens of a root, expected a multiple of 4, but got 22
// RUN: not fovea-run %s --entry=nodes --random --shape=1x20x5 2>&1 | FileCheck %s --check-prefix=NODES
// NODES: attn.tree_materialize: extent 1 of tree must be a multiple of 7, the nodes of a root, expected a multiple of 7, but got 20

#two = #attn.tree<ratio = 2, levels = 2>
#deep = #attn.tree<ratio = 2, levels = 5>

func.func @any(%c: tensor<?x?x8xf32>, %p: tensor<?x2x?x8xf32>, %r: tensor<?x?x8xf32>)
    -> (tensor<?x?x8xf32>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<?x?x8xf32>, tensor<?x?xf32>, tensor<?x?x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c7 = arith.constant 7 : index
  %b = tensor.dim %c, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %c, %c1 : tensor<?x?x8xf32>
  %roots = arith.divui %n, %c4 : index
  %nodes = arith.muli %roots, %c7 : index
  %listed = arith.addi %roots, %c3 : index
  %t = tensor.empty(%b, %nodes) : tensor<?x?x8xf32>
  %tree = attn.tree_build ins(%c : tensor<?x?x8xf32>) outs(%t : tensor<?x?x8xf32>) {shape = #two} -> tensor<?x?x8xf32>
  %li = tensor.empty(%b, %listed) : tensor<?x?xi32>
  %level, %index = attn.tree_select ins(%tree : tensor<?x?x8xf32>) outs(%li, %li : tensor<?x?xi32>, tensor<?x?xi32>)
      {shape = #two, budgets = array<i64: 1, 2>} -> tensor<?x?xi32>, tensor<?x?xi32> score {
  ^bb0(%rows: tensor<?x?x8xf32>, %weights: tensor<?x?xf32>):
    %m = tensor.dim %rows, %c1 : tensor<?x?x8xf32>
    %keys = tensor.expand_shape %rows [[0, 1], [2], [3]] output_shape [%b, 1, %m, 8] : tensor<?x?x8xf32> into tensor<?x1x?x8xf32>
    %init = tensor.empty(%b, %m) : tensor<?x?xf32>
    %score = attn.tree_score ins(%p, %keys : tensor<?x2x?x8xf32>, tensor<?x1x?x8xf32>) log_weight(%weights : tensor<?x?xf32>)
        outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
    attn.yield %score : tensor<?x?xf32>
  }
  %ri = tensor.empty(%b, %listed) : tensor<?x?x8xf32>
  %wi = tensor.empty(%b, %listed) : tensor<?x?xf32>
  %rows, %weight = attn.tree_fetch ins(%tree : tensor<?x?x8xf32>) nodes(%level, %index : tensor<?x?xi32>, tensor<?x?xi32>)
      outs(%ri, %wi : tensor<?x?x8xf32>, tensor<?x?xf32>) {shape = #two} -> tensor<?x?x8xf32>, tensor<?x?xf32>
  %new = attn.tree_update ins(%r : tensor<?x?x8xf32>) nodes(%level, %index : tensor<?x?xi32>, tensor<?x?xi32>)
      outs(%tree : tensor<?x?x8xf32>) {shape = #two} -> tensor<?x?x8xf32>
  %o = tensor.empty(%b, %n) : tensor<?x?x8xf32>
  %d = attn.tree_materialize ins(%new : tensor<?x?x8xf32>) outs(%o : tensor<?x?x8xf32>) {shape = #two} -> tensor<?x?x8xf32>
  return %tree, %level, %index, %rows, %weight, %d
      : tensor<?x?x8xf32>, tensor<?x?xi32>, tensor<?x?xi32>, tensor<?x?x8xf32>, tensor<?x?xf32>, tensor<?x?x8xf32>
}

func.func @deep(%c: tensor<?x?x5xf32>) -> (tensor<?x?x5xf32>, tensor<?x?x5xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c32 = arith.constant 32 : index
  %c63 = arith.constant 63 : index
  %b = tensor.dim %c, %c0 : tensor<?x?x5xf32>
  %n = tensor.dim %c, %c1 : tensor<?x?x5xf32>
  %roots = arith.divui %n, %c32 : index
  %nodes = arith.muli %roots, %c63 : index
  %t = tensor.empty(%b, %nodes) : tensor<?x?x5xf32>
  %tree = attn.tree_build ins(%c : tensor<?x?x5xf32>) outs(%t : tensor<?x?x5xf32>) {shape = #deep} -> tensor<?x?x5xf32>
  %o = tensor.empty(%b, %n) : tensor<?x?x5xf32>
  %d = attn.tree_materialize ins(%tree : tensor<?x?x5xf32>) outs(%o : tensor<?x?x5xf32>) {shape = #deep} -> tensor<?x?x5xf32>
  return %tree, %d : tensor<?x?x5xf32>, tensor<?x?x5xf32>
}

func.func @nodes(%t: tensor<1x?x5xf32>) -> tensor<1x?x5xf32> {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c7 = arith.constant 7 : index
  %nodes = tensor.dim %t, %c1 : tensor<1x?x5xf32>
  %roots = arith.divui %nodes, %c7 : index
  %n = arith.muli %roots, %c4 : index
  %o = tensor.empty(%n) : tensor<1x?x5xf32>
  %d = attn.tree_materialize ins(%t : tensor<1x?x5xf32>) outs(%o : tensor<1x?x5xf32>) {shape = #two} -> tensor<1x?x5xf32>
  return %d : tensor<1x?x5xf32>
}
