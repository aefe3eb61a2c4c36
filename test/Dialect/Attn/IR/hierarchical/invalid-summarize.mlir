// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Ranks and types.
func.func @f(%x: tensor<4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x100x8xf32>'}}
  %0 = attn.summarize ins(%x : tensor<4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op operand #1 must be rank-4 or rank-5 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x16x8xf32>'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<2x8xf32>) {
  // expected-error @below {{'attn.summarize' op operand #2 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x8xf32>'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<2x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op operand #2 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x14x8xf32>'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<4x14x8xf32>) -> tensor<4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xi8>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x4x100x8xi8>'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xi8>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// Element types agree.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf64>) {
  // expected-error @below {{'attn.summarize' op expects output to hold 'f32', but got 'f64'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf64>) -> tensor<1x4x14x8xf64>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xbf16>, %w: tensor<2x2x16x8xbf16>, %o: tensor<1x4x14x8xf16>) {
  // expected-error @below {{'attn.summarize' op expects output to hold 'bf16' or f32, but got 'f16'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xbf16>) weights(%w : tensor<2x2x16x8xbf16>) outs(%o : tensor<1x4x14x8xf16>) -> tensor<1x4x14x8xf16>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf16>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects weights to have the element type of input, 'f32', but got 'f16'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf16>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<2x2x8xbf16>) {
  // expected-error @below {{'attn.summarize' op expects bias to have the element type of input, 'f32', but got 'bf16'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<2x2x8xbf16>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// The width is static and positive.
func.func @f(%x: tensor<1x4x100x?xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of input to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x?xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x0xf32>, %w: tensor<1x2x16x0xf32>, %o: tensor<1x4x14x0xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of input to be at least 1, but got 0}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x0xf32>) weights(%w : tensor<1x2x16x0xf32>) outs(%o : tensor<1x4x14x0xf32>) -> tensor<1x4x14x0xf32>
  return
}

// -----

// Sets, rank and interval are static.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<?x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of weights to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<?x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x?x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of weights to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x?x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x?x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of weights to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x?x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x?xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of weights to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x?xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<?x2x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of bias to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<?x2x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x?xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of output to be static, but got a dynamic extent}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x?xf32>) -> tensor<1x4x14x?xf32>
  return
}

// -----

// There is at least one set and they divide the heads.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<0x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of weights to be at least 1, but got 0}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<0x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x?x100x8xf32>, %w: tensor<0x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of weights to be at least 1, but got 0}}
  %0 = attn.summarize ins(%x : tensor<1x?x100x8xf32>) weights(%w : tensor<0x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<3x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of input to be a multiple of extent 0 of weights, but got 4 and 3}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<3x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<8x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of input to be a multiple of extent 0 of weights, but got 4 and 8}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<8x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// The interval is a positive multiple of the rank.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x3x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of weights to be a multiple of extent 1 of weights, but got 16 and 3}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x3x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x0x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of weights to be at least 1, but got 0}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x0x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x0x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of weights to be at least 1, but got 0}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x0x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x32x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of weights to be a multiple of extent 1 of weights, but got 16 and 32}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x32x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// Weights and bias have the width of the input.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x16xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of weights to be 8 (extent 3 of input), but got 16}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x16xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of bias to be 2 (extent 0 of weights), but got 1}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<1x2x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<2x4x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of bias to be 2 (extent 1 of weights), but got 4}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<2x4x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: tensor<2x2x16xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of bias to be 8 (extent 3 of input), but got 16}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : tensor<2x2x16xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// The output has a summary for each interval, the last one cut short.
func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<2x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 0 of output to be 1 (extent 0 of input), but got 2}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x2x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 1 of output to be 4 (extent 1 of input), but got 2}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x12x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of output to be 14 (the summaries of extent 2 of input), but got 12}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x12x8xf32>) -> tensor<1x4x12x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x4xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 3 of output to be 8 (extent 3 of input), but got 4}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x4xf32>) -> tensor<1x4x14x4xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x0x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects extent 2 of output to be 0 (the summaries of extent 2 of input), but got 14}}
  %0 = attn.summarize ins(%x : tensor<1x4x0x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

// More summaries than a 64-bit extent can count.
func.func @f(%x: tensor<1x4x9223372036854775807x8xf32>, %w: tensor<2x4611686018427387904x4611686018427387904x8xf32>, %o: tensor<1x4x?x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects a number of summaries below 2^63, but got 4611686018427387904 for each 4611686018427387904 of 9223372036854775807 rows}}
  %0 = attn.summarize ins(%x : tensor<1x4x9223372036854775807x8xf32>) weights(%w : tensor<2x4611686018427387904x4611686018427387904x8xf32>) outs(%o : tensor<1x4x?x8xf32>) -> tensor<1x4x?x8xf32>
  return
}

// -----

// All tensors or all memrefs, one result for each tensor.
func.func @f(%x: memref<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.summarize ins(%x : memref<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: memref<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects all operands to be tensors or all to be memrefs, but got both}}
  attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : memref<1x4x14x8xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>, %b: memref<2x2x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) bias(%b : memref<2x2x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects one result for each tensor in outs, that is 1, but got 0}}
  attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>)
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects one result for each tensor in outs, that is 1, but got 2}}
  %0:2 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x14x8xf32>, tensor<1x4x14x8xf32>
  return
}

// -----

func.func @f(%x: tensor<1x4x100x8xf32>, %w: tensor<2x2x16x8xf32>, %o: tensor<1x4x14x8xf32>) {
  // expected-error @below {{'attn.summarize' op expects the result type to be that of its destination, 'tensor<1x4x14x8xf32>', but got 'tensor<1x4x?x8xf32>'}}
  %0 = attn.summarize ins(%x : tensor<1x4x100x8xf32>) weights(%w : tensor<2x2x16x8xf32>) outs(%o : tensor<1x4x14x8xf32>) -> tensor<1x4x?x8xf32>
  return
}
