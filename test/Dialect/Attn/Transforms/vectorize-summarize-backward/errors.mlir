// RUN: fovea-opt %s --convert-attn-to-vector --verify-diagnostics

func.func @stride(%x: memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>, %w: memref<1x4x16x16xf32>, %g: memref<1x2x16x16xf32>,
                  %dx: memref<1x2x64x16xf32>, %dw: memref<1x4x16x16xf32>) {
  // expected-error @below {{'attn.summarize_backward' op expects unit stride along the width, but got 'memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>'}}
  attn.summarize_backward ins(%x : memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>) weights(%w : memref<1x4x16x16xf32>)
      gradient(%g : memref<1x2x16x16xf32>) outs(%dx, %dw : memref<1x2x64x16xf32>, memref<1x4x16x16xf32>)
  return
}
