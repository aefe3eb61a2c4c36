// RUN: fovea-opt %s --attn-check-shapes --split-input-file | FileCheck %s

//   CHECK-DAG: llvm.func @fovea_rt_check_extent(!llvm.ptr, i64, i64)
//   CHECK-DAG: llvm.func @fovea_rt_check_multiple(!llvm.ptr, i64, i64)
//   CHECK-DAG: @[[$ROWS:.*]]("attn.dense: extent 2 of value must be extent 2 of key\00")
//   CHECK-DAG: @[[$HEADS:.*]]("attn.dense: extent 1 of query must be a multiple of extent 1 of key\00")
// CHECK-LABEL: func.func @dense(
//  CHECK-SAME:   %[[Q:.*]]: tensor<1x?x8x4xf32>, %[[K:.*]]: tensor<1x2x?x4xf32>, %[[V:.*]]: tensor<1x2x?x4xf32>
//       CHECK:   tensor.empty
//       CHECK:   tensor.dim %[[V]]
//       CHECK:   tensor.dim %[[K]]
//       CHECK:   llvm.mlir.addressof @[[$ROWS]]
//       CHECK:   llvm.call @fovea_rt_check_extent
//       CHECK:   %[[H:.*]] = tensor.dim %[[Q]], %{{.*}}
//       CHECK:   %[[FOUND:.*]] = arith.index_cast %[[H]] : index to i64
//       CHECK:   %[[RULE:.*]] = llvm.mlir.addressof @[[$HEADS]]
//       CHECK:   llvm.call @fovea_rt_check_multiple(%[[RULE]], %[[FOUND]], %{{.*}})
// The destination has the query's extent, and a static 1 broadcasts.
//   CHECK-NOT:   llvm.call
//       CHECK:   attn.dense
func.func @dense(%q: tensor<1x?x8x4xf32>, %k: tensor<1x2x?x4xf32>, %v: tensor<1x2x?x4xf32>,
                 %w: tensor<1x1x1xf32>) -> tensor<1x?x8x4xf32> {
  %c1 = arith.constant 1 : index
  %h = tensor.dim %q, %c1 : tensor<1x?x8x4xf32>
  %o = tensor.empty(%h) : tensor<1x?x8x4xf32>
  %r = attn.dense ins(%q, %k, %v : tensor<1x?x8x4xf32>, tensor<1x2x?x4xf32>, tensor<1x2x?x4xf32>)
      log_weight(%w : tensor<1x1x1xf32>) outs(%o : tensor<1x?x8x4xf32>) -> tensor<1x?x8x4xf32>
  return %r : tensor<1x?x8x4xf32>
}

// -----

// Nothing to check where all extents are static.
// CHECK-LABEL: func.func @static
//   CHECK-NOT:   llvm
//       CHECK:   return
func.func @static(%q: tensor<1x1x8x4xf32>, %o: tensor<1x1x8x4xf32>) -> tensor<1x1x8x4xf32> {
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>)
      outs(%o : tensor<1x1x8x4xf32>) -> tensor<1x1x8x4xf32>
  return %r : tensor<1x1x8x4xf32>
}

// -----

//       CHECK: "attn.stream: extent 3 of bias of source 1 must be extent 2 of keys of source 1\00"
// CHECK-LABEL: func.func @stream
func.func @stream(%q: memref<1x1x8x4xf32>, %k: memref<1x1x8x4xf32>, %k1: memref<1x1x?x4xf32>,
                  %b: memref<1x1x8x?xf32>, %o: memref<1x1x8x4xf32>) {
  attn.stream query(%q : memref<1x1x8x4xf32>)
    source(%k, %k : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    source(%k1, %k1 : memref<1x1x?x4xf32>, memref<1x1x?x4xf32>) bias(%b : memref<1x1x8x?xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    outs(%o : memref<1x1x8x4xf32>) {scale = 1.0 : f64}
  return
}

// -----

//       CHECK: "attn.summarize: extent 2 of output must count the summaries of extent 2 of input\00"
// CHECK-LABEL: func.func @summarize
//       CHECK:   affine.apply #{{.*}}()[%{{.*}}]
//       CHECK:   llvm.call @fovea_rt_check_extent
func.func @summarize(%x: tensor<1x1x?x4xf32>, %w: tensor<1x2x8x4xf32>, %o: tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32> {
  %r = attn.summarize ins(%x : tensor<1x1x?x4xf32>) weights(%w : tensor<1x2x8x4xf32>)
      outs(%o : tensor<1x1x?x4xf32>) -> tensor<1x1x?x4xf32>
  return %r : tensor<1x1x?x4xf32>
}

// -----

//   CHECK-DAG: "attn.quantize: extent 2 of codes must be extent 2 of key\00"
//   CHECK-DAG: "attn.codebook_accumulate: extent 2 of values must be extent 2 of codes\00"
//   CHECK-DAG: "attn.codebook_accumulate: extent 2 of count must be extent 2 of mean\00"
//   CHECK-DAG: "attn.log_count: extent 2 of log_weight must be extent 2 of count\00"
// CHECK-LABEL: func.func @codes
func.func @codes(%k: tensor<1x1x?x4xf32>, %c: tensor<1x5x4xf32>, %z: tensor<1x1x?xi32>, %m: tensor<1x1x?x4xf32>, %n: tensor<1x1x?xi32>,
                 %w: tensor<1x1x?xf32>) -> (tensor<1x1x?xi32>, tensor<1x1x?xf32>) {
  %0 = attn.quantize ins(%k, %c : tensor<1x1x?x4xf32>, tensor<1x5x4xf32>) outs(%z : tensor<1x1x?xi32>) -> tensor<1x1x?xi32>
  %1:2 = attn.codebook_accumulate ins(%z, %k : tensor<1x1x?xi32>, tensor<1x1x?x4xf32>) outs(%m, %n : tensor<1x1x?x4xf32>, tensor<1x1x?xi32>)
      -> tensor<1x1x?x4xf32>, tensor<1x1x?xi32>
  %2 = attn.log_count ins(%1#1 : tensor<1x1x?xi32>) outs(%w : tensor<1x1x?xf32>) -> tensor<1x1x?xf32>
  return %0, %2 : tensor<1x1x?xi32>, tensor<1x1x?xf32>
}

// -----

//   CHECK-DAG: "attn.vq_backward: extent 2 of codes must be extent 2 of query\00"
//   CHECK-DAG: "attn.vq_backward: extent 2 of lse must be extent 2 of query\00"
//   CHECK-DAG: "attn.vq_backward: extent 2 of d_output must be extent 2 of query\00"
//   CHECK-DAG: "attn.vq_backward: extent 2 of d_key must be extent 2 of query\00"
// CHECK-LABEL: func.func @vq_backward
func.func @vq_backward(%q: memref<1x2x8x4xf32>, %z: memref<1x1x?xi32>, %v: memref<1x1x8x4xf32>, %c: memref<1x5x4xf32>, %o: memref<1x2x8x4xf32>,
                       %l: memref<1x2x?xf32>, %d: memref<1x2x?x4xf32>, %dq: memref<1x2x8x4xf32>, %dk: memref<1x1x?x4xf32>, %dv: memref<1x1x8x4xf32>) {
  attn.vq_backward ins(%q, %z, %v, %c : memref<1x2x8x4xf32>, memref<1x1x?xi32>, memref<1x1x8x4xf32>, memref<1x5x4xf32>)
      forward(%o, %l : memref<1x2x8x4xf32>, memref<1x2x?xf32>) gradient(%d : memref<1x2x?x4xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x4xf32>, memref<1x1x?x4xf32>, memref<1x1x8x4xf32>) {block = 4 : i64, causal}
  return
}

// -----

//   CHECK-DAG: "attn.conv_apply_backward: extent 2 of sizes must be extent 2 of basis\00"
//   CHECK-DAG: "attn.conv_apply_backward: extent 2 of d_output must be extent 2 of output\00"
//   CHECK-DAG: "attn.conv_apply_backward: extent 3 of d_basis must be extent 3 of basis\00"
//   CHECK-DAG: "attn.conv_recover_backward: extent 3 of d_basis must be extent 2 of query\00"
//   CHECK-DAG: "attn.conv_recover_backward: extent 2 of d_key must be extent 2 of key\00"
//   CHECK-DAG: "attn.conv_backward: extent 1 of d_output must be extent 1 of output\00"
//   CHECK-DAG: "attn.rope_backward: extent 2 of positions must be extent 2 of d_output\00"
// CHECK-LABEL: func.func @conv_backward
func.func @conv_backward(%b: memref<1x2x3x8xf32>, %m: memref<1x2x?xi32>, %v: memref<1x1x8x4xf32>, %o: memref<1x2x8x4xf32>, %d: memref<1x?x?x4xf32>, %db: memref<1x2x3x?xf32>,
                         %dv: memref<1x1x8x4xf32>, %dk: memref<1x1x?x4xf32>, %q: memref<1x2x8x4xf32>, %dq: memref<1x2x8x4xf32>, %p: memref<1x1x?xi32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x8xf32>, memref<1x2x?xi32>, memref<1x1x8x4xf32>)
      forward(%o : memref<1x2x8x4xf32>) gradient(%d : memref<1x?x?x4xf32>) outs(%db, %dv : memref<1x2x3x?xf32>, memref<1x1x8x4xf32>)
  attn.conv_recover_backward ins(%q, %v, %m : memref<1x2x8x4xf32>, memref<1x1x8x4xf32>, memref<1x2x?xi32>)
      gradient(%db : memref<1x2x3x?xf32>) outs(%dq, %dk : memref<1x2x8x4xf32>, memref<1x1x?x4xf32>)
  attn.conv_backward ins(%q, %v, %v : memref<1x2x8x4xf32>, memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
      forward(%o : memref<1x2x8x4xf32>) gradient(%d : memref<1x?x?x4xf32>)
      outs(%dq, %dk, %dv : memref<1x2x8x4xf32>, memref<1x1x?x4xf32>, memref<1x1x8x4xf32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64}
  attn.rope_backward ins(%p : memref<1x1x?xi32>) gradient(%q : memref<1x2x8x4xf32>) outs(%dq : memref<1x2x8x4xf32>)
  return
}

// -----

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

// -----

// The weights bound the number of tokens: group 2^(L+1).
//       CHECK: @[[$LEVELS:.*]]("attn.fast_multipole: weights of 1 levels are for so many tokens in groups of 8 at most\00")
// CHECK-LABEL: func.func @levels(
//  CHECK-SAME:   %[[Q:.*]]: tensor<1x1x?x4xf32>, %[[W:[^:]*]]:
//       CHECK:   tensor.empty
//       CHECK:   %[[N:.*]] = tensor.dim %[[Q]]
//       CHECK:   %[[MOST:.*]] = arith.constant 32 : index
//   CHECK-DAG:   %[[FOUND:.*]] = arith.index_cast %[[N]] : index to i64
//   CHECK-DAG:   %[[LESS:.*]] = arith.minsi %[[N]], %[[MOST]] : index
//       CHECK:   %[[NEEDED:.*]] = arith.index_cast %[[LESS]] : index to i64
//       CHECK:   %[[RULE:.*]] = llvm.mlir.addressof @[[$LEVELS]]
//       CHECK:   llvm.call @fovea_rt_check_extent(%[[RULE]], %[[FOUND]], %[[NEEDED]])
func.func @levels(%q: tensor<1x1x?x4xf32>, %w: tensor<1x1x8x4xf32>) -> tensor<1x1x?x4xf32> {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %q, %c2 : tensor<1x1x?x4xf32>
  %o = tensor.empty(%n) : tensor<1x1x?x4xf32>
  %r = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
      key_weights(%w : tensor<1x1x8x4xf32>) value_weights(%w : tensor<1x1x8x4xf32>)
      outs(%o : tensor<1x1x?x4xf32>) {group = 8 : i64} -> tensor<1x1x?x4xf32>
  return %r : tensor<1x1x?x4xf32>
}
