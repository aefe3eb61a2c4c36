// RUN: fovea-opt %s --attn-check-shapes | FileCheck %s
// RUN: fovea-opt %s --attn-check-shapes | FileCheck %s --check-prefix=ONCE

// What extents decide is checked for every block of queries, before the operation.
// ONCE-COUNT-3: llvm.call @fovea_rt_check_ranges
// ONCE-NOT:     llvm.call @fovea_rt_check_ranges

// CHECK-DAG: llvm.func @fovea_rt_check_ranges(!llvm.ptr, i64, i64, i64, i64, i64)
// CHECK-DAG: "attn.stream: ranges 0 and 1 of source 1\00"

!tokens = tensor<1x1x?x4xf32>
!narrow = tensor<1x1x64x4xf32>

// CHECK-LABEL: func @open(
//       CHECK:   scf.for %[[BLOCK:.*]] =
//       CHECK:     arith.index_cast %[[BLOCK]]
//       CHECK:     llvm.call @fovea_rt_check_ranges
//       CHECK:   attn.stream
func.func @open(%q: !tokens, %x: !tokens) -> !tokens {
  %0 = attn.stream query(%q : !tokens)
      source(%x, %x : !tokens, !tokens) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%x, %x : !tokens, !tokens)
          ranges [affine_map<(b)[rows, n] -> (0, 16)>, affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16)>]
      outs(%q : !tokens) {block = 16 : i64, scale = 1.0 : f64} -> !tokens
  return %0 : !tokens
}

// Without blocks there is one, if there are queries.
// CHECK-LABEL: func @symbols(
//       CHECK:   scf.for
//       CHECK:     llvm.call @fovea_rt_check_ranges
func.func @symbols(%q: !tokens, %x: !tokens) -> !tokens {
  %0 = attn.stream query(%q : !tokens)
      source(%x, %x : !tokens, !tokens)
          ranges [affine_map<(b)[rows, n] -> (0, n)>, affine_map<(b)[rows, n] -> (rows - 2, rows)>]
      outs(%q : !tokens) {scale = 1.0 : f64} -> !tokens
  return %0 : !tokens
}

// A gradient.
// CHECK-LABEL: func @gradient(
//       CHECK:   scf.for
//       CHECK:     llvm.call @fovea_rt_check_ranges
//       CHECK:   attn.stream_backward
func.func @gradient(%x: !tokens, %lse: tensor<1x1x?xf32>) -> !tokens {
  %0:3 = attn.stream_backward query(%x : !tokens)
      source(%x, %x : !tokens, !tokens) ranges [affine_map<(b)[rows, n] -> (b * 4, b * 4 + 4)>, affine_map<(b)[rows, n] -> (0, b * 5)>]
      forward(%x, %lse : !tokens, tensor<1x1x?xf32>) gradient(%x : !tokens)
      outs(%x, %x, %x : !tokens, !tokens, !tokens) {block = 4 : i64, scale = 1.0 : f64} -> !tokens, !tokens, !tokens
  return %0#0 : !tokens
}

// Apart for all extents, for which no number is needed, or for these: no check.
// CHECK-LABEL: func @apart(
//   CHECK-NOT:   scf.for
//       CHECK:   return
func.func @apart(%q: !tokens, %x: !tokens, %s: !narrow) -> (!tokens, !narrow) {
  %0 = attn.stream query(%q : !tokens)
      source(%x, %x : !tokens, !tokens)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>, affine_map<(b)[rows, n] -> (b * 16 + 16, rows)>,
                  affine_map<(b)[rows, n] -> (rows, rows + 4)>, affine_map<(b)[rows, n] -> (0, b * 16 - 16)>,
                  affine_map<(b)[rows, n] -> (0, b * 3 - b * 4)>]
      source(%x, %x : !tokens, !tokens)
          ranges [affine_map<(b)[rows, n] -> ((b floordiv 2) * 8, (b floordiv 2) * 8 + 4)>,
                  affine_map<(b)[rows, n] -> (((b + 2) floordiv 2) * 8 - 4, b * 4 + 8 - (b mod 2) * 4)>]
      outs(%q : !tokens) {block = 16 : i64, scale = 1.0 : f64} -> !tokens
  %1 = attn.stream query(%s : !narrow)
      source(%s, %s : !narrow, !narrow)
          ranges [affine_map<(b)[rows, n] -> (0, 16)>, affine_map<(b)[rows, n] -> (b * 16 - 32, b * 16 - 48)>,
                  affine_map<(b)[rows, n] -> (b * 4 + 16, b * 4 + 20)>]
      outs(%s : !narrow) {block = 16 : i64, scale = 1.0 : f64} -> !narrow
  return %0, %1 : !tokens, !narrow
}
