// Gradients of a window of attention over quantized keys, with a state, by kernels of sm_90a in the emulator. Random schedules and
// copies that end early give the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=6 --schedule=seed=7,eager | FileCheck %s
// CHECK-COUNT-6: agrees with the reference
// CHECK-NOT: differs

// Two kernels for tokens and two for codewords.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS-COUNT-4: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>

// A window that begins in the middle of a block, after one: the state has means of some codewords, and gets gradients.
!q = tensor<2x4x150x64xbf16>
!z = tensor<2x2x150xi32>
!v = tensor<2x2x150x40xbf16>
!k = tensor<2x2x150x64xbf16>
!o = tensor<2x4x150x40xbf16>
!c = tensor<1x30x64xbf16>
!l = tensor<2x4x150xf32>
!m = tensor<2x2x30x40xf32>
!dm = tensor<2x2x30x40xbf16>
!n = tensor<2x2x30xi32>
!kz = tensor<2x2x128xi32>
!kk = tensor<2x2x128x64xbf16>
!kv = tensor<2x2x128x40xbf16>
func.func @window(%q: !q, %v: !v, %c: !c, %m: !m, %kv: !kv, %d: !o, %nm: !dm, %nk: !kk, %nv: !kv)
    -> (!q, !k, !v, !dm, !kk, !kv) {
  %p = arith.constant dense<228> : tensor<i64>
  %iz = tensor.empty() : !z
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !z) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %codes = arith.constant 29 : index
    %r = arith.remui %i, %codes : index
    %y = arith.index_cast %r : index to i32
    linalg.yield %y : i32
  } -> !z
  %ikz = tensor.empty() : !kz
  %kz = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%ikz : !kz) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %codes = arith.constant 23 : index
    %r = arith.remui %i, %codes : index
    %y = arith.index_cast %r : index to i32
    linalg.yield %y : i32
  } -> !kz
  // 128 tokens are older, of every other codeword.
  %in = tensor.empty() : !n
  %n = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%in : !n) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %two = arith.constant 2 : index
    %some = arith.constant 8 : index
    %r = arith.remui %i, %two : index
    %s = arith.muli %r, %some : index
    %y = arith.index_cast %s : index to i32
    linalg.yield %y : i32
  } -> !n
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %io = tensor.empty() : !o
  %il = tensor.empty() : !l
  %im = tensor.empty() : !dm
  %ikk = tensor.empty() : !kk
  %ikv = tensor.empty() : !kv
  %o, %l = attn.vq ins(%q, %z, %v, %c : !q, !z, !v, !c) state(%m, %n, %kz, %kv, %p : !m, !n, !kz, !kv, tensor<i64>)
      outs(%io, %il : !o, !l) {block = 64 : i64, causal, scale = 1.25e-01 : f64} -> !o, !l
  %g:6 = attn.vq_backward ins(%q, %z, %v, %c : !q, !z, !v, !c) state(%m, %n, %kz, %kv, %p : !m, !n, !kz, !kv, tensor<i64>)
      forward(%o, %l : !o, !l) gradient(%d : !o) d_next_state(%nm, %nk, %nv : !dm, !kk, !kv)
      outs(%iq, %ik, %iv : !q, !k, !v) d_state(%im, %ikk, %ikv : !dm, !kk, !kv) {block = 64 : i64, causal, scale = 1.25e-01 : f64}
      -> !q, !k, !v, !dm, !kk, !kv
  return %g#0, %g#1, %g#2, %g#3, %g#4, %g#5 : !q, !k, !v, !dm, !kk, !kv
}
