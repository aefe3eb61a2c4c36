// Distances without a term for the extents of a call are an error before
// anything is computed, whatever the target.
// RUN: fovea-run %s --random --shape=1x1x40x8 --shape=1x1x40x8 --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: fovea-run %s --random --shape=1x1x40x8 --shape=1x1x40x8 --target=gpu-sim --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: not fovea-run %s --random --shape=1x1x24x8 --shape=1x1x41x8 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not fovea-run %s --random --shape=1x1x24x8 --shape=1x1x41x8 --target=reference 2>&1 | FileCheck %s --check-prefix=FEW
// RUN: not fovea-run %s --random --shape=1x1x24x8 --shape=1x1x41x8 --target=gpu-sim 2>&1 | FileCheck %s --check-prefix=FEW
// AGREES: agrees with the reference
// FEW: attn.stream: relative of source 0 must have a row for each distance, but for block 0 found distances 0 .. 40 and 40 rows
// FEW-NOT: error

func.func @attend(%q: tensor<1x1x?x8xf32>, %k: tensor<1x1x?x8xf32>, %r: tensor<1x40x8xf32>, %u: tensor<1x8xf32>) -> tensor<1x1x?x8xf32> {
  %0 = attn.stream query(%q : tensor<1x1x?x8xf32>)
      source(%k, %k : tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>) relative(%r, %u : tensor<1x40x8xf32>, tensor<1x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : tensor<1x1x?x8xf32>) {scale = 0.25 : f64} -> tensor<1x1x?x8xf32>
  return %0 : tensor<1x1x?x8xf32>
}
