// RUN: fovea-opt %s --convert-attn-to-vector -split-input-file -verify-diagnostics

func.func @tensors(%x: tensor<1x2x64x16xf32>, %w: tensor<1x4x16x16xf32>,
                   %o: tensor<1x2x16x16xf32>) -> tensor<1x2x16x16xf32> {
  // expected-error @below {{'attn.summarize' op expects operands to be memrefs, but got tensors}}
  %s = attn.summarize ins(%x : tensor<1x2x64x16xf32>) weights(%w : tensor<1x4x16x16xf32>)
      outs(%o : tensor<1x2x16x16xf32>) -> tensor<1x2x16x16xf32>
  return %s : tensor<1x2x16x16xf32>
}

// -----

func.func @stride(%x: memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>,
                  %w: memref<1x4x16x16xf32>, %o: memref<1x2x16x16xf32>) {
  // expected-error @below {{'attn.summarize' op expects unit stride along the width, but got 'memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>'}}
  attn.summarize ins(%x : memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>)
      weights(%w : memref<1x4x16x16xf32>) outs(%o : memref<1x2x16x16xf32>)
  return
}

// -----

func.func @stride(%x: memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>, %w: memref<1x4x16x16xf32>, %g: memref<1x2x16x16xf32>,
                  %dx: memref<1x2x64x16xf32>, %dw: memref<1x4x16x16xf32>) {
  // expected-error @below {{'attn.summarize_backward' op expects unit stride along the width, but got 'memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>'}}
  attn.summarize_backward ins(%x : memref<1x2x64x16xf32, strided<[4096, 2048, 32, 2]>>) weights(%w : memref<1x4x16x16xf32>)
      gradient(%g : memref<1x2x16x16xf32>) outs(%dx, %dw : memref<1x2x64x16xf32>, memref<1x4x16x16xf32>)
  return
}
