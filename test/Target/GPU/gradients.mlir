// PTX of gradients: products on tensor cores, no number of f64, nothing of a
// device library, and no arrays in local memory. ptxas is told not to unroll the
// loops that fill and weigh tiles, whose registers it would spill.

// REQUIRES: long-tests
// RUN: fovea-compile %s --entry=dense --target=nvvm --emit=ptx -o %t.dense
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.dense
// RUN: FileCheck %s --input-file=%t.dense
// RUN: fovea-compile %s --entry=wide --target=nvvm --emit=ptx -o %t.wide
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.wide
// RUN: FileCheck %s --input-file=%t.wide
// RUN: fovea-compile %s --entry=vq --target=nvvm --emit=ptx -o %t.vq
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.vq
// RUN: FileCheck %s --input-file=%t.vq --check-prefixes=CHECK,VQ
// RUN: fovea-compile %s --entry=vq_window --target=nvvm --emit=ptx -o %t.window
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.window
// RUN: FileCheck %s --input-file=%t.window --check-prefixes=CHECK,VQ
// Frames of tokens and queries from a state have boxes.
// RUN: fovea-compile %s --entry=vq_window --target=nvvm --emit=ptx --chip=sm_90a -o %t.frames
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|ldmatrix|cp\.async\.c[ag]' %t.frames
// RUN: FileCheck %s --input-file=%t.frames --check-prefix=FRAMES
// The host, which encodes their maps, does not read the position: a graph holds that.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a" | FileCheck %s --check-prefix=HOST
// Of lists that name whole tiles, on sm_90a, warpgroups multiply boxes.
// RUN: fovea-compile %s --entry=lists --target=nvvm --emit=ptx --chip=sm_90a -o %t.lists
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|ldmatrix|cp\.async\.c[ag]' %t.lists
// RUN: FileCheck %s --input-file=%t.lists --check-prefix=LISTS
// Far rows are gathered by kernels of their own, and boxes then.
// RUN: fovea-compile %s --entry=far --target=nvvm --emit=ptx --chip=sm_90a -o %t.far
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|ldmatrix|cp\.async\.c[ag]' %t.far
// RUN: FileCheck %s --input-file=%t.far --check-prefix=FAR
// A mask as a bias, whose gradient nobody reads, has no kernel of other chips.
// RUN: fovea-compile %s --entry=biased --target=nvvm --emit=ptx --chip=sm_90a -o %t.biased
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|ldmatrix|cp\.async\.c[ag]' %t.biased
// RUN: FileCheck %s --input-file=%t.biased --check-prefix=BIASED

// HOST-LABEL: llvm.func @vq_window
// HOST-NOT: call @fovea_rt_gpu_copy
// HOST-LABEL: llvm.func @lists

// FRAMES-COUNT-4: .reqntid {{384|512}}, 1, 1

// FAR-DAG: cp.async.bulk.shared::cluster.global.mbarrier
// FAR-DAG: cp.async.bulk.tensor.4d.shared::cluster.global
// FAR-DAG: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16

// BIASED-COUNT-2: .reqntid {{384|512}}, 1, 1
// BIASED-NOT: .reqntid {{384|512}}, 1, 1

// CHECK-DAG: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32
// CHECK-DAG: ex2.approx.ftz.f32
// CHECK-DAG: .pragma "nounroll";
// VQ-DAG: match.any.sync.b32

// LISTS-COUNT-2: .reqntid 384, 1, 1
// LISTS-DAG: cp.async.bulk.tensor.4d.shared::cluster.global
// LISTS-DAG: mbarrier.arrive.expect_tx
// LISTS-DAG: wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
// LISTS-DAG: wgmma.wait_group.sync.aligned 0

!rows = tensor<1x8x?x64xbf16>
!wide = tensor<1x8x?x128xf32>

func.func @dense(%q: !rows, %k: !rows, %v: !rows, %o: !rows, %l: tensor<1x8x?xf32>, %d: !rows, %i: !rows) -> (!rows, !rows, !rows) {
  %r:3 = attn.dense_backward ins(%q, %k, %v : !rows, !rows, !rows) forward(%o, %l : !rows, tensor<1x8x?xf32>) gradient(%d : !rows)
      outs(%i, %i, %i : !rows, !rows, !rows) {mask = #attn.mask<causal>} -> !rows, !rows, !rows
  return %r#0, %r#1, %r#2 : !rows, !rows, !rows
}

func.func @wide(%q: !wide, %k: !wide, %v: !wide, %o: !wide, %l: tensor<1x8x?xf32>, %d: !wide, %i: !wide) -> (!wide, !wide, !wide) {
  %r:3 = attn.dense_backward ins(%q, %k, %v : !wide, !wide, !wide) forward(%o, %l : !wide, tensor<1x8x?xf32>) gradient(%d : !wide)
      outs(%i, %i, %i : !wide, !wide, !wide) {mask = #attn.mask<causal>} -> !wide, !wide, !wide
  return %r#0, %r#1, %r#2 : !wide, !wide, !wide
}

func.func @vq(%q: !rows, %z: tensor<1x8x?xi32>, %v: !rows, %c: tensor<8x512x64xbf16>, %o: !rows, %l: tensor<1x8x?xf32>, %d: !rows, %i: !rows)
    -> (!rows, !rows, !rows) {
  %r:3 = attn.vq_backward ins(%q, %z, %v, %c : !rows, tensor<1x8x?xi32>, !rows, tensor<8x512x64xbf16>)
      forward(%o, %l : !rows, tensor<1x8x?xf32>) gradient(%d : !rows) outs(%i, %i, %i : !rows, !rows, !rows)
      {block = 512 : i64, causal} -> !rows, !rows, !rows
  return %r#0, %r#1, %r#2 : !rows, !rows, !rows
}

!mean = tensor<1x8x512x64xf32>
!kept = tensor<1x8x1024x64xbf16>

func.func @vq_window(%q: !rows, %z: tensor<1x8x?xi32>, %v: !rows, %c: tensor<8x512x64xbf16>, %m: !mean, %n: tensor<1x8x512xi32>, %kz: tensor<1x8x1024xi32>,
                     %kv: !kept, %p: tensor<i64>, %o: !rows, %l: tensor<1x8x?xf32>, %d: !rows, %i: !rows, %im: !mean, %ik: !kept)
    -> (!rows, !rows, !rows, !mean, !kept, !kept) {
  %r:6 = attn.vq_backward ins(%q, %z, %v, %c : !rows, tensor<1x8x?xi32>, !rows, tensor<8x512x64xbf16>)
      state(%m, %n, %kz, %kv, %p : !mean, tensor<1x8x512xi32>, tensor<1x8x1024xi32>, !kept, tensor<i64>)
      forward(%o, %l : !rows, tensor<1x8x?xf32>) gradient(%d : !rows) d_next_state(%m, %kv, %kv : !mean, !kept, !kept)
      outs(%i, %i, %i : !rows, !rows, !rows) d_state(%im, %ik, %ik : !mean, !kept, !kept)
      {block = 512 : i64, causal} -> !rows, !rows, !rows, !mean, !kept, !kept
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !rows, !rows, !rows, !mean, !kept, !kept
}

!lists = tensor<1x8x?x16xi32>
func.func @lists(%q: !rows, %k: !rows, %v: !rows, %n: !lists, %o: !rows, %l: tensor<1x8x?xf32>, %d: !rows, %i: !rows) -> (!rows, !rows, !rows) {
  %r:3 = attn.stream_backward query(%q : !rows) source(%k, %v : !rows, !rows) rows(%n : !lists) unit = 128
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !rows, tensor<1x8x?xf32>) gradient(%d : !rows) outs(%i, %i, %i : !rows, !rows, !rows)
      {block = 128 : i64, scale = 0.125 : f64} -> !rows, !rows, !rows
  return %r#0, %r#1, %r#2 : !rows, !rows, !rows
}

!queries = tensor<1x2x384x64xbf16>
!summaries = tensor<1x1x600x64xbf16>
!sums = tensor<1x2x384xf32>
func.func @far(%q: !queries, %k: !summaries, %o: !queries, %l: !sums, %d: !queries) -> (!queries, !summaries, !summaries) {
  %iq = tensor.empty() : !queries
  %ik = tensor.empty() : !summaries
  %r:3 = attn.stream_backward query(%q : !queries)
      source(%k, %k : !summaries, !summaries)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>, affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>, affine_map<(b)[rows, n] -> (400, 408)>]
      forward(%o, %l : !queries, !sums) gradient(%d : !queries) outs(%iq, %ik, %ik : !queries, !summaries, !summaries)
      {block = 128 : i64, scale = 0.125 : f64} -> !queries, !summaries, !summaries
  return %r#0, %r#1, %r#2 : !queries, !summaries, !summaries
}

!scores = tensor<1x8x?x?xbf16>

func.func @biased(%q: !rows, %k: !rows, %v: !rows, %m: !scores, %o: !rows, %l: tensor<1x8x?xf32>, %d: !rows, %i: !rows, %n: index, %e: index)
    -> (!rows, !rows, !rows) {
  %im = tensor.empty(%n, %e) : !scores
  %r:4 = attn.dense_backward ins(%q, %k, %v : !rows, !rows, !rows) bias(%m : !scores) forward(%o, %l : !rows, tensor<1x8x?xf32>)
      gradient(%d : !rows) outs(%i, %i, %i : !rows, !rows, !rows) d_bias(%im : !scores) -> !rows, !rows, !rows, !scores
  return %r#0, %r#1, %r#2 : !rows, !rows, !rows
}
