// Factors in panels of columns that are not as wide as the register tiles of
// this CPU, or of any: a program's own, and those that were packed for another.

// RUN: fovea-run %s --entry=narrow --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=wide --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=odd --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=rows --random --compare=reference | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --attn-prepare-products -o %t.256.mlir
// RUN: fovea-run %t.256.mlir --entry=constant --random --compare=reference | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-prepare-products -o %t.512.mlir
// RUN: fovea-run %t.512.mlir --entry=constant --random --compare=reference | FileCheck %s
// CHECK: agrees with the reference
// CHECK-NOT: differs

#left = affine_map<(m, n, k) -> (m, k)>
#out = affine_map<(m, n, k) -> (m, n)>

func.func @narrow(%x: tensor<9x3xf32>, %w: tensor<3x3x4xf32>, %o: tensor<9x12xf32>) -> tensor<9x12xf32> {
  %r = linalg.generic {indexing_maps = [#left, affine_map<(m, n, k) -> (n floordiv 4, k, n mod 4)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<9x3xf32>, tensor<3x3x4xf32>) outs(%o : tensor<9x12xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<9x12xf32>
  return %r : tensor<9x12xf32>
}

func.func @wide(%x: tensor<9x3xf32>, %w: tensor<3x3x40xf32>, %o: tensor<9x120xf32>) -> tensor<9x120xf32> {
  %r = linalg.generic {indexing_maps = [#left, affine_map<(m, n, k) -> (n floordiv 40, k, n mod 40)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<9x3xf32>, tensor<3x3x40xf32>) outs(%o : tensor<9x120xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<9x120xf32>
  return %r : tensor<9x120xf32>
}

func.func @odd(%x: tensor<9x3xf32>, %w: tensor<3x3x21xf32>, %o: tensor<9x63xf32>) -> tensor<9x63xf32> {
  %r = linalg.generic {indexing_maps = [#left, affine_map<(m, n, k) -> (n floordiv 21, k, n mod 21)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<9x3xf32>, tensor<3x3x21xf32>) outs(%o : tensor<9x63xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<9x63xf32>
  return %r : tensor<9x63xf32>
}

// The epilogue of a product.
func.func @rows(%x: tensor<9x3xf32>, %w: tensor<3x3x8xf32>) -> tensor<9x24xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<9x24xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<9x24xf32>) -> tensor<9x24xf32>
  %r = linalg.generic {indexing_maps = [#left, affine_map<(m, n, k) -> (n floordiv 8, k, n mod 8)>, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<9x3xf32>, tensor<3x3x8xf32>) outs(%o : tensor<9x24xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %c, %p : f32
      linalg.yield %s : f32
    } -> tensor<9x24xf32>
  %t = math.tanh %r : tensor<9x24xf32>
  return %t : tensor<9x24xf32>
}

// It is packed.
func.func @constant(%x: tensor<9x3xf32>, %o: tensor<9x5xf32>) -> tensor<9x5xf32> {
  %w = arith.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0], [11.0, 12.0, 13.0, 14.0, 15.0]]> : tensor<3x5xf32>
  %r = linalg.matmul ins(%x, %w : tensor<9x3xf32>, tensor<3x5xf32>) outs(%o : tensor<9x5xf32>) -> tensor<9x5xf32>
  return %r : tensor<9x5xf32>
}
