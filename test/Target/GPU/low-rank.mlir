// PTX of low-rank attention: products on tensor cores, and nothing of f64 or of
// a device library.

// RUN: fovea-compile %s --entry=causal --target=nvvm --emit=ptx -o %t.causal
// RUN: FileCheck %s --input-file=%t.causal
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.causal
// RUN: grep -c 'mma.sync.aligned.m16n8k8.*f32.tf32.tf32.f32' %t.causal | FileCheck %s --check-prefix=MMA
// RUN: fovea-compile %s --entry=causal --target=nvvm --emit=ptx --f32=exact -o %t.exact
// RUN: not grep -E 'mma\.sync' %t.exact
// RUN: fovea-compile %s --entry=rope --target=nvvm --emit=ptx -o %t.rope
// RUN: FileCheck %s --input-file=%t.rope --check-prefix=ROPE
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|cos|sin' %t.rope

// A depth of 32 in steps of 8, thrice: 9 tiles of columns for sums and rows, 8
// for the weights of a chunk.
// MMA: {{^}}312{{$}}
// CHECK: ldmatrix.sync.aligned.m8n8.x4
// ROPE: mul.lo.s64
// ROPE: fma.rn.f32

func.func @causal(%u: tensor<1x8x?x16xf32>, %v: tensor<1x8x?x64xf32>, %o: tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32> {
  %r = attn.low_rank ins(%u, %u, %v : tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>)
      outs(%o : tensor<1x8x?x64xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x8x?x64xf32>
  return %r : tensor<1x8x?x64xf32>
}

func.func @rope(%x: tensor<1x8x?x64xf16>, %p: tensor<1x1x?xi32>, %o: tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16> {
  %r = attn.rope ins(%x, %p : tensor<1x8x?x64xf16>, tensor<1x1x?xi32>) outs(%o : tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16>
  return %r : tensor<1x8x?x64xf16>
}
