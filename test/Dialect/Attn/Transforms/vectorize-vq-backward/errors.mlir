// RUN: fovea-opt %s --convert-attn-to-vector -split-input-file -verify-diagnostics

func.func @tensors(%q: tensor<1x1x7x8xf32>, %z: tensor<1x1x7xi32>, %c: tensor<1x5x8xf32>) -> tensor<1x1x7x8xf32> {
  // expected-error @below {{'attn.vq_backward' op expects operands to be memrefs, but got tensors}}
  %0:3 = attn.vq_backward ins(%q, %z, %q, %c : tensor<1x1x7x8xf32>, tensor<1x1x7xi32>, tensor<1x1x7x8xf32>, tensor<1x5x8xf32>)
      gradient(%q : tensor<1x1x7x8xf32>) outs(%q, %q, %q : tensor<1x1x7x8xf32>, tensor<1x1x7x8xf32>, tensor<1x1x7x8xf32>)
      {block = 4 : i64, weighting = #attn.weighting<squared_relu>} -> tensor<1x1x7x8xf32>, tensor<1x1x7x8xf32>, tensor<1x1x7x8xf32>
  return %0#0 : tensor<1x1x7x8xf32>
}

// -----

func.func @stride(%q: memref<1x1x7x8xf32, strided<[112, 112, 16, 2]>>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>,
                  %dv0: memref<1x1x7x8xf32>, %dq0: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>, %dv: memref<1x1x7x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects unit stride along the width, but got 'memref<1x1x7x8xf32, strided<[112, 112, 16, 2]>>'}}
  attn.vq_backward ins(%q, %z, %dv0, %c : memref<1x1x7x8xf32, strided<[112, 112, 16, 2]>>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      gradient(%dv0 : memref<1x1x7x8xf32>) outs(%dq0, %dk, %dv : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  return
}
