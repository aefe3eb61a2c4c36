// Extents that the function computes are checked by the generated code.
// RUN: fovea-run %s --entry=slices --arg=5 --arg=5 --random --compare=reference \
// RUN:   | FileCheck %s --check-prefix=AGREES
// RUN: not fovea-run %s --entry=slices --arg=5 --arg=4 --random 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not fovea-run %s --entry=slices --arg=5 --arg=4 --random --target=reference 2>&1 \
// RUN:   | FileCheck %s --check-prefix=ROWS
// AGREES: agrees with the reference
// ROWS: attn.dense: extent 2 of value must be extent 2 of key, expected 5, but got 4

func.func @slices(%m: index, %n: index, %q: tensor<1x1x4x8xf32>, %kv: tensor<1x1x9x8xf32>) -> tensor<1x1x4x8xf32> {
  %k = tensor.extract_slice %kv[0, 0, 0, 0] [1, 1, %m, 8] [1, 1, 1, 1] : tensor<1x1x9x8xf32> to tensor<1x1x?x8xf32>
  %v = tensor.extract_slice %kv[0, 0, 2, 0] [1, 1, %n, 8] [1, 1, 1, 1] : tensor<1x1x9x8xf32> to tensor<1x1x?x8xf32>
  %o = tensor.empty() : tensor<1x1x4x8xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x4x8xf32>, tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>)
      outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %r : tensor<1x1x4x8xf32>
}
