// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Operands have rank 4 (log_weight and lse 3).
func.func @f(%q: tensor<4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x8x16xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: tensor<2x6xf32>) {
  // expected-error @below {{'attn.dense' op operand #3 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x6xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : tensor<2x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<*xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<*xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<*xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<4x8x16xf32>, %k: tensor<2x6x16xf32>, %v: tensor<2x6x24xf32>, %o: tensor<4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x8x16xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<4x8x16xf32>, tensor<2x6x16xf32>, tensor<2x6x24xf32>) outs(%o : tensor<4x8x24xf32>) -> tensor<4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<8x6xf32>) {
  // expected-error @below {{'attn.dense' op operand #3 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<8x6xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<8x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x4x8x16xf32>) {
  // expected-error @below {{'attn.dense' op operand #4 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x4x8x16xf32>'}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x4x8x16xf32>) -> tensor<1x4x8x24xf32>, tensor<1x4x8x16xf32>
  return
}

// -----

// Data is floating point.
func.func @f(%q: tensor<1x4x8x16xi32>, %k: tensor<1x2x6x16xi32>, %v: tensor<1x2x6x24xi32>, %o: tensor<1x4x8x24xi32>) {
  // expected-error @below {{'attn.dense' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x4x8x16xi32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xi32>, tensor<1x2x6x16xi32>, tensor<1x2x6x24xi32>) outs(%o : tensor<1x4x8x24xi32>) -> tensor<1x4x8x24xi32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf8E4M3FN>, %k: tensor<1x2x6x16xf8E4M3FN>, %v: tensor<1x2x6x24xf8E4M3FN>, %o: tensor<1x4x8x24xf8E4M3FN>) {
  // expected-error @below {{'attn.dense' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x4x8x16xf8E4M3FN>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf8E4M3FN>, tensor<1x2x6x16xf8E4M3FN>, tensor<1x2x6x24xf8E4M3FN>) outs(%o : tensor<1x4x8x24xf8E4M3FN>) -> tensor<1x4x8x24xf8E4M3FN>
  return
}

// -----

// One element type for query, key, value and output.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf16>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects key to have the element type of query, 'f32', but got 'f16'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf16>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf64>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects value to have the element type of query, 'f32', but got 'f64'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf64>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xbf16>) {
  // expected-error @below {{'attn.dense' op expects output to have the element type of query, 'f32', but got 'bf16'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xbf16>) -> tensor<1x4x8x24xbf16>
  return
}

// -----

// Widths are static and positive.
func.func @f(%q: tensor<1x4x8x?xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of query to be static, but got a dynamic extent}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x?xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x?xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of value to be static, but got a dynamic extent}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x?xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x?xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of key to be static, but got a dynamic extent}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x?xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x?xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of output to be static, but got a dynamic extent}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x?xf32>) -> tensor<1x4x8x?xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x0xf32>, %k: tensor<1x2x6x0xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of query to be at least 1, but got 0}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x0xf32>, tensor<1x2x6x0xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x0xf32>, %o: tensor<1x4x8x0xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of value to be at least 1, but got 0}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x0xf32>) outs(%o : tensor<1x4x8x0xf32>) -> tensor<1x4x8x0xf32>
  return
}

// -----

// key and value fit query and each other.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<2x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of key to be 1 (extent 0 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<2x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<3x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of value to be 1 (extent 0 of query), but got 3}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<3x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of key to be 16 (extent 3 of query), but got 8}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x4x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of value to be 2 (extent 1 of key), but got 4}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x4x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x7x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 2 of value to be 6 (extent 2 of key), but got 7}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x7x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

// Heads divide.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x3x6x16xf32>, %v: tensor<1x3x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x3x6x16xf32>, tensor<1x3x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x8x6x16xf32>, %v: tensor<1x8x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 8}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x8x6x16xf32>, tensor<1x8x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x0x6x16xf32>, %v: tensor<1x0x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 0}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x0x6x16xf32>, tensor<1x0x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

// output and lse have the extents of query.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<2x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of output to be 1 (extent 0 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<2x4x8x24xf32>) -> tensor<2x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x2x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of output to be 4 (extent 1 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x2x8x24xf32>) -> tensor<1x2x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x9x24xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 2 of output to be 8 (extent 2 of query), but got 9}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x9x24xf32>) -> tensor<1x4x9x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x16xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of output to be 24 (extent 3 of value), but got 16}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x16xf32>) -> tensor<1x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<2x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of lse to be 1 (extent 0 of query), but got 2}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<2x4x8xf32>) -> tensor<1x4x8x24xf32>, tensor<2x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of lse to be 4 (extent 1 of query), but got 2}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x2x8xf32>) -> tensor<1x4x8x24xf32>, tensor<1x2x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x4x1xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 2 of lse to be 8 (extent 2 of query), but got 1}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x4x1xf32>) -> tensor<1x4x8x24xf32>, tensor<1x4x1xf32>
  return
}

// -----

// lse has the type of soft-max state.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x4x8xf64>) {
  // expected-error @below {{'attn.dense' op expects lse to hold 'f32', but got 'f64'}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x4x8xf64>) -> tensor<1x4x8x24xf32>, tensor<1x4x8xf64>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xbf16>, %k: tensor<1x2x6x16xbf16>, %v: tensor<1x2x6x24xbf16>, %o: tensor<1x4x8x24xbf16>, %l: tensor<1x4x8xbf16>) {
  // expected-error @below {{'attn.dense' op expects lse to hold 'f32', but got 'bf16'}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xbf16>, tensor<1x2x6x16xbf16>, tensor<1x2x6x24xbf16>) outs(%o, %l : tensor<1x4x8x24xbf16>, tensor<1x4x8xbf16>) -> tensor<1x4x8x24xbf16>, tensor<1x4x8xbf16>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf64>, %k: tensor<1x2x6x16xf64>, %v: tensor<1x2x6x24xf64>, %o: tensor<1x4x8x24xf64>, %l: tensor<1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects lse to hold 'f64', but got 'f32'}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf64>, tensor<1x2x6x16xf64>, tensor<1x2x6x24xf64>) outs(%o, %l : tensor<1x4x8x24xf64>, tensor<1x4x8xf32>) -> tensor<1x4x8x24xf64>, tensor<1x4x8xf32>
  return
}

// -----

// log_weight and bias: state type or data type, extents of query and key, or 1.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: tensor<1x2x6xf16>) {
  // expected-error @below {{'attn.dense' op expects log_weight to hold 'f32', but got 'f16'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : tensor<1x2x6xf16>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf16>, %k: tensor<1x2x6x16xf16>, %v: tensor<1x2x6x24xf16>, %o: tensor<1x4x8x24xf16>, %w: tensor<1x2x6xbf16>) {
  // expected-error @below {{'attn.dense' op expects log_weight to hold 'f16' or f32, but got 'bf16'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf16>, tensor<1x2x6x16xf16>, tensor<1x2x6x24xf16>) log_weight(%w : tensor<1x2x6xbf16>) outs(%o : tensor<1x4x8x24xf16>) -> tensor<1x4x8x24xf16>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf64>, %k: tensor<1x2x6x16xf64>, %v: tensor<1x2x6x24xf64>, %o: tensor<1x4x8x24xf64>, %w: tensor<1x2x6xf32>) {
  // expected-error @below {{'attn.dense' op expects log_weight to hold 'f64', but got 'f32'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf64>, tensor<1x2x6x16xf64>, tensor<1x2x6x24xf64>) log_weight(%w : tensor<1x2x6xf32>) outs(%o : tensor<1x4x8x24xf64>) -> tensor<1x4x8x24xf64>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: tensor<2x2x6xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of log_weight to be 1 (extent 0 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : tensor<2x2x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: tensor<1x4x6xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of log_weight to be 2 or 1 (extent 1 of key), but got 4}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : tensor<1x4x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 2 of log_weight to be 6 or 1 (extent 2 of key), but got 8}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : tensor<1x2x8xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<1x4x8x6xf64>) {
  // expected-error @below {{'attn.dense' op expects bias to hold 'f32', but got 'f64'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<1x4x8x6xf64>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<2x4x8x6xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of bias to be 1 (extent 0 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<2x4x8x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<1x2x8x6xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of bias to be 4 or 1 (extent 1 of query), but got 2}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<1x2x8x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<1x4x6x6xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 2 of bias to be 8 or 1 (extent 2 of query), but got 6}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<1x4x6x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %b: tensor<1x4x8x8xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 3 of bias to be 6 or 1 (extent 2 of key), but got 8}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) bias(%b : tensor<1x4x8x8xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

// The scale is finite, a 64-bit float.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {scale = 0x7FF8000000000000 : f64} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {scale = 0xFFF0000000000000 : f64} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{custom op 'attn.dense' 'attn.dense' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {scale = 0.5 : f32} -> tensor<1x4x8x24xf32>
  return
}

// -----

// All tensors or all memrefs.
func.func @f(%q: memref<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.dense ins(%q, %k, %v : memref<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: memref<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects all operands to be tensors or all to be memrefs, but got both}}
  attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : memref<1x4x8x24xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %w: memref<1x2x6xf32>) {
  // expected-error @below {{'attn.dense' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) log_weight(%w : memref<1x2x6xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: memref<1x4x8x24xf32>, %l: tensor<1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : memref<1x4x8x24xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>
  return
}

// -----

// One result for each tensor in outs, of its type.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects one result for each tensor in outs, that is 1, but got 2}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>, tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects one result for each tensor in outs, that is 1, but got 0}}
  attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>)
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects one result for each tensor in outs, that is 2, but got 1}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: memref<1x4x8x16xf32>, %k: memref<1x2x6x16xf32>, %v: memref<1x2x6x24xf32>, %o: memref<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects one result for each tensor in outs, that is 0, but got 1}}
  %0 = attn.dense ins(%q, %k, %v : memref<1x4x8x16xf32>, memref<1x2x6x16xf32>, memref<1x2x6x24xf32>) outs(%o : memref<1x4x8x24xf32>) -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{'attn.dense' op expects the result type to be that of its destination, 'tensor<1x4x8x24xf32>', but got 'tensor<1x4x8x?xf32>'}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) -> tensor<1x4x8x?xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>, %l: tensor<1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects the result type to be that of its destination, 'tensor<1x4x8x24xf32>', but got 'tensor<1x4x8xf32>'}}
  %0:2 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o, %l : tensor<1x4x8x24xf32>, tensor<1x4x8xf32>) -> tensor<1x4x8xf32>, tensor<1x4x8x24xf32>
  return
}

// -----

// Masks: a window is positive.
func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{expected a window of at least 1, but got 0}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<window = 0>} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{expected a window of at least 1, but got -3}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<causal, window = -3>} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{integer value too large}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<window = 99999999999999999999>} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{expected window, prefix or stride of a mask}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<>} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{expected window, prefix or stride of a mask}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<causal, width = 3>} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{unbalanced '<' character in pretty dialect name}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = #attn.mask<causal} -> tensor<1x4x8x24xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %v: tensor<1x2x6x24xf32>, %o: tensor<1x4x8x24xf32>) {
  // expected-error @below {{custom op 'attn.dense' 'attn.dense' op attribute 'mask' failed to satisfy constraint: mask of the keys that a query may attend to, by position}}
  %0 = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x24xf32>) outs(%o : tensor<1x4x8x24xf32>) {mask = "causal"} -> tensor<1x4x8x24xf32>
  return
}

// -----

// Generic form with segments that do not fit the operands.
func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op operand count (4) does not match with the total size (5) specified in attribute 'operandSegmentSizes'}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op 'operandSegmentSizes' attribute cannot have negative elements}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, -1, 2>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{invalid properties {operandSegmentSizes = array<i32: 1, 1, 1, 1>} for op attn.dense: size mismatch in attribute conversion: 4 vs 11}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects one operand in segment 9 of operandSegmentSizes, but got 2}}
  %0 = "attn.dense"(%q, %q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 2, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op operand #3 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x1x4x8xf32>'}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.dense' op expects one operand in segment 0 of operandSegmentSizes, but got 0}}
  %0 = "attn.dense"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f() {
  // expected-error @below {{'attn.dense' op expected 4 or more operands, but found 0}}
  "attn.dense"() : () -> ()
  return
}

// -----

// A sink is a number for each head.
func.func @f(%q: tensor<2x4x8x16xf32>, %k: tensor<2x2x6x16xf32>, %s: tensor<2x3xf32>) {
  // expected-error @below {{'attn.dense' op expects extent 1 of sink to be 4 or 1 (extent 1 of query), but got 3}}
  %0 = attn.dense ins(%q, %k, %k : tensor<2x4x8x16xf32>, tensor<2x2x6x16xf32>, tensor<2x2x6x16xf32>) sink(%s : tensor<2x3xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %k: tensor<2x2x6x16xf32>, %s: tensor<1x4xf64>) {
  // expected-error @below {{'attn.dense' op expects sink to hold 'f32', but got 'f64'}}
  %0 = attn.dense ins(%q, %k, %k : tensor<2x4x8x16xf32>, tensor<2x2x6x16xf32>, tensor<2x2x6x16xf32>) sink(%s : tensor<1x4xf64>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %s: tensor<4xf32>) {
  // expected-error @below {{'attn.dense' op operand #3 must be rank-2 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4xf32>'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) sink(%s : tensor<4xf32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %n: tensor<3xi32>) {
  // expected-error @below {{'attn.dense' op expects extent 0 of query_lengths to be 2 (extent 0 of query), but got 3}}
  %0 = attn.dense ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) query_lengths(%n : tensor<3xi32>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x8x16xf32>, %n: tensor<2xi64>) {
  // expected-error @below {{'attn.dense' op operand #3 must be rank-1 tensor or memref of i32, but got 'tensor<2xi64>'}}
  %0 = attn.dense ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) lengths(%n : tensor<2xi64>) outs(%q : tensor<2x4x8x16xf32>) -> tensor<2x4x8x16xf32>
  return
}
