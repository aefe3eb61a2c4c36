// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Ranks and types.
func.func @f(%b: tensor<4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x3x9xf32>'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi64>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op operand #1 must be rank-3 tensor or memref of i32, but got 'tensor<1x4x3xi64>'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi64>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<4xi32>) {
  // expected-error @below {{'attn.conv_apply' op operand #4 must be rank-2 tensor or memref of i32, but got 'tensor<4xi32>'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<4xi32>) -> tensor<1x4x9x5xf32>, tensor<4xi32>
  return
}

// -----

// Scores of f32 data are not kept in f64, nor the other way round.
func.func @f(%b: tensor<1x4x3x9xf64>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects basis not to hold f64, since value holds 'f32', but got 'f64'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf64>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xbf16>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf64>, %o: tensor<1x4x9x5xf64>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects basis to hold f64, since value holds 'f64', but got 'bf16'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xbf16>, tensor<1x4x3xi32>, tensor<1x2x9x5xf64>)
      outs(%o, %c : tensor<1x4x9x5xf64>, tensor<1x4xi32>) -> tensor<1x4x9x5xf64>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xbf16>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects output to have the element type of value, 'f32', but got 'bf16'}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xbf16>, tensor<1x4xi32>) -> tensor<1x4x9x5xbf16>, tensor<1x4xi32>
  return
}

// -----

// Shapes.
func.func @f(%b: tensor<1x4x0x9xf32>, %m: tensor<1x4x0xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects at least one basis}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x0x9xf32>, tensor<1x4x0xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x2xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 2 of sizes to be 3 (extent 2 of basis), but got 2}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x2xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 0 of value to be 1 (extent 0 of basis), but got 2}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<2x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x8x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 2 of value to be 9 (extent 3 of basis), but got 8}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x8x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x?xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 3 of value to be static, but got a dynamic extent}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x?xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x0xf32>, %o: tensor<1x4x9x0xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 3 of value to be at least 1, but got 0}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x0xf32>)
      outs(%o, %c : tensor<1x4x9x0xf32>, tensor<1x4xi32>) -> tensor<1x4x9x0xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x6xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 3 of output to be 5 (extent 3 of value), but got 6}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x6xf32>, tensor<1x4xi32>) -> tensor<1x4x9x6xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x5xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 1 of recomputed to be 4 (extent 1 of basis), but got 5}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x5xi32>) -> tensor<1x4x9x5xf32>, tensor<1x5xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x3x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects extent 1 of basis to be a multiple of extent 1 of value, but got 4 and 3}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x3x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

// Options.
func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects one basis for the algorithm single, but got 3}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {algorithm = #attn.conv_algorithm<single>} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x1x?xf32>, %m: tensor<1x4x1xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects a static number of tokens for the algorithm single}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x1x?xf32>, tensor<1x4x1xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {algorithm = #attn.conv_algorithm<single>} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects a block of a power of two from 8 to 2^20 tokens, but got 4}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 4 : i64} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects a block of a power of two from 8 to 2^20 tokens, but got 24}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 24 : i64} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects a block of a power of two from 8 to 2^20 tokens, but got 2097152}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 2097152 : i64} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects a block with the algorithm partitioned only, but got auto}}
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) {block = 64 : i64} -> tensor<1x4x9x5xf32>, tensor<1x4xi32>
  return
}

// -----

// Destinations.
func.func @f(%b: tensor<1x4x3x9xf32>, %m: tensor<1x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<1x4x9x5xf32>, %c: tensor<1x4xi32>) {
  // expected-error @below {{'attn.conv_apply' op expects one result for each tensor in outs, that is 2, but got 1}}
  %r = attn.conv_apply ins(%b, %m, %v : tensor<1x4x3x9xf32>, tensor<1x4x3xi32>, tensor<1x2x9x5xf32>)
      outs(%o, %c : tensor<1x4x9x5xf32>, tensor<1x4xi32>) -> tensor<1x4x9x5xf32>
  return
}

// -----

// expected-error @+2 {{expected one of [auto, toeplitz, partitioned, single] for how a sum of convolutions is evaluated, got: fast}}
// expected-error @+1 {{failed to parse Attn_ConvAlgorithmAttr parameter 'value'}}
#fast = #attn.conv_algorithm<fast>
