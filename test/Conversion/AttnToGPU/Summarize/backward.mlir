// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

// A thread for each number of the input, the weights and the bias, which adds to
// what is there.
// CHECK-LABEL: func.func @gradient
// CHECK: scf.parallel ({{.*}}) = ({{.*}}) to (%c4, %c10, %c3)
// CHECK: memref.store {{.*}} : memref<1x4x10x3xf32>
// CHECK: scf.parallel ({{.*}}) = ({{.*}}) to (%c2, %c2, %c4, %c3)
// CHECK: memref.store {{.*}} : memref<2x2x4x3xf32>
// CHECK: scf.parallel ({{.*}}) = ({{.*}}) to (%c2, %c2, %c3)
// CHECK: memref.store {{.*}} : memref<2x2x3xf32>
func.func @gradient(%x: memref<1x4x10x3xbf16>, %w: memref<2x2x4x3xbf16>, %d: memref<1x4x6x3xf32>,
                    %dx: memref<1x4x10x3xf32>, %dw: memref<2x2x4x3xf32>, %db: memref<2x2x3xf32>) {
  attn.summarize_backward ins(%x : memref<1x4x10x3xbf16>) weights(%w : memref<2x2x4x3xbf16>) gradient(%d : memref<1x4x6x3xf32>)
      outs(%dx, %dw, %db : memref<1x4x10x3xf32>, memref<2x2x4x3xf32>, memref<2x2x3xf32>)
  return
}

// -----

func.func @f64(%x: memref<1x4x10x3xf64>, %w: memref<2x2x4x3xf64>, %d: memref<1x4x6x3xf64>, %dx: memref<1x4x10x3xf64>, %dw: memref<2x2x4x3xf64>) {
  // expected-error@+1 {{'attn.summarize_backward' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.summarize_backward ins(%x : memref<1x4x10x3xf64>) weights(%w : memref<2x2x4x3xf64>) gradient(%d : memref<1x4x6x3xf64>)
      outs(%dx, %dw : memref<1x4x10x3xf64>, memref<2x2x4x3xf64>)
  return
}
