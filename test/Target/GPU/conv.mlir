// PTX of sums of convolutions: one tf32 product for narrow values, three for
// f32, and nothing of a device library.

// RUN: fovea-compile %s --entry=f16 --target=nvvm --emit=ptx -o %t.f16
// RUN: not grep -E '\.extern \.func|__nv_|\.local' %t.f16
// RUN: grep -c 'mma.sync.aligned.m16n8k8.*f32.tf32.tf32.f32' %t.f16 | FileCheck %s --check-prefix=F16
// RUN: fovea-compile %s --entry=f32 --target=nvvm --emit=ptx -o %t.f32
// RUN: not grep -E '\.extern \.func|__nv_|\.local' %t.f32
// RUN: grep -c 'mma.sync.aligned.m16n8k8.*f32.tf32.tf32.f32' %t.f32 | FileCheck %s --check-prefix=F32
// RUN: FileCheck %s --input-file=%t.f32
// RUN: fovea-compile %s --entry=gradient --target=nvvm --emit=ptx -o %t.gradient
// RUN: FileCheck %s --input-file=%t.gradient
// RUN: not grep -E '\.extern \.func|__nv_|\.local' %t.gradient
// RUN: fovea-compile %s --entry=transforms --target=nvvm --emit=ptx -o %t.transforms
// RUN: FileCheck %s --input-file=%t.transforms
// RUN: not grep -E '\.extern \.func|__nv_|\.local' %t.transforms
// RUN: grep -c 'fma.rn.f32' %t.transforms | FileCheck %s --check-prefix=SPECTRA

// Products of spectra are fused.
// SPECTRA: {{^[1-9]}}
// A depth of 32 in steps of 8: 8 tiles of columns, and one more with the sums of
// weights of exact rows.
// F16: {{^}}68{{$}}
// F32: {{^}}204{{$}}
// CHECK: ex2.approx.ftz.f32

func.func @f16(%b: tensor<1x8x4x?xf32>, %m: tensor<1x8x4xi32>, %v: tensor<1x8x?x64xf16>, %o: tensor<1x8x?x64xf16>,
               %n: tensor<1x8xi32>) -> tensor<1x8x?x64xf16> {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x8x4x?xf32>, tensor<1x8x4xi32>, tensor<1x8x?x64xf16>)
      outs(%o, %n : tensor<1x8x?x64xf16>, tensor<1x8xi32>) {algorithm = #attn.conv_algorithm<toeplitz>} -> tensor<1x8x?x64xf16>, tensor<1x8xi32>
  return %r#0 : tensor<1x8x?x64xf16>
}

func.func @f32(%b: tensor<1x8x4x?xf32>, %m: tensor<1x8x4xi32>, %v: tensor<1x8x?x64xf32>, %o: tensor<1x8x?x64xf32>,
               %n: tensor<1x8xi32>) -> tensor<1x8x?x64xf32> {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x8x4x?xf32>, tensor<1x8x4xi32>, tensor<1x8x?x64xf32>)
      outs(%o, %n : tensor<1x8x?x64xf32>, tensor<1x8xi32>) {algorithm = #attn.conv_algorithm<toeplitz>} -> tensor<1x8x?x64xf32>, tensor<1x8xi32>
  return %r#0 : tensor<1x8x?x64xf32>
}

func.func @gradient(%b: tensor<1x8x4x?xf32>, %m: tensor<1x8x4xi32>, %v: tensor<1x8x?x64xf32>, %ib: tensor<1x8x4x?xf32>, %iv: tensor<1x8x?x64xf32>)
    -> (tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>) {
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<1x8x4x?xf32>, tensor<1x8x4xi32>, tensor<1x8x?x64xf32>)
      forward(%v : tensor<1x8x?x64xf32>) gradient(%v : tensor<1x8x?x64xf32>) outs(%ib, %iv : tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>)
      -> tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>
  %s:2 = attn.conv_recover_backward ins(%v, %v, %m : tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>, tensor<1x8x4xi32>)
      gradient(%r#0 : tensor<1x8x4x?xf32>) outs(%iv, %iv : tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>)
      -> tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>
  return %r#0, %r#1, %s#0, %s#1 : tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>, tensor<1x8x?x64xf32>
}

func.func @transforms(%b: tensor<1x8x4x?xf32>, %m: tensor<1x8x4xi32>, %v: tensor<1x8x?x64xf32>, %ib: tensor<1x8x4x?xf32>, %iv: tensor<1x8x?x64xf32>)
    -> (tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>) {
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<1x8x4x?xf32>, tensor<1x8x4xi32>, tensor<1x8x?x64xf32>)
      forward(%v : tensor<1x8x?x64xf32>) gradient(%v : tensor<1x8x?x64xf32>) outs(%ib, %iv : tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>)
      {algorithm = #attn.conv_algorithm<partitioned>} -> tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>
  return %r#0, %r#1 : tensor<1x8x4x?xf32>, tensor<1x8x?x64xf32>
}
