// RUN: fovea-opt %s --attn-check-shapes --split-input-file | FileCheck %s

// What only run time knows of the operands of a gradient, lse among them.
//   CHECK-DAG: "attn.dense_backward: extent 2 of lse must be extent 2 of query\00"
//   CHECK-DAG: "attn.dense_backward: extent 2 of output must be extent 2 of query\00"
//   CHECK-DAG: "attn.dense_backward: extent 2 of d_key must be extent 2 of key\00"
//   CHECK-DAG: "attn.dense_backward: extent 3 of d_bias must be extent 3 of bias\00"
// CHECK-LABEL: func.func @dense(
//       CHECK:   llvm.call @fovea_rt_check_extent
//       CHECK:   attn.dense_backward
func.func @dense(%q: memref<1x2x?x4xf32>, %k: memref<1x2x?x4xf32>, %b: memref<1x1x1x?xf32>, %l: memref<1x2x?xf32>, %d: memref<1x2x?x4xf32>,
                 %dq: memref<1x2x?x4xf32>, %dk: memref<1x2x?x4xf32>, %dv: memref<1x2x?x4xf32>, %db: memref<1x1x1x?xf32>) {
  attn.dense_backward ins(%q, %k, %k : memref<1x2x?x4xf32>, memref<1x2x?x4xf32>, memref<1x2x?x4xf32>) bias(%b : memref<1x1x1x?xf32>)
      forward(%d, %l : memref<1x2x?x4xf32>, memref<1x2x?xf32>) gradient(%d : memref<1x2x?x4xf32>)
      outs(%dq, %dk, %dv : memref<1x2x?x4xf32>, memref<1x2x?x4xf32>, memref<1x2x?x4xf32>) d_bias(%db : memref<1x1x1x?xf32>)
  return
}

// -----

//       CHECK: "attn.stream_backward: extent 2 of d_keys[0] must be extent 2 of keys[0]\00"
// CHECK-LABEL: func.func @stream(
func.func @stream(%q: memref<1x2x8x4xf32>, %k: memref<1x2x?x4xf32>, %l: memref<1x2x8xf32>, %dq: memref<1x2x8x4xf32>, %dk: memref<1x2x?x4xf32>, %dv: memref<1x2x?x4xf32>) {
  attn.stream_backward query(%q : memref<1x2x8x4xf32>)
      source(%k, %k : memref<1x2x?x4xf32>, memref<1x2x?x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : memref<1x2x8x4xf32>, memref<1x2x8xf32>) gradient(%q : memref<1x2x8x4xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x4xf32>, memref<1x2x?x4xf32>, memref<1x2x?x4xf32>) {scale = 1.0 : f64}
  return
}

// -----

//       CHECK: "attn.summarize_backward: extent 2 of d_output must count the summaries of extent 2 of input\00"
// CHECK-LABEL: func.func @summarize(
func.func @summarize(%x: memref<1x2x?x4xf32>, %w: memref<1x1x4x4xf32>, %g: memref<1x2x?x4xf32>, %dx: memref<1x2x?x4xf32>, %dw: memref<1x1x4x4xf32>) {
  attn.summarize_backward ins(%x : memref<1x2x?x4xf32>) weights(%w : memref<1x1x4x4xf32>) gradient(%g : memref<1x2x?x4xf32>)
      outs(%dx, %dw : memref<1x2x?x4xf32>, memref<1x1x4x4xf32>)
  return
}

// -----

//   CHECK-DAG: "attn.low_rank_backward: extent 2 of d_output must be extent 2 of output\00"
//   CHECK-DAG: "attn.low_rank_backward: extent 2 of d_u2 must be extent 2 of u2\00"
//   CHECK-DAG: "attn.low_rank_backward: extent 2 of group must be extent 2 of u1\00"
//   CHECK-DAG: "attn.polynomial_features_backward: extent 2 of d_output must be extent 2 of input\00"
// CHECK-LABEL: func.func @low_rank(
func.func @low_rank(%u1: memref<1x2x8x4xf32>, %u2: memref<1x2x8x4xf32>, %g: memref<1x1x?xi32>, %r: memref<1x1x3x8xi1>, %d: memref<1x2x?x4xf32>, %du2: memref<1x2x?x4xf32>, %du1: memref<1x2x8x4xf32>, %dv: memref<1x2x8x4xf32>, %p: memref<1x2x?x5xf32>) {
  attn.low_rank_backward ins(%u1, %u2, %u2 : memref<1x2x8x4xf32>, memref<1x2x8x4xf32>, memref<1x2x8x4xf32>) mask(%g, %r : memref<1x1x?xi32>, memref<1x1x3x8xi1>)
      forward(%u1 : memref<1x2x8x4xf32>) gradient(%d : memref<1x2x?x4xf32>)
      outs(%du1, %du2, %dv : memref<1x2x8x4xf32>, memref<1x2x?x4xf32>, memref<1x2x8x4xf32>) {mask = #attn.row_mask<distinct_rows>}
  attn.polynomial_features_backward ins(%u1 : memref<1x2x8x4xf32>) gradient(%p : memref<1x2x?x5xf32>) outs(%du1 : memref<1x2x8x4xf32>) {degree = 1 : i64, scale = 1.0 : f64}
  return
}
