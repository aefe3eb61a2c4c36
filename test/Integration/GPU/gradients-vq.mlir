// Gradients of attention over quantized keys by kernels of sm_90a in the emulator. Random schedules and copies that end early
// give the same result.

// REQUIRES: long-tests
// Minutes of emulated kernels, which sanitizers do not see; they see such host code in backward.mlir and gradients-vq-state.mlir.
// UNSUPPORTED: asan
// RUN: fovea-run %s --entry=causal --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=3 --schedule=seed=8,eager | FileCheck %s
// RUN: fovea-run %s --entry=absent --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=4,eager | FileCheck %s
// RUN: fovea-run %s --entry=full --target=gpu-sim --chip=sm_90a --random --compare=reference --schedule=seed=5 | FileCheck %s
// RUN: fovea-run %s --entry=short --target=gpu-sim --chip=sm_90a --random --compare=reference | FileCheck %s
// CHECK-COUNT-3: agrees with the reference
// CHECK-NOT: differs

// Two kernels for tokens and two for codewords, which `full` has alone, and one of the forward pass; none of other chips.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=KERNELS
// KERNELS-COUNT-18: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// KERNELS-NOT: nvvm.reqntid = array<i32: {{256|384|512}}, 1, 1>
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a host=false" | FileCheck %s --check-prefix=OTHERS
// OTHERS-NOT: mma.sync

// A head of keys has three of queries; blocks of 64 and a part of one; a few codewords of 65 have tokens.
!q = tensor<2x6x300x64xbf16>
!z = tensor<2x2x300xi32>
!v = tensor<2x2x300x40xbf16>
!k = tensor<2x2x300x64xbf16>
!o = tensor<2x6x300x40xbf16>
!c = tensor<2x65x64xbf16>
!l = tensor<2x6x300xf32>
func.func @causal(%q: !q, %v: !v, %c: !c, %d: !o) -> (!q, !k, !v) {
  %iz = tensor.empty() : !z
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !z) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %h = linalg.index 1 : index
    %seven = arith.constant 7 : index
    %forty = arith.constant 40 : index
    %a = arith.muli %i, %seven : index
    %b = arith.addi %a, %h : index
    %r = arith.remui %b, %forty : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !z
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iv = tensor.empty() : !v
  %io = tensor.empty() : !o
  %il = tensor.empty() : !l
  %o, %l = attn.vq ins(%q, %z, %v, %c : !q, !z, !v, !c) outs(%io, %il : !o, !l) {block = 64 : i64, causal, scale = 1.25e-01 : f64} -> !o, !l
  %g:3 = attn.vq_backward ins(%q, %z, %v, %c : !q, !z, !v, !c) forward(%o, %l : !o, !l) gradient(%d : !o)
      outs(%iq, %ik, %iv : !q, !k, !v) {block = 64 : i64, causal, scale = 1.25e-01 : f64} -> !q, !k, !v
  return %g#0, %g#1, %g#2 : !q, !k, !v
}

// Every third token is absent; a query reads one block.
!aq = tensor<1x2x390x24xf16>
!az = tensor<1x1x390xi32>
!av = tensor<1x1x390x72xf16>
!ak = tensor<1x1x390x24xf16>
!ao = tensor<1x2x390x72xf16>
!ac = tensor<1x63x24xf16>
!al = tensor<1x2x390xf32>
func.func @absent(%q: !aq, %v: !av, %c: !ac, %d: !ao) -> (!aq, !ak, !av) {
  %iz = tensor.empty() : !az
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !az) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %three = arith.constant 3 : index
    %five = arith.constant 5 : index
    %codes = arith.constant 63 : index
    %zero = arith.constant 0 : index
    %none = arith.constant -1 : i32
    %m = arith.remui %i, %three : index
    %isAbsent = arith.cmpi eq, %m, %zero : index
    %a = arith.muli %i, %five : index
    %r = arith.remui %a, %codes : index
    %n = arith.index_cast %r : index to i32
    %y = arith.select %isAbsent, %none, %n : i32
    linalg.yield %y : i32
  } -> !az
  %iq = tensor.empty() : !aq
  %ik = tensor.empty() : !ak
  %iv = tensor.empty() : !av
  %io = tensor.empty() : !ao
  %il = tensor.empty() : !al
  %o, %l = attn.vq ins(%q, %z, %v, %c : !aq, !az, !av, !ac) outs(%io, %il : !ao, !al)
      {block = 128 : i64, memory = 0 : i64, causal, padded, scale = 2.5e-01 : f64} -> !ao, !al
  %g:3 = attn.vq_backward ins(%q, %z, %v, %c : !aq, !az, !av, !ac) forward(%o, %l : !ao, !al) gradient(%d : !ao)
      outs(%iq, %ik, %iv : !aq, !ak, !av) {block = 128 : i64, memory = 0 : i64, causal, padded, scale = 2.5e-01 : f64} -> !aq, !ak, !av
  return %g#0, %g#1, %g#2 : !aq, !ak, !av
}

// Every token is read as its codeword: several blocks of threads share the queries of 64 of them.
!fq = tensor<2x2x400x64xbf16>
!fz = tensor<2x1x400xi32>
!fv = tensor<2x1x400x64xbf16>
!fc = tensor<1x64x64xbf16>
!fl = tensor<2x2x400xf32>
func.func @full(%q: !fq, %v: !fv, %c: !fc, %d: !fq) -> (!fq, !fv, !fv) {
  %iz = tensor.empty() : !fz
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !fz) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %codes = arith.constant 50 : index
    %r = arith.remui %i, %codes : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !fz
  %iq = tensor.empty() : !fq
  %iv = tensor.empty() : !fv
  %il = tensor.empty() : !fl
  %o, %l = attn.vq ins(%q, %z, %v, %c : !fq, !fz, !fv, !fc) outs(%iq, %il : !fq, !fl) {block = 64 : i64, scale = 1.25e-01 : f64} -> !fq, !fl
  %g:3 = attn.vq_backward ins(%q, %z, %v, %c : !fq, !fz, !fv, !fc) forward(%o, %l : !fq, !fl) gradient(%d : !fq)
      outs(%iq, %iv, %iv : !fq, !fv, !fv) {block = 64 : i64, scale = 1.25e-01 : f64} -> !fq, !fv, !fv
  return %g#0, %g#1, %g#2 : !fq, !fv, !fv
}

// No token is older than the memory of the last block.
!sq = tensor<1x1x120x128xf16>
!sz = tensor<1x1x120xi32>
!sc = tensor<1x65x128xf16>
!sl = tensor<1x1x120xf32>
func.func @short(%q: !sq, %v: !sq, %c: !sc, %d: !sq) -> (!sq, !sq, !sq) {
  %iz = tensor.empty() : !sz
  %z = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, b, c)>], iterator_types = ["parallel", "parallel", "parallel"]} outs(%iz : !sz) {
  ^bb0(%x: i32):
    %i = linalg.index 2 : index
    %codes = arith.constant 65 : index
    %r = arith.remui %i, %codes : index
    %n = arith.index_cast %r : index to i32
    linalg.yield %n : i32
  } -> !sz
  %iq = tensor.empty() : !sq
  %il = tensor.empty() : !sl
  %o, %l = attn.vq ins(%q, %z, %v, %c : !sq, !sz, !sq, !sc) outs(%iq, %il : !sq, !sl) {block = 64 : i64, causal, scale = 6.25e-02 : f64} -> !sq, !sl
  %g:3 = attn.vq_backward ins(%q, %z, %v, %c : !sq, !sz, !sq, !sc) forward(%o, %l : !sq, !sl) gradient(%d : !sq)
      outs(%iq, %iq, %iq : !sq, !sq, !sq) {block = 64 : i64, causal, scale = 6.25e-02 : f64} -> !sq, !sq, !sq
  return %g#0, %g#1, %g#2 : !sq, !sq, !sq
}
