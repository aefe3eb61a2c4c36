// PTX of dense attention: instructions of the inner loop, and what must not be
// in it: calls of a device library, local memory, f64.

// RUN: fovea-compile %s --entry=f16 --target=nvvm --emit=ptx --chip=sm_80 -o %t.f16
// RUN: FileCheck %s --input-file=%t.f16 --check-prefixes=PTX,SM80
// RUN: grep -c 'mma.sync.aligned.m16n8k16.*f32.f16.f16.f32' %t.f16 | FileCheck %s --check-prefix=MMA
// RUN: grep -c 'ldmatrix.sync.aligned.m8n8.x4' %t.f16 | FileCheck %s --check-prefix=LDMATRIX
// RUN: grep -c 'cp.async.cg.shared.global' %t.f16 | FileCheck %s --check-prefix=COPIES
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.f16
// RUN: fovea-compile %s --entry=f16 --target=nvvm --emit=ptx --chip=sm_90 -o - | FileCheck %s --check-prefixes=PTX,SM90
// RUN: fovea-compile %s --entry=bf16 --target=nvvm --emit=ptx -o %t.bf16
// RUN: grep -c 'mma.sync.aligned.m16n8k16.*f32.bf16.bf16.f32' %t.bf16 | FileCheck %s --check-prefix=MMA
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.bf16
// RUN: fovea-compile %s --entry=f32 --target=nvvm --emit=ptx -o %t.f32
// RUN: grep -c 'mma.sync.aligned.m16n8k8.*f32.tf32.tf32.f32' %t.f32 | FileCheck %s --check-prefix=TF32X3
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64' %t.f32
// RUN: grep 'cvt.rna.tf32.f32' %t.f32 | count 176
// RUN: fovea-compile %s --entry=f32 --target=nvvm --emit=ptx --f32=tf32 -o %t.tf32
// RUN: grep -c 'mma.sync.aligned.m16n8k8.*f32.tf32.tf32.f32' %t.tf32 | FileCheck %s --check-prefix=TF32

// RUN: fovea-compile %s --entry=f32 --target=nvvm --emit=ptx --f32=exact -o %t.exact
// RUN: not grep -E '\.extern \.func|__nv_|\.local|\.f64|mma\.sync' %t.exact
// RUN: FileCheck %s --input-file=%t.exact --check-prefix=EXACT
// EXACT: shfl.sync.idx
// EXACT: fma.rn.f32

// SM80: .target sm_80
// SM90: .target sm_90{{$}}
// PTX: .extern .shared .align 1024 .b8 {{.*}}[];
// PTX: .visible .entry [[NAME:[a-z0-9_]+]](
// PTX: .maxntid 256, 1, 1
// 64 keys, 64 columns: 4 x 8 products of scores and as many with the values.
// MMA: {{^}}64{{$}}
// 4 for the queries, 16 for the keys, 16 for the values.
// LDMATRIX: {{^}}36{{$}}
// 128 queries; 64 keys and values before the loop and in it, by 256 threads.
// COPIES: {{^}}12{{$}}
// 8 x 4 products of scores, 8 x 4 with the values, thrice each.
// TF32X3: {{^}}192{{$}}
// TF32: {{^}}64{{$}}

func.func @f16(%q: tensor<1x8x?x64xf16>, %k: tensor<1x2x?x64xf16>, %init: tensor<1x8x?x64xf16>) -> tensor<1x8x?x64xf16> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x64xf16>, tensor<1x2x?x64xf16>, tensor<1x2x?x64xf16>)
      outs(%init : tensor<1x8x?x64xf16>) {mask = #attn.mask<causal>} -> tensor<1x8x?x64xf16>
  return %r : tensor<1x8x?x64xf16>
}
func.func @bf16(%q: tensor<1x8x?x64xbf16>, %k: tensor<1x2x?x64xbf16>, %init: tensor<1x8x?x64xbf16>) -> tensor<1x8x?x64xbf16> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x64xbf16>, tensor<1x2x?x64xbf16>, tensor<1x2x?x64xbf16>)
      outs(%init : tensor<1x8x?x64xbf16>) {mask = #attn.mask<causal>} -> tensor<1x8x?x64xbf16>
  return %r : tensor<1x8x?x64xbf16>
}
func.func @f32(%q: tensor<1x8x?x64xf32>, %k: tensor<1x2x?x64xf32>, %init: tensor<1x8x?x64xf32>) -> tensor<1x8x?x64xf32> {
  %r = attn.dense ins(%q, %k, %k : tensor<1x8x?x64xf32>, tensor<1x2x?x64xf32>, tensor<1x2x?x64xf32>)
      outs(%init : tensor<1x8x?x64xf32>) {mask = #attn.mask<causal>} -> tensor<1x8x?x64xf32>
  return %r : tensor<1x8x?x64xf32>
}
