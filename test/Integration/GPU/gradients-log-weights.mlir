// Gradients of log weights by the kernels of sm_90a for rows, in the emulator.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=rows --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=wide --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 | FileCheck %s
// RUN: fovea-run %s --entry=shared --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=one --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=parts --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7,eager | FileCheck %s
// RUN: fovea-run %s --entry=gathered --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=lists --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4 | FileCheck %s
// CHECK-COUNT-4: agrees with the reference
// CHECK-NOT: differs

// No kernel is for log weights alone: two of warpgroups each, and none of 128 threads that would go through all queries again.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS-COUNT-14: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=OTHERS
// OTHERS-NOT: mma.sync

// Batch entries and heads with weights of their own, keys of their own number: all, some, none; rows that no weight leaves.
!q = tensor<3x4x150x64xbf16>
!k = tensor<3x2x201x64xbf16>
!v = tensor<3x2x201x40xbf16>
!o = tensor<3x4x150x40xbf16>
!w = tensor<3x2x201xf32>
!l = tensor<3x4x150xf32>
func.func @rows(%q: !q, %k: !k, %v: !v, %w: !w, %o: !o, %l: !l, %d: !o) -> (!q, !k, !v, !w) {
  %keys = arith.constant dense<[201, 130, 0]> : tensor<3xi32>
  %none = arith.constant dense<0xFF800000> : tensor<3x1x70xf32>
  %some = tensor.insert_slice %none into %w[0, 1, 30] [3, 1, 70] [1, 1, 1] : tensor<3x1x70xf32> into !w
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %iw = tensor.empty() : !w
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !v) log_weight(%some : !w) lengths(%keys : tensor<3xi32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !o, !l) gradient(%d : !o) outs(%iq, %ik, %iv : !q, !k, !v) d_log_weights(%iw : !w)
      {scale = 3.125e-02 : f64} -> !q, !k, !v, !w
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !v, !w
}

// No registers are left beside sums of 256 columns; a gradient that is narrow, too.
!wq = tensor<1x2x130x128xf16>
!wk = tensor<1x1x200x128xf16>
!ww = tensor<1x1x200xf16>
!wl = tensor<1x2x130xf32>
func.func @wide(%q: !wq, %k: !wk, %v: !wk, %w: !ww, %o: !wq, %l: !wl, %d: !wq) -> (!wq, !wk, !wk, !ww) {
  %iq = tensor.empty() : !wq
  %ik = tensor.empty() : !wk
  %iw = tensor.empty() : !ww
  %r:4 = attn.stream_backward query(%q : !wq)
      source(%k, %v : !wk, !wk) log_weight(%w : !ww) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 100>
      forward(%o, %l : !wq, !wl) gradient(%d : !wq) outs(%iq, %ik, %ik : !wq, !wk, !wk) d_log_weights(%iw : !ww)
      {scale = 3.125e-02 : f64} -> !wq, !wk, !wk, !ww
  return %r#0, %r#1, %r#2, %r#3 : !wq, !wk, !wk, !ww
}

// Batch entries and heads share weights; queries of their own number.
!sq = tensor<2x4x100x32xf16>
!sk = tensor<2x2x140x32xf16>
!sw = tensor<1x1x140xf32>
!sl = tensor<2x4x100xf32>
func.func @shared(%q: !sq, %k: !sk, %w: !sw, %o: !sq, %l: !sl, %d: !sq) -> (!sq, !sk, !sk, !sw) {
  %queries = arith.constant dense<[100, 33]> : tensor<2xi32>
  %iq = tensor.empty() : !sq
  %ik = tensor.empty() : !sk
  %iw = tensor.empty() : !sw
  %r:4 = attn.stream_backward query(%q : !sq)
      source(%k, %k : !sk, !sk) log_weight(%w : !sw) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      query_lengths(%queries : tensor<2xi32>) forward(%o, %l : !sq, !sl) gradient(%d : !sq)
      outs(%iq, %ik, %ik : !sq, !sk, !sk) d_log_weights(%iw : !sw) {scale = 3.125e-02 : f64} -> !sq, !sk, !sk, !sw
  return %r#0, %r#1, %r#2, %r#3 : !sq, !sk, !sk, !sw
}

// One weight for all rows of a head.
!nw = tensor<2x2x1xf32>
func.func @one(%q: !sq, %k: !sk, %w: !nw, %o: !sq, %l: !sl, %d: !sq) -> (!sq, !sk, !sk, !nw) {
  %iq = tensor.empty() : !sq
  %ik = tensor.empty() : !sk
  %iw = tensor.empty() : !nw
  %r:4 = attn.stream_backward query(%q : !sq)
      source(%k, %k : !sk, !sk) log_weight(%w : !nw) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !sq, !sl) gradient(%d : !sq)
      outs(%iq, %ik, %ik : !sq, !sk, !sk) d_log_weights(%iw : !nw) {scale = 3.125e-02 : f64} -> !sq, !sk, !sk, !nw
  return %r#0, %r#1, %r#2, %r#3 : !sq, !sk, !sk, !nw
}

// Blocks that share the queries of the same rows, two batch entries of which share weights.
!fq = tensor<2x2x500x64xf16>
!fs = tensor<2x1x33x64xf16>
!fw = tensor<1x1x33xf32>
!fl = tensor<2x2x500xf32>
func.func @parts(%q: !fq, %s: !fs, %w: !fw, %o: !fq, %l: !fl, %d: !fq) -> (!fq, !fs, !fs, !fw) {
  %iq = tensor.empty() : !fq
  %is = tensor.empty() : !fs
  %iw = tensor.empty() : !fw
  %r:4 = attn.stream_backward query(%q : !fq)
      source(%s, %s : !fs, !fs) log_weight(%w : !fw)
          ranges [affine_map<(b)[rows, n] -> (b * 3, b * 3 + 3)>, affine_map<(b)[rows, n] -> (30, 33)>]
      forward(%o, %l : !fq, !fl) gradient(%d : !fq) outs(%iq, %is, %is : !fq, !fs, !fs) d_log_weights(%iw : !fw)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !fq, !fs, !fs, !fw
  return %r#0, %r#1, %r#2, %r#3 : !fq, !fs, !fs, !fw
}

// Rows of a few far places each; heads share weights.
!zq = tensor<2x4x600x40xbf16>
!zk = tensor<2x2x900x40xbf16>
!zw = tensor<2x1x900xf32>
!zl = tensor<2x4x600xf32>
func.func @gathered(%q: !zq, %k: !zk, %w: !zw, %o: !zq, %l: !zl, %d: !zq) -> (!zq, !zk, !zk, !zw) {
  %iq = tensor.empty() : !zq
  %ik = tensor.empty() : !zk
  %iw = tensor.empty() : !zw
  %r:4 = attn.stream_backward query(%q : !zq)
      source(%k, %k : !zk, !zk) log_weight(%w : !zw)
          ranges [affine_map<(b)[rows, n] -> (b * 4, b * 4 + 4)>, affine_map<(b)[rows, n] -> ((b floordiv 2) * 4 + 200, b * 2 + 208)>,
                  affine_map<(b)[rows, n] -> (400, 405)>, affine_map<(b)[rows, n] -> (b + 600, b + 604, 603, 616)>,
                  affine_map<(b)[rows, n] -> (b * 2 + 800, b * 2 + 810)>] mask <causal>
      forward(%o, %l : !zq, !zl) gradient(%d : !zq) outs(%iq, %ik, %ik : !zq, !zk, !zk) d_log_weights(%iw : !zw)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !zq, !zk, !zk, !zw
  return %r#0, %r#1, %r#2, %r#3 : !zq, !zk, !zk, !zw
}

// Lists of whole tiles, some named twice, by no list, or later than a query reads; a list is empty.
!bq = tensor<2x4x150x64xbf16>
!bk = tensor<2x2x330x64xbf16>
!bw = tensor<2x2x330xf32>
!bl = tensor<2x4x150xf32>
!bn = tensor<1x2x3x4xi32>
func.func @lists(%q: !bq, %k: !bk, %w: !bw, %o: !bq, %l: !bl, %d: !bq) -> (!bq, !bk, !bk, !bw) {
  %lists = arith.constant dense<[[[[0, 3, -1, 1], [2, 2, 0, 1], [3, 5, -1, 0]], [[1, -1, -1, -1], [-1, -1, -1, -1], [0, 2, 1, 0]]]]> : !bn
  %none = arith.constant dense<0xFF800000> : tensor<2x1x70xf32>
  %some = tensor.insert_slice %none into %w[0, 1, 30] [2, 1, 70] [1, 1, 1] : tensor<2x1x70xf32> into !bw
  %iq = tensor.empty() : !bq
  %ik = tensor.empty() : !bk
  %iw = tensor.empty() : !bw
  %r:4 = attn.stream_backward query(%q : !bq)
      source(%k, %k : !bk, !bk) log_weight(%some : !bw) rows(%lists : !bn) unit = 64
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !bq, !bl) gradient(%d : !bq) outs(%iq, %ik, %ik : !bq, !bk, !bk) d_log_weights(%iw : !bw)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !bq, !bk, !bk, !bw
  return %r#0, %r#1, %r#2, %r#3 : !bq, !bk, !bk, !bw
}
