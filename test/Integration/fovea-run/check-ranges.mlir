// Ranges of one source that share rows for the extents of a call are an error
// before anything is computed, whatever the target.
// RUN: fovea-run %s --random --shape=1x1x24x8 --shape=1x1x64x8 --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: fovea-run %s --random --shape=1x1x24x8 --shape=1x1x64x8 --target=gpu-sim --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: fovea-run %s --random --shape=1x1x0x8 --shape=1x1x64x8
// RUN: not fovea-run %s --random --shape=1x1x64x8 --shape=1x1x64x8 2>&1 | FileCheck %s --check-prefix=OVERLAP
// RUN: not fovea-run %s --random --shape=1x1x64x8 --shape=1x1x64x8 --target=reference 2>&1 | FileCheck %s --check-prefix=OVERLAP
// RUN: not fovea-run %s --random --shape=1x1x64x8 --shape=1x1x64x8 --target=gpu-sim 2>&1 | FileCheck %s --check-prefix=OVERLAP
// AGREES: agrees with the reference
// OVERLAP: attn.stream: ranges 0 and 1 of source 0 must not overlap, but for block 3 found rows 0 .. 39 and 32 .. 47
// OVERLAP-NOT: error

func.func @attend(%q: tensor<1x1x?x8xf32>, %k: tensor<1x1x?x8xf32>) -> tensor<1x1x?x8xf32> {
  %0 = attn.stream query(%q : tensor<1x1x?x8xf32>)
      source(%k, %k : tensor<1x1x?x8xf32>, tensor<1x1x?x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 16 - 8)>, affine_map<(b)[rows, n] -> (32, 48)>]
      outs(%q : tensor<1x1x?x8xf32>) {block = 16 : i64, scale = 0.25 : f64} -> tensor<1x1x?x8xf32>
  return %0 : tensor<1x1x?x8xf32>
}
