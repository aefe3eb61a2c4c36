// RUN: fovea-opt %s --attn-check-shapes | FileCheck %s
// RUN: fovea-opt %s --attn-check-shapes | FileCheck %s --check-prefix=ONCE

// What extents decide is checked for every block of queries, before the operation.
// ONCE-COUNT-1: llvm.call @fovea_rt_check_distances
// ONCE-NOT:     llvm.call @fovea_rt_check_distances

// CHECK-DAG: llvm.func @fovea_rt_check_distances(!llvm.ptr, i64, i64, i64, i64)
// CHECK-DAG: "attn.stream: distance_bias of source 0\00"

!tokens = tensor<1x1x?x4xf32>

// CHECK-LABEL: func @open(
//       CHECK:   scf.for
//       CHECK:     llvm.call @fovea_rt_check_distances
//       CHECK:   attn.stream
func.func @open(%q: !tokens, %x: !tokens, %t: tensor<1x40xf32>) -> !tokens {
  %0 = attn.stream query(%q : !tokens)
      source(%x, %x : !tokens, !tokens) distance_bias(%t : tensor<1x40xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : !tokens) {scale = 1.0 : f64} -> !tokens
  return %0 : !tokens
}

// Two blocks, and a window, have as many distances whatever the extents.
// CHECK-LABEL: func @plain(
//   CHECK-NOT:   fovea_rt_check_distances
func.func @plain(%q: !tokens, %x: !tokens, %t: tensor<1x40xf32>) -> !tokens {
  %0 = attn.stream query(%q : !tokens)
      source(%x, %x : !tokens, !tokens) distance_bias(%t : tensor<1x40xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 20 + rows - n - 20, b * 20 + rows - n + 20)>] mask <causal>
      source(%x, %x : !tokens, !tokens) distance_bias(%t : tensor<1x40xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 40>
      outs(%q : !tokens) {block = 20 : i64, scale = 1.0 : f64} -> !tokens
  return %0 : !tokens
}
