// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Element types.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf16>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects value to have the element type of query, 'f32', but got 'f16'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf16>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xbf16>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects codebook to hold 'f32', but got 'bf16'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xbf16>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf16>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects output to have the element type of query, 'f32', but got 'f16'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf16>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf16>
  return
}

// -----

// Widths.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x?xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of value to be static, but got a dynamic extent}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x?xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x0xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of value to be at least 1, but got 0}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x0xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// The codebook.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x7xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of codebook to be 8 (extent 3 of query), but got 7}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x7xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<3x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 0 of codebook to be 2 or 1 (extent 1 of codes), but got 3}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<3x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x?x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 1 of codebook to be static, but got a dynamic extent}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x?x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x0x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 1 of codebook to be at least 1, but got 0}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x0x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// Blocks.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects a block of at least 1 token, but got 0}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 0 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects a block of at least 1 token, but got -4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = -4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects a block of at most 1073741824 tokens, but got 1073741825}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 1073741825 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// The memory.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq' op expects a memory of at least 0 blocks, but got -1}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, memory = -1 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq' op expects a memory of at most 268435456 blocks of 4 tokens, but got 268435457}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, memory = 268435457 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of bias to be 12 ((memory + 1) * block), but got 8}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, memory = 2 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// Tokens.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<1x2x16xi32>, %v: tensor<1x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 0 of codes to be 2 (extent 0 of query), but got 1}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<1x2x16xi32>, tensor<1x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x15xi32>, %v: tensor<2x2x15x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of codes to be 16 (extent 2 of query), but got 15}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x15xi32>, tensor<2x2x15x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<1x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 0 of codes to be 2 (extent 0 of query), but got 1}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<1x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x4x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 1 of value to be 4 (extent 1 of codes), but got 2}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x4x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x15xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of codes to be 16 (extent 2 of query), but got 15}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x15xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x3x16xi32>, %v: tensor<2x3x16x6xf32>, %c: tensor<1x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 1 of query to be a multiple of extent 1 of codes, but got 4 and 3}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x3x16xi32>, tensor<2x3x16x6xf32>, tensor<1x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// The bias.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x4xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of bias to be 8 ((memory + 1) * block), but got 4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x16x4xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x?xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of bias to be static, but got a dynamic extent}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x16x?xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x8x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of bias to be 16 or 1 (extent 2 of query), but got 8}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x8x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf64>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects bias to hold 'f32', but got 'f64'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x16x8xf64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects no bias without causal: no query has a present block then}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64} -> tensor<2x4x16x6xf32>
  return
}

// -----

// Destinations.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x7xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of output to be 6 (extent 3 of value), but got 7}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x7xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x7xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf16>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects lse to hold 'f32', but got 'f16'}}
  %0:2 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf16>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>, tensor<2x4x16xf16>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects no lse with weighting squared_relu, which has no normaliser}}
  %0:2 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<2x4x16x6xf32>, tensor<2x4x16xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal, scale = 0x7FF0000000000000 : f64} -> tensor<2x4x16x6xf32>
  return
}

// -----

// States.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects no state without causal: every query reads the whole sequence then}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects no state without causal: every query reads the whole sequence then}}
  %0:6 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) next_state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x16x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects 5 operands of state (mean, count, kept codes, kept values, position), but got 4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects 5 operands of next_state (mean, count, kept codes, kept values, position), but got 3}}
  %0:4 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) next_state(%m, %n, %kz : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x4x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of mean of state to be 5 (extent 1 of codebook), but got 4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x4x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x5xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 3 of mean of next_state to be 6 (extent 3 of value), but got 5}}
  %0:6 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) next_state(%m, %n, %kz, %kv, %p : tensor<2x2x5x5xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>, tensor<2x2x5x5xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x4xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of count of state to be 5 (extent 1 of codebook), but got 4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x4xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x4xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of kept codes of state to be 8 ((memory + 1) * block), but got 4}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x4xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x16x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of kept values of next_state to be 8 ((memory + 1) * block), but got 16}}
  %0:6 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x16x6xf32>) next_state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x16x6xf32>, tensor<i64>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x16x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x?xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects extent 2 of kept codes of state to be static, but got a dynamic extent}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x?xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf16>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects mean of state to hold 'f32', but got 'f16'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf16>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8xi32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq' op expects kept values of state to have the element type of query, 'f32', but got 'i32'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8xi32>, tensor<i64>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x16x6xf32>, %b: tensor<2x4x16x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<2x2x8xi32>) {
  // expected-error @below {{'attn.vq' op expects position of state to hold 'i64', but got 'i32'}}
  %0:1 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<2x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<2x2x8xi32>) outs(%o : tensor<2x4x16x6xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x6xf32>
  return
}

// -----

// Decoding.
func.func @f(%q: tensor<2x4x2x8xf32>, %z: tensor<2x2x2xi32>, %v: tensor<2x2x2x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x2x6xf32>, %b: tensor<2x4x1x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq_decode' op expects extent 2 of query to be 1, but got 2}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x2x8xf32>, tensor<2x2x2xi32>, tensor<2x2x2x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x2x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x2x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %b: tensor<2x4x1x5xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq_decode' op expects extent 3 of bias to be 8 ((memory + 1) * block), but got 5}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) bias(%b : tensor<2x4x1x5xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x1x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %b: tensor<2x4x1x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq_decode' op expects extent 2 of kept codes of state to be 0 ((memory + 1) * block), but got 8}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 0 : i64} -> tensor<2x4x1x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %b: tensor<2x4x1x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq_decode' op expects 5 operands of state (mean, count, kept codes, kept values, position), but got 2}}
  %0:3 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>) {block = 4 : i64} -> tensor<2x4x1x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>, %r: tensor<4x7x8xf32>, %u: tensor<4x8xf32>) {
  // expected-error @below {{'attn.vq_decode' op expects relative to have a row for each of the 8 distances of tokens read one by one, but got 7}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) relative(%r, %u : tensor<4x7x8xf32>, tensor<4x8xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x1x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>, %t: tensor<4x7xf32>) {
  // expected-error @below {{'attn.vq_decode' op expects distance_bias to have a row for each of the 8 distances of tokens read one by one, but got 7}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) distance_bias(%t : tensor<4x7xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x1x6xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

func.func @f(%q: tensor<2x4x1x8xf32>, %z: tensor<2x2x1xi32>, %v: tensor<2x2x1x6xf32>, %c: tensor<2x5x8xf32>, %o: tensor<2x4x1x6xf32>, %b: tensor<2x4x1x8xf32>, %l: tensor<2x4x16xf32>, %m: tensor<1x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xf32>, %p: tensor<i64>) {
  // expected-error @below {{'attn.vq_decode' op expects extent 0 of mean of state to be 2 (extent 0 of query), but got 1}}
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<2x4x1x8xf32>, tensor<2x2x1xi32>, tensor<2x2x1x6xf32>, tensor<2x5x8xf32>) outs(%o : tensor<2x4x1x6xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>) {block = 4 : i64} -> tensor<2x4x1x6xf32>, tensor<1x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xf32>, tensor<i64>
  return
}

// -----

// Inputs, as those of attn.vq.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf16>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects value to have the element type of query, 'f32', but got 'f16'}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf16>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x7xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of codebook to be 8 (extent 3 of query), but got 7}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x7xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of bias to be 0 ((memory + 1) * block), but got 8}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 0 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x9xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x9xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of bias to be 8 ((memory + 1) * block), but got 9}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x9xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x9xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x9xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects no bias without causal: no query has a present block then}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal, scale = 0x7FF0000000000000 : f64} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

// The forward results.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects output and lse with weighting softmax}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) gradient(%d : tensor<2x4x16x6xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects no output and lse with weighting squared_relu}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects no d_lse without lse}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x15x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of bias to be 15 or 1 (extent 2 of output), but got 16}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x15x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf64>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects lse to hold 'f32', but got 'f64'}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf64>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x3x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 1 of bias to be 3 or 1 (extent 1 of lse), but got 4}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x3x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

// Their gradients.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x5xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of d_output to be 6 (extent 3 of value), but got 5}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x5xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xbf16>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects d_output to have the element type of query, 'f32', but got 'bf16'}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xbf16>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x17xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of bias to be 17 or 1 (extent 2 of d_lse), but got 16}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x17xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

// The gradients of inputs.
func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x7xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects d_query to have the shape of query: extent 3 to be 8, but got 7}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x7xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x7xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf16>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects d_value to hold 'f32', but got 'f16'}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf16>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf16>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf64>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects d_key to hold 'f32', but got 'f64'}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf64>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf64>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x4x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 1 of d_key to be 2 (extent 1 of codes), but got 4}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x6xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of d_key to be 8 (extent 3 of query), but got 6}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects bias beside d_bias}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x8xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<1x4x16x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects d_bias to have the shape of bias: extent 0 to be 2, but got 1}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<1x4x16x8xf32>) {block = 4 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<1x4x16x8xf32>
  return
}

// -----

// A gradient where an input lies.
func.func @f(%q: memref<1x1x7x8xf32>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>, %dq: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects buffers of gradients to be apart from all others, but operands 4 and 5 are one}}
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf32>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      gradient(%dq : memref<1x1x7x8xf32>) outs(%dq, %dk, %dk : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  return
}

// -----

// States and their gradients.

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects 5 operands of state (mean, count, kept codes, kept values, position), but got 4}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects no state without causal: every query reads the whole sequence then}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects no state without causal: every query reads the whole sequence then}}
  %0:3 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects no d_state without a state}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) gradient(%d : tensor<1x2x3x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects 3 operands of d_next_state (mean, kept keys, kept values), but got 2}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: tensor<1x1x5x6xf64>) {
  // expected-error @below {{'attn.vq_backward' op expects mean of d_next_state to hold 'f32', but got 'f64'}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%bad, %dkk, %kv : tensor<1x1x5x6xf64>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: f32) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of kept keys of d_state to be 8 (extent 3 of query), but got 6}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %kv, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x6xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x6xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: tensor<1x1x7x6xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of kept values of d_state to be 8 ((memory + 1) * block), but got 7}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %bad : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x7x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x7x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: tensor<1x1x?x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of kept keys of d_state to be static, but got a dynamic extent}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %bad, %kv : tensor<1x1x5x6xf32>, tensor<1x1x?x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x?x8xf32>, tensor<1x1x8x6xf32>
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %z: memref<1x1x16xi32>, %v: memref<1x1x16x3xf32>, %c: memref<1x5x3xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.vq_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.vq_backward ins(%q, %z, %v, %c : memref<1x1x16x3xi32>, memref<1x1x16xi32>, memref<1x1x16x3xf32>, memref<1x5x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  return
}
