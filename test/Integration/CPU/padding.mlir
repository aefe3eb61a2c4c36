// Negative padding would read and write behind rows: it is an error, whether it is a number or an argument.

// RUN: fovea-run %s --entry=around --random --compare=reference
// RUN: not fovea-run %s --entry=known --random 2>&1 | FileCheck %s --check-prefix=KNOWN
// RUN: not fovea-run %s --entry=open --random 2>&1 | FileCheck %s --check-prefix=OPEN

func.func @around(%a: tensor<3x5xf32>) -> tensor<4x8xf32> {
  %z = arith.constant 0.0 : f32
  %0 = tensor.pad %a low[1, 0] high[0, 3] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<3x5xf32> to tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}

// KNOWN: error: @known failed: tensor.pad: low padding 1 is negative, expected 0, but got -1
func.func @known(%a: tensor<3x5xf32>) -> tensor<3x6xf32> {
  %z = arith.constant 0.0 : f32
  %0 = tensor.pad %a low[0, -1] high[0, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<3x5xf32> to tensor<3x6xf32>
  return %0 : tensor<3x6xf32>
}

// OPEN: error: @open failed: tensor.pad: high padding 1 is negative, expected 0, but got -2
func.func @open(%a: tensor<3x5xf32>, %b: tensor<3xf32>) -> tensor<?x?xf32> {
  %z = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c5 = arith.constant 5 : index
  %d = tensor.cast %b : tensor<3xf32> to tensor<?xf32>
  %n = tensor.dim %d, %c0 : tensor<?xf32>
  %high = arith.subi %n, %c5 : index
  %0 = tensor.pad %a low[%n, %n] high[%n, %high] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<3x5xf32> to tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}
