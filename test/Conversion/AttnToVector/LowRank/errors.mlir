// RUN: fovea-opt %s --convert-attn-to-vector -split-input-file -verify-diagnostics

func.func @tensors(%x: tensor<1x1x9x8xf32>, %p: tensor<1x1x9xi32>) -> tensor<1x1x9x8xf32> {
  // expected-error @below {{'attn.rope' op expects operands to be memrefs, but got tensors}}
  %0 = attn.rope ins(%x, %p : tensor<1x1x9x8xf32>, tensor<1x1x9xi32>) outs(%x : tensor<1x1x9x8xf32>) -> tensor<1x1x9x8xf32>
  return %0 : tensor<1x1x9x8xf32>
}

// -----

func.func @stride(%u: memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>, %v: memref<1x1x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects unit stride along the width, but got 'memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>'}}
  attn.low_rank ins(%u, %v, %v : memref<1x1x9x8xf32, strided<[144, 144, 16, 2]>>, memref<1x1x9x8xf32>, memref<1x1x9x8xf32>)
      outs(%v : memref<1x1x9x8xf32>) {mask = #attn.row_mask<causal>}
  return
}
