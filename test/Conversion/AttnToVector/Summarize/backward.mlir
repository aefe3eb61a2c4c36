// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector | FileCheck %s

// Two levels of one input, in one parallel loop: chunks of 16 rows, tiles of 4
// rows by 4 strips and of 4 rows by 4 sums.
// CHECK-LABEL: func @levels(
// CHECK-NOT: attn.summarize_backward
// CHECK-COUNT-1: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 2, 1)
// Rows of two chunks; gradients of 8 sums and 4 strips; weights of 8 sums and 4
// rows.
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<2x4x4x128x16xf32>
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<4x8x32x16xf32>
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<4x4x32x16xf32>
// CHECK-COUNT-16: vector.fma
// CHECK-NOT: scf.forall
// CHECK: return
func.func @levels(%x: memref<1x2x256x64xf32>, %w1: memref<1x4x32x64xf32>, %w2: memref<1x4x64x64xf32>,
                  %g1: memref<1x2x32x64xf32>, %g2: memref<1x2x16x64xf32>) {
  %dx = memref.alloc() : memref<1x2x256x64xf32>
  %dw1 = memref.alloc() : memref<1x4x32x64xf32>
  %dw2 = memref.alloc() : memref<1x4x64x64xf32>
  attn.summarize_backward ins(%x : memref<1x2x256x64xf32>) weights(%w1 : memref<1x4x32x64xf32>) gradient(%g1 : memref<1x2x32x64xf32>)
      outs(%dx, %dw1 : memref<1x2x256x64xf32>, memref<1x4x32x64xf32>)
  attn.summarize_backward ins(%x : memref<1x2x256x64xf32>) weights(%w2 : memref<1x4x64x64xf32>) gradient(%g2 : memref<1x2x16x64xf32>)
      outs(%dx, %dw2 : memref<1x2x256x64xf32>, memref<1x4x64x64xf32>)
  return
}
