// RUN: fovea-opt %s --convert-attn-to-vector -split-input-file -verify-diagnostics

func.func @tensors(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>) -> tensor<1x1x9xi32> {
  // expected-error @below {{'attn.quantize' op expects operands to be memrefs, but got tensors}}
  %0 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) outs(%z : tensor<1x1x9xi32>) -> tensor<1x1x9xi32>
  return %0 : tensor<1x1x9xi32>
}

// -----

func.func @stride(%k: memref<1x1x9x8xf32>, %c: memref<1x4x8xf32, strided<[64, 16, 2]>>, %z: memref<1x1x9xi32>) {
  // expected-error @below {{'attn.quantize' op expects unit stride along the width, but got 'memref<1x4x8xf32, strided<[64, 16, 2]>>'}}
  attn.quantize ins(%k, %c : memref<1x1x9x8xf32>, memref<1x4x8xf32, strided<[64, 16, 2]>>) outs(%z : memref<1x1x9xi32>)
  return
}
