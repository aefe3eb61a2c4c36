// RUN: fovea-opt %s --attn-set-target="gpu warpgroups shared-bytes=232448" --attn-select-gpu-tiles=cluster=2 | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="gpu warpgroups shared-bytes=232448" --attn-select-gpu-tiles | FileCheck %s --check-prefix=SINGLE
// RUN: fovea-opt %s --attn-set-target="gpu shared-bytes=232448" --attn-select-gpu-tiles=cluster=2 | FileCheck %s --check-prefix=SINGLE
// RUN: not fovea-opt %s --attn-set-target="gpu warpgroups" --attn-select-gpu-tiles=cluster=3 2>&1 | FileCheck %s --check-prefix=THREE
// RUN: not fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a cluster=4" 2>&1 | FileCheck %s --check-prefix=FOUR
// THREE: error: expects clusters of 1 or 2 blocks, but got 3
// FOUR: error: expects clusters of 1 or 2 blocks, but got 4
// SINGLE-NOT: cluster =

// Blocks of a cluster meet when their barriers are there and before they leave;
// consumers arrive at those of both, and copies go to both.
// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a cluster=2 host=false" | FileCheck %s --check-prefix=KERNEL
// KERNEL-LABEL: func.func @pairs
// KERNEL: gpu.launch_func {{.*}}@pairs_kernel clusters in (%c2, %c1, %c1) blocks in
// KERNEL-LABEL: llvm.func @pairs_kernel
// KERNEL-SAME: nvvm.cluster_dim = array<i32: 2, 1, 1>
// KERNEL: nvvm.fence.mbarrier.init
// KERNEL: nvvm.cluster.arrive
// KERNEL-NEXT: nvvm.cluster.wait
// KERNEL-NOT: nvvm.cluster.
// KERNEL: %[[THERE:.*]] = nvvm.mapa
// KERNEL-NEXT: nvvm.mbarrier.arrive %[[THERE]] {scope = #nvvm.mem_scope<cluster>}
// KERNEL-NOT: nvvm.cluster.
// KERNEL-COUNT-8: multicast_mask =
// KERNEL-NOT: nvvm.cluster.
// KERNEL: nvvm.cluster.arrive
// KERNEL-NEXT: nvvm.cluster.wait
// KERNEL-NEXT: llvm.return
// KERNEL-NOT: nvvm.cluster
// KERNEL-NOT: clusters in

// RUN: fovea-opt %s --attn-nvvm-pipeline="chip=sm_90a cluster=2 host=false" --remarks-filter='convert-attn.*' --remark-policy=all --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK
// REMARK: remark: [Missed] SingleBlocks | Category:convert-attn-to-gpu | Reason="rows of keys or values are not known to lie 16 bytes apart"

!q = tensor<2x4x?x128xbf16>
!k = tensor<2x2x?x128xbf16>

// Two heads for each head of keys.
// CHECK-LABEL: func @pairs
// CHECK: tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @pairs(%q: !q, %k: !k) -> !q {
  %out = attn.stream query(%q : !q) source(%k, %k : !k, !k) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : !q) {scale = 1.0 : f64} -> !q
  return %out : !q
}

// Three for one; heads of unknown number; keys of every head.
// CHECK-LABEL: func @three
// CHECK-NOT: cluster =
func.func @three(%q: tensor<1x6x?x128xbf16>, %k: tensor<1x2x?x128xbf16>) -> tensor<1x6x?x128xbf16> {
  %out = attn.stream query(%q : tensor<1x6x?x128xbf16>) source(%k, %k : tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x6x?x128xbf16>) {scale = 1.0 : f64} -> tensor<1x6x?x128xbf16>
  return %out : tensor<1x6x?x128xbf16>
}
func.func @unknown(%q: tensor<1x?x?x128xbf16>, %k: tensor<1x2x?x128xbf16>) -> tensor<1x?x?x128xbf16> {
  %out = attn.stream query(%q : tensor<1x?x?x128xbf16>) source(%k, %k : tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x?x?x128xbf16>) {scale = 1.0 : f64} -> tensor<1x?x?x128xbf16>
  return %out : tensor<1x?x?x128xbf16>
}
func.func @own(%q: !q) -> !q {
  %out = attn.stream query(%q : !q) source(%q, %q : !q, !q) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : !q) {scale = 1.0 : f64} -> !q
  return %out : !q
}

// What is more than keys and values; rows that threads copy.
func.func @terms(%q: !q, %k: !k, %w: tensor<2x2x?xf32>, %b: tensor<2x4x?x?xbf16>) -> (!q, !q) {
  %0 = attn.stream query(%q : !q) source(%k, %k : !k, !k) log_weight(%w : tensor<2x2x?xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : !q) {scale = 1.0 : f64} -> !q
  %1 = attn.stream query(%q : !q) source(%k, %k : !k, !k) bias(%b : tensor<2x4x?x?xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : !q) {scale = 1.0 : f64} -> !q
  return %0, %1 : !q, !q
}
func.func @rows(%q: !q, %k: !k, %c: tensor<1x2x64x128xbf16>, %z: tensor<2x2x?xi32>, %r: tensor<2x2x?x8xi32>) -> (!q, !q, !q) {
  %0 = attn.stream query(%q : !q) source(%c, %k : tensor<1x2x64x128xbf16>, !k) codes(%z : tensor<2x2x?xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : !q) {scale = 1.0 : f64} -> !q
  %1 = attn.stream query(%q : !q) source(%k, %k : !k, !k) rows(%r : tensor<2x2x?x8xi32>) unit = 64 ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : !q) {block = 128 : i64, scale = 1.0 : f64} -> !q
  %2 = attn.stream query(%q : !q) source(%k, %k : !k, !k) ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (b + 9, b + 12)>]
      outs(%q : !q) {block = 128 : i64, scale = 1.0 : f64} -> !q
  return %0, %1, %2 : !q, !q, !q
}

// Rows that may begin anywhere, as buffers show.
// CHECK-LABEL: func @apart
// CHECK: cluster = 2
func.func @apart(%q: tensor<1x4x150x64xf16>, %x: tensor<1x2x150x72xf16>, %at: index) -> tensor<1x4x150x64xf16> {
  %k = tensor.extract_slice %x[0, 0, 0, %at] [1, 2, 150, 64] [1, 1, 1, 1] : tensor<1x2x150x72xf16> to tensor<1x2x150x64xf16>
  %r = attn.stream query(%q : tensor<1x4x150x64xf16>) source(%k, %k : tensor<1x2x150x64xf16>, tensor<1x2x150x64xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal> outs(%q : tensor<1x4x150x64xf16>) {scale = 1.0 : f64} -> tensor<1x4x150x64xf16>
  return %r : tensor<1x4x150x64xf16>
}
