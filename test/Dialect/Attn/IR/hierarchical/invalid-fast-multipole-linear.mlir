// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// What every attention operation checks.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x4xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of key to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x4xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf16>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects value to have the element type of query, 'f32', but got 'f16'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf16>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x3x128x8xf32>, %v: tensor<1x3x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of query to be a multiple of extent 1 of key, but got 4 and 3}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x3x128x8xf32>, tensor<1x3x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x8xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of output to be 4 (extent 3 of value), but got 8}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x8xf32>) {group = 32 : i64} -> tensor<1x4x128x8xf32>
  return
}

// -----

func.func @f(%q: tensor<4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<4x128x8xf32>'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x?xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of query to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x?xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64, scale = 0x7FF8000000000000 : f64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: memref<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, memref<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: memref<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : memref<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects one result for each tensor in outs, that is 1, but got 0}}
  attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64}
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects one result for each tensor in outs, that is 1, but got 2}}
  %0:2 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>, tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects the result type to be that of its destination, 'tensor<1x4x128x4xf32>', but got 'tensor<1x4x?x4xf32>'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x?x4xf32>
  return
}

// -----

// There are as many keys as queries.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x256x8xf32>, %v: tensor<1x2x256x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of key to be 128 (extent 2 of query), but got 256}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x256x8xf32>, tensor<1x2x256x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// The group is given and positive.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op requires attribute 'group'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects a group of at least 1 token, but got 0}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 0 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects a group of at least 1 token, but got -32}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = -32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole_linear' 'attn.fast_multipole_linear' op attribute 'group' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i32} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{custom op 'attn.fast_multipole_linear' 'attn.fast_multipole_linear' op attribute 'group' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32.0} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Every level has weights, of all operands.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects key_weights for 1 levels (128 tokens in groups of 32), but got 0}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects value_weights for 1 levels (128 tokens in groups of 32), but got 0}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %kw1: tensor<1x2x64x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects key_weights for as many levels as query_weights (1), but got 2}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0, %kw1 : tensor<1x2x32x8xf32>, tensor<1x2x64x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects query_weights of level 1 to cover intervals of 64 tokens, but got 32}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 64 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects query_weights of level 1 to cover intervals of 4611686018427387904 tokens, but got 32}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 4611686018427387904 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x129x8xf32>, %k: tensor<1x2x129x8xf32>, %v: tensor<1x2x129x4xf32>, %o: tensor<1x4x129x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects query_weights for 2 levels (129 tokens in groups of 32), but got 1}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x129x8xf32>, tensor<1x2x129x8xf32>, tensor<1x2x129x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x129x4xf32>) {group = 32 : i64} -> tensor<1x4x129x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x9223372036854775807x8xf32>, %k: tensor<1x2x9223372036854775807x8xf32>, %v: tensor<1x2x9223372036854775807x4xf32>, %o: tensor<1x4x9223372036854775807x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects query_weights for 62 levels (9223372036854775807 tokens in groups of 1), but got 1}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x9223372036854775807x8xf32>, tensor<1x2x9223372036854775807x8xf32>, tensor<1x2x9223372036854775807x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x9223372036854775807x4xf32>) {group = 1 : i64} -> tensor<1x4x9223372036854775807x4xf32>
  return
}

// -----

// Biases: none or one for each level.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x8xf32>, %kb1: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects no biases or one for each of the 1 levels beside key_weights, but got 2}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0, %kb1 : tensor<1x2x8xf32>, tensor<1x2x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x2x4xf32>, %vb1: tensor<1x2x4xf32>, %vb2: tensor<1x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects no biases or one for each of the 1 levels beside value_weights, but got 3}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0, %vb1, %vb2 : tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of key_biases[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0 : tensor<1x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<2x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 0 of value_biases[0] to be 1 (extent 0 of value_weights[0]), but got 2}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<2x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x1x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of value_biases[0] to be 2 (extent 1 of query_weights[0]), but got 1}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<1x1x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %kb0: tensor<1x2x8xf64>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects key_biases[0] to have the element type of query, 'f32', but got 'f64'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) key_biases(%kb0 : tensor<1x2x8xf64>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %vb0: tensor<1x2x?xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of value_biases[0] to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) value_biases(%vb0 : tensor<1x2x?xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Weights fit the data, the heads and the level.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf16>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects key_weights[0] to have the element type of query, 'f32', but got 'f16'}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf16>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x4xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of key_weights[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x4xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of value_weights[0] to be 4 (extent 3 of value), but got 8}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<3x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key to be a multiple of extent 0 of key_weights[0], but got 2 and 3}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<3x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<4x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key to be a multiple of extent 0 of value_weights[0], but got 2 and 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<4x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<0x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 0 of key_weights[0] to be at least 1, but got 0}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<0x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x3x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key_weights[0] to be 2 (extent 1 of query_weights[0]), but got 3}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x3x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x?x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key_weights[0] to be static, but got a dynamic extent}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x?x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x16x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of key_weights[0] to be 32 (extent 2 of query_weights[0]), but got 16}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x16x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x64x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of value_weights[0] to be 32 (extent 2 of query_weights[0]), but got 64}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x64x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x16x8xf32>, %qw1: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x16x8xf32>, %kw1: tensor<1x2x16x8xf32>, %vw0: tensor<1x2x16x4xf32>, %vw1: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of key_weights[1] to be 32 (extent 2 of query_weights[1]), but got 16}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0, %qw1 : tensor<1x2x16x8xf32>, tensor<1x2x32x8xf32>) key_weights(%kw0, %kw1 : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) value_weights(%vw0, %vw1 : tensor<1x2x16x4xf32>, tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 16 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// All weights have one rank.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x4x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of value_weights[0] to be 2 (extent 1 of query_weights[0]), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x4x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x16x8xf32>, %qw1: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x16x8xf32>, %kw1: tensor<1x4x32x8xf32>, %vw0: tensor<1x2x16x4xf32>, %vw1: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key_weights[1] to be 2 (extent 1 of query_weights[0]), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0, %qw1 : tensor<1x2x16x8xf32>, tensor<1x2x32x8xf32>) key_weights(%kw0, %kw1 : tensor<1x2x16x8xf32>, tensor<1x4x32x8xf32>) value_weights(%vw0, %vw1 : tensor<1x2x16x4xf32>, tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 16 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Summarised queries look ahead, which has to be allowed.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects allow_query_lookahead beside causal, since summarised queries mix later queries of their interval into a row}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64, causal} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Query weights fit the queries.
func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects query_weights for 1 levels (128 tokens in groups of 32), but got 0}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<3x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of query to be a multiple of extent 0 of query_weights[0], but got 4 and 3}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<3x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x4xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 3 of query_weights[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x4xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x16x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of key_weights[0] to be 16 (extent 2 of query_weights[0]), but got 32}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x16x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x4x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of key_weights[0] to be 4 (extent 1 of query_weights[0]), but got 2}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x4x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %qb0: tensor<1x2x8xf32>, %qb1: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects no biases or one for each of the 1 levels beside query_weights, but got 2}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) query_biases(%qb0, %qb1 : tensor<1x2x8xf32>, tensor<1x2x8xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %o: tensor<1x4x128x4xf32>, %qw0: tensor<1x2x32x8xf32>, %kw0: tensor<1x2x32x8xf32>, %vw0: tensor<1x2x32x4xf32>, %qb0: tensor<1x2x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 2 of query_biases[0] to be 8 (extent 3 of query), but got 4}}
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>) query_weights(%qw0 : tensor<1x2x32x8xf32>) key_weights(%kw0 : tensor<1x2x32x8xf32>) value_weights(%vw0 : tensor<1x2x32x4xf32>) query_biases(%qb0 : tensor<1x2x4xf32>) outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return
}

// -----

// Generic form with segments that do not fit the operands.
func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects one operand in segment 13 of operandSegmentSizes, but got 2}}
  %0 = "attn.fast_multipole_linear"(%q, %q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects one operand in segment 0 of operandSegmentSizes, but got 2}}
  %0 = "attn.fast_multipole_linear"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expected 4 or more operands, but found 3}}
  %0 = "attn.fast_multipole_linear"(%q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op operand count (4) does not match with the total size (5) specified in attribute 'operandSegmentSizes'}}
  %0 = "attn.fast_multipole_linear"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>) {
  // expected-error @below {{invalid properties {group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0>} for op attn.fast_multipole_linear: size mismatch in attribute conversion: 4 vs 14}}
  %0 = "attn.fast_multipole_linear"(%q, %q, %q, %q) <{group = 2 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 0>}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x64x8xf32>, %m: tensor<1x63xi1>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects extent 1 of mask to be 64 (extent 2 of query), but got 63}}
  %0 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>) mask(%m : tensor<1x63xi1>) outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x64x8xf32>, %m: tensor<1x64xi8>) {
  // expected-error @below {{'attn.fast_multipole_linear' op operand #3 must be rank-2 tensor or memref of i1, but got 'tensor<1x64xi8>'}}
  %0 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>) mask(%m : tensor<1x64xi8>) outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
  return
}
