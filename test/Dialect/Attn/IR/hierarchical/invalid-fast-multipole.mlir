// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// What every attention operation checks.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x4xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of key to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x4xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf16>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects value to have the element type of query, 'f32', but got 'f16'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf16>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x3x128x8xf32>, %v: tensor<1x3x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x3x128x8xf32>, tensor<1x3x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of output to be 4 (extent 3 of value), but got 8}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x8xf32>) {group = 32 : i64} -> tensor<1x4x128x8xf32>
  return
}

// -----

func.func @f(%q: tensor<4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x128x8xf32>'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x?xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of query to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x?xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64, scale = 0x7FF8000000000000 : f64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: memref<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, memref<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: memref<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : memref<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects one result for each tensor in outs, that is 1, but got 0}}
  attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64}
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects one result for each tensor in outs, that is 1, but got 2}}
  %0:2 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>, tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects the result type to be that of its destination, 'tensor<1x4x128x4xf32>', but got 'tensor<1x4x?x4xf32>'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x?x4xf32>
  return
}

// -----

// There are as many keys as queries.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x256x8xf32>, %v: tensor<1x2x256x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of key to be 128 (extent 2 of query), but got 256}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x256x8xf32>, tensor<1x2x256x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// The group is given and positive.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op requires attribute 'group'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects a group of at least 1 token, but got 0}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 0 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects a group of at least 1 token, but got -32}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = -32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole' 'attn.fast_multipole' op attribute 'group' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i32} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole' 'attn.fast_multipole' op attribute 'group' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32.0} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Every level has weights, of all operands.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights for 1 levels (128 tokens in groups of 32), but got 0}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects value_weights for 1 levels (128 tokens in groups of 32), but got 0}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %kw1: tensor<1x2x64x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects value_weights for as many levels as key_weights (2), but got 1}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0, %kw1 : tensor<1x2x32x8xf32>, tensor<1x2x64x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights of level 1 to cover intervals of 64 tokens, but got 32}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 64 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights of level 1 to cover intervals of 4611686018427387904 tokens, but got 32}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 4611686018427387904 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x129x8xf32>, %k: tensor<1x2x129x8xf32>, %v: tensor<1x2x129x4xf32>, %o: tensor<1x4x129x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights for 2 levels (129 tokens in groups of 32), but got 1}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x129x8xf32>, tensor<1x2x129x8xf32>, tensor<1x2x129x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x129x4xf32>) {group = 32 : i64} -> tensor<1x4x129x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x9223372036854775807x8xf32>, %k: tensor<1x2x9223372036854775807x8xf32>, %v: tensor<1x2x9223372036854775807x4xf32>, %o: tensor<1x4x9223372036854775807x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights for 62 levels (9223372036854775807 tokens in groups of 1), but got 1}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x9223372036854775807x8xf32>, tensor<1x2x9223372036854775807x8xf32>, tensor<1x2x9223372036854775807x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x9223372036854775807x4xf32>) {group = 1 : i64} -> tensor<1x4x9223372036854775807x4xf32>
  return
}

// -----

// Biases: none or one for each level.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x8xf32>, %kb1: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects no biases or one for each of the 1 levels beside key_weights, but got 2}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0, %kb1 : tensor<1x2x8xf32>, tensor<1x2x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x2x4xf32>, %vb1: tensor<1x2x4xf32>, %vb2: tensor<1x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects no biases or one for each of the 1 levels beside value_weights, but got 3}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0, %vb1, %vb2 : tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of key_biases[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0 : tensor<1x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<2x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 0 of value_biases[0] to be 1 (extent 0 of value_weights[0]), but got 2}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<2x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x1x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of value_biases[0] to be 2 (extent 1 of key_weights[0]), but got 1}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<1x1x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x8xf64>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_biases[0] to have the element type of query, 'f32', but got 'f64'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0 : tensor<1x2x8xf64>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x2x?xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of value_biases[0] to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<1x2x?xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Weights fit the data, the heads and the level.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf16>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights[0] to have the element type of query, 'f32', but got 'f16'}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf16>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x4xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of key_weights[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x4xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of value_weights[0] to be 4 (extent 3 of value), but got 8}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<3x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of key to be a multiple of extent 0 of key_weights[0], but got 2 and 3}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<3x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<4x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of key to be a multiple of extent 0 of value_weights[0], but got 2 and 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<4x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<0x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 0 of key_weights[0] to be at least 1, but got 0}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<0x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x3x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of value_weights[0] to be 3 (extent 1 of key_weights[0]), but got 2}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x3x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x?x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of key_weights[0] to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x?x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x16x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of value_weights[0] to be 16 (extent 2 of key_weights[0]), but got 32}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x16x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x64x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of value_weights[0] to be 32 (extent 2 of key_weights[0]), but got 64}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x64x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x16x8xf32>, %kw1: tensor<1x2x16x8xf32>, %vw0: tensor<1x2x16x4xf32>, %vw1: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of value_weights[1] to be 16 (extent 2 of key_weights[1]), but got 32}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0, %kw1 : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) value_weights(%vw0, %vw1 : tensor<1x2x16x4xf32>, tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 16 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// All weights have one rank.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x4x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of value_weights[0] to be 2 (extent 1 of key_weights[0]), but got 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x4x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x16x8xf32>, %kw1: tensor<1x4x32x8xf32>, %vw0: tensor<1x2x16x4xf32>, %vw1: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of key_weights[1] to be 2 (extent 1 of key_weights[0]), but got 4}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0, %kw1 : tensor<1x2x16x8xf32>, tensor<1x4x32x8xf32>) value_weights(%vw0, %vw1 : tensor<1x2x16x4xf32>, tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 16 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// lse.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %l: tensor<1x4x64xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of lse to be 128 (extent 2 of query), but got 64}}
  %0:2 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o, %l : tensor<1x4x128x4xf32>, tensor<1x4x64xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>, tensor<1x4x64xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %l: tensor<1x4x128xf16>) {
  // expected-error @below {{'attn.fast_multipole' op expects lse to hold 'f32', but got 'f16'}}
  %0:2 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o, %l : tensor<1x4x128x4xf32>, tensor<1x4x128xf16>) {group = 32 : i64} -> tensor<1x4x128x4xf32>, tensor<1x4x128xf16>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole' 'attn.fast_multipole' op attribute 'multiplicity' failed to satisfy constraint: bool attribute}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64, multiplicity = 1 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole' 'attn.fast_multipole' op attribute 'causal' failed to satisfy constraint: unit attribute}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64, causal = 1 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Generic form with segments that do not fit the operands.
func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op operand count (4) does not match with the total size (5) specified in attribute 'operandSegmentSizes'}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects one operand in segment 10 of operandSegmentSizes, but got 2}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects one operand in segment 1 of operandSegmentSizes, but got 2}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op operand #3 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x1x4x8xf32>'}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole' op 'operandSegmentSizes' attribute cannot have negative elements}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, -1, 0, 0, 0, 0, 0, 1, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{invalid properties {group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1>} for op attn.fast_multipole: size mismatch in attribute conversion: 4 vs 12}}
  %0 = "attn.fast_multipole"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x16x8xf32>, %vw0: tensor<1x2x16x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects key_weights of level 1 to cover intervals of 32 tokens, but got 16}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x16x8xf32>) value_weights(%vw0 : tensor<1x2x16x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x3x32x8xf32>, %vw0: tensor<1x3x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 2 of key_weights[0] to be a multiple of extent 1 of key_weights[0], but got 32 and 3}}
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x3x32x8xf32>) value_weights(%vw0 : tensor<1x3x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x64x8xf32>, %m: tensor<1x63xi1>) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 1 of mask to be 64 (extent 2 of query), but got 63}}
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>) mask(%m : tensor<1x63xi1>) outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x64x8xf32>, %m: tensor<1x64xi8>) {
  // expected-error @below {{'attn.fast_multipole' op operand #3 must be rank-2 tensor or memref of i1, but got 'tensor<1x64xi8>'}}
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>) mask(%m : tensor<1x64xi8>) outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
  return
}

// -----

// Ready-made summaries: in place of weights, of all intervals of each level.
!q = tensor<1x2x128x8xf32>
!s = tensor<1x2x4x2x8xf32>
!w = tensor<1x2x32x8xf32>
func.func @f(%q: !q, %s: !s, %w: !w) {
  // expected-error @below {{'attn.fast_multipole' op expects no weights and no biases beside key_summaries, but got both}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_weights(%w : !w) value_weights(%w : !w) key_summaries(%s : !s) outs(%q : !q) {group = 32 : i64} -> !q
  return
}

// -----

!q = tensor<1x2x128x8xf32>
!s = tensor<1x2x3x2x8xf32>
func.func @f(%q: !q, %s: !s) {
  // expected-error @below {{'attn.fast_multipole' op expects key_summaries of level 1 for 4 intervals of 32 tokens, but got 3}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_summaries(%s : !s) value_summaries(%s : !s) outs(%q : !q) {group = 32 : i64} -> !q
  return
}

// -----

!q = tensor<1x2x128x8xf32>
!s = tensor<1x2x4x3x8xf32>
func.func @f(%q: !q, %s: !s) {
  // expected-error @below {{'attn.fast_multipole' op expects a group that is a multiple of the 3 summaries of an interval in key_summaries, but got 32}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_summaries(%s : !s) value_summaries(%s : !s) outs(%q : !q) {group = 32 : i64} -> !q
  return
}

// -----

!q = tensor<1x2x128x8xf32>
!s = tensor<1x2x4x2x8xf32>
!w = tensor<1x4x32x8xf32>
func.func @f(%q: !q, %s: !s, %w: !w) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 3 of value_summaries[0] to be 4 (extent 1 of key_weights[0]), but got 2}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_weights(%w : !w) value_summaries(%s : !s) outs(%q : !q) {group = 32 : i64} -> !q
  return
}

// -----

!q = tensor<1x2x256x8xf32>
!s = tensor<1x2x8x2x8xf32>
func.func @f(%q: !q, %s: !s) {
  // expected-error @below {{'attn.fast_multipole' op expects key_summaries for 2 levels (256 tokens in groups of 32), but got 1}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_summaries(%s : !s) value_summaries(%s : !s) outs(%q : !q) {group = 32 : i64} -> !q
  return
}

// -----

// Weights that mix columns have both at the end.
!q = tensor<1x2x128x8xf32>
!w = tensor<1x2x32x8x4xf32>
func.func @f(%q: !q, %w: !w) {
  // expected-error @below {{'attn.fast_multipole' op expects extent 4 of key_weights[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole ins(%q, %q, %q : !q, !q, !q) key_weights(%w : !w) value_weights(%w : !w) outs(%q : !q) {group = 32 : i64} -> !q
  return
}
