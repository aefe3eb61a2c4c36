// What the reducer tries and the verifier refuses is nobody's error.
// RUN: fovea-reduce %s --reduction-tree='traversal-mode=0 test=%S/Inputs/has_dense.sh' 2>&1 | FileCheck %s
// CHECK-NOT: error
// CHECK-NOT: null operand
// CHECK: attn.dense

// The error that ends it is.
// RUN: not fovea-reduce %t.no-such-file 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: No such file
// RUN: not fovea-reduce %s -o %t.no-such-folder/small.mlir 2>&1 | FileCheck %s --check-prefix=UNWRITABLE
// UNWRITABLE: fovea-reduce: error: cannot write '{{.*}}small.mlir': No such file

// RUN: not fovea-reduce %s --reduction-tree='traversal-mode=0 test=%S/Inputs/never.sh' 2>&1 | FileCheck %s --check-prefix=DULL
// DULL: fovea-reduce: error: the input is not of interest: expected the test to return 1 for it
// DULL-NOT: {{.}}

func.func @kept(%q: tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32> {
  %0 = arith.addf %q, %q : tensor<1x1x4x4xf32>
  %1 = arith.mulf %0, %q : tensor<1x1x4x4xf32>
  %out = attn.dense ins(%1, %q, %q : tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>, tensor<1x1x4x4xf32>)
      outs(%0 : tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  %2 = arith.addf %out, %0 : tensor<1x1x4x4xf32>
  return %2 : tensor<1x1x4x4xf32>
}
