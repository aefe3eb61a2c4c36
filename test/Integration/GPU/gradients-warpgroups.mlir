// Gradients by kernels of sm_90a in the emulator. Random schedules and copies
// that end early give the same result.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir and gradients-vq-state.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=full --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=causal --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=wide --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=2 --schedule=seed=9,eager | FileCheck %s
// RUN: fovea-run %s --entry=wide_keys --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6,eager | FileCheck %s
// RUN: fovea-run %s --entry=three --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4,eager | FileCheck %s
// RUN: fovea-run %s --entry=window --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=prefix --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=parts --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7,eager | FileCheck %s
// RUN: fovea-run %s --entry=far_parts --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=gathered --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=gathered_f32 --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=9 | FileCheck %s
// RUN: fovea-run %s --entry=blocks --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=block_lengths --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5,eager | FileCheck %s
// RUN: fovea-run %s --entry=one_list --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=near_and_far --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=6,eager | FileCheck %s --check-prefixes=CHECK,MORE
// RUN: fovea-run %s --entry=joined --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=6,eager | FileCheck %s --check-prefixes=CHECK,JOINS
// RUN: fovea-run %s --entry=joined_full --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7 --schedule=seed=8,eager | FileCheck %s --check-prefixes=CHECK,JOINS
// RUN: fovea-run %s --entry=joined_of_three --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=9,eager | FileCheck %s --check-prefixes=CHECK,MORE
// CHECK-COUNT-3: agrees with the reference
// JOINS-COUNT-2: agrees with the reference
// MORE-COUNT-3: agrees with the reference
// CHECK-NOT: differs

// These are the kernels that run: two for each source, but one for queries of near and of gathered far rows. A source of which a row
// has no order of readers keeps those of other chips.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" -o %t.mlir
// RUN: FileCheck %s --check-prefix=KERNELS --input-file=%t.mlir
// KERNELS-COUNT-52: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>

// Wide heads have one consumer for queries and for keys, which two tiles of 64 kB leave no more place for, and two for values.
// RUN: FileCheck %s --check-prefix=WIDE --input-file=%t.mlir
// WIDE: @wide_kernel{{.*}} blocks in (%c24, {{.*}} threads in (%c256, {{.*}} dynamic_shared_memory_size
// WIDE: @wide_kernel{{.*}} blocks in (%c12, {{.*}} threads in (%c256, {{.*}} dynamic_shared_memory_size
// WIDE: @wide_kernel{{.*}} blocks in (%c6, {{.*}} threads in (%c384, {{.*}} dynamic_shared_memory_size

// Narrow sums for queries leave registers for three consumers.
// RUN: FileCheck %s --check-prefix=THREE --input-file=%t.mlir
// RUN: FileCheck %s --check-prefix=PARTS --input-file=%t.mlir
// THREE-LABEL: llvm.func @three_kernel
// THREE: nvvm.reqntid = array<i32: 512, 1, 1>

// Far rows lie side by side: in nine stretches of 128 queries, and in three of 512 for two heads, whose sums are added up.
// RUN: FileCheck %s --check-prefix=GATHERED --input-file=%t.mlir
// GATHERED: @gathered_kernel{{.*}} blocks in (%c72, {{.*}} threads in (%c384, {{.*}}memref<1x2x576xf32>{{.*}}memref<9x64x2xi32>
// GATHERED: @gathered_kernel{{.*}} blocks in (%c12, {{.*}} threads in (%c384, {{.*}}memref<2x2x384x40xf32>{{.*}}memref<3x128x2xi32>

// Queries of near rows go through gathered ones, too: they leave no sums of f32 between, as three sources do.
// RUN: FileCheck %s --check-prefix=JOINED --input-file=%t.mlir
// JOINED-NOT: @joined_kernel{{.*}}memref<2x4x1100x40xf32>
// JOINED: @joined_kernel{{.*}} threads in (%c384, {{.*}}memref<2x4x1100x40xbf16>{{.*}}memref<9x64x2xi32>
// JOINED-NOT: @joined_full_kernel{{.*}}memref<1x2x384x128xf32>
// JOINED: @joined_full_kernel{{.*}} threads in (%c384, {{.*}}memref<1x2x384x128xf16>{{.*}}memref<3x64x2xi32>
// JOINED-NOT: @joined_full_kernel{{.*}}memref<1x2x384x128xf32>
// JOINED: @joined_of_three_kernel{{.*}} threads in (%c384, {{.*}}memref<1x2x384x128xf32>{{.*}}memref<3x64x2xi32>
// JOINED: @joined_of_three_kernel{{.*}} threads in (%c384, {{.*}}memref<1x2x384x128xf32>{{.*}}memref<1x2x384x128xf16>

// Blocks of parts have sums of their own.
// PARTS: @parts_kernel{{.*}} blocks in (%c12, {{.*}} threads in (%c384, {{.*}}memref<6x2x70x40xf32>
// PARTS: @far_parts_kernel{{.*}} blocks in (%c8, {{.*}} threads in (%c{{256|384}}, {{.*}}memref<8x1x33x64xf32>

// Two blocks of rows and of queries, the last ones with few; two boxes a row.
!q = tensor<1x2x150x128xf16>
!k = tensor<1x1x200x128xf16>
!l = tensor<1x2x150xf32>
func.func @full(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {scale = 3.125e-02 : f64} -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
}

// Two batch entries, heads that share key heads, values of another width; one
// query more than tiles have.
!cq = tensor<2x4x129x64xbf16>
!ck = tensor<2x2x129x64xbf16>
!cv = tensor<2x2x129x40xbf16>
!co = tensor<2x4x129x40xbf16>
!cl = tensor<2x4x129xf32>
func.func @causal(%q: !cq, %k: !ck, %v: !cv, %o: !co, %l: !cl, %d: !co) -> (!cq, !ck, !cv) {
  %iq = tensor.empty() : !cq
  %ik = tensor.empty() : !ck
  %iv = tensor.empty() : !cv
  %r:3 = attn.dense_backward ins(%q, %k, %v : !cq, !ck, !cv) forward(%o, %l : !co, !cl) gradient(%d : !co)
      outs(%iq, %ik, %iv : !cq, !ck, !cv) {mask = #attn.mask<causal>} -> !cq, !ck, !cv
  return %r#0, %r#1, %r#2 : !cq, !ck, !cv
}

// Keys and values have a kernel each. Two tiles pass at once, and their places are taken again.
!eq = tensor<1x4x330x256xbf16>
!ek = tensor<1x2x330x256xbf16>
!el = tensor<1x4x330xf32>
func.func @wide(%q: !eq, %k: !ek, %v: !ek, %o: !eq, %l: !el, %d: !eq) -> (!eq, !ek, !ek) {
  %iq = tensor.empty() : !eq
  %ik = tensor.empty() : !ek
  %r:3 = attn.dense_backward ins(%q, %k, %v : !eq, !ek, !ek) forward(%o, %l : !eq, !el) gradient(%d : !eq)
      outs(%iq, %ik, %ik : !eq, !ek, !ek) {mask = #attn.mask<causal>, scale = 3.125e-02 : f64} -> !eq, !ek, !ek
  return %r#0, %r#1, %r#2 : !eq, !ek, !ek
}

// Keys are wider than values, of all kinds of rows that a call has; the last box of a row is cut.
!uq = tensor<2x2x140x200xf16>
!uk = tensor<2x1x200x200xf16>
!uv = tensor<2x1x200x128xf16>
!uo = tensor<2x2x140x128xf16>
!ul = tensor<2x2x140xf32>
func.func @wide_keys(%q: !uq, %k: !uk, %v: !uv, %o: !uo, %l: !ul, %d: !uo) -> (!uq, !uk, !uv) {
  %keys = arith.constant dense<[200, 65]> : tensor<2xi32>
  %iq = tensor.empty() : !uq
  %ik = tensor.empty() : !uk
  %iv = tensor.empty() : !uv
  %r:3 = attn.dense_backward ins(%q, %k, %v : !uq, !uk, !uv) lengths(%keys : tensor<2xi32>)
      forward(%o, %l : !uo, !ul) gradient(%d : !uo)
      outs(%iq, %ik, %iv : !uq, !uk, !uv) {scale = 3.125e-02 : f64} -> !uq, !uk, !uv
  return %r#0, %r#1, %r#2 : !uq, !uk, !uv
}

// Two blocks of three warpgroups of queries, of the last of which one has few and one nothing.
!tq = tensor<1x2x261x64xbf16>
!tk = tensor<1x1x300x64xbf16>
!tl = tensor<1x2x261xf32>
func.func @three(%q: !tq, %k: !tk, %o: !tq, %l: !tl, %d: !tq) -> (!tq, !tk, !tk) {
  %iq = tensor.empty() : !tq
  %ik = tensor.empty() : !tk
  %r:3 = attn.dense_backward ins(%q, %k, %k : !tq, !tk, !tk) forward(%o, %l : !tq, !tl) gradient(%d : !tq)
      outs(%iq, %ik, %ik : !tq, !tk, !tk) {mask = #attn.mask<causal, window = 130>} -> !tq, !tk, !tk
  return %r#0, %r#1, %r#2 : !tq, !tk, !tk
}

// More queries than keys, some of which read nothing; one warpgroup of either.
!wq = tensor<1x1x63x24xf16>
!wk = tensor<1x1x33x24xf16>
!wv = tensor<1x1x33x72xf16>
!wo = tensor<1x1x63x72xf16>
!wl = tensor<1x1x63xf32>
func.func @window(%q: !wq, %k: !wk, %v: !wv, %o: !wo, %l: !wl, %d: !wo) -> (!wq, !wk, !wv) {
  %iq = tensor.empty() : !wq
  %ik = tensor.empty() : !wk
  %iv = tensor.empty() : !wv
  %r:3 = attn.dense_backward ins(%q, %k, %v : !wq, !wk, !wv) forward(%o, %l : !wo, !wl) gradient(%d : !wo)
      outs(%iq, %ik, %iv : !wq, !wk, !wv) {mask = #attn.mask<causal, window = 12>} -> !wq, !wk, !wv
  return %r#0, %r#1, %r#2 : !wq, !wk, !wv
}

// A prefix that ends within a tile, for queries that stand before and behind.
!pq = tensor<1x2x200x64xbf16>
!pk = tensor<1x1x200x64xbf16>
!pl = tensor<1x2x200xf32>
func.func @prefix(%q: !pq, %k: !pk, %o: !pq, %l: !pl, %d: !pq) -> (!pq, !pk, !pk) {
  %iq = tensor.empty() : !pq
  %ik = tensor.empty() : !pk
  %r:3 = attn.dense_backward ins(%q, %k, %k : !pq, !pk, !pk) forward(%o, %l : !pq, !pl) gradient(%d : !pq)
      outs(%iq, %ik, %ik : !pq, !pk, !pk) {mask = #attn.mask<causal, prefix = 100>} -> !pq, !pk, !pk
  return %r#0, %r#1, %r#2 : !pq, !pk, !pk
}

// Batch entries with keys and queries of their own number: all, some, none.
!nq = tensor<4x2x100x32xf16>
!nk = tensor<4x1x140x32xf16>
!nl = tensor<4x2x100xf32>
func.func @lengths(%q: !nq, %k: !nk, %o: !nq, %l: !nl, %d: !nq) -> (!nq, !nk, !nk) {
  %keys = arith.constant dense<[140, 65, 0, 90]> : tensor<4xi32>
  %queries = arith.constant dense<[100, 64, 30, 0]> : tensor<4xi32>
  %iq = tensor.empty() : !nq
  %ik = tensor.empty() : !nk
  %r:3 = attn.dense_backward ins(%q, %k, %k : !nq, !nk, !nk) lengths(%keys : tensor<4xi32>) query_lengths(%queries : tensor<4xi32>)
      forward(%o, %l : !nq, !nl) gradient(%d : !nq) outs(%iq, %ik, %ik : !nq, !nk, !nk) {mask = #attn.mask<causal>} -> !nq, !nk, !nk
  return %r#0, %r#1, %r#2 : !nq, !nk, !nk
}

// Rows near the block; far away rows with log weights, in ranges with
// readers of their own.
!sq = tensor<1x2x200x64xf16>
!sk = tensor<1x1x200x64xf16>
!sf = tensor<1x1x90x64xf16>
!sw = tensor<1x1x90xf32>
!sl = tensor<1x2x200xf32>
func.func @near_and_far(%q: !sq, %k: !sk, %s: !sf, %w: !sw, %o: !sq, %l: !sl, %d: !sq) -> (!sq, !sk, !sf, !sk, !sf, !sw) {
  %iq = tensor.empty() : !sq
  %ik = tensor.empty() : !sk
  %is = tensor.empty() : !sf
  %iw = tensor.empty() : !sw
  %r:6 = attn.stream_backward query(%q : !sq)
      source(%k, %k : !sk, !sk) ranges [affine_map<(b)[rows, n] -> (b * 64 - 64, b * 64 + 64)>] mask <causal>
      source(%s, %s : !sf, !sf) log_weight(%w : !sw)
          ranges [affine_map<(b)[rows, n] -> (0, b * 6)>, affine_map<(b)[rows, n] -> (20, 26)>,
                  affine_map<(b)[rows, n] -> (b - b mod 2 + 30, b * 3 + 80)>]
      forward(%o, %l : !sq, !sl) gradient(%d : !sq)
      outs(%iq, %ik, %is, %ik, %is : !sq, !sk, !sf, !sk, !sf) d_log_weights(%iw : !sw)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !sq, !sk, !sf, !sk, !sf, !sw
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !sq, !sk, !sf, !sk, !sf, !sw
}

// Many more queries than rows: blocks share the queries of the same rows, here three and eight, some of which have none.
!mq = tensor<2x4x450x40xf16>
!mk = tensor<2x2x70x40xf16>
!ml = tensor<2x4x450xf32>
func.func @parts(%q: !mq, %k: !mk, %o: !mq, %l: !ml, %d: !mq) -> (!mq, !mk, !mk) {
  %keys = arith.constant dense<[70, 33]> : tensor<2xi32>
  %iq = tensor.empty() : !mq
  %ik = tensor.empty() : !mk
  %r:3 = attn.dense_backward ins(%q, %k, %k : !mq, !mk, !mk) lengths(%keys : tensor<2xi32>)
      forward(%o, %l : !mq, !ml) gradient(%d : !mq) outs(%iq, %ik, %ik : !mq, !mk, !mk) -> !mq, !mk, !mk
  return %r#0, %r#1, %r#2 : !mq, !mk, !mk
}

!fq = tensor<1x2x600x64xbf16>
!fs = tensor<1x1x33x64xbf16>
!fw = tensor<1x1x33xf32>
!fl = tensor<1x2x600xf32>
func.func @far_parts(%q: !fq, %s: !fs, %w: !fw, %o: !fq, %l: !fl, %d: !fq) -> (!fq, !fs, !fs) {
  %iq = tensor.empty() : !fq
  %is = tensor.empty() : !fs
  %iw = tensor.empty() : !fw
  %r:4 = attn.stream_backward query(%q : !fq)
      source(%s, %s : !fs, !fs) log_weight(%w : !fw)
          ranges [affine_map<(b)[rows, n] -> (b * 3, b * 3 + 3)>, affine_map<(b)[rows, n] -> (30, 33)>]
      forward(%o, %l : !fq, !fl) gradient(%d : !fq) outs(%iq, %is, %is : !fq, !fs, !fs) d_log_weights(%iw : !fw)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !fq, !fs, !fs, !fw
  return %r#0, %r#1, %r#2 : !fq, !fs, !fs
}

// Rows of a few far places each: a mask leaves out queries in the middle of a block, nobody reads the last rows, and some rows are
// read by two ranges.
!zq = tensor<2x4x1100x40xbf16>
!zk = tensor<2x2x900x40xbf16>
!zv = tensor<2x2x900x64xbf16>
!zo = tensor<2x4x1100x64xbf16>
!zw = tensor<1x2x900xf32>
!zl = tensor<2x4x1100xf32>
func.func @gathered(%q: !zq, %k: !zk, %v: !zv, %w: !zw, %o: !zo, %l: !zl, %d: !zo) -> (!zq, !zk, !zv) {
  %iq = tensor.empty() : !zq
  %ik = tensor.empty() : !zk
  %iv = tensor.empty() : !zv
  %r:3 = attn.stream_backward query(%q : !zq)
      source(%k, %v : !zk, !zv) log_weight(%w : !zw)
          ranges [affine_map<(b)[rows, n] -> (b * 4, b * 4 + 4)>, affine_map<(b)[rows, n] -> ((b floordiv 2) * 4 + 200, b * 2 + 208)>,
                  affine_map<(b)[rows, n] -> (400, 405)>, affine_map<(b)[rows, n] -> (b + 600, b + 604, 603, 616)>,
                  affine_map<(b)[rows, n] -> (b * 2 + 800, b * 2 + 810)>] mask <causal>
      forward(%o, %l : !zo, !zl) gradient(%d : !zo) outs(%iq, %ik, %iv : !zq, !zk, !zv)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !zq, !zk, !zv
  return %r#0, %r#1, %r#2 : !zq, !zk, !zv
}

// The same far rows behind near ones, which two ranges have: those of two blocks, and some before.
!zc = tensor<2x2x1100x40xbf16>
!zu = tensor<2x2x1100x64xbf16>
func.func @joined(%q: !zq, %a: !zc, %c: !zu, %k: !zk, %v: !zv, %w: !zw, %o: !zo, %l: !zl, %d: !zo) -> (!zq, !zc, !zk, !zu, !zv) {
  %iq = tensor.empty() : !zq
  %ia = tensor.empty() : !zc
  %ic = tensor.empty() : !zu
  %ik = tensor.empty() : !zk
  %iv = tensor.empty() : !zv
  %r:5 = attn.stream_backward query(%q : !zq)
      source(%a, %c : !zc, !zu)
          ranges [affine_map<(b)[rows, n] -> (b * 64 - 300, b * 64 - 200)>, affine_map<(b)[rows, n] -> (b * 64 - 64, b * 64 + 64)>]
          mask <causal>
      source(%k, %v : !zk, !zv) log_weight(%w : !zw)
          ranges [affine_map<(b)[rows, n] -> (b * 4, b * 4 + 4)>, affine_map<(b)[rows, n] -> ((b floordiv 2) * 4 + 200, b * 2 + 208)>,
                  affine_map<(b)[rows, n] -> (400, 405)>, affine_map<(b)[rows, n] -> (b + 600, b + 604, 603, 616)>,
                  affine_map<(b)[rows, n] -> (b * 2 + 800, b * 2 + 810)>] mask <causal>
      forward(%o, %l : !zo, !zl) gradient(%d : !zo) outs(%iq, %ia, %ik, %ic, %iv : !zq, !zc, !zk, !zu, !zv)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !zq, !zc, !zk, !zu, !zv
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !zq, !zc, !zk, !zu, !zv
}

// The first queries read no near row, the last ones no far row. Places of tiles are taken again. Far rows are f32.
!jq = tensor<1x2x384x128xf16>
!jn = tensor<1x1x384x128xf16>
!jf = tensor<1x1x600x128xf32>
!jr = tensor<1x1x600x128xf16>
!jl = tensor<1x2x384xf32>
func.func @joined_full(%q: !jq, %n: !jn, %f: !jf, %o: !jq, %l: !jl, %d: !jq) -> (!jq, !jn, !jr, !jn, !jr) {
  %iq = tensor.empty() : !jq
  %in = tensor.empty() : !jn
  %if = tensor.empty() : !jf
  %r:5 = attn.stream_backward query(%q : !jq)
      source(%n, %n : !jn, !jn) ranges [affine_map<(b)[rows, n] -> (b * 200 - 400, b * 200 - 35)>]
      source(%f, %f : !jf, !jf)
          ranges [affine_map<(b)[rows, n] -> (b * 6, 12)>, affine_map<(b)[rows, n] -> (b * 6 + 130, 142)>,
                  affine_map<(b)[rows, n] -> (b * 6 + 260, 272)>, affine_map<(b)[rows, n] -> (b * 6 + 400, 412)>,
                  affine_map<(b)[rows, n] -> (b + 520, 522)>]
      forward(%o, %l : !jq, !jl) gradient(%d : !jq) outs(%iq, %in, %if, %in, %if : !jq, !jn, !jf, !jn, !jf)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !jq, !jn, !jf, !jn, !jf
  %dk = arith.truncf %r#2 : !jf to !jr
  %dv = arith.truncf %r#4 : !jf to !jr
  return %r#0, %r#1, %dk, %r#3, %dv : !jq, !jn, !jr, !jn, !jr
}

// A third source adds to what both leave.
func.func @joined_of_three(%q: !jq, %n: !jn, %m: !jn, %f: !jf, %o: !jq, %l: !jl, %d: !jq) -> (!jq, !jn, !jn, !jr, !jn, !jn, !jr) {
  %iq = tensor.empty() : !jq
  %in = tensor.empty() : !jn
  %if = tensor.empty() : !jf
  %r:7 = attn.stream_backward query(%q : !jq)
      source(%n, %n : !jn, !jn) ranges [affine_map<(b)[rows, n] -> (b * 128, b * 128 + 128)>] mask <causal>
      source(%m, %m : !jn, !jn) ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 70)>]
      source(%f, %f : !jf, !jf)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>, affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>, affine_map<(b)[rows, n] -> (400, 408)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 528)>]
      forward(%o, %l : !jq, !jl) gradient(%d : !jq)
      outs(%iq, %in, %in, %if, %in, %in, %if : !jq, !jn, !jn, !jf, !jn, !jn, !jf)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !jq, !jn, !jn, !jf, !jn, !jn, !jf
  %dk = arith.truncf %r#3 : !jf to !jr
  %dv = arith.truncf %r#6 : !jf to !jr
  return %r#0, %r#1, %r#2, %dk, %r#4, %r#5, %dv : !jq, !jn, !jn, !jr, !jn, !jn, !jr
}

// So few rows that one warpgroup has them; they are f32, and rounded as they are copied.
!hq = tensor<1x1x384x128xf16>
!hk = tensor<1x1x600x128xf32>
!hn = tensor<1x1x600x128xf16>
!hl = tensor<1x1x384xf32>
func.func @gathered_f32(%q: !hq, %k: !hk, %o: !hq, %l: !hl, %d: !hq) -> (!hq, !hn, !hn) {
  %iq = tensor.empty() : !hq
  %ik = tensor.empty() : !hk
  %r:3 = attn.stream_backward query(%q : !hq)
      source(%k, %k : !hk, !hk)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>, affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>, affine_map<(b)[rows, n] -> (400, 408)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 528)>]
      forward(%o, %l : !hq, !hl) gradient(%d : !hq) outs(%iq, %ik, %ik : !hq, !hk, !hk)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !hq, !hk, !hk
  %dk = arith.truncf %r#1 : !hk to !hn
  %dv = arith.truncf %r#2 : !hk to !hn
  return %r#0, %dk, %dv : !hq, !hn, !hn
}

// Lists of 128 rows for blocks of 128 queries: two warpgroups of either. Some blocks are named twice, by no list, or later than a query
// reads; a list is empty. Two ranges.
!bq = tensor<2x4x330x128xbf16>
!bk = tensor<2x2x450x128xbf16>
!bv = tensor<2x2x450x40xbf16>
!bo = tensor<2x4x330x40xbf16>
!bl = tensor<2x4x330xf32>
!bn = tensor<1x2x3x4xi32>
func.func @blocks(%q: !bq, %k: !bk, %v: !bv, %o: !bo, %l: !bl, %d: !bo) -> (!bq, !bk, !bv) {
  %lists = arith.constant dense<[[[[0, 3, -1, 1], [2, 2, 0, 1], [3, 1, -1, 0]], [[1, -1, -1, -1], [-1, -1, -1, -1], [0, 2, 1, 0]]]]> : !bn
  %iq = tensor.empty() : !bq
  %ik = tensor.empty() : !bk
  %iv = tensor.empty() : !bv
  %r:3 = attn.stream_backward query(%q : !bq)
      source(%k, %v : !bk, !bv) rows(%lists : !bn) unit = 128
          ranges [affine_map<(b)[rows, n] -> (0, b * 100 + 40)>, affine_map<(b)[rows, n] -> (b * 100 + 50, rows - 9)>] mask <causal>
      forward(%o, %l : !bo, !bl) gradient(%d : !bo) outs(%iq, %ik, %iv : !bq, !bk, !bv)
      {block = 128 : i64, scale = 3.125e-02 : f64} -> !bq, !bk, !bv
  return %r#0, %r#1, %r#2 : !bq, !bk, !bv
}

// Batch entries with lists, keys and queries of their own; heads with lists of their own.
!gq = tensor<3x2x150x32xf16>
!gk = tensor<3x1x200x32xf16>
!gl = tensor<3x2x150xf32>
!gn = tensor<3x2x3x2xi32>
func.func @block_lengths(%q: !gq, %k: !gk, %o: !gq, %l: !gl, %d: !gq) -> (!gq, !gk, !gk) {
  %lists = arith.constant dense<[[[[0, 1], [3, 2], [1, 3]], [[0, -1], [1, 0], [2, 2]]],
                                 [[[1, 2], [-1, 0], [3, 1]], [[2, 0], [1, 1], [0, 3]]],
                                 [[[0, 1], [0, 1], [0, 1]], [[3, 2], [3, 2], [3, 2]]]]> : !gn
  %keys = arith.constant dense<[200, 130, 0]> : tensor<3xi32>
  %queries = arith.constant dense<[150, 64, 90]> : tensor<3xi32>
  %iq = tensor.empty() : !gq
  %ik = tensor.empty() : !gk
  %r:3 = attn.stream_backward query(%q : !gq)
      source(%k, %k : !gk, !gk) lengths(%keys : tensor<3xi32>) rows(%lists : !gn) unit = 64
          ranges [affine_map<(b)[rows, n] -> (b * 20, rows)>] mask <causal, window = 90>
      query_lengths(%queries : tensor<3xi32>) forward(%o, %l : !gq, !gl) gradient(%d : !gq) outs(%iq, %ik, %ik : !gq, !gk, !gk)
      {block = 64 : i64, scale = 3.125e-02 : f64} -> !gq, !gk, !gk
  return %r#0, %r#1, %r#2 : !gq, !gk, !gk
}

// One list for all queries, of blocks that are three tiles each, the last of which is cut, beside a source without lists.
!aq = tensor<1x1x190x64xbf16>
!ak = tensor<1x1x500x64xbf16>
!al = tensor<1x1x190xf32>
!an = tensor<1x1x1x3xi32>
func.func @one_list(%q: !aq, %k: !ak, %o: !aq, %l: !al, %d: !aq) -> (!aq, !ak, !ak) {
  %lists = arith.constant dense<[[[[2, 0, 1]]]]> : !an
  %iq = tensor.empty() : !aq
  %ik = tensor.empty() : !ak
  %r:5 = attn.stream_backward query(%q : !aq)
      source(%k, %k : !ak, !ak) rows(%lists : !an) unit = 192 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%k, %k : !ak, !ak) ranges [affine_map<(b)[rows, n] -> (192, 320)>]
      forward(%o, %l : !aq, !al) gradient(%d : !aq) outs(%iq, %ik, %ik, %ik, %ik : !aq, !ak, !ak, !ak, !ak)
      {scale = 3.125e-02 : f64} -> !aq, !ak, !ak, !ak, !ak
  return %r#0, %r#1, %r#3 : !aq, !ak, !ak
}

// Lists of 64 rows with log weights, and of 32 rows.
func.func @others(%q: !aq, %k: !ak, %o: !aq, %l: !al, %d: !aq, %w: tensor<1x1x500xf32>) -> (!aq, !ak) {
  %lists = arith.constant dense<[[[[2, 0, 1]]]]> : !an
  %iq = tensor.empty() : !aq
  %ik = tensor.empty() : !ak
  %iw = tensor.empty() : tensor<1x1x500xf32>
  %r:6 = attn.stream_backward query(%q : !aq)
      source(%k, %k : !ak, !ak) log_weight(%w : tensor<1x1x500xf32>) rows(%lists : !an) unit = 64
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      source(%k, %k : !ak, !ak) rows(%lists : !an) unit = 32 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !aq, !al) gradient(%d : !aq) outs(%iq, %ik, %ik, %ik, %ik : !aq, !ak, !ak, !ak, !ak)
      d_log_weights(%iw : tensor<1x1x500xf32>) {scale = 3.125e-02 : f64} -> !aq, !ak, !ak, !ak, !ak, tensor<1x1x500xf32>
  return %r#0, %r#1 : !aq, !ak
}
