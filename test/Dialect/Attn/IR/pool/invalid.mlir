// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<1x1x8x4xf32>, %g: tensor<1x1x9x4xf32>, %o: tensor<1x1x2x4xf32>) {
  // expected-error @below {{expects extent 2 of gate to be 8 (extent 2 of input), but got 9}}
  %0 = attn.pool ins(%x, %g : tensor<1x1x8x4xf32>, tensor<1x1x9x4xf32>) outs(%o : tensor<1x1x2x4xf32>) {interval = 4 : i64} -> tensor<1x1x2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x1x8x4xf32>, %p: tensor<3x4xf32>, %o: tensor<1x1x2x4xf32>) {
  // expected-error @below {{expects extent 0 of position_bias to be 4}}
  %0 = attn.pool ins(%x, %x : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>) position_bias(%p : tensor<3x4xf32>) outs(%o : tensor<1x1x2x4xf32>) {interval = 4 : i64} -> tensor<1x1x2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x1x8x4xf32>, %o: tensor<1x1x2x4xf32>) {
  // expected-error @below {{attribute 'interval' failed to satisfy constraint: 64-bit signless integer attribute whose minimum value is 1}}
  %0 = attn.pool ins(%x, %x : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>) outs(%o : tensor<1x1x2x4xf32>) {interval = 0 : i64} -> tensor<1x1x2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x1x8x4xf32>, %o: tensor<1x1x2x4xf32>, %p: tensor<4x4xf32>) {
  // expected-error @below {{d_position_bias}}
  %0:3 = attn.pool_backward ins(%x, %x, %o : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<1x1x2x4xf32>) outs(%x, %x, %p : tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<4x4xf32>) {interval = 4 : i64} -> tensor<1x1x8x4xf32>, tensor<1x1x8x4xf32>, tensor<4x4xf32>
  return
}

// -----

func.func @f(%s: tensor<1x2x8x4xf32>, %i: tensor<1x1x8x2xi32>) {
  // expected-error @below {{expects extent 1 of indices to be 2 (extent 1 of scores), but got 1}}
  %0 = attn.top_k ins(%s : tensor<1x2x8x4xf32>) outs(%i : tensor<1x1x8x2xi32>) -> tensor<1x1x8x2xi32>
  return
}
