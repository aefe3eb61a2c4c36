// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// attn.quantize: ranks and types.
func.func @f(%k: tensor<4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x9x8xf32>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op operand #1 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<5x8xf32>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xi8>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op operand #1 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x5x8xi8>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xi8>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op operand #2 must be rank-3 tensor or memref of i32, but got 'tensor<4x9xi32>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi64>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op operand #2 must be rank-3 tensor or memref of i32, but got 'tensor<2x4x9xi64>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi64>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi64>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9xf32>) {
  // expected-error @below {{'attn.quantize' op operand #3 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x4x9xf32>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf16>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects codebook to hold 'f32', but got 'f16'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf16>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf64>) {
  // expected-error @below {{'attn.quantize' op expects quantized to have the element type of key, 'f32', but got 'f64'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf64>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf64>
  return
}

// -----

// Extents.
func.func @f(%k: tensor<2x4x9x?xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 3 of key to be static, but got a dynamic extent}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x?xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x0xf32>, %c: tensor<4x5x0xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x0xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 3 of key to be at least 1, but got 0}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x0xf32>, tensor<4x5x0xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x0xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x0xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x?xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 2 of codebook to be static, but got a dynamic extent}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x?xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x?xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 3 of quantized to be static, but got a dynamic extent}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x?xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x?xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<2x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 0 of codebook to be 4 or 1 (extent 1 of key), but got 2}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<2x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x16xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 2 of codebook to be 8 (extent 3 of key), but got 16}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x16xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x?x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 1 of codebook to be static, but got a dynamic extent}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x?x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x0x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 1 of codebook to be at least 1, but got 0}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x0x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x2147483648x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects from 1 to 2^31 - 1 codewords, but got 2147483648}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x2147483648x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<3x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 0 of codes to be 2 (extent 0 of key), but got 3}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<3x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<3x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x3x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 0 of codebook to be 3 or 1 (extent 1 of codes), but got 4}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x3x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x3x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x8xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 2 of codes to be 9 (extent 2 of key), but got 8}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x8xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x8xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<3x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 0 of quantized to be 2 (extent 0 of key), but got 3}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<3x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<3x4x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x3x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 0 of codebook to be 3 or 1 (extent 1 of quantized), but got 4}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x3x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x3x9x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x8x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 2 of quantized to be 9 (extent 2 of key), but got 8}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x8x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x8x8xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x7xf32>) {
  // expected-error @below {{'attn.quantize' op expects extent 3 of quantized to be 8 (extent 3 of key), but got 7}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x7xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x7xf32>
  return
}

// -----

// Destination style.
func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects one result for each tensor in outs, that is 2, but got 1}}
  %r = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects the result type to be that of its destination, 'tensor<2x4x9xi32>', but got 'tensor<2x4x?xi32>'}}
  %r:2 = attn.quantize ins(%k, %c : tensor<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x?xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

func.func @f(%k: memref<2x4x9x8xf32>, %c: tensor<4x5x8xf32>, %z: tensor<2x4x9xi32>, %o: tensor<2x4x9x8xf32>) {
  // expected-error @below {{'attn.quantize' op expects all operands to be tensors or all to be memrefs, but got both}}
  %r:2 = attn.quantize ins(%k, %c : memref<2x4x9x8xf32>, tensor<4x5x8xf32>)
      outs(%z, %o : tensor<2x4x9xi32>, tensor<2x4x9x8xf32>) -> tensor<2x4x9xi32>, tensor<2x4x9x8xf32>
  return
}

// -----

// attn.codebook_accumulate: ranks and types.
func.func @f(%z: tensor<2x4x9xf32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op operand #0 must be rank-3 tensor or memref of i32, but got 'tensor<2x4x9xf32>'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xf32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xi32>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op operand #1 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x4x9x8xi32>'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xi32>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op operand #2 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x5x8xf32>'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xf32>) {
  // expected-error @below {{'attn.codebook_accumulate' op operand #3 must be rank-3 tensor or memref of i32, but got 'tensor<2x4x5xf32>'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xf32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xf32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xbf16>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects mean to hold 'f32', but got 'bf16'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xbf16>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xbf16>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xf64>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects mean to hold 'f64', but got 'f32'}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xf64>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

// Extents.
func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x?xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 3 of values to be static, but got a dynamic extent}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x?xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x0xbf16>, %m: tensor<2x4x5x0xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 3 of values to be at least 1, but got 0}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x0xbf16>)
      outs(%m, %n : tensor<2x4x5x0xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x0xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x?xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 3 of mean to be static, but got a dynamic extent}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x?xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x?xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<3x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 0 of values to be 3 (extent 0 of codes), but got 2}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<3x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x3x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 1 of values to be 3 (extent 1 of codes), but got 4}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x3x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x8xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 2 of values to be 8 (extent 2 of codes), but got 9}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x8xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<3x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 0 of mean to be 2 (extent 0 of codes), but got 3}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<3x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<3x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x3x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 1 of mean to be 4 (extent 1 of codes), but got 3}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x3x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x3x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x7xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 3 of mean to be 8 (extent 3 of values), but got 7}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x7xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x7xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<3x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 0 of count to be 2 (extent 0 of codes), but got 3}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<3x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<3x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x3x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 1 of count to be 4 (extent 1 of codes), but got 3}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x3x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x6xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects extent 2 of count to be 5 (extent 2 of mean), but got 6}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x6xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x6xi32>
  return
}

// -----

// Destination style.
func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects one result for each tensor in outs, that is 2, but got 1}}
  %r = attn.codebook_accumulate ins(%z, %v : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>
  return
}

// -----

func.func @f(%z: memref<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_accumulate' op expects all operands to be tensors or all to be memrefs, but got both}}
  %r:2 = attn.codebook_accumulate ins(%z, %v : memref<2x4x9xi32>, tensor<2x4x9x8xbf16>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x5xi32>) -> tensor<2x4x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

// attn.codebook_scan: ranks and types; tokens and state as above.
func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op operand #4 must be rank-5 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x4x5x8xf32>'}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op operand #5 must be rank-4 tensor or memref of i32, but got 'tensor<2x4x5xi32>'}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xbf16>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects initial_mean to hold 'f32', but got 'bf16'}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xbf16>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf64>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects mean to hold 'bf16' or f32, but got 'f64'}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf64>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf64>, tensor<2x4x3x5xi32>
  return
}

// -----

// Attributes.
func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op requires attribute 'block'}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects a block of at least 1 token, but got 0}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 0 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects a block of at least 1 token, but got -4}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = -4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects a reduction that stores an entry for every block, but got input_scan}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64, reduction = #attn.reduction<input_scan>} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

// Extents.
func.func @f(%z: tensor<2x4x8xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 2 of values to be 8 (extent 2 of codes), but got 9}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x8xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x3x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 1 of initial_mean to be 4 (extent 1 of codes), but got 3}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x3x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x6xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 2 of initial_count to be 5 (extent 2 of initial_mean), but got 6}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x6xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x?xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 4 of mean to be static, but got a dynamic extent}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x?xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x?xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<3x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 0 of mean to be 2 (extent 0 of codes), but got 3}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<3x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<3x4x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x3x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 1 of mean to be 4 (extent 1 of codes), but got 3}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x3x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x3x3x5x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x6x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 3 of mean to be 5 (extent 2 of initial_mean), but got 6}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x6x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x6x8xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x7xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 4 of mean to be 8 (extent 3 of values), but got 7}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x7xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x7xf32>, tensor<2x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<3x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 0 of count to be 2 (extent 0 of codes), but got 3}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<3x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<3x4x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x3x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 1 of count to be 4 (extent 1 of codes), but got 3}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x3x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x3x3x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x4x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 2 of count to be 3 (extent 2 of mean), but got 4}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x4x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x4x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x6xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects extent 3 of count to be 5 (extent 2 of initial_mean), but got 6}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x6xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>, tensor<2x4x3x6xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x0x5x8xf32>, %n: tensor<2x4x0x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects at least one entry of mean}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x0x5x8xf32>, tensor<2x4x0x5xi32>) {block = 4 : i64} -> tensor<2x4x0x5x8xf32>, tensor<2x4x0x5xi32>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x5x5x8xf32>, %n: tensor<2x4x5x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects at most 4 entries of mean for 9 tokens in blocks of 4, but got 5}}
  %r:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x5x5x8xf32>, tensor<2x4x5x5xi32>) {block = 4 : i64} -> tensor<2x4x5x5x8xf32>, tensor<2x4x5x5xi32>
  return
}

// -----

// Destination style.
func.func @f(%z: tensor<2x4x9xi32>, %v: tensor<2x4x9x8xbf16>, %m0: tensor<2x4x5x8xf32>, %n0: tensor<2x4x5xi32>, %m: tensor<2x4x3x5x8xf32>, %n: tensor<2x4x3x5xi32>) {
  // expected-error @below {{'attn.codebook_scan' op expects one result for each tensor in outs, that is 2, but got 1}}
  %r = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<2x4x9xi32>, tensor<2x4x9x8xbf16>, tensor<2x4x5x8xf32>, tensor<2x4x5xi32>)
      outs(%m, %n : tensor<2x4x3x5x8xf32>, tensor<2x4x3x5xi32>) {block = 4 : i64} -> tensor<2x4x3x5x8xf32>
  return
}

// -----

func.func @f() attributes {
  // expected-error @below {{expected one of [auto, serial, matmul, associative, input_scan] for how summaries of blocks are accumulated across blocks, got: tree}}
  // expected-error @below {{failed to parse Attn_ReductionAttr parameter 'value' which is to be a `::fovea::attn::Reduction`}}
  a.reduction = #attn.reduction<tree>} {
  return
}

// -----

// attn.log_count.
func.func @f(%n: tensor<2x4xf32>, %w: tensor<2x4xf32>) {
  // expected-error @below {{'attn.log_count' op operand #0 must be ranked tensor or memref of i32, but got 'tensor<2x4xf32>'}}
  %r = attn.log_count ins(%n : tensor<2x4xf32>)
      outs(%w : tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%n: tensor<2x4xi32>, %w: tensor<2x4xbf16>) {
  // expected-error @below {{'attn.log_count' op operand #1 must be ranked tensor or memref of f32 or f64, but got 'tensor<2x4xbf16>'}}
  %r = attn.log_count ins(%n : tensor<2x4xi32>)
      outs(%w : tensor<2x4xbf16>) -> tensor<2x4xbf16>
  return
}

// -----

func.func @f(%n: tensor<2x4xi32>, %w: tensor<8xf32>) {
  // expected-error @below {{'attn.log_count' op expects log_weight to have rank 2 as count has, but got 1}}
  %r = attn.log_count ins(%n : tensor<2x4xi32>)
      outs(%w : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func @f(%n: tensor<2x4xi32>, %w: tensor<2x5xf32>) {
  // expected-error @below {{'attn.log_count' op expects log_weight to have the shape of count: extent 1 to be 4, but got 5}}
  %r = attn.log_count ins(%n : tensor<2x4xi32>)
      outs(%w : tensor<2x5xf32>) -> tensor<2x5xf32>
  return
}

// -----

func.func @f(%n: memref<2x4xi32>, %w: tensor<2x4xf32>) {
  // expected-error @below {{'attn.log_count' op expects all operands to be tensors or all to be memrefs, but got both}}
  %r = attn.log_count ins(%n : memref<2x4xi32>)
      outs(%w : tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

// attn.codebook_update: ranks and types.
func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5x1xf32>) {
  // expected-error @below {{'attn.codebook_update' op operand #4 must be rank-2 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x5x1xf32>'}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5x1xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5x1xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects codebook to hold 'bf16' or f32, but got 'f16'}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xbf16>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects sums to hold 'f32', but got 'bf16'}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xbf16>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xbf16>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf64>) {
  // expected-error @below {{'attn.codebook_update' op expects counts to hold 'f32', but got 'f64'}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf64>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf64>
  return
}

// -----

// Extents.
func.func @f(%k: tensor<2x4x9x?xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 3 of key to be static, but got a dynamic extent}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x?xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x?xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 2 of codebook to be static, but got a dynamic extent}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x?xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x?xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x?xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 2 of sums to be static, but got a dynamic extent}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x?xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x?xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<2x5x8xbf16>, %s: tensor<2x5x8xf32>, %n: tensor<2x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 0 of codebook to be 4 or 1 (extent 1 of key), but got 2}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<2x5x8xbf16>, tensor<2x5x8xf32>, tensor<2x5xf32>) -> tensor<2x5x8xbf16>, tensor<2x5x8xf32>, tensor<2x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x7xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 2 of codebook to be 8 (extent 3 of key), but got 7}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x7xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x7xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x?x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 1 of codebook to be static, but got a dynamic extent}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x?x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x?x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x8xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 2 of codes to be 9 (extent 2 of key), but got 8}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x8xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<1x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 0 of sums to be 4 (extent 0 of codebook), but got 1}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<1x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<1x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x6x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 1 of sums to be 5 (extent 1 of codebook), but got 6}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x6x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x6x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x7xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 2 of sums to be 8 (extent 3 of key), but got 7}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x7xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x7xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<1x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 0 of counts to be 4 (extent 0 of codebook), but got 1}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<1x5xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<1x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x6xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects extent 1 of counts to be 5 (extent 1 of codebook), but got 6}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x6xf32>) -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x6xf32>
  return
}

// -----

// Attributes.
func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a min_count of at least 0, but got -1.000000e-01}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) {min_count = -1.000000e-01 : f64} -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a rate from 0 to 1, but got -1.000000e-01}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) {rate = -1.000000e-01 : f64} -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a rate from 0 to 1, but got 1.500000e+00}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) {rate = 1.5 : f64} -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a rate from 0 to 1, but got nan}}
  %r:3 = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) {rate = 0x7FF8000000000000 : f64} -> tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>
  return
}

// -----

// Dead codewords.
func.func @f(%k: memref<2x4x9x8xf32>, %z: memref<2x4x9xi32>, %c: memref<4x5x8xf32>, %s: memref<4x5x8xf32>, %n: memref<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a replace_below of at least 0, but got -1.0}}
  attn.codebook_update ins(%k, %z : memref<2x4x9x8xf32>, memref<2x4x9xi32>)
      outs(%c, %s, %n : memref<4x5x8xf32>, memref<4x5x8xf32>, memref<4x5xf32>) {replace_below = -1.0 : f64}
  return
}

// -----

func.func @f(%k: memref<2x4x9x8xf32>, %z: memref<2x4x9xi32>, %c: memref<4x5x8xf32>, %s: memref<4x5x8xf32>, %n: memref<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a seed beside a replace_below above 0}}
  attn.codebook_update ins(%k, %z : memref<2x4x9x8xf32>, memref<2x4x9xi32>)
      outs(%c, %s, %n : memref<4x5x8xf32>, memref<4x5x8xf32>, memref<4x5xf32>) {replace_below = 1.0 : f64}
  return
}

// -----

func.func @f(%k: memref<2x4x9x8xf32>, %z: memref<2x4x9xi32>, %d: memref<i64>, %c: memref<4x5x8xf32>, %s: memref<4x5x8xf32>, %n: memref<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects a seed only with a replace_below above 0}}
  attn.codebook_update ins(%k, %z : memref<2x4x9x8xf32>, memref<2x4x9xi32>) seed(%d : memref<i64>)
      outs(%c, %s, %n : memref<4x5x8xf32>, memref<4x5x8xf32>, memref<4x5xf32>)
  return
}

// -----

// A mask of other tokens.
func.func @f(%k: memref<2x4x9x8xf32>, %m: memref<2x8xi1>, %c: memref<4x5x8xf32>, %z: memref<2x4x9xi32>) {
  // expected-error @below {{'attn.quantize' op expects extent 1 of mask to be 9 (extent 2 of key), but got 8}}
  attn.quantize ins(%k, %c : memref<2x4x9x8xf32>, memref<4x5x8xf32>) mask(%m : memref<2x8xi1>) outs(%z : memref<2x4x9xi32>)
  return
}

// -----

// Destination style.
func.func @f(%k: tensor<2x4x9x8xbf16>, %z: tensor<2x4x9xi32>, %c: tensor<4x5x8xbf16>, %s: tensor<4x5x8xf32>, %n: tensor<4x5xf32>) {
  // expected-error @below {{'attn.codebook_update' op expects one result for each tensor in outs, that is 3, but got 1}}
  %r = attn.codebook_update ins(%k, %z : tensor<2x4x9x8xbf16>, tensor<2x4x9xi32>)
      outs(%c, %s, %n : tensor<4x5x8xbf16>, tensor<4x5x8xf32>, tensor<4x5xf32>) -> tensor<4x5x8xbf16>
  return
}

// -----

// attn.check_codes.
func.func @f(%z: tensor<2x4x9xi64>, %s: index) {
  // expected-error @below {{'attn.check_codes' op operand #0 must be rank-3 or rank-4 tensor or memref of i32, but got 'tensor<2x4x9xi64>'}}
  attn.check_codes %z below %s {name = "codes"} : tensor<2x4x9xi64>
  return
}

// -----

func.func @f(%z: tensor<2x4x9xi32>, %s: index) {
  // expected-error @below {{'attn.check_codes' op requires attribute 'name'}}
  attn.check_codes %z below %s : tensor<2x4x9xi32>
  return
}
