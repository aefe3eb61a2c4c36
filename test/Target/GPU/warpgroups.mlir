// PTX of dense attention for sm_90a: copies by boxes, products of warpgroups,
// registers that move, and what must not be in it.

// RUN: fovea-compile %s --entry=causal --target=nvvm --emit=ptx --chip=sm_90a -o %t.ptx
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: FileCheck %s --input-file=%t.ptx --check-prefix=RESULTS
// RUN: grep -c 'wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16.* p, 1, 1, 0, 0;' %t.ptx | FileCheck %s --check-prefix=SCORES
// RUN: grep -c 'wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16.* p, 1, 1, 1;' %t.ptx | FileCheck %s --check-prefix=VALUES
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|cp\.async\.c[ag]|ldmatrix' %t.ptx
// Rows that are listed are copied by all threads of the producer; a bias and
// log weights change nothing else.
// RUN: fovea-compile %s --entry=lists --target=nvvm --emit=ptx --chip=sm_90a -o %t.lists.ptx
// RUN: FileCheck %s --input-file=%t.lists.ptx --check-prefix=LISTS
// RUN: FileCheck %s --input-file=%t.lists.ptx --check-prefix=FILL
// RUN: FileCheck %s --input-file=%t.lists.ptx --check-prefix=FILLED
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|ldmatrix' %t.lists.ptx
// RUN: fovea-compile %s --entry=biased --target=nvvm --emit=ptx --chip=sm_90a -o %t.biased.ptx
// RUN: grep -c 'wgmma.mma_async.sync.aligned.m64n112k16.f32.f16.f16' %t.biased.ptx | FileCheck %s --check-prefix=BIASED
// RUN: FileCheck %s --input-file=%t.biased.ptx --check-prefix=PAIRS
// RUN: not grep -E 'mma\.sync|cp\.async\.c[ag]|ldmatrix' %t.biased.ptx
// A soft-cap removes nothing, so nobody votes; quotients are products.
// RUN: fovea-compile %s --entry=capped --target=nvvm --emit=ptx --chip=sm_90a -o %t.capped.ptx
// RUN: FileCheck %s --input-file=%t.capped.ptx --check-prefix=CAPPED
// RUN: grep -c 'bar.red' %t.capped.ptx | FileCheck %s --check-prefix=VOTES
// RUN: not grep -E 'div\.(rn|full|approx)| mma\.sync|cp\.async\.c[ag]|\.local' %t.capped.ptx
// Other data, other chips: the kernel of sm_80.
// RUN: fovea-compile %s --entry=exact --target=nvvm --emit=ptx --chip=sm_90a -o - | FileCheck %s --check-prefix=PORTABLE
// RUN: fovea-compile %s --entry=causal --target=nvvm --emit=ptx --chip=sm_90 -o - | FileCheck %s --check-prefix=PORTABLE
// PORTABLE-NOT: wgmma
// PORTABLE: mma.sync.aligned.m16n8k
// PORTABLE-NOT: wgmma

// CHECK: .target sm_90a
// CHECK: .extern .shared .align 1024 .b8
// CHECK: .param .align 64 .b8 {{.*}}[128]
// CHECK: .reqntid 384, 1, 1
// CHECK: .minnctapersm 1
// CHECK: fence.mbarrier_init
// CHECK: fence.proxy.async
// CHECK-DAG: setmaxnreg.inc.sync.aligned.u32 {{.*}}240
// CHECK-DAG: setmaxnreg.dec.sync.aligned.u32 {{.*}}24
// CHECK-DAG: mbarrier.arrive.expect_tx
// CHECK-DAG: cp.async.bulk.tensor.4d.shared::cluster.global
// CHECK-DAG: mbarrier.try_wait.parity
// CHECK-DAG: bar.sync {{.*}}256
// CHECK-DAG: bar.arrive {{.*}}256
// CHECK-DAG: wgmma.wait_group.sync.aligned 1
// CHECK-DAG: wgmma.wait_group.sync.aligned 0
// Scores of the first tile, and of the next one in the loop: 8 steps of 16
// columns each.
// SCORES: {{^}}16{{$}}
// Values in the loop and after it: 8 steps of 16 keys each.
// VALUES: {{^}}16{{$}}
// BIASED: {{^}}8{{$}}
// Both columns of a thread are loaded at once, while scores are multiplied.
// PAIRS: wgmma.commit_group
// PAIRS: wgmma.commit_group
// PAIRS: ld.global.b32
// PAIRS: wgmma.wait_group.sync.aligned 1
// Of values that are not finite, in tiles that the mask cuts.
// VOTES: {{^}}2{{$}}
// CAPPED: wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16
// CAPPED: rcp.approx.ftz.f32

// Threads store ragged rows. All others go by boxes, behind a fence for those
// who wrote them to shared memory, and are waited for: it goes with the block.
// RESULTS: st.global.b32
// RESULTS: st.shared.b32
// RESULTS-NOT: st.global.b32
// RESULTS: fence.proxy.async
// RESULTS-NEXT: bar.warp.sync
// RESULTS: cp.async.bulk.tensor.4d.global.shared::cta
// RESULTS: cp.async.bulk.tensor.4d.global.shared::cta
// RESULTS-NEXT: cp.async.bulk.commit_group
// RESULTS-NEXT: cp.async.bulk.wait_group.read

// Registers for more than one thread that copies.
// LISTS-DAG: setmaxnreg.inc.sync.aligned.u32 {{.*}}224
// LISTS-DAG: setmaxnreg.dec.sync.aligned.u32 {{.*}}56
// LISTS-DAG: mbarrier.expect_tx
// LISTS-DAG: cp.async.bulk.tensor.4d.shared::cluster.global
// LISTS-DAG: cp.async.cg.shared.global
// LISTS-DAG: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// Threads do not wait for the rows that they copy, but their copies arrive;
// whoever multiplies them publishes them.
// FILL-NOT: cp.async.wait
// FILL: cp.async.mbarrier.arrive.noinc.shared.b64
// FILL-NEXT: bar.warp.sync
// FILL-NOT: cp.async.wait
// FILLED: setmaxnreg.inc
// FILLED: mbarrier.try_wait
// FILLED: fence.proxy.async
// FILLED-NEXT: wgmma.fence

func.func @causal(%q: tensor<1x8x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>, %init: tensor<1x8x?x128xbf16>) -> tensor<1x8x?x128xbf16> {
  %r = attn.dense ins(%q, %k, %v : tensor<1x8x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>)
      outs(%init : tensor<1x8x?x128xbf16>) {mask = #attn.mask<causal>} -> tensor<1x8x?x128xbf16>
  return %r : tensor<1x8x?x128xbf16>
}
func.func @lists(%q: tensor<1x8x2048x64xbf16>, %k: tensor<1x2x2048x64xbf16>, %s: tensor<1x2x256x64xbf16>, %w: tensor<1x1x256xf32>, %init: tensor<1x8x2048x64xbf16>) -> tensor<1x8x2048x64xbf16> {
  %r = attn.stream query(%q : tensor<1x8x2048x64xbf16>)
      source(%k, %k : tensor<1x2x2048x64xbf16>, tensor<1x2x2048x64xbf16>) ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
      source(%s, %s : tensor<1x2x256x64xbf16>, tensor<1x2x256x64xbf16>) log_weight(%w : tensor<1x1x256xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 8 - 16, b * 8 - 8)>, affine_map<(b)[rows, n] -> (128, 152)>]
      outs(%init : tensor<1x8x2048x64xbf16>) {block = 128 : i64, scale = 0.125 : f64} -> tensor<1x8x2048x64xbf16>
  return %r : tensor<1x8x2048x64xbf16>
}
func.func @exact(%q: tensor<1x8x?x64xf32>, %k: tensor<1x8x?x64xf32>, %init: tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>)
      outs(%init : tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32>
  return %r : tensor<1x8x?x64xf32>
}
func.func @biased(%q: tensor<1x8x?x64xf16>, %k: tensor<1x8x?x64xf16>, %b: tensor<1x8x?x?xf16>, %init: tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>, tensor<1x8x?x64xf16>) bias(%b : tensor<1x8x?x?xf16>)
      outs(%init : tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16>
  return %r : tensor<1x8x?x64xf16>
}
func.func @capped(%q: tensor<1x8x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %init: tensor<1x8x?x128xbf16>) -> tensor<1x8x?x128xbf16> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %c = arith.constant 5.0e+01 : f32
      %p = arith.divf %s, %c : f32
      %t = math.tanh %p : f32
      %y = arith.mulf %t, %c : f32
      attn.yield %y : f32
    } outs(%init : tensor<1x8x?x128xbf16>) {mask = #attn.mask<causal>} -> tensor<1x8x?x128xbf16>
  return %r : tensor<1x8x?x128xbf16>
}
