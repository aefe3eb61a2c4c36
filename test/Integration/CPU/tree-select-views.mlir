// Scores that are a view of the rows, in any shape that a region may say, as the
// reference has them.
// RUN: fovea-opt %s --attn-cpu-pipeline -o /dev/null
// RUN: fovea-opt %s --attn-nvvm-pipeline=emulate=true -o /dev/null
// RUN: fovea-opt %s --attn-reference-pipeline -o /dev/null
// RUN: fovea-run %s --entry=column --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=column --random --target=gpu-sim --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=roots --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=computed --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference

#tree = #attn.tree<ratio = 4, levels = 2>

func.func @column(%t: tensor<1x21x8xf32>, %l: tensor<1x10xi32>, %i: tensor<1x10xi32>) -> (tensor<1x10xi32>, tensor<1x10xi32>) {
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

// The roots are a view of the tree themselves.
func.func @roots(%t: tensor<2x20x8xf32>, %l: tensor<2x7xi32>, %i: tensor<2x7xi32>) -> (tensor<2x7xi32>, tensor<2x7xi32>) {
  %level, %index = attn.tree_select ins(%t : tensor<2x20x8xf32>) outs(%l, %i : tensor<2x7xi32>, tensor<2x7xi32>)
      {shape = #attn.tree<ratio = 4, levels = 1>, budgets = array<i64: 1>} -> tensor<2x7xi32>, tensor<2x7xi32> score {
  ^bb0(%rows: tensor<2x4x8xf32>):
    %s = tensor.extract_slice %rows[0, 0, 3] [2, 4, 1] [1, 1, 1] : tensor<2x4x8xf32> to tensor<2x4xf32>
    attn.yield %s : tensor<2x4xf32>
  }
  return %level, %index : tensor<2x7xi32>, tensor<2x7xi32>
}

func.func @computed(%t: tensor<2x20x8xf32>, %l: tensor<2x7xi32>, %i: tensor<2x7xi32>) -> (tensor<2x7xi32>, tensor<2x7xi32>) {
  %level, %index = attn.tree_select ins(%t : tensor<2x20x8xf32>) outs(%l, %i : tensor<2x7xi32>, tensor<2x7xi32>)
      {shape = #attn.tree<ratio = 4, levels = 1>, budgets = array<i64: 1>} -> tensor<2x7xi32>, tensor<2x7xi32> score {
  ^bb0(%rows: tensor<2x?x8xf32>):
    %c1 = arith.constant 1 : index
    %n = tensor.dim %rows, %c1 : tensor<2x?x8xf32>
    %low = arith.constant -1.0e30 : f32
    %empty = tensor.empty(%n) : tensor<2x?xf32>
    %init = linalg.fill ins(%low : f32) outs(%empty : tensor<2x?xf32>) -> tensor<2x?xf32>
    %s = linalg.reduce ins(%rows : tensor<2x?x8xf32>) outs(%init : tensor<2x?xf32>) dimensions = [2]
      (%a: f32, %b: f32) {
        %m = arith.maximumf %a, %b : f32
        linalg.yield %m : f32
      }
    attn.yield %s : tensor<2x?xf32>
  }
  return %level, %index : tensor<2x7xi32>, tensor<2x7xi32>
}
