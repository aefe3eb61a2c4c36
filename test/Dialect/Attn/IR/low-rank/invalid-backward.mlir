// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @f(%u1: tensor<2x4x9x5xi32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xi32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x4x9x5xi32>'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xi32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xi32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xi32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xbf16>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xbf16>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects u2 to have the element type of u1, 'f32', but got 'bf16'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xbf16>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xbf16>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xbf16>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf64>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf64>) {
  // expected-error @below {{'attn.low_rank_backward' op expects value to have the element type of u1, 'f32', but got 'f64'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf64>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf64>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf64>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf16>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects output to have the element type of u1, 'f32', but got 'f16'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf16>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x?xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x?xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 3 of u1 to be static, but got a dynamic extent}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x?xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x?xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x?xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x6xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x6xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 3 of u2 to be 5 (extent 3 of u1), but got 6}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x6xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x6xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x6xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x6x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x6x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 2 of value to be 7 (extent 2 of u2), but got 6}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x6x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x6x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x6x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x3x7x5xf32>, %v: tensor<2x3x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x3x7x5xf32>, %dv: tensor<2x3x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 1 of u1 to be a multiple of extent 1 of u2, but got 4 and 3}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x3x7x5xf32>, tensor<2x3x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x3x7x5xf32>, tensor<2x3x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x3x7x5xf32>, tensor<2x3x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x8x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 2 of output to be 9 (extent 2 of u1), but got 8}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x8x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x7xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 3 of output to be 8 (extent 3 of value), but got 7}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x7xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects 2 parts of mask row_interval, but got 0}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>, %m0: tensor<1x1x7xi32>, %m1: tensor<1x1x9xi32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects extent 2 of first to be 9 (extent 2 of u1), but got 7}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x7xi32>, tensor<1x1x9xi32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x7x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects d_output to have the shape of output: extent 2 to be 9, but got 7}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x7x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf64>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects d_output not to hold f64, since u1 holds 'f32', but got 'f64'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf64>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x6xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects d_u1 to have the shape of u1: extent 3 to be 5, but got 6}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x6xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x6xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x4x7x5xf32>, %dv: tensor<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects d_u2 to have the shape of u2: extent 1 to be 2, but got 4}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x4x7x5xf32>, tensor<2x2x7x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x4x7x5xf32>, tensor<2x2x7x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %d: tensor<2x4x9x8xf32>, %du1: tensor<2x4x9x5xf32>, %du2: tensor<2x2x7x5xf32>, %dv: tensor<2x2x7x8xbf16>) {
  // expected-error @below {{'attn.low_rank_backward' op expects d_value to hold 'f32', but got 'bf16'}}
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>)
      forward(%o : tensor<2x4x9x8xf32>) gradient(%d : tensor<2x4x9x8xf32>) outs(%du1, %du2, %dv : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xbf16>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xbf16>
  return
}

// -----

func.func @f(%u1: memref<2x4x9x5xf32>, %u2: memref<2x2x7x5xf32>, %v: memref<2x2x7x8xf32>, %o: memref<2x4x9x8xf32>, %d: memref<2x4x9x8xf32>, %du1: memref<2x4x9x5xf32>, %du2: memref<2x2x7x5xf32>, %dv: memref<2x2x7x8xf32>) {
  // expected-error @below {{'attn.low_rank_backward' op expects buffers of gradients to be apart from all others, but operands 1 and 6 are one}}
  attn.low_rank_backward ins(%u1, %u2, %v : memref<2x4x9x5xf32>, memref<2x2x7x5xf32>, memref<2x2x7x8xf32>)
      forward(%o : memref<2x4x9x8xf32>) gradient(%d : memref<2x4x9x8xf32>) outs(%du1, %u2, %dv : memref<2x4x9x5xf32>, memref<2x2x7x5xf32>, memref<2x2x7x8xf32>) {mask = #attn.row_mask<causal>}
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x9x10xf32>, %o: tensor<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects a degree from 0 to 16, but got 17}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x9x10xf32>) outs(%o : tensor<2x4x9x3xf32>) {degree = 17 : i64, scale = 1.0 : f64} -> tensor<2x4x9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x9x10xf32>, %o: tensor<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects a finite scale of at least 0, but got -1.000000e+00}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x9x10xf32>) outs(%o : tensor<2x4x9x3xf32>) {degree = 2 : i64, scale = -1.0 : f64} -> tensor<2x4x9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x9x10xf16>, %o: tensor<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects d_output to have the element type of input, 'f32', but got 'f16'}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x9x10xf16>) outs(%o : tensor<2x4x9x3xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x7x10xf32>, %o: tensor<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects extent 2 of d_output to be 9 (extent 2 of input), but got 7}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x7x10xf32>) outs(%o : tensor<2x4x9x3xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x9x9xf32>, %o: tensor<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects extent 3 of d_output to be 10 (monomials of the columns up to the degree), but got 9}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x9x9xf32>) outs(%o : tensor<2x4x9x3xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x3xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x512xf32>, %d: tensor<2x4x9x10xf32>, %o: tensor<2x4x9x512xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects at most 2^31 - 1 features, but degree 9 of 512 columns has more}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x512xf32>) gradient(%d : tensor<2x4x9x10xf32>) outs(%o : tensor<2x4x9x512xf32>) {degree = 9 : i64, scale = 1.0 : f64} -> tensor<2x4x9x512xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %d: tensor<2x4x9x10xf32>, %o: tensor<2x4x9x4xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects d_input to have the shape of input: extent 3 to be 3, but got 4}}
  %0 = attn.polynomial_features_backward ins(%x : tensor<2x4x9x3xf32>) gradient(%d : tensor<2x4x9x10xf32>) outs(%o : tensor<2x4x9x4xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x4xf32>
  return
}

// -----

func.func @f(%x: memref<2x4x9x3xf32>, %d: memref<2x4x9x10xf32>, %o: memref<2x4x9x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 2 are one}}
  attn.polynomial_features_backward ins(%x : memref<2x4x9x3xf32>) gradient(%d : memref<2x4x9x10xf32>) outs(%x : memref<2x4x9x3xf32>) {degree = 2 : i64, scale = 1.0 : f64}
  return
}
