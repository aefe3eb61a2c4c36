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
// RUN: fovea-compile %s --entry=gradient --target=nvvm --emit=ptx -o %t.gradient
// RUN: FileCheck %s --input-file=%t.gradient
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.gradient

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

func.func @gradient(%u: tensor<1x8x?x16xf32>, %v: tensor<1x8x?x64xf32>, %x: tensor<1x8x?x5xf32>, %p: tensor<1x1x?xi32>)
    -> (tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x5xf32>, tensor<1x8x?x64xf32>) {
  %c2 = arith.constant 2 : index
  %n = tensor.dim %u, %c2 : tensor<1x8x?x16xf32>
  %i = tensor.empty(%n) : tensor<1x8x?x16xf32>
  %o = tensor.empty(%n) : tensor<1x8x?x64xf32>
  %ix = tensor.empty(%n) : tensor<1x8x?x5xf32>
  %r:3 = attn.low_rank_backward ins(%u, %u, %v : tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>)
      forward(%v : tensor<1x8x?x64xf32>) gradient(%v : tensor<1x8x?x64xf32>)
      outs(%i, %i, %o : tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>)
      {mask = #attn.row_mask<causal>} -> tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>
  %df = tensor.empty(%n) : tensor<1x8x?x21xf32>
  %f = attn.polynomial_features ins(%x : tensor<1x8x?x5xf32>) outs(%df : tensor<1x8x?x21xf32>)
      {degree = 2 : i64, scale = 1.0 : f64} -> tensor<1x8x?x21xf32>
  %dx = attn.polynomial_features_backward ins(%x : tensor<1x8x?x5xf32>) gradient(%f : tensor<1x8x?x21xf32>)
      outs(%ix : tensor<1x8x?x5xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<1x8x?x5xf32>
  %t = attn.rope_backward ins(%p : tensor<1x1x?xi32>) gradient(%v : tensor<1x8x?x64xf32>) outs(%o : tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32>
  return %r#0, %r#1, %r#2, %dx, %t : tensor<1x8x?x16xf32>, tensor<1x8x?x16xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x5xf32>, tensor<1x8x?x64xf32>
}
