// RUN: fovea-opt %s --split-input-file --verify-diagnostics

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
  // expected-error @below {{'attn.conv_recover' op expects extent 2 of query to be static, but got a dynamic extent}}
  %0:3 = attn.conv_recover ins(%q, %k : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>) outs(%b, %m, %n : tensor<2x4x3x?xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x3x?xf32>, tensor<2x4x3xi32>, tensor<2x4xi32>
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
