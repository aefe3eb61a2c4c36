// Pipelines raise attention that their target can compute, and the reference none.

// RUN: fovea-opt %s --attn-raise | FileCheck %s --check-prefixes=WIDE,DOUBLE
// RUN: fovea-opt %s --attn-set-target=gpu=true --attn-raise --remarks-filter='attn.*' --remark-policy=all --remark-format=emitRemark 2>&1 \
// RUN:   | FileCheck %s --check-prefix=GPU --implicit-check-not=attn.dense

// RUN: fovea-opt %s --attn-cpu-pipeline --mlir-print-ir-after=attn-expand-patterns -o /dev/null 2>&1 | FileCheck %s --check-prefix=STREAM
// RUN: fovea-opt %s --attn-cpu-pipeline=raise=false --mlir-print-ir-after=attn-expand-patterns -o /dev/null 2>&1 \
// RUN:   | FileCheck %s --check-prefix=NONE --implicit-check-not=attn.stream
// RUN: fovea-run %s --entry=wide --random --compare=reference
// RUN: fovea-run %s --entry=wide --random --compare=reference --raise=false
// RUN: fovea-run %s --entry=wide --random --target=gpu-sim --compare=reference

// GPU-DAG: SoftmaxNotRaised{{.*}}GPU kernels of attention take heads of at most 256 columns, at 'linalg.matmul'
// GPU-DAG: SoftmaxNotRaised{{.*}}GPU kernels of attention take no f64, at 'linalg.matmul'
// STREAM: attn.stream
// NONE: func.func @wide

// WIDE-LABEL: func.func @wide(
// WIDE:         attn.dense
func.func @wide(%q: tensor<4x257xf32>, %k: tensor<6x257xf32>, %v: tensor<6x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0.0 : f32
  // Without a scale, soft-maxes of sums of so many products show how these were rounded.
  %scale = arith.constant dense<0.0625> : tensor<4x257xf32>
  %scaled = arith.mulf %q, %scale : tensor<4x257xf32>
  %scores = tensor.empty() : tensor<4x6xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%scaled, %k : tensor<4x257xf32>, tensor<6x257xf32>) outs(%zeros : tensor<4x6xf32>) -> tensor<4x6xf32>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x6xf32>) outs(%scores : tensor<4x6xf32>) -> tensor<4x6xf32>
  %result = tensor.empty() : tensor<4x8xf32>
  %none = linalg.fill ins(%zero : f32) outs(%result : tensor<4x8xf32>) -> tensor<4x8xf32>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf32>, tensor<6x8xf32>) outs(%none : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %o : tensor<4x8xf32>
}

// DOUBLE-LABEL: func.func @double(
// DOUBLE:         attn.dense
func.func @double(%q: tensor<4x8xf64>, %k: tensor<6x8xf64>, %v: tensor<6x8xf64>) -> tensor<4x8xf64> {
  %zero = arith.constant 0.0 : f64
  %scores = tensor.empty() : tensor<4x6xf64>
  %zeros = linalg.fill ins(%zero : f64) outs(%scores : tensor<4x6xf64>) -> tensor<4x6xf64>
  %s = linalg.matmul indexing_maps = [affine_map<(n, m, d) -> (n, d)>, affine_map<(n, m, d) -> (m, d)>, affine_map<(n, m, d) -> (n, m)>]
      ins(%q, %k : tensor<4x8xf64>, tensor<6x8xf64>) outs(%zeros : tensor<4x6xf64>) -> tensor<4x6xf64>
  %p = linalg.softmax dimension(1) ins(%s : tensor<4x6xf64>) outs(%scores : tensor<4x6xf64>) -> tensor<4x6xf64>
  %result = tensor.empty() : tensor<4x8xf64>
  %none = linalg.fill ins(%zero : f64) outs(%result : tensor<4x8xf64>) -> tensor<4x8xf64>
  %o = linalg.matmul ins(%p, %v : tensor<4x6xf64>, tensor<6x8xf64>) outs(%none : tensor<4x8xf64>) -> tensor<4x8xf64>
  return %o : tensor<4x8xf64>
}
