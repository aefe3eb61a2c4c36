// Dynamic extents come from the arguments.
//
// RUN: fovea-run %s --random=3 --shape=1x4x33x8 --shape=1x2x65x8 --shape=1x2x65x8 --compare=reference | FileCheck %s
// CHECK: result 0: max|a-b| {{.*}} over 1056 elements: agrees with the reference
// CHECK: result 1: max|a-b| {{.*}} bound 1e-05 absolute over 132 elements: agrees with the reference
//
// RUN: not fovea-run %s --random --shape=1x4x33x8 --shape=1x2x65x8 --shape=1x2x64x8 2>&1 | FileCheck %s --check-prefix=MISMATCH
// MISMATCH: fovea-run: error: argument 2 (%v) of @main: attn.dense expects extent 65, the extent in dimension 2 of argument 1 (%k) of @main, in dimension 2, but got 64
// RUN: not fovea-run %s --random --shape=1x3x33x8 --shape=1x2x65x8 --shape=1x2x65x8 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: fovea-run: error: argument 0 (%q) of @main: attn.dense expects extent a multiple of 2
// RUN: not fovea-run %s --random --shape=1x4x33x8 2>&1 | FileCheck %s --check-prefix=SHAPE
// SHAPE: argument 1 (%k) of @main, tensor<1x?x?x8xf32>, has dynamic extents: expected a --shape for it
// RUN: not fovea-run %s --random --shape=1x4xNx8 2>&1 | FileCheck %s --check-prefix=TEXT
// TEXT: expected a shape such as '1x8x512x64', but got '1x4xNx8'
//
// No queries, or nothing to attend to. Comparing no elements is a failure.
//
// RUN: fovea-run %s --random --shape=1x4x33x8 --shape=1x2x0x8 --shape=1x2x0x8 | FileCheck %s --check-prefix=NOKEYS
// NOKEYS: result 0: f32[1x4x33x8], min 0, max 0, mean 0
// NOKEYS: result 1: f32[1x4x33], min -inf, max -inf
// RUN: fovea-run %s --random --shape=1x4x0x8 --shape=1x2x65x8 --shape=1x2x65x8 | FileCheck %s --check-prefix=NOQUERIES
// NOQUERIES: result 0: f32[1x4x0x8]
// RUN: not fovea-run %s --random --shape=1x4x0x8 --shape=1x2x65x8 --shape=1x2x65x8 --compare=reference 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: fovea-run: error: there are no elements to compare with the reference

func.func @main(%q: tensor<1x?x?x8xf32>, %k: tensor<1x?x?x8xf32>,
                %v: tensor<1x?x?x8xf32>)
    -> (tensor<1x?x?x8xf32>, tensor<1x?x?xf32>) {
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %h = tensor.dim %q, %c1 : tensor<1x?x?x8xf32>
  %n = tensor.dim %q, %c2 : tensor<1x?x?x8xf32>
  %init = tensor.empty(%h, %n) : tensor<1x?x?x8xf32>
  %lse = tensor.empty(%h, %n) : tensor<1x?x?xf32>
  %out:2 = attn.dense
      ins(%q, %k, %v : tensor<1x?x?x8xf32>, tensor<1x?x?x8xf32>,
                       tensor<1x?x?x8xf32>)
      outs(%init, %lse : tensor<1x?x?x8xf32>, tensor<1x?x?xf32>)
      -> tensor<1x?x?x8xf32>, tensor<1x?x?xf32>
  return %out#0, %out#1 : tensor<1x?x?x8xf32>, tensor<1x?x?xf32>
}
