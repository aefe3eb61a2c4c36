// A dynamic extent of a log weight or bias never broadcasts; a static 1 does.
// RUN: fovea-run %s --entry=weight --random --shape=1x1x5x4 --shape=1x1x5x4 \
// RUN:     --shape=1x1x5 --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: not fovea-run %s --entry=weight --random --shape=1x1x5x4 --shape=1x1x5x4 \
// RUN:     --shape=1x1x1 2>&1 | FileCheck %s --check-prefix=WEIGHT
// RUN: not fovea-run %s --entry=weight --random --target=reference --shape=1x1x5x4 \
// RUN:     --shape=1x1x5x4 --shape=1x1x1 2>&1 | FileCheck %s --check-prefix=WEIGHT
// RUN: fovea-run %s --entry=bias --random --shape=1x1x5x4 --shape=1x1x5x4 \
// RUN:     --shape=1x1x1x5 --compare=reference | FileCheck %s --check-prefix=AGREES
// RUN: not fovea-run %s --entry=bias --random --shape=1x1x5x4 --shape=1x1x5x4 \
// RUN:     --shape=1x1x1x1 2>&1 | FileCheck %s --check-prefix=BIAS
// AGREES: agrees with the reference
// WEIGHT: attn.dense expects extent 5, the extent in dimension 2 of {{.*}}, in dimension 2, but got 1
// BIAS: attn.dense expects extent 5, the extent in dimension 2 of {{.*}}, in dimension 3, but got 1

func.func @weight(%q: tensor<1x1x4x4xf32>, %k: tensor<1x1x?x4xf32>, %v: tensor<1x1x?x4xf32>,
                  %w: tensor<1x1x?xf32>) -> tensor<1x1x4x4xf32> {
  %o = tensor.empty() : tensor<1x1x4x4xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x4x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
      log_weight(%w : tensor<1x1x?xf32>) outs(%o : tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  return %r : tensor<1x1x4x4xf32>
}

func.func @bias(%q: tensor<1x1x4x4xf32>, %k: tensor<1x1x?x4xf32>, %v: tensor<1x1x?x4xf32>,
                %b: tensor<1x1x1x?xf32>) -> tensor<1x1x4x4xf32> {
  %o = tensor.empty() : tensor<1x1x4x4xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x1x4x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
      bias(%b : tensor<1x1x1x?xf32>) outs(%o : tensor<1x1x4x4xf32>) -> tensor<1x1x4x4xf32>
  return %r : tensor<1x1x4x4xf32>
}
