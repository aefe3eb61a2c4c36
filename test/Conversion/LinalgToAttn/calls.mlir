// Attention that begins in one function and ends in others is raised, as JAX writes it.

// RUN: fovea-opt %s --attn-cpu-pipeline --mlir-print-ir-after=attn-expand-patterns -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --implicit-check-not=linalg.softmax
// RUN: fovea-run %s --entry=attend --random --compare=reference
// RUN: fovea-run %s --entry=attend --random --compare=reference --raise=false
// RUN: fovea-run %s --entry=attend --random --target=gpu-sim --compare=reference

// CHECK-LABEL: func.func @attend(
// CHECK:         attn.stream
func.func @attend(%q: tensor<4x16xf32>, %k: tensor<6x16xf32>, %v: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %scores = tensor.empty() : tensor<4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<4x16xf32>, tensor<6x16xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %p = call @softmax(%s) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %result = tensor.empty() : tensor<4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%none : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

func.func private @softmax(%s: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %empty = tensor.empty() : tensor<4x6xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x6xf32>) outs(%empty : tensor<4x6xf32>) -> tensor<4x6xf32>
  return %p : tensor<4x6xf32>
}
