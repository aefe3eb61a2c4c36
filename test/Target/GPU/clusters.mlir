// PTX of dense attention in clusters of two blocks, which the kernel demands, so
// that a plain launch has them.

// RUN: env FOVEA_GPU_CLUSTER=2 fovea-compile %s --entry=causal --target=nvvm --emit=ptx --chip=sm_90a -o %t.ptx
// RUN: FileCheck %s --input-file=%t.ptx
// RUN: FileCheck %s --input-file=%t.ptx --check-prefix=ORDER
// RUN: grep -c 'multicast::cluster' %t.ptx | FileCheck %s --check-prefix=COPIES
// RUN: grep -c 'cp.async.bulk.tensor.4d.shared::cluster.global' %t.ptx | FileCheck %s --check-prefix=ALL
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync|cp\.async\.c[ag]|ldmatrix' %t.ptx
// By default there are none.
// RUN: fovea-compile %s --entry=causal --target=nvvm --emit=ptx --chip=sm_90a -o - | FileCheck %s --check-prefix=SINGLE
// SINGLE-NOT: {{cluster_dim|reqnctapercluster|multicast|mapa}}

// CHECK: .target sm_90a
// CHECK: .reqntid 384, 1, 1
// CHECK: .reqnctapercluster 2, 1, 1
// CHECK-DAG: cp.async.bulk.tensor.4d.shared::cluster.global{{.*}}.multicast::cluster
// CHECK-DAG: mapa.shared::cluster
// CHECK-DAG: mbarrier.arrive.release.cluster.shared::cluster.b64
// CHECK-DAG: wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16

// ORDER: fence.mbarrier_init
// ORDER: barrier.cluster.arrive
// ORDER-NEXT: barrier.cluster.wait
// ORDER-NOT: barrier.cluster
// ORDER: barrier.cluster.arrive
// ORDER-NEXT: barrier.cluster.wait
// ORDER-NEXT: ret

// Keys of the first tile and of the next one, values in the loop and behind it,
// two boxes each; queries are of a block alone.
// COPIES: {{^}}8{{$}}
// ALL: {{^}}10{{$}}

func.func @causal(%q: tensor<1x8x?x128xbf16>, %k: tensor<1x2x?x128xbf16>, %v: tensor<1x2x?x128xbf16>, %init: tensor<1x8x?x128xbf16>) -> tensor<1x8x?x128xbf16> {
  %r = attn.dense ins(%q, %k, %v : tensor<1x8x?x128xbf16>, tensor<1x2x?x128xbf16>, tensor<1x2x?x128xbf16>)
      outs(%init : tensor<1x8x?x128xbf16>) {mask = #attn.mask<causal>} -> tensor<1x8x?x128xbf16>
  return %r : tensor<1x8x?x128xbf16>
}
