// RUN: fovea-opt %s --convert-attn-to-vector -split-input-file -verify-diagnostics

func.func @tensors(%n: tensor<4xi32>, %w: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @below {{'attn.log_count' op expects operands to be memrefs, but got tensors}}
  %0 = attn.log_count ins(%n : tensor<4xi32>) outs(%w : tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @stride(%z: memref<1x1x9xi32>, %v: memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>, %m: memref<1x1x4x8xf32>, %n: memref<1x1x4xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects unit stride along the width, but got 'memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>'}}
  attn.codebook_accumulate ins(%z, %v : memref<1x1x9xi32>, memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>) outs(%m, %n : memref<1x1x4x8xf32>, memref<1x1x4xi32>)
  return
}
