// Gradients of scores with a bias by the kernels of sm_90a, in the emulator. The kernel for queries loads pairs of its elements, that for
// rows one by one.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=full --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: env FOVEA_SIMT=seed=3,eager fovea-run %s --entry=full --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=hidden --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: env FOVEA_SIMT=seed=5 fovea-run %s --entry=hidden --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: env FOVEA_SIMT=seed=8,eager fovea-run %s --entry=hidden --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=three --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: env FOVEA_SIMT=seed=4,eager fovea-run %s --entry=three --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=padding --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=columns --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=one --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=strides --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=parts --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=values --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefix=TWO
// RUN: fovea-run %s --entry=near_and_far --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,SIX
// RUN: env FOVEA_SIMT=seed=6,eager fovea-run %s --entry=near_and_far --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s --check-prefixes=CHECK,SIX
// CHECK-COUNT-3: agrees with the reference
// FOUR: agrees with the reference
// SIX-COUNT-3: agrees with the reference
// TWO-COUNT-2: agrees with the reference
// CHECK-NOT: differs

// Two kernels of warpgroups for each source. Of three functions the gradient of the bias has one, of one warp for each 32 rows; nobody
// reads the others.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" -o %t.mlir
// RUN: FileCheck %s --check-prefix=KERNELS --input-file=%t.mlir
// KERNELS-COUNT-21: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>

// Two blocks of rows and of queries; the bias of each score is narrow.
!q = tensor<1x2x150x128xf16>
!k = tensor<1x1x200x128xf16>
!b = tensor<1x2x150x200xf16>
!l = tensor<1x2x150xf32>
func.func @full(%q: !q, %k: !k, %v: !k, %b: !b, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k, !b) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %ib = tensor.empty() : !b
  %r:4 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) bias(%b : !b) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_bias(%ib : !b) {scale = 3.125e-02 : f64} -> !q, !k, !k, !b
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !k, !b
}

// Two batch entries, heads that share key heads, values of another width, rows of an odd length, entries that the bias leaves out: some of
// a tile, all of one, and all of some queries.
!hq = tensor<2x4x129x64xbf16>
!hk = tensor<2x2x201x64xbf16>
!hv = tensor<2x2x201x40xbf16>
!ho = tensor<2x4x129x40xbf16>
!hb = tensor<2x4x129x201xf32>
!hl = tensor<2x4x129xf32>
func.func @hidden(%q: !hq, %k: !hk, %v: !hv, %b: !hb, %o: !ho, %l: !hl, %d: !ho) -> (!hq, !hk, !hv, !hb) {
  %some = arith.constant dense<0xFF800000> : tensor<2x4x40x30xf32>
  %tile = arith.constant dense<0xFF800000> : tensor<2x2x64x128xf32>
  %all = arith.constant dense<0xFF800000> : tensor<2x1x3x201xf32>
  %b0 = tensor.insert_slice %some into %b[0, 0, 50, 50] [2, 4, 40, 30] [1, 1, 1, 1] : tensor<2x4x40x30xf32> into !hb
  %b1 = tensor.insert_slice %tile into %b0[0, 1, 0, 0] [2, 2, 64, 128] [1, 1, 1, 1] : tensor<2x2x64x128xf32> into !hb
  %b2 = tensor.insert_slice %all into %b1[0, 2, 100, 0] [2, 1, 3, 201] [1, 1, 1, 1] : tensor<2x1x3x201xf32> into !hb
  %iq = tensor.empty() : !hq
  %ik = tensor.empty() : !hk
  %iv = tensor.empty() : !hv
  %ib = tensor.empty() : !hb
  %r:4 = attn.dense_backward ins(%q, %k, %v : !hq, !hk, !hv) bias(%b2 : !hb) forward(%o, %l : !ho, !hl) gradient(%d : !ho)
      outs(%iq, %ik, %iv : !hq, !hk, !hv) d_bias(%ib : !hb) {mask = #attn.mask<causal>, scale = 3.125e-02 : f64} -> !hq, !hk, !hv, !hb
  return %r#0, %r#1, %r#2, %r#3 : !hq, !hk, !hv, !hb
}

// Blocks of three warpgroups of queries; heads and batch entries share a bias, which is as wide as sums.
!tq = tensor<2x2x261x64xbf16>
!tk = tensor<2x1x300x64xbf16>
!tb = tensor<1x1x261x300xf32>
!tl = tensor<2x2x261xf32>
func.func @three(%q: !tq, %k: !tk, %b: !tb, %o: !tq, %l: !tl, %d: !tq) -> (!tq, !tk, !tk) {
  %iq = tensor.empty() : !tq
  %ik = tensor.empty() : !tk
  %ib = tensor.empty() : !tb
  %r:4 = attn.dense_backward ins(%q, %k, %k : !tq, !tk, !tk) bias(%b : !tb) forward(%o, %l : !tq, !tl) gradient(%d : !tq)
      outs(%iq, %ik, %ik : !tq, !tk, !tk) d_bias(%ib : !tb) {mask = #attn.mask<causal, window = 130>} -> !tq, !tk, !tk, !tb
  return %r#0, %r#1, %r#2 : !tq, !tk, !tk
}

// One bias for all queries, which hides the last keys; keys and queries of each batch entry's own number.
!pq = tensor<3x2x100x32xf16>
!pk = tensor<3x1x140x32xf16>
!pb = tensor<3x1x1x140xf32>
!pl = tensor<3x2x100xf32>
func.func @padding(%q: !pq, %k: !pk, %b: !pb, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk) {
  %keys = arith.constant dense<[140, 65, 0]> : tensor<3xi32>
  %queries = arith.constant dense<[100, 33, 0]> : tensor<3xi32>
  %none = arith.constant dense<0xFF800000> : tensor<3x1x1x29xf32>
  %some = tensor.insert_slice %none into %b[0, 0, 0, 111] [3, 1, 1, 29] [1, 1, 1, 1] : tensor<3x1x1x29xf32> into !pb
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %ib = tensor.empty() : !pb
  %r:4 = attn.dense_backward ins(%q, %k, %k : !pq, !pk, !pk) bias(%some : !pb) lengths(%keys : tensor<3xi32>)
      query_lengths(%queries : tensor<3xi32>) forward(%o, %l : !pq, !pl) gradient(%d : !pq)
      outs(%iq, %ik, %ik : !pq, !pk, !pk) d_bias(%ib : !pb) -> !pq, !pk, !pk, !pb
  return %r#0, %r#1, %r#2 : !pq, !pk, !pk
}

// One for all keys, beside log weights.
!cw = tensor<3x1x140xf32>
!cb = tensor<1x2x100x1xf16>
func.func @columns(%q: !pq, %k: !pk, %w: !cw, %b: !cb, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk, !cw) {
  %none = arith.constant dense<0xFF800000> : tensor<3x1x70xf32>
  %some = tensor.insert_slice %none into %w[0, 0, 30] [3, 1, 70] [1, 1, 1] : tensor<3x1x70xf32> into !cw
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %iw = tensor.empty() : !cw
  %ib = tensor.empty() : !cb
  %r:5 = attn.dense_backward ins(%q, %k, %k : !pq, !pk, !pk) log_weight(%some : !cw) bias(%b : !cb)
      forward(%o, %l : !pq, !pl) gradient(%d : !pq) outs(%iq, %ik, %ik : !pq, !pk, !pk) d_log_weight(%iw : !cw) d_bias(%ib : !cb)
      {scale = 3.125e-02 : f64} -> !pq, !pk, !pk, !cw, !cb
  return %r#0, %r#1, %r#2, %r#3 : !pq, !pk, !pk, !cw
}

// One for all scores; and one of which a thread has no two elements side by side.
!ob = tensor<1x1x1x1xf32>
func.func @one(%q: !pq, %k: !pk, %b: !ob, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk) {
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %ib = tensor.empty() : !ob
  %r:4 = attn.dense_backward ins(%q, %k, %k : !pq, !pk, !pk) bias(%b : !ob) forward(%o, %l : !pq, !pl) gradient(%d : !pq)
      outs(%iq, %ik, %ik : !pq, !pk, !pk) d_bias(%ib : !ob) {mask = #attn.mask<causal>} -> !pq, !pk, !pk, !ob
  return %r#0, %r#1, %r#2 : !pq, !pk, !pk
}

!sb = tensor<1x2x100x280xf16>
!st = tensor<1x2x100x140xf16>
func.func @strides(%q: !pq, %k: !pk, %b: !sb, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk) {
  %t = tensor.extract_slice %b[0, 0, 0, 1] [1, 2, 100, 140] [1, 1, 1, 2] : !sb to !st
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %ib = tensor.empty() : !st
  %r:4 = attn.dense_backward ins(%q, %k, %k : !pq, !pk, !pk) bias(%t : !st) forward(%o, %l : !pq, !pl) gradient(%d : !pq)
      outs(%iq, %ik, %ik : !pq, !pk, !pk) d_bias(%ib : !st) {mask = #attn.mask<causal, prefix = 50>} -> !pq, !pk, !pk, !st
  return %r#0, %r#1, %r#2 : !pq, !pk, !pk
}

// Blocks that share the queries of the same rows.
!mq = tensor<2x4x450x40xf16>
!mk = tensor<2x2x70x40xf16>
!mb = tensor<1x4x450x70xf32>
!ml = tensor<2x4x450xf32>
func.func @parts(%q: !mq, %k: !mk, %b: !mb, %o: !mq, %l: !ml, %d: !mq) -> (!mq, !mk, !mk) {
  %iq = tensor.empty() : !mq
  %ik = tensor.empty() : !mk
  %ib = tensor.empty() : !mb
  %r:4 = attn.dense_backward ins(%q, %k, %k : !mq, !mk, !mk) bias(%b : !mb) forward(%o, %l : !mq, !ml) gradient(%d : !mq)
      outs(%iq, %ik, %ik : !mq, !mk, !mk) d_bias(%ib : !mb) -> !mq, !mk, !mk, !mb
  return %r#0, %r#1, %r#2 : !mq, !mk, !mk
}

// Nobody reads dK.
func.func @values(%q: !q, %k: !k, %v: !k, %b: !b, %o: !q, %l: !l, %d: !q) -> (!q, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %ib = tensor.empty() : !b
  %r:4 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) bias(%b : !b) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_bias(%ib : !b) {mask = #attn.mask<causal>, scale = 3.125e-02 : f64} -> !q, !k, !k, !b
  return %r#0, %r#2 : !q, !k
}

// Near rows with a bias, in two ranges; far ones, of few places each, without, which are gathered.
!jq = tensor<1x2x384x128xf16>
!jn = tensor<1x1x384x128xf16>
!jf = tensor<1x1x600x128xf16>
!jb = tensor<1x2x384x384xf16>
!jl = tensor<1x2x384xf32>
func.func @near_and_far(%q: !jq, %n: !jn, %b: !jb, %f: !jf, %o: !jq, %l: !jl, %d: !jq) -> (!jq, !jn, !jf, !jn, !jf, !jb) {
  %iq = tensor.empty() : !jq
  %in = tensor.empty() : !jn
  %if = tensor.empty() : !jf
  %ib = tensor.empty() : !jb
  %r:6 = attn.stream_backward query(%q : !jq)
      source(%n, %n : !jn, !jn) bias(%b : !jb)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 151, b * 128 - 30)>, affine_map<(b)[rows, n] -> (b * 128, b * 128 + 100)>]
      source(%f, %f : !jf, !jf)
          ranges [affine_map<(b)[rows, n] -> (b * 6, 12)>, affine_map<(b)[rows, n] -> (b * 6 + 130, 142)>,
                  affine_map<(b)[rows, n] -> (b * 6 + 260, 272)>, affine_map<(b)[rows, n] -> (b * 6 + 400, 412)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 522)>]
      forward(%o, %l : !jq, !jl) gradient(%d : !jq) outs(%iq, %in, %if, %in, %if : !jq, !jn, !jf, !jn, !jf) d_biases(%ib : !jb)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !jq, !jn, !jf, !jn, !jf, !jb
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !jq, !jn, !jf, !jn, !jf, !jb
}
