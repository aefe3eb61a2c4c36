// Scores of trees with a static number of VIP tokens, or of candidates, that is 0.

// RUN: fovea-run %s --entry=f32 --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=f64 --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=f16 --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=bf16 --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=bf16 --random --compare=reference --target=gpu-sim | FileCheck %s
// CHECK: bound {{.*}} over 10 elements: agrees with the reference
// CHECK: min 0, max 0, mean 0
// The kernel of few queries has none.
// RUN: fovea-run %s --entry=dense --random | FileCheck %s --check-prefix=DENSE
// DENSE: bf16[2x4x0x24]
// RUN: fovea-run %s --entry=no_candidates --random | FileCheck %s --check-prefix=NONE
// NONE: f32[2x0]

func.func @f32(%q: tensor<2x4x0x24xf32>, %k: tensor<2x2x5x24xf32>, %init: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %score = attn.tree_score ins(%q, %k : tensor<2x4x0x24xf32>, tensor<2x2x5x24xf32>) outs(%init : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %score : tensor<2x5xf32>
}

func.func @f64(%q: tensor<2x4x0x24xf64>, %k: tensor<2x2x5x24xf64>, %init: tensor<2x5xf64>) -> tensor<2x5xf64> {
  %score = attn.tree_score ins(%q, %k : tensor<2x4x0x24xf64>, tensor<2x2x5x24xf64>) outs(%init : tensor<2x5xf64>) -> tensor<2x5xf64>
  return %score : tensor<2x5xf64>
}

func.func @f16(%q: tensor<2x4x0x24xf16>, %k: tensor<2x2x5x24xf16>, %init: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %score = attn.tree_score ins(%q, %k : tensor<2x4x0x24xf16>, tensor<2x2x5x24xf16>) outs(%init : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %score : tensor<2x5xf32>
}

func.func @bf16(%q: tensor<2x4x0x24xbf16>, %k: tensor<2x2x5x24xbf16>, %init: tensor<2x5xf32>) -> tensor<2x5xf32> {
  %score = attn.tree_score ins(%q, %k : tensor<2x4x0x24xbf16>, tensor<2x2x5x24xbf16>) outs(%init : tensor<2x5xf32>) -> tensor<2x5xf32>
  return %score : tensor<2x5xf32>
}

func.func @no_candidates(%q: tensor<2x4x3x24xbf16>, %k: tensor<2x2x0x24xbf16>, %init: tensor<2x0xf32>) -> tensor<2x0xf32> {
  %score = attn.tree_score ins(%q, %k : tensor<2x4x3x24xbf16>, tensor<2x2x0x24xbf16>) outs(%init : tensor<2x0xf32>) -> tensor<2x0xf32>
  return %score : tensor<2x0xf32>
}

func.func @dense(%q: tensor<2x4x0x24xbf16>, %k: tensor<2x2x700x24xbf16>) -> tensor<2x4x0x24xbf16> {
  %init = tensor.empty() : tensor<2x4x0x24xbf16>
  %out = attn.dense ins(%q, %k, %k : tensor<2x4x0x24xbf16>, tensor<2x2x700x24xbf16>, tensor<2x2x700x24xbf16>)
      outs(%init : tensor<2x4x0x24xbf16>) -> tensor<2x4x0x24xbf16>
  return %out : tensor<2x4x0x24xbf16>
}
