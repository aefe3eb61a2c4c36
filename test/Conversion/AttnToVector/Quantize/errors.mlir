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

// -----

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

// -----

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
