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

// -----

func.func @f(%q: tensor<4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x9x6xf32>'}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf64>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects key to have the element type of query, 'f32', but got 'f64'}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf64>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x?xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 3 of query to be static, but got a dynamic extent}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x?xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x0xf32>, %k: tensor<2x2x9x0xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 3 of query to be at least 1, but got 0}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x0xf32>, tensor<2x2x9x0xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<1x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 0 of key to be 2 (extent 0 of query), but got 1}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<1x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x8x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 2 of key to be 9 (extent 2 of query), but got 8}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x8x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x7xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 3 of key to be 6 (extent 3 of query), but got 7}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x7xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x3x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x3x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x?x6xf32>, %k: tensor<2x2x?x6xf32>, %b: tensor<2x4x3x?xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects a window of at least 1 token, but got 0}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>) outs(%b, %m, %n : tensor<2x4x3x?xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 0 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x?xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x0x9xf32>, %m: tensor<2x4x0xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 2 of basis to be at least 1, but got 0}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x0x9xf32>, tensor<2x4x0xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x0x9xf32>, tensor<2x4x0xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x?x9xf32>, %m: tensor<2x4x?xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 2 of basis to be static, but got a dynamic extent}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x?x9xf32>, tensor<2x4x?xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x?x9xf32>, tensor<2x4x?xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects a window from 1 to the 9 tokens, but got 10}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 10 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects a window from 1 to the 9 tokens, but got 0}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 0 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects delta to be finite and not negative, but got -1}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = -1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects delta to be finite and not negative, but got}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 0x7FF8000000000000 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects delta to be finite and not negative, but got}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 0x7FF0000000000000 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects epsilon to be finite and not negative, but got}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = -0.5 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64, scale = 0x7FF0000000000000 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xbf16>, %k: tensor<2x2x9x6xbf16>, %b: tensor<2x4x3x9xbf16>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects basis to hold 'f32', but got 'bf16'}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xbf16>, tensor<2x2x9x6xbf16>) outs(%b, %m, %n : tensor<2x4x3x9xbf16>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xbf16>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x8xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 3 of basis to be 9 (extent 2 of query), but got 8}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x8xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x8xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x2xi32>, %n: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 2 of sizes to be 3 (extent 2 of basis), but got 2}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x2xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x2xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %n: tensor<2x3xi32>) {
  // expected-error @below {{'attn.conv_recover' op expects extent 1 of found to be 4 (extent 1 of query), but got 3}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) outs(%b, %m, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x3xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x3xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects at least one basis, but got 0}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 0 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf16>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects value to have the element type of query, 'f32', but got 'f16'}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf16>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x8x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects extent 2 of value to be 9 (extent 2 of query), but got 8}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x8x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x6xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects extent 3 of output to be 5 (extent 3 of value), but got 6}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<1x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects extent 0 of found to be 2 (extent 0 of query), but got 1}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<1x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<1x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x3xi32>) {
  // expected-error @below {{'attn.conv' op expects extent 1 of recomputed to be 4 (extent 1 of query), but got 3}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x3xi32>) {num_basis = 2 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x3xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects one basis for the algorithm single, but got 2}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, algorithm = #attn.conv_algorithm<single>, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects a group of at least 1 token, but got 0}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, group = 0 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %n: tensor<2x4xi32>, %c: tensor<2x4xi32>) {
  // expected-error @below {{'attn.conv' op expects a window of at most the group of 3 tokens, but got 4}}
  %0:3 = attn.conv ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) outs(%o, %n, %c : tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>) {num_basis = 2 : i64, group = 3 : i64, window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x5xf32>, tensor<2x4xi32>, tensor<2x4xi32>
  return
}

// -----

// Bases and values, as those of attn.conv_apply.
func.func @f(%b: tensor<2x4x3x9xf64>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf64>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects basis not to hold f64, since value holds 'f32', but got 'f64'}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf64>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf64>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf64>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x0x9xf32>, %m: tensor<2x4x0xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x0x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects at least one basis}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x0x9xf32>, tensor<2x4x0xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x0x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x0x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x2xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects extent 2 of sizes to be 3 (extent 2 of basis), but got 2}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x2xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<1x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<1x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects extent 0 of value to be 2 (extent 0 of basis), but got 1}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<1x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<1x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<1x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x8x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x8x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects extent 2 of value to be 9 (extent 3 of basis), but got 8}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x8x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x8x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x8x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf16>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects output to have the element type of value, 'f32', but got 'f16'}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf16>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x2x9x5xf32>, %d: tensor<2x2x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects extent 1 of output to be 4 (extent 1 of basis), but got 2}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x2x9x5xf32>) gradient(%d : tensor<2x2x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x3x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x3x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects extent 1 of basis to be a multiple of extent 1 of value, but got 4 and 3}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x3x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x3x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x3x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects one basis for the algorithm single, but got 3}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) {algorithm = #attn.conv_algorithm<single>} -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects a block of a power of two from 8 to 2^20 tokens, but got 12}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 12 : i64} -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

// Gradients.
func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf64>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects d_output not to hold f64, since value holds 'f32', but got 'f64'}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf64>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x8x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects d_output to have the shape of output: extent 2 to be 9, but got 8}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x8x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xbf16>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects d_basis to hold 'f32', but got 'bf16'}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xbf16>, tensor<2x2x9x5xf32>) -> tensor<2x4x3x9xbf16>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x2x9xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects d_basis to have the shape of basis: extent 2 to be 3, but got 2}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x2x9xf32>, tensor<2x2x9x5xf32>) -> tensor<2x4x2x9xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %ib: tensor<2x4x3x9xf32>, %iv: tensor<2x4x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects d_value to have the shape of value: extent 1 to be 2, but got 4}}
  %r:2 = attn.conv_apply_backward ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%ib, %iv : tensor<2x4x3x9xf32>, tensor<2x4x9x5xf32>) -> tensor<2x4x3x9xf32>, tensor<2x4x9x5xf32>
  return
}

// -----

func.func @f(%b: memref<2x4x3x9xf32>, %m: memref<2x4x3xi32>, %v: memref<2x2x9x5xf32>, %o: memref<2x4x9x5xf32>, %d: memref<2x4x9x5xf32>, %ib: memref<2x4x3x9xf32>, %iv: memref<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 5 are one}}
  attn.conv_apply_backward ins(%b, %m, %v : memref<2x4x3x9xf32>, memref<2x4x3xi32>, memref<2x2x9x5xf32>) forward(%o : memref<2x4x9x5xf32>) gradient(%d : memref<2x4x9x5xf32>) outs(%b, %iv : memref<2x4x3x9xf32>, memref<2x2x9x5xf32>)
  return
}

// -----

// Scores.
func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf16>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects key to have the element type of query, 'f32', but got 'f16'}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf16>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x8x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x8x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects extent 2 of key to be 9 (extent 2 of query), but got 8}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x8x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x8x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x3x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x3x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x3x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x3x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x3x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) {scale = 0x7FF0000000000000 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf64>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects d_basis not to hold f64, since query holds 'f32', but got 'f64'}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf64>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x8xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects extent 3 of d_basis to be 9 (extent 2 of query), but got 8}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x8xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x4xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects extent 2 of d_basis to be 4 (extent 2 of sizes), but got 3}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x4xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x2x9x6xf32>, %ik: tensor<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects d_query to have the shape of query: extent 1 to be 4, but got 2}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>) -> tensor<2x2x9x6xf32>, tensor<2x2x9x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %m: tensor<2x4x3xi32>, %d: tensor<2x4x3x9xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf64>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects d_key to hold 'f32', but got 'f64'}}
  %r:2 = attn.conv_recover_backward ins(%q, %k, %m : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x3xi32>) gradient(%d : tensor<2x4x3x9xf32>) outs(%iq, %ik : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf64>) -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf64>
  return
}

// -----

func.func @f(%q: memref<2x4x9x6xf32>, %k: memref<2x2x9x6xf32>, %m: memref<2x4x3xi32>, %d: memref<2x4x3x9xf32>, %iq: memref<2x4x9x6xf32>, %ik: memref<2x2x9x6xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 4 are one}}
  attn.conv_recover_backward ins(%q, %k, %m : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>, memref<2x4x3xi32>) gradient(%d : memref<2x4x3x9xf32>) outs(%q, %ik : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>)
  return
}

// -----

// The search, as that of attn.conv.
func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects at least one basis, but got 0}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 0 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects a window from 1 to the 9 tokens, but got 10}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 10 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects delta to be finite and not negative, but got -1.000000e+00}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = -1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x?x6xf32>, %k: tensor<2x2x?x6xf32>, %v: tensor<2x2x?x5xf32>, %o: tensor<2x4x?x5xf32>, %d: tensor<2x4x?x5xf32>, %iq: tensor<2x4x?x6xf32>, %ik: tensor<2x2x?x6xf32>, %iv: tensor<2x2x?x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects a static number of tokens for a group}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>) forward(%o : tensor<2x4x?x5xf32>) gradient(%d : tensor<2x4x?x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>) {group = 3 : i64, num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x8x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x8x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects extent 2 of value to be 9 (extent 2 of query), but got 8}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x8x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x8x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x8x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects one basis for the algorithm single, but got 2}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, algorithm = #attn.conv_algorithm<single>} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects a group of at least 1 token, but got 0}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 0 : i64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x4xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects d_output to have the shape of output: extent 3 to be 5, but got 4}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x4xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x2x9x6xf32>, %iv: tensor<2x4x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects d_value to have the shape of value: extent 1 to be 2, but got 4}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x4x9x5xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x9x6xf32>, %k: tensor<2x2x9x6xf32>, %v: tensor<2x2x9x5xf32>, %o: tensor<2x4x9x5xf32>, %d: tensor<2x4x9x5xf32>, %iq: tensor<2x4x9x6xf32>, %ik: tensor<2x4x9x6xf32>, %iv: tensor<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects d_key to have the shape of key: extent 1 to be 2, but got 4}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x9x6xf32>, tensor<2x2x9x6xf32>, tensor<2x2x9x5xf32>) forward(%o : tensor<2x4x9x5xf32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x9x6xf32>, tensor<2x4x9x6xf32>, tensor<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x9x6xf32>, tensor<2x4x9x6xf32>, tensor<2x2x9x5xf32>
  return
}

// -----

func.func @f(%q: memref<2x4x9x6xf32>, %k: memref<2x2x9x6xf32>, %v: memref<2x2x9x5xf32>, %o: memref<2x4x9x5xf32>, %d: memref<2x4x9x5xf32>, %iq: memref<2x4x9x6xf32>, %ik: memref<2x2x9x6xf32>, %iv: memref<2x2x9x5xf32>) {
  // expected-error @below {{'attn.conv_backward' op expects buffers of gradients to be apart from all others, but operands 2 and 7 are one}}
  attn.conv_backward ins(%q, %k, %v : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>, memref<2x2x9x5xf32>) forward(%o : memref<2x4x9x5xf32>) gradient(%d : memref<2x4x9x5xf32>) outs(%iq, %ik, %v : memref<2x4x9x6xf32>, memref<2x2x9x6xf32>, memref<2x2x9x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64}
  return
}

// -----

// Positions.
func.func @f(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x5xf32>, %i: tensor<2x4x9x5xf32>) {
  // expected-error @below {{'attn.rope_backward' op expects extent 3 of d_output to be a multiple of 2, but got 5}}
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x5xf32>) outs(%i : tensor<2x4x9x5xf32>) -> tensor<2x4x9x5xf32>
  return
}

// -----

func.func @f(%p: tensor<1x1x8xi32>, %d: tensor<2x4x9x6xf32>, %i: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope_backward' op expects extent 2 of positions to be 9 or 1 (extent 2 of d_output), but got 8}}
  %r = attn.rope_backward ins(%p : tensor<1x1x8xi32>) gradient(%d : tensor<2x4x9x6xf32>) outs(%i : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x6xf32>, %i: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope_backward' op expects a finite base above 0, but got 0.000000e+00}}
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x6xf32>) outs(%i : tensor<2x4x9x6xf32>) {base = 0.0 : f64} -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x6xf32>, %i: tensor<2x4x9x4xf32>) {
  // expected-error @below {{'attn.rope_backward' op expects extent 3 of d_input to be 6 (extent 3 of d_output), but got 4}}
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x6xf32>) outs(%i : tensor<2x4x9x4xf32>) -> tensor<2x4x9x4xf32>
  return
}

// -----

func.func @f(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x6xf32>, %i: tensor<2x4x9x6xf64>) {
  // expected-error @below {{'attn.rope_backward' op expects d_input not to hold f64, since d_output holds 'f32', but got 'f64'}}
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x6xf32>) outs(%i : tensor<2x4x9x6xf64>) -> tensor<2x4x9x6xf64>
  return
}

// -----

func.func @f(%p: memref<1x1x9xi32>, %d: memref<2x4x9x6xf32>, %i: memref<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope_backward' op expects buffers of gradients to be apart from all others, but operands 1 and 2 are one}}
  attn.rope_backward ins(%p : memref<1x1x9xi32>) gradient(%d : memref<2x4x9x6xf32>) outs(%d : memref<2x4x9x6xf32>)
  return
}

// -----

// Integers have no gradient.
func.func @f(%p: tensor<1x1x9xi32>, %d: tensor<2x4x9x6xi32>, %i: tensor<2x4x9x6xf32>) {
  // expected-error @below {{'attn.rope_backward' op operand #1 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<2x4x9x6xi32>'}}
  %r = attn.rope_backward ins(%p : tensor<1x1x9xi32>) gradient(%d : tensor<2x4x9x6xi32>) outs(%i : tensor<2x4x9x6xf32>) -> tensor<2x4x9x6xf32>
  return
}

// -----

func.func @f(%q: memref<1x1x2x16xi32>, %z: memref<1x1x2xi32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x2x16xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.conv_apply_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x2x16xi32>'}}
  attn.conv_apply_backward ins(%q, %z, %v : memref<1x1x2x16xi32>, memref<1x1x2xi32>, memref<1x1x16x3xf32>) forward(%o : memref<1x1x16x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dv : memref<1x1x2x16xf32>, memref<1x1x16x3xf32>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %k: memref<1x1x16x3xf32>, %z: memref<1x1x2xi32>, %d: memref<1x1x2x16xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.conv_recover_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.conv_recover_backward ins(%q, %k, %z : memref<1x1x16x3xi32>, memref<1x1x16x3xf32>, memref<1x1x2xi32>) gradient(%d : memref<1x1x2x16xf32>)
      outs(%dq, %dk : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.conv_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.conv_backward ins(%q, %k, %v : memref<1x1x16x3xi32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) forward(%o : memref<1x1x16x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64}
  return
}

// -----

!q = tensor<2x4x9x6xf32>
!n = tensor<2x4xi32>

func.func @recover(%q: !q, %l: tensor<3xi32>, %b: tensor<2x4x3x9xf32>, %s: tensor<2x4x3xi32>, %n: !n) {
  // expected-error @below {{expects extent 0 of lengths to be 2 (extent 0 of query), but got 3}}
  %0:3 = attn.conv_recover ins(%q, %q : !q, !q) lengths(%l : tensor<3xi32>) outs(%b, %s, %n : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, !n)
      {window = 2 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, !n
  return
}
