// Gradients in bf16 by AMX: tiles that are not full along queries, keys,
// columns of keys and of values; every mask, bias and log weights with their
// gradients, a function of scores, lists, other types beside bf16. Widths that
// fill no tile, and rows of f32, have products of vectors.

// REQUIRES: amx_bf16
// RUN: fovea-run %s --entry=terms --random=1 --compare=reference | FileCheck %s --check-prefixes=CHECK,MORE
// RUN: fovea-run %s --entry=scores --random=2 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=mixed --random=3 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=few --random=4 --compare=reference | FileCheck %s
// RUN: fovea-run %s --entry=dynamic --shape=2x4x333x48 --shape=2x2x400x48 --shape=2x2x400x40 --shape=2x4x333x40 --shape=2x4x333 \
// RUN:     --shape=2x4x333x40 --random=5 --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=causal --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=three --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=prefix --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=far_parts --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=gathered --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=blocks --random --compare=reference | FileCheck %s
// RUN: fovea-run %S/GPU/gradients-warpgroups.mlir --entry=one_list --random --compare=reference | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// MORE-COUNT-2: agrees with the reference
// CHECK-NOT: differs

!q = tensor<2x4x150x48xbf16>
!k = tensor<2x2x140x48xbf16>
!v = tensor<2x2x140x20xbf16>
!o = tensor<2x4x150x20xbf16>
!l = tensor<2x4x150xf32>
!w = tensor<2x2x140xf32>
!b = tensor<2x4x150x140xf32>

// The gradient of a bias goes with whole tiles of rows.
func.func @terms(%q: !q, %k: !k, %v: !v, %o: !o, %l: !l, %d: !o, %w: !w, %b: !b) -> (!q, !k, !v, !w, !b) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %iw = tensor.empty() : !w
  %ib = tensor.empty() : !b
  %r:5 = attn.dense_backward ins(%q, %k, %v : !q, !k, !v) log_weight(%w : !w) bias(%b : !b)
      forward(%o, %l : !o, !l) gradient(%d : !o) outs(%iq, %ik, %iv : !q, !k, !v) d_log_weight(%iw : !w) d_bias(%ib : !b)
      {scale = 3.125e-02 : f64} -> !q, !k, !v, !w, !b
  return %r#0, %r#1, %r#2, %r#3, %r#4 : !q, !k, !v, !w, !b
}

// What a function of scores removes, and its derivative; the window cuts rows of the last tile.
func.func @scores(%q: !q, %k: !k, %v: !v, %o: !o, %l: !l, %d: !o) -> (!q, !k, !v) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !v) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %c3 = arith.constant 3 : index
        %zero = arith.constant 0 : index
        %none = arith.constant 0xFF800000 : f32
        %t = math.tanh %s : f32
        %sum = arith.addi %i, %j : index
        %rest = arith.remui %sum, %c3 : index
        %removed = arith.cmpi eq, %rest, %zero : index
        %score = arith.select %removed, %none, %t : f32
        attn.yield %score : f32
      } forward(%o, %l : !o, !l) gradient(%d : !o) outs(%iq, %ik, %iv : !q, !k, !v)
      {mask = #attn.mask<causal, window = 70>, scale = 3.125e-02 : f64} -> !q, !k, !v
  return %r#0, %r#1, %r#2 : !q, !k, !v
}

// A source of f32 beside one of bf16.
!f = tensor<2x2x140x48xf32>
!g = tensor<2x2x140x20xf32>
func.func @mixed(%q: !q, %k: !k, %v: !v, %f: !f, %g: !g, %o: !o, %l: !l, %d: !o) -> (!q, !k, !v) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %if = tensor.empty() : !f
  %ig = tensor.empty() : !g
  %r:5 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !v) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      source(%f, %g : !f, !g) ranges [affine_map<(b)[rows, n] -> (10, rows)>]
      forward(%o, %l : !o, !l) gradient(%d : !o) outs(%iq, %ik, %if, %iv, %ig : !q, !k, !f, !v, !g)
      {scale = 3.125e-02 : f64} -> !q, !k, !f, !v, !g
  return %r#0, %r#1, %r#3 : !q, !k, !v
}

// Fewer queries than a tile has, and an odd number of vectors of them.
!sq = tensor<3x2x37x32xbf16>
!sk = tensor<3x1x65x32xbf16>
!sl = tensor<3x2x37xf32>
func.func @few(%q: !sq, %k: !sk, %o: !sq, %l: !sl, %d: !sq) -> (!sq, !sk, !sk) {
  %keys = arith.constant dense<[65, 0, 33]> : tensor<3xi32>
  %iq = tensor.empty() : !sq
  %ik = tensor.empty() : !sk
  %r:3 = attn.dense_backward ins(%q, %k, %k : !sq, !sk, !sk) lengths(%keys : tensor<3xi32>)
      forward(%o, %l : !sq, !sl) gradient(%d : !sq) outs(%iq, %ik, %ik : !sq, !sk, !sk) {mask = #attn.mask<causal>} -> !sq, !sk, !sk
  return %r#0, %r#1, %r#2 : !sq, !sk, !sk
}

// Widths are known, lengths are not.
!dq = tensor<?x?x?x48xbf16>
!dv = tensor<?x?x?x40xbf16>
!dl = tensor<?x?x?xf32>
func.func @dynamic(%q: !dq, %k: !dq, %v: !dv, %o: !dv, %l: !dl, %d: !dv) -> (!dq, !dq, !dv) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %batch = tensor.dim %q, %c0 : !dq
  %heads = tensor.dim %q, %c1 : !dq
  %queries = tensor.dim %q, %c2 : !dq
  %keyHeads = tensor.dim %k, %c1 : !dq
  %keys = tensor.dim %k, %c2 : !dq
  %iq = tensor.empty(%batch, %heads, %queries) : !dq
  %ik = tensor.empty(%batch, %keyHeads, %keys) : !dq
  %iv = tensor.empty(%batch, %keyHeads, %keys) : !dv
  %r:3 = attn.dense_backward ins(%q, %k, %v : !dq, !dq, !dv) forward(%o, %l : !dv, !dl) gradient(%d : !dv)
      outs(%iq, %ik, %iv : !dq, !dq, !dv) {mask = #attn.mask<causal>, scale = 3.125e-02 : f64} -> !dq, !dq, !dv
  return %r#0, %r#1, %r#2 : !dq, !dq, !dv
}
