// RUN: fovea-opt %s | fovea-opt | FileCheck %s

// The examples of the descriptions in AttnTreeOps.td, word for word:
// utils/check_doc_examples.py compares them.

// CHECK: #attn.tree<ratio = 2, levels = 12>
#binary = #attn.tree<ratio = 2, levels = 12>
#two_resolutions = #attn.tree<ratio = 16, levels = 1>
func.func private @uses() attributes {a = #binary, b = #two_resolutions}

// CHECK-LABEL: func @build(
// CHECK: attn.tree_build ins
func.func @build(%c: tensor<1x64x32xf32>, %init: tensor<1x127x32xf32>) -> tensor<1x127x32xf32> {
    %tree = attn.tree_build ins(%c : tensor<1x64x32xf32>)
        outs(%init : tensor<1x127x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x127x32xf32>
      return %tree : tensor<1x127x32xf32>
}

// CHECK-LABEL: func @fetch(
// CHECK: attn.tree_fetch ins
func.func @fetch(%tree: tensor<1x127x32xf32>, %level: tensor<1x9xi32>, %index: tensor<1x9xi32>,
    %init: tensor<1x9x32xf32>, %winit: tensor<1x9xf32>) -> tensor<1x9x32xf32> {
    %rows, %weight = attn.tree_fetch ins(%tree : tensor<1x127x32xf32>)
        nodes(%level, %index : tensor<1x9xi32>, tensor<1x9xi32>)
        outs(%init, %winit : tensor<1x9x32xf32>, tensor<1x9xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x9x32xf32>, tensor<1x9xf32>
      return %rows : tensor<1x9x32xf32>
}

// CHECK-LABEL: func @update(
// CHECK: attn.tree_update ins
func.func @update(%rows: tensor<1x9x32xf32>, %level: tensor<1x9xi32>, %index: tensor<1x9xi32>,
    %tree: tensor<1x127x32xf32>) -> tensor<1x127x32xf32> {
    %new = attn.tree_update ins(%rows : tensor<1x9x32xf32>)
        nodes(%level, %index : tensor<1x9xi32>, tensor<1x9xi32>)
        outs(%tree : tensor<1x127x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x127x32xf32>
      return %new : tensor<1x127x32xf32>
}

// CHECK-LABEL: func @materialize(
// CHECK: attn.tree_materialize ins
func.func @materialize(%tree: tensor<1x127x32xf32>, %init: tensor<1x64x32xf32>) -> tensor<1x64x32xf32> {
    %c = attn.tree_materialize ins(%tree : tensor<1x127x32xf32>)
        outs(%init : tensor<1x64x32xf32>)
        {shape = #attn.tree<ratio = 2, levels = 6>} -> tensor<1x64x32xf32>
      return %c : tensor<1x64x32xf32>
}

// CHECK-LABEL: func @select(
// CHECK: attn.tree_select ins
// CHECK: attn.yield
func.func @select(%tree: tensor<1x68x32xf32>, %li: tensor<1x19xi32>, %ii: tensor<1x19xi32>,
    %p: tensor<1x1x1x32xf32>, %sinit: tensor<1x4xf32>) -> (tensor<1x19xi32>, tensor<1x19xi32>) {
    %level, %index = attn.tree_select ins(%tree : tensor<1x68x32xf32>)
        outs(%li, %ii : tensor<1x19xi32>, tensor<1x19xi32>)
        {shape = #attn.tree<ratio = 16, levels = 1>, budgets = array<i64: 1>}
        -> tensor<1x19xi32>, tensor<1x19xi32> score {
    ^bb0(%rows: tensor<1x4x32xf32>):
      %keys = tensor.expand_shape %rows [[0, 1], [2], [3]] output_shape [1, 1, 4, 32]
          : tensor<1x4x32xf32> into tensor<1x1x4x32xf32>
      %score = attn.tree_score ins(%p, %keys : tensor<1x1x1x32xf32>, tensor<1x1x4x32xf32>)
          outs(%sinit : tensor<1x4xf32>) {exponential, scale = 1.0 : f64} -> tensor<1x4xf32>
      attn.yield %score : tensor<1x4xf32>
    }
      return %level, %index : tensor<1x19xi32>, tensor<1x19xi32>
}

// CHECK-LABEL: func @split(
// CHECK: attn.tree_split scores
func.func @split(%score: tensor<1x4xf32>, %li: tensor<1x19xi32>, %ii: tensor<1x19xi32>,
    %ci: tensor<1x16xi32>) -> tensor<1x19xi32> {
    %l, %i, %children = attn.tree_split scores(%score : tensor<1x4xf32>)
        outs(%li, %ii, %ci : tensor<1x19xi32>, tensor<1x19xi32>, tensor<1x16xi32>)
        {shape = #attn.tree<ratio = 16, levels = 1>, at = 1 : i64, split = 1 : i64}
        -> tensor<1x19xi32>, tensor<1x19xi32>, tensor<1x16xi32>
      return %l : tensor<1x19xi32>
}

// CHECK-LABEL: func @score(
// CHECK: attn.tree_score ins
func.func @score(%q: tensor<1x12x48x64xf32>, %k: tensor<1x12x256x64xf32>, %init: tensor<1x256xf32>) -> tensor<1x256xf32> {
    %score = attn.tree_score ins(%q, %k : tensor<1x12x48x64xf32>, tensor<1x12x256x64xf32>)
        outs(%init : tensor<1x256xf32>) -> tensor<1x256xf32>
      return %score : tensor<1x256xf32>
}
