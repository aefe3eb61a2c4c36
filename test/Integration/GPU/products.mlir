// Products of matrices around attention: by the runtime, by loops where the
// environment says so, one error without cuBLASLt.

// RUN: fovea-run %s --target=gpu-sim --random --compare=reference --tolerance=1e-5 | FileCheck %s
// RUN: env FOVEA_SIMT=products=0 FOVEA_GPU_PRODUCTS=loops fovea-run %s --target=gpu-sim --random --compare=reference --tolerance=1e-5 | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

// RUN: not env FOVEA_SIMT=products=0 fovea-run %s --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=MISSING
// MISSING: error: @layer failed: products of matrices on a GPU need cuBLASLt, which FOVEA_SIMT says is missing
// RUN: not env FOVEA_GPU_PRODUCTS=tiles fovea-run %s --target=gpu-sim --random 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: error: unknown FOVEA_GPU_PRODUCTS 'tiles'; expected 'library' or 'loops'

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
func.func @layer(%x: tensor<5x7xf32>, %w: tensor<3x7xf32>, %b: tensor<3xf32>) -> tensor<5x3xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x3xf32>
  %t = tensor.empty() : tensor<7x3xf32>
  %turned = linalg.transpose ins(%w : tensor<3x7xf32>) outs(%t : tensor<7x3xf32>) permutation = [1, 0]
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s = linalg.matmul ins(%x, %turned : tensor<5x7xf32>, tensor<7x3xf32>) outs(%z : tensor<5x3xf32>) -> tensor<5x3xf32>
  %r = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%s, %b : tensor<5x3xf32>, tensor<3xf32>) outs(%e : tensor<5x3xf32>) {
  ^bb0(%a: f32, %c: f32, %old: f32):
    %sum = arith.addf %a, %c : f32
    %relu = arith.maximumf %sum, %zero : f32
    linalg.yield %relu : f32
  } -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}
