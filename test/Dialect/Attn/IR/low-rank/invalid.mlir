// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @f(%x: tensor<4x9x6xf32>, %p: tensor<1x1x9xi32>, %o: tensor<4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x9x6xf32>'}}
  %0 = attn.rope ins(%x, %p : tensor<4x9x6xf32>, tensor<1x1x9xi32>) outs(%o : tensor<4x9x6xf32>) -> tensor<4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xf32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op operand #1 must be rank-3 tensor or memref of i32, but got 'tensor<2x1x9xf32>'}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xf32>) outs(%o : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x7xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x7xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 3 of input to be a multiple of 2, but got 7}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x7xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x7xf32>) -> tensor<2x4x9x7xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x0xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x0xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 3 of input to be at least 1, but got 0}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x0xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x0xf32>) -> tensor<2x4x9x0xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x?xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x?xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 3 of input to be static, but got a dynamic extent}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x?xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x?xf32>) -> tensor<2x4x9x?xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<3x1x9xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 0 of positions to be 2 or 1 (extent 0 of input), but got 3}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<3x1x9xi32>) outs(%o : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x2x9xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 1 of positions to be 4 or 1 (extent 1 of input), but got 2}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x2x9xi32>) outs(%o : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x4x8xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 2 of positions to be 9 or 1 (extent 2 of input), but got 8}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x4x8xi32>) outs(%o : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x6xf64>) {
  // expected-error @below {{'attn.rope' op expects output to have the element type of input, 'f32', but got 'f64'}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x6xf64>) -> tensor<2x4x9x6xf64>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x8x6xf32>) {
  // expected-error @below {{'attn.rope' op expects extent 2 of positions to be 8 or 1 (extent 2 of output), but got 9}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x8x6xf32>) -> tensor<2x4x8x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects a finite base above 0, but got 0}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x6xf32>) {base = 0.0 : f64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects a finite base above 0, but got}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x6xf32>) {base = 0x7FF8000000000000 : f64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>, %o: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope' op expects a finite base above 0, but got}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%o : tensor<2x4x9x6xf32>) {base = 0x7FF0000000000000 : f64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects a degree from 0 to 16, but got -1}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = -1 : i64, scale = 1.0 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects a degree from 0 to 16, but got 17}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = 17 : i64, scale = 1.0 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects a finite scale of at least 0, but got}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = 2 : i64, scale = -0.5 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects a finite scale of at least 0, but got}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = 2 : i64, scale = 0x7FF8000000000000 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x?xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects extent 3 of input to be static, but got a dynamic extent}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x?xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x10xf16>) {
  // expected-error @below {{'attn.polynomial_features' op expects output to have the element type of input, 'f32', but got 'f16'}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x10xf16>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x10xf16>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x7x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects extent 2 of output to be 9 (extent 2 of input), but got 7}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x7x10xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x7x10xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x3xf32>, %o: tensor<2x4x9x9xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects extent 3 of output to be 10 (monomials of the columns up to the degree), but got 9}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x3xf32>) outs(%o : tensor<2x4x9x9xf32>) {degree = 2 : i64, scale = 1.0 : f64} -> tensor<2x4x9x9xf32>
  return
}

// -----

func.func @f(%x: tensor<1x1x1x9223372036854775807xf32>, %o: tensor<1x1x1x4xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects at most 2^31 - 1 features, but degree 1 of 9223372036854775807 columns has more}}
  %0 = attn.polynomial_features ins(%x : tensor<1x1x1x9223372036854775807xf32>) outs(%o : tensor<1x1x1x4xf32>) {degree = 1 : i64, scale = 1.0 : f64} -> tensor<1x1x1x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4x9x512xf32>, %o: tensor<2x4x9x10xf32>) {
  // expected-error @below {{'attn.polynomial_features' op expects at most 2^31 - 1 features, but degree 9 of 512 columns has more}}
  %0 = attn.polynomial_features ins(%x : tensor<2x4x9x512xf32>) outs(%o : tensor<2x4x9x10xf32>) {degree = 9 : i64, scale = 1.0 : f64} -> tensor<2x4x9x10xf32>
  return
}

// -----

func.func @f(%u1: tensor<4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x9x5xf32>'}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xbf16>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects u2 to have the element type of u1, 'f32', but got 'bf16'}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xbf16>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf64>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects value to have the element type of u1, 'f32', but got 'f64'}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf64>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf16>) {
  // expected-error @below {{'attn.low_rank' op expects output to have the element type of u1, 'f32', but got 'f16'}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf16>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf16>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x?xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of u1 to be static, but got a dynamic extent}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x?xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x0xf32>, %u2: tensor<2x2x7x0xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of u1 to be at least 1, but got 0}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x0xf32>, tensor<2x2x7x0xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x?xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of value to be static, but got a dynamic extent}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x?xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<1x2x7x5xf32>, %v: tensor<1x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 0 of u2 to be 2 (extent 0 of u1), but got 1}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x6xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of u2 to be 5 (extent 3 of u1), but got 6}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x6xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x6x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of value to be 7 (extent 2 of u2), but got 6}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x6x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x3x7x5xf32>, %v: tensor<2x3x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 1 of u1 to be a multiple of extent 1 of u2, but got 4 and 3}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x3x7x5xf32>, tensor<2x3x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x8x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of output to be 9 (extent 2 of u1), but got 8}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x8x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x8x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x7xf32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of output to be 8 (extent 3 of value), but got 7}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x7xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x7xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>) {
  // expected-error @below {{'attn.low_rank' op expects 0 parts of mask causal, but got 1}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0 : tensor<1x1x9xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects 2 parts of mask row_interval, but got 0}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<1x1x1x9xi1>) {
  // expected-error @below {{'attn.low_rank' op expects last to have rank 3, but got 4}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<1x1x1x9xi1>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x3x9xi32>, %m1: tensor<1x1x9xi32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 1 of first to be 4 or 1 (extent 1 of u1), but got 3}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x3x9xi32>, tensor<1x1x9xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x7xi32>, %m1: tensor<1x1x9xi32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of first to be 9 (extent 2 of u1), but got 7}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x7xi32>, tensor<1x1x9xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<1x1x7xi32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of last to be 9 (extent 2 of u1), but got 7}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<1x1x7xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x10xi32>, %m1: tensor<1x1x20xi32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of ends to be 9 (extent 2 of u1), but got 10}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x10xi32>, tensor<1x1x20xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_change>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<3x1x20xi32>) {
  // expected-error @below {{'attn.low_rank' op expects extent 0 of columns to be 2 or 1 (extent 0 of u1), but got 3}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<3x1x20xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<row_change>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<1x1x9xi32>) {
  // expected-error @below {{'attn.low_rank' op expects rows to have rank 4, but got 3}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<1x1x9xi32>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x7xi32>, %m1: tensor<1x1x3x7xi1>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of group to be 9 (extent 2 of u1), but got 7}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x7xi32>, tensor<1x1x3x7xi1>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<1x1x3x9xi1>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of rows to be 7 (extent 2 of u2), but got 9}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<1x1x3x9xi1>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x9xi32>, %m1: tensor<1x1x3x9xi1>) {
  // expected-error @below {{'attn.low_rank' op expects extent 2 of group to be 7 (extent 2 of u2), but got 9}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x9xi32>, tensor<1x1x3x9xi1>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%u1: tensor<2x4x9x5xf32>, %u2: tensor<2x2x7x5xf32>, %v: tensor<2x2x7x8xf32>, %o: tensor<2x4x9x8xf32>, %m0: tensor<1x1x7xi32>, %m1: tensor<1x1x3x7xi1>) {
  // expected-error @below {{'attn.low_rank' op expects extent 3 of columns to be 9 (extent 2 of u1), but got 7}}
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<2x4x9x5xf32>, tensor<2x2x7x5xf32>, tensor<2x2x7x8xf32>) mask(%m0, %m1 : tensor<1x1x7xi32>, tensor<1x1x3x7xi1>) outs(%o : tensor<2x4x9x8xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%a: tensor<1x1x9xi32>, %b: tensor<1x1x8xi32>, %n: index) {
  // expected-error @below {{'attn.check_intervals' op failed to verify that all of {first, last} have same shape}}
  attn.check_intervals %a, %b below %n {name = "x"} : tensor<1x1x9xi32>, tensor<1x1x8xi32>
  return
}

// -----

func.func @f(%u: memref<1x1x9x5xf32>, %v: tensor<1x1x9x8xf32>) {
  // expected-error @below {{'attn.low_rank' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.low_rank ins(%u, %u, %v : memref<1x1x9x5xf32>, memref<1x1x9x5xf32>, tensor<1x1x9x8xf32>) outs(%v : tensor<1x1x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x1x9x8xf32>
  return
}

// -----

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

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %d: memref<1x1x16x4xf32>, %dq: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.polynomial_features_backward ins(%q : memref<1x1x16x3xi32>) gradient(%d : memref<1x1x16x4xf32>) outs(%dq : memref<1x1x16x3xf32>) {degree = 1 : i64, scale = 1.0 : f64}
  return
}

// -----

func.func @rope_odd_width(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects an even width from 2 to 6, but got 3}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {width = 3 : i64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_no_width(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects an even width from 2 to 6, but got 0}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {width = 0 : i64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_wide(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects an even width from 2 to 6, but got 8}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {width = 8 : i64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_table(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects 2 frequencies (half of width 4), but got 3}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {width = 4 : i64, frequencies = array<f64: 1.0, 0.5, 0.25>} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_negative(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects finite frequencies of at least 0, but got -5.000000e-01 at 1}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {frequencies = array<f64: 1.0, -0.5, 0.25>} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_infinite(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects finite frequencies of at least 0, but got INF at 2}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {frequencies = array<f64: 1.0, 0.5, 0x7FF0000000000000>} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_base_and_table(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects no base beside frequencies, but got 5.000000e+02}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {base = 500.0 : f64, frequencies = array<f64: 1.0, 0.5, 0.25>} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @rope_magnitude(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) {
  // expected-error @below {{'attn.rope' op expects a finite magnitude above 0, but got 0.000000e+00}}
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {magnitude = 0.0 : f64} -> tensor<2x4x9x6xf32>
  return
}
