// Gradients through functions of scores by the kernels of sm_90a, in the emulator: what multiplies gradients is made beside the weights.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=cap --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=three --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4,eager | FileCheck %s
// RUN: fovea-run %s --entry=lengths --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=slopes --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=4,eager | FileCheck %s
// RUN: fovea-run %s --entry=table --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6,eager \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=removed --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=7,eager | FileCheck %s
// RUN: fovea-run %s --entry=removed_wide --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=8 | FileCheck %s
// RUN: fovea-run %s --entry=weights --target=gpu-sim --chip=sm_90a --random --compare=reference \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=values --target=gpu-sim --chip=sm_90a --random --compare=reference \
// RUN:     | FileCheck %s --check-prefix=TWO
// RUN: fovea-run %s --entry=near_and_far --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 --schedule=seed=9,eager \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FIVE
// RUN: fovea-run %s --entry=of_one_source --target=gpu-sim --chip=sm_90a --random --compare=reference \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FIVE
// CHECK-COUNT-3: agrees with the reference
// FOUR: agrees with the reference
// FIVE-COUNT-2: agrees with the reference
// TWO-COUNT-2: agrees with the reference
// CHECK-NOT: differs

// Two kernels of warpgroups for each source, three where slopes lie beside wide sums. A table has one of warps for its gradient; nobody
// reads those of others.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" -o %t.mlir
// RUN: FileCheck %s --check-prefix=KERNELS --input-file=%t.mlir
// KERNELS-COUNT-30: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>

// Those of a function that removes whole tiles pass over these, on all chips.
// RUN: FileCheck %s --check-prefix=SKIPS --input-file=%t.mlir
// SKIPS-LABEL: llvm.func @documents_kernel
// SKIPS-NOT: nvvm.reqntid
// SKIPS: nvvm.mma.sync
// SKIPS-NOT: nvvm.reqntid

// Two blocks of rows and of queries; keys and values have a kernel each.
!q = tensor<1x2x150x128xf16>
!k = tensor<1x1x200x128xf16>
!l = tensor<1x2x150xf32>
func.func @cap(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k) {scale = 6.25e-02 : f64} -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
}

// Blocks of three warpgroups of queries, two batch entries, heads that share key heads, a window.
!tq = tensor<2x4x261x64xbf16>
!tk = tensor<2x2x301x64xbf16>
!tv = tensor<2x2x301x40xbf16>
!to = tensor<2x4x261x40xbf16>
!tl = tensor<2x4x261xf32>
func.func @three(%q: !tq, %k: !tk, %v: !tv, %o: !to, %l: !tl, %d: !to) -> (!tq, !tk, !tv) {
  %iq = tensor.empty() : !tq
  %ik = tensor.empty() : !tk
  %iv = tensor.empty() : !tv
  %r:3 = attn.dense_backward ins(%q, %k, %v : !tq, !tk, !tv) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } forward(%o, %l : !to, !tl) gradient(%d : !to) outs(%iq, %ik, %iv : !tq, !tk, !tv)
      {mask = #attn.mask<causal, window = 130>} -> !tq, !tk, !tv
  return %r#0, %r#1, %r#2 : !tq, !tk, !tv
}

// Keys and queries of each batch entry's own number, beside a bias; positions count from the last key there is.
!eq = tensor<3x2x100x32xf16>
!ek = tensor<3x1x140x32xf16>
!eb = tensor<3x1x1x140xf32>
!el = tensor<3x2x100xf32>
func.func @lengths(%q: !eq, %k: !ek, %b: !eb, %o: !eq, %l: !el, %d: !eq) -> (!eq, !ek, !ek) {
  %keys = arith.constant dense<[140, 65, 0]> : tensor<3xi32>
  %queries = arith.constant dense<[100, 33, 0]> : tensor<3xi32>
  %none = arith.constant dense<0xFF800000> : tensor<3x1x1x29xf32>
  %some = tensor.insert_slice %none into %b[0, 0, 0, 111] [3, 1, 1, 29] [1, 1, 1, 1] : tensor<3x1x1x29xf32> into !eb
  %iq = tensor.empty() : !eq
  %ik = tensor.empty() : !ek
  %ib = tensor.empty() : !eb
  %r:4 = attn.dense_backward ins(%q, %k, %k : !eq, !ek, !ek) bias(%some : !eb) lengths(%keys : tensor<3xi32>)
      query_lengths(%queries : tensor<3xi32>) score {
    ^bb0(%s: f32, %b0: index, %h: index, %i: index, %j: index):
      %c = arith.constant 1.0e-02 : f32
      %x = arith.subi %j, %i : index
      %e = arith.index_cast %x : index to i32
      %g = arith.sitofp %e : i32 to f32
      %p = arith.mulf %g, %c : f32
      %f = arith.addf %s, %p : f32
      %t = math.tanh %f : f32
      attn.yield %t : f32
    } forward(%o, %l : !eq, !el) gradient(%d : !eq) outs(%iq, %ik, %ik : !eq, !ek, !ek) d_bias(%ib : !eb)
      {scale = 2.5e-01 : f64} -> !eq, !ek, !ek, !eb
  return %r#0, %r#1, %r#2 : !eq, !ek, !ek
}

// ALiBi, whose slopes are of a head: nobody reads their gradient.
!st = tensor<4xf32>
func.func @slopes(%q: !tq, %k: !tk, %v: !tv, %m: !st, %o: !to, %l: !tl, %d: !to) -> (!tq, !tk, !tv) {
  %iq = tensor.empty() : !tq
  %ik = tensor.empty() : !tk
  %iv = tensor.empty() : !tv
  %im = tensor.empty() : !st
  %r:4 = attn.dense_backward ins(%q, %k, %v : !tq, !tk, !tv) score(%m : !st) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: !st):
      %x = tensor.extract %t[%h] : !st
      %c = arith.constant 1.0e-02 : f32
      %y = arith.mulf %x, %c : f32
      %n = arith.subi %j, %i : index
      %e = arith.index_cast %n : index to i32
      %g = arith.sitofp %e : i32 to f32
      %p = arith.mulf %g, %y : f32
      %z = arith.addf %s, %p : f32
      attn.yield %z : f32
    } forward(%o, %l : !to, !tl) gradient(%d : !to) outs(%iq, %ik, %iv : !tq, !tk, !tv) d_captures(%im : !st)
      {mask = #attn.mask<causal>, scale = 1.25e-01 : f64} -> !tq, !tk, !tv, !st
  return %r#0, %r#1, %r#2 : !tq, !tk, !tv
}

// A table by distance, which tiles at the diagonal would leave, and its gradient.
!ht = tensor<2x200xf32>
func.func @table(%q: !q, %k: !k, %v: !k, %m: !ht, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k, !ht) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %im = tensor.empty() : !ht
  %r:4 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) score(%m : !ht) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: !ht):
      %n = arith.subi %i, %j : index
      %x = tensor.extract %t[%h, %n] : !ht
      %y = arith.addf %s, %x : f32
      attn.yield %y : f32
    } forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k) d_captures(%im : !ht)
      {mask = #attn.mask<causal>, scale = 6.25e-02 : f64} -> !q, !k, !k, !ht
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !k, !ht
}

// Entries that the function removes: some of a tile, all of one, all of some queries, and those of two rows whose values are not
// finite, as is what some queries have that read nothing. Its derivative there is NaN.
!rm = tensor<261x301xf32>
func.func @removed(%q: !tq, %k: !tk, %v: !tv, %m: !rm, %o: !to, %l: !tl, %d: !to) -> (!tq, !tk, !tv) {
  %some = arith.constant dense<0.0> : tensor<40x30xf32>
  %tile = arith.constant dense<0.0> : tensor<64x128xf32>
  %all = arith.constant dense<0.0> : tensor<3x301xf32>
  %rows = arith.constant dense<0.0> : tensor<261x2xf32>
  %m0 = math.absf %m : !rm
  %m1 = tensor.insert_slice %some into %m0[50, 50] [40, 30] [1, 1] : tensor<40x30xf32> into !rm
  %m2 = tensor.insert_slice %tile into %m1[64, 0] [64, 128] [1, 1] : tensor<64x128xf32> into !rm
  %m3 = tensor.insert_slice %all into %m2[100, 0] [3, 301] [1, 1] : tensor<3x301xf32> into !rm
  %m4 = tensor.insert_slice %rows into %m3[0, 150] [261, 2] [1, 1] : tensor<261x2xf32> into !rm
  %nan = arith.constant dense<0x7FC0> : tensor<2x2x1x40xbf16>
  %nans = arith.constant dense<0x7FC0> : tensor<2x4x3x40xbf16>
  %infinite = arith.constant dense<0x7F80> : tensor<2x2x1x40xbf16>
  %v0 = tensor.insert_slice %nan into %v[0, 0, 150, 0] [2, 2, 1, 40] [1, 1, 1, 1] : tensor<2x2x1x40xbf16> into !tv
  %v1 = tensor.insert_slice %infinite into %v0[0, 0, 151, 0] [2, 2, 1, 40] [1, 1, 1, 1] : tensor<2x2x1x40xbf16> into !tv
  %pd = tensor.insert_slice %nans into %d[0, 0, 100, 0] [2, 4, 3, 40] [1, 1, 1, 1] : tensor<2x4x3x40xbf16> into !to
  %none = arith.constant dense<0xFF800000> : tensor<2x4x3xf32>
  %nl = tensor.insert_slice %none into %l[0, 0, 100] [2, 4, 3] [1, 1, 1] : tensor<2x4x3xf32> into !tl
  %iq = tensor.empty() : !tq
  %ik = tensor.empty() : !tk
  %iv = tensor.empty() : !tv
  %im = tensor.empty() : !rm
  %r:4 = attn.dense_backward ins(%q, %k, %v1 : !tq, !tk, !tv) score(%m4 : !rm) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: !rm):
      %forty = arith.constant 40 : index
      %q0 = arith.subi %i, %forty : index
      %x = tensor.extract %t[%q0, %j] : !rm
      %e = math.exp %s : f32
      %p = arith.mulf %x, %e : f32
      %z = math.log %p : f32
      attn.yield %z : f32
    } forward(%o, %nl : !to, !tl) gradient(%pd : !to) outs(%iq, %ik, %iv : !tq, !tk, !tv) d_captures(%im : !rm)
      {scale = 1.25e-01 : f64} -> !tq, !tk, !tv, !rm
  return %r#0, %r#1, %r#2 : !tq, !tk, !tv
}

// The same where sums are wide.
!wm = tensor<150x200xf32>
func.func @removed_wide(%q: !q, %k: !k, %v: !k, %m: !wm, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k) {
  %some = arith.constant dense<0.0> : tensor<40x30xf32>
  %rows = arith.constant dense<0.0> : tensor<150x1xf32>
  %m0 = math.absf %m : !wm
  %m1 = tensor.insert_slice %some into %m0[50, 50] [40, 30] [1, 1] : tensor<40x30xf32> into !wm
  %m2 = tensor.insert_slice %rows into %m1[0, 3] [150, 1] [1, 1] : tensor<150x1xf32> into !wm
  %nan = arith.constant dense<0x7E00> : tensor<1x1x1x128xf16>
  %pv = tensor.insert_slice %nan into %v[0, 0, 3, 0] [1, 1, 1, 128] [1, 1, 1, 1] : tensor<1x1x1x128xf16> into !k
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %im = tensor.empty() : !wm
  %r:4 = attn.dense_backward ins(%q, %k, %pv : !q, !k, !k) score(%m2 : !wm) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %t: !wm):
      %fifty = arith.constant 50 : index
      %q0 = arith.subi %i, %fifty : index
      %x = tensor.extract %t[%q0, %j] : !wm
      %y = math.log %x : f32
      %z = arith.addf %s, %y : f32
      attn.yield %z : f32
    } forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k) d_captures(%im : !wm)
      {scale = 6.25e-02 : f64} -> !q, !k, !k, !wm
  return %r#0, %r#1, %r#2 : !q, !k, !k
}

// The gradient of a log weight is behind the function: it takes no derivative.
!ww = tensor<3x1x140xf32>
func.func @weights(%q: !eq, %k: !ek, %w: !ww, %o: !eq, %l: !el, %d: !eq) -> (!eq, !ek, !ek, !ww) {
  %none = arith.constant dense<0xFF800000> : tensor<3x1x70xf32>
  %some = tensor.insert_slice %none into %w[0, 0, 30] [3, 1, 70] [1, 1, 1] : tensor<3x1x70xf32> into !ww
  %iq = tensor.empty() : !eq
  %ik = tensor.empty() : !ek
  %iw = tensor.empty() : !ww
  %r:4 = attn.dense_backward ins(%q, %k, %k : !eq, !ek, !ek) log_weight(%some : !ww) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 2.0 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } forward(%o, %l : !eq, !el) gradient(%d : !eq) outs(%iq, %ik, %ik : !eq, !ek, !ek) d_log_weight(%iw : !ww)
      {mask = #attn.mask<causal>} -> !eq, !ek, !ek, !ww
  return %r#0, %r#1, %r#2, %r#3 : !eq, !ek, !ek, !ww
}

// Nobody reads dK, which alone takes the derivative.
func.func @values(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q) -> (!q, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %t = math.tanh %s : f32
      attn.yield %t : f32
    } forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>, scale = 6.25e-02 : f64}
      -> !q, !k, !k
  return %r#0, %r#2 : !q, !k
}

// Near rows, and far ones that are gathered: a slot has the place of its row.
!jq = tensor<1x2x384x128xf16>
!jn = tensor<1x1x384x128xf16>
!jf = tensor<1x1x600x128xf16>
!jl = tensor<1x2x384xf32>
func.func @near_and_far(%q: !jq, %n: !jn, %f: !jf, %o: !jq, %l: !jl, %d: !jq) -> (!jq, !jn, !jf, !jn, !jf) {
  %iq = tensor.empty() : !jq
  %in = tensor.empty() : !jn
  %if = tensor.empty() : !jf
  %r:5 = attn.stream_backward query(%q : !jq)
      source(%n, %n : !jn, !jn)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 151, b * 128 - 30)>, affine_map<(b)[rows, n] -> (b * 128, b * 128 + 100)>]
      source(%f, %f : !jf, !jf)
          ranges [affine_map<(b)[rows, n] -> (b * 6, 12)>, affine_map<(b)[rows, n] -> (b * 6 + 130, 142)>,
                  affine_map<(b)[rows, n] -> (b * 6 + 260, 272)>, affine_map<(b)[rows, n] -> (b * 6 + 400, 412)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 522)>]
      score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 1.0e-02 : f32
      %x = arith.subi %j, %i : index
      %e = arith.index_cast %x : index to i32
      %g = arith.sitofp %e : i32 to f32
      %p = arith.mulf %g, %c : f32
      %y = arith.addf %s, %p : f32
      %t = math.tanh %y : f32
      attn.yield %t : f32
    } forward(%o, %l : !jq, !jl) gradient(%d : !jq) outs(%iq, %in, %if, %in, %if : !jq, !jn, !jf, !jn, !jf)
      {block = 128 : i64, scale = 6.25e-02 : f64} -> !jq, !jn, !jf, !jn, !jf
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !jq, !jn, !jf, !jn, !jf
}

// One of two sources has a function.
!pn = tensor<1x1x200x128xf16>
func.func @of_one_source(%q: !q, %n: !k, %f: !pn, %o: !q, %l: !l, %d: !q) -> (!q, !k, !pn, !k, !pn) {
  %iq = tensor.empty() : !q
  %in = tensor.empty() : !k
  %if = tensor.empty() : !pn
  %r:5 = attn.stream_backward query(%q : !q)
      source(%n, %n : !k, !k) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %t = math.tanh %s : f32
      attn.yield %t : f32
    } ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      source(%f, %f : !pn, !pn) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %in, %if, %in, %if : !q, !k, !pn, !k, !pn)
      {scale = 6.25e-02 : f64} -> !q, !k, !pn, !k, !pn
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !q, !k, !pn, !k, !pn
}

// Tokens of a document read each other.
!dt = tensor<200xi32>
func.func @documents(%q: !q, %k: !k, %t: !dt, %o: !q, %l: !l, %d: !q) -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %k : !q, !k, !k) score(%t : !dt) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %n: !dt):
      %none = arith.constant 0xFF800000 : f32
      %x = tensor.extract %n[%i] : !dt
      %y = tensor.extract %n[%j] : !dt
      %isRead = arith.cmpi eq, %x, %y : i32
      %z = arith.select %isRead, %s, %none : f32
      attn.yield %z : f32
    } forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k) -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
}
