// So many codes that a warp has three of them: its votes find tokens of each, in their order. The last warp of a head has one code.

// RUN: fovea-run %s --random --target=gpu-sim --compare=reference --schedule=seed=2 | FileCheck %s
// CHECK-COUNT-2: agrees with the reference
// CHECK-NOT: differs

!z = tensor<2x16x70xi32>
!v = tensor<2x16x70x5xf32>
!m = tensor<2x16x1000x5xf32>
!n = tensor<2x16x1000xi32>
func.func @accumulate(%v: !v) -> (!m, !n) {
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %e = tensor.empty() : !z
  // Neighbours in one warp, codes that return, the last one, and none.
  %z = linalg.generic {indexing_maps = [affine_map<(b, h, i) -> (b, h, i)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : !z) {
  ^bb0(%old: i32):
    %h = linalg.index 1 : index
    %i = linalg.index 2 : index
    %c8 = arith.constant 8 : index
    %c125 = arith.constant 125 : index
    %c7 = arith.constant 7 : index
    %group = arith.remui %i, %c8 : index
    %far = arith.muli %group, %c125 : index
    %near = arith.divui %i, %c7 : index
    %sum = arith.addi %far, %near : index
    %shifted = arith.addi %sum, %h : index
    %c999 = arith.constant 999 : index
    %code = arith.minui %shifted, %c999 : index
    %found = arith.index_cast %code : index to i32
    %last = arith.cmpi eq, %i, %c7 : index
    %absent = arith.constant -1 : i32
    %r = arith.select %last, %absent, %found : i32
    linalg.yield %r : i32
  } -> !z
  %em = tensor.empty() : !m
  %m = linalg.fill ins(%zero : f32) outs(%em : !m) -> !m
  %en = tensor.empty() : !n
  %n = linalg.fill ins(%none : i32) outs(%en : !n) -> !n
  %r:2 = attn.codebook_accumulate ins(%z, %v : !z, !v) outs(%m, %n : !m, !n) -> !m, !n
  return %r#0, %r#1 : !m, !n
}
