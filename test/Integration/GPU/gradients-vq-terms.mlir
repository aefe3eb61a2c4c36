// Gradients of attention over quantized keys with a bias of tokens or one by distance by kernels of sm_90a, in the emulator: functions of
// the scores of tokens.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir and gradients-vq-state.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=distances --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=bias --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4 \
// RUN:     | FileCheck %s --check-prefixes=CHECK,FOUR
// RUN: fovea-run %s --entry=unread --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// FOUR: agrees with the reference
// CHECK-NOT: differs

// Two kernels for tokens and two for codewords, and one of the forward pass. What multiplies without warpgroups are gradients of terms, of
// two functions.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" -o %t.mlir
// RUN: FileCheck %s --check-prefix=KERNELS --input-file=%t.mlir
// KERNELS-COUNT-15: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// RUN: FileCheck %s --check-prefix=OTHERS --input-file=%t.mlir
// OTHERS-LABEL: llvm.func @distances_kernel
// OTHERS: mma.sync
// OTHERS-LABEL: llvm.func @bias_kernel
// OTHERS: mma.sync
// OTHERS-LABEL: llvm.func @unread_kernel
// OTHERS-NOT: mma.sync

// A head of keys has three of queries, which have terms of their own; blocks of 64 and a part of one.
!q = tensor<2x6x300x64xbf16>
!z = tensor<2x2x300xi32>
!v = tensor<2x2x300x40xbf16>
!k = tensor<2x2x300x64xbf16>
!o = tensor<2x6x300x40xbf16>
!c = tensor<2x65x64xbf16>
!l = tensor<2x6x300xf32>
!t = tensor<6x131xbf16>
func.func @distances(%q: !q, %v: !v, %c: !c, %t: !t, %d: !o) -> (!q, !k, !v, !t) {
  %iz = tensor.empty() : !z
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !z) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %h = linalg.index 1 : index
    %seven = arith.constant 7 : index
    %forty = arith.constant 40 : index
    %a = arith.muli %i, %seven : index
    %c0 = arith.addi %a, %h : index
    %r = arith.remui %c0, %forty : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !z
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %io = tensor.empty() : !o
  %il = tensor.empty() : !l
  %it = tensor.empty() : !t
  %o, %l = attn.vq ins(%q, %z, %v, %c : !q, !z, !v, !c) distance_bias(%t : !t) outs(%io, %il : !o, !l)
      {block = 64 : i64, causal, scale = 1.25e-01 : f64} -> !o, !l
  %g:4 = attn.vq_backward ins(%q, %z, %v, %c : !q, !z, !v, !c) distance_bias(%t : !t) forward(%o, %l : !o, !l) gradient(%d : !o)
      outs(%iq, %ik, %iv : !q, !k, !v) d_distance_bias(%it : !t) {block = 64 : i64, causal, scale = 1.25e-01 : f64} -> !q, !k, !v, !t
  return %g#0, %g#1, %g#2, %g#3 : !q, !k, !v, !t
}

// A bias that leaves out some tokens, all of some queries; heads share it. A query reads three blocks.
!bq = tensor<1x2x390x128xf16>
!bz = tensor<1x1x390xi32>
!bv = tensor<1x1x390x128xf16>
!bc = tensor<1x63x128xf16>
!bl = tensor<1x2x390xf32>
!bb = tensor<1x1x390x192xf16>
func.func @bias(%q: !bq, %v: !bv, %c: !bc, %b: !bb, %d: !bq) -> (!bq, !bv, !bv, !bb) {
  %iz = tensor.empty() : !bz
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !bz) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %h = linalg.index 1 : index
    %seven = arith.constant 7 : index
    %forty = arith.constant 63 : index
    %a = arith.muli %i, %seven : index
    %c0 = arith.addi %a, %h : index
    %r = arith.remui %c0, %forty : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !bz
  %some = arith.constant dense<0xFC00> : tensor<1x1x40x30xf16>
  %all = arith.constant dense<0xFC00> : tensor<1x1x3x192xf16>
  %b0 = tensor.insert_slice %some into %b[0, 0, 50, 100] [1, 1, 40, 30] [1, 1, 1, 1] : tensor<1x1x40x30xf16> into !bb
  %b1 = tensor.insert_slice %all into %b0[0, 0, 100, 0] [1, 1, 3, 192] [1, 1, 1, 1] : tensor<1x1x3x192xf16> into !bb
  %iq = tensor.empty() : !bq
  %iv = tensor.empty() : !bv
  %il = tensor.empty() : !bl
  %ib = tensor.empty() : !bb
  %o, %l = attn.vq ins(%q, %z, %v, %c : !bq, !bz, !bv, !bc) bias(%b1 : !bb) outs(%iq, %il : !bq, !bl)
      {block = 64 : i64, memory = 2 : i64, causal, scale = 6.25e-02 : f64} -> !bq, !bl
  %g:4 = attn.vq_backward ins(%q, %z, %v, %c : !bq, !bz, !bv, !bc) bias(%b1 : !bb) forward(%o, %l : !bq, !bl) gradient(%d : !bq)
      outs(%iq, %iv, %iv : !bq, !bv, !bv) d_bias(%ib : !bb) {block = 64 : i64, memory = 2 : i64, causal, scale = 6.25e-02 : f64}
      -> !bq, !bv, !bv, !bb
  return %g#0, %g#1, %g#2, %g#3 : !bq, !bv, !bv, !bb
}

// Both, of which nobody reads gradients; heads share the bias by distance.
!ut = tensor<1x192xf16>
func.func @unread(%q: !bq, %v: !bv, %c: !bc, %b: !bb, %t: !ut, %d: !bq) -> (!bq, !bv, !bv) {
  %iz = tensor.empty() : !bz
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !bz) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %h = linalg.index 1 : index
    %seven = arith.constant 7 : index
    %forty = arith.constant 50 : index
    %a = arith.muli %i, %seven : index
    %c0 = arith.addi %a, %h : index
    %r = arith.remui %c0, %forty : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !bz
  %iq = tensor.empty() : !bq
  %iv = tensor.empty() : !bv
  %il = tensor.empty() : !bl
  %ib = tensor.empty() : !bb
  %it = tensor.empty() : !ut
  %o, %l = attn.vq ins(%q, %z, %v, %c : !bq, !bz, !bv, !bc) bias(%b : !bb) distance_bias(%t : !ut) outs(%iq, %il : !bq, !bl)
      {block = 64 : i64, memory = 2 : i64, causal, scale = 6.25e-02 : f64} -> !bq, !bl
  %g:5 = attn.vq_backward ins(%q, %z, %v, %c : !bq, !bz, !bv, !bc) bias(%b : !bb) distance_bias(%t : !ut)
      forward(%o, %l : !bq, !bl) gradient(%d : !bq) outs(%iq, %iv, %iv : !bq, !bv, !bv) d_bias(%ib : !bb) d_distance_bias(%it : !ut)
      {block = 64 : i64, memory = 2 : i64, causal, scale = 6.25e-02 : f64} -> !bq, !bv, !bv, !bb, !ut
  return %g#0, %g#1, %g#2 : !bq, !bv, !bv
}
