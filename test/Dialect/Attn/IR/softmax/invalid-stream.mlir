// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// There is at least one source.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects at least one source}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// Element types may differ, but sums are kept in one type.
func.func @f(%q: tensor<1x4x16x8xbf16>, %k: tensor<1x2x16x8xf32>, %s: tensor<1x2x16x8xf64>) {
  // expected-error @below {{'attn.stream' op expects values of source 0 not to hold f64, since query holds 'bf16', but got 'f64'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xbf16>) source(%k, %s : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf64>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xbf16>) {scale = 0.5} -> tensor<1x4x16x8xbf16>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf64>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects keys of source 0 to hold f64, since query holds 'f64', but got 'f32'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf64>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf64>) {scale = 0.5} -> tensor<1x4x16x8xf64>
  return
}

// -----

// Attention of every source is checked as in attn.dense.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %v: tensor<1x2x17x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of values of source 0 to be 16 (extent 2 of keys of source 0), but got 17}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %v : tensor<1x2x16x8xf32>, tensor<1x2x17x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %w: tensor<1x2x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of log_weight of source 0 to be 16 or 1 (extent 2 of keys of source 0), but got 8}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) log_weight(%w : tensor<1x2x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %w: tensor<1x4x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of bias of source 0 to be 16 or 1 (extent 2 of keys of source 0), but got 8}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) bias(%w : tensor<1x4x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0x7FF0000000000000 : f64} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %l: tensor<1x4x15xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 2 of lse to be 16 (extent 2 of query), but got 15}}
  %0:2 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q, %l : tensor<1x4x16x8xf32>, tensor<1x4x15xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>, tensor<1x4x15xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: memref<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects all operands to be tensors or all to be memrefs, but got both}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : memref<1x2x16x8xf32>, memref<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects one result for each tensor in outs, that is 1, but got 2}}
  %0:2 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>
  return
}

// -----

// Sources have the same batch and heads, and values of the same width.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %c: tensor<1x4x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 1 of keys of source 0 to be 4 or 1 (extent 1 of values of source 1), but got 2}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] source(%c, %c : tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<?x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %c: tensor<2x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of keys of source 1 to be 1 (extent 0 of values of source 0), but got 2}}
  %0 = attn.stream query(%q : tensor<?x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] source(%c, %c : tensor<2x2x16x8xf32>, tensor<2x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<?x4x16x8xf32>) {scale = 0.5} -> tensor<?x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %c: tensor<1x2x16x4xf32>) {
  // expected-error @below {{'attn.stream' op expects extent 3 of values of source 1 to be 8 (extent 3 of output), but got 4}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] source(%k, %c : tensor<1x2x16x8xf32>, tensor<1x2x16x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// The block size is not negative, and given where ranges need it.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects a block size that is not negative, but got -1}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {block = -1 : i64, scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op expects a block size, since a range of source 1 depends on the block index}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, 1)>, affine_map<(b)[rows, n] -> (1, b)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' 'attn.stream' op attribute 'block' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {block = 4 : i32, scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// The scale is given.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{'attn.stream' op requires attribute 'scale'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' 'attn.stream' op attribute 'scale' failed to satisfy constraint: 64-bit float attribute}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 1 : i64} -> tensor<1x4x16x8xf32>
  return
}

// -----

// Ranges map (b)[rows, n] to (begin, end).
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected ranges of the form (b)[rows, n] -> (begin, end) or (begin, end, lower, upper), but got affine_map<(d0)[s0] -> (0, s0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected ranges of the form (b)[rows, n] -> (begin, end) or (begin, end, lower, upper), but got affine_map<(d0, d1)[s0, s1] -> (0, s0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b, c)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected ranges of the form (b)[rows, n] -> (begin, end) or (begin, end, lower, upper), but got affine_map<(d0)[s0, s1] -> (s0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (0, d0 floordiv 0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b floordiv 0)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (0, d0 floordiv -2)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b floordiv -2)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (0, d0 ceildiv 0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b ceildiv 0)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (0, d0 mod 0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b mod 0)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected positive constant divisors in a range, but got affine_map<(d0)[s0, s1] -> (0, d0 floordiv s1)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b floordiv n)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected ranges that multiply by constants only, but got affine_map<(d0)[s0, s1] -> (0, d0 * s1)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, b * n)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected ranges of the form (b)[rows, n] -> (begin, end) or (begin, end, lower, upper), but got affine_map<(d0)[s0, s1] -> (0, s0, 0)>}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows, 0)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' invalid kind of attribute specified}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [3] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 'ranges'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// Syntax.
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 2 operands, but got 1}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k : tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected a type for each of the 2 operands, but got 1}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 1 operand, but got 2}}
  %0 = attn.stream query(%q, %q : tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 1 or 2 operands, but got 3}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q, %q, %q : tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 1 operand, but got 2}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) log_weight(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected a window of at least 1, but got 0}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 0> outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{expected '<'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask causal outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %i: index) {
  // expected-error @below {{custom op 'attn.stream' expected 'of'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] tile(%i, %i) outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// expected-note @below {{prior use here}}
func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>, %i: index, %j: i64) {
  // expected-error @below {{use of value '%j' expects different type than prior uses: 'index' vs 'i64'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] tile(%i of %j) outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 'query'}}
  %0 = attn.stream (%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' expected 'outs'}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] out(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' attribute 'sources' occurs more than once in the attribute list}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5, sources = []} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %k: tensor<1x2x16x8xf32>) {
  // expected-error @below {{custom op 'attn.stream' attribute 'operandSegmentSizes' occurs more than once in the attribute list}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%k, %k : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5, operandSegmentSizes = array<i32: 1>} -> tensor<1x4x16x8xf32>
  return
}

// -----

// Generic form: operands and sources that do not agree.
func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects keys and values for each of the 2 sources, but got 1 and 1}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>, #attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects keys and values for each of the 1 sources, but got 1 and 2}}
  %0 = "attn.stream"(%q, %q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects 1 log weights and 0 biases, as the sources say, but got 0 and 0}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = true, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects 0 log weights and 1 biases, as the sources say, but got 0 and 0}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = true>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects 0 log weights and 0 biases, as the sources say, but got 1 and 0}}
  %0 = "attn.stream"(%q, %q, %q, %w, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects at least one source}}
  %0 = "attn.stream"(%q, %q) <{operandSegmentSizes = array<i32: 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = []}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects first_row and num_rows together}}
  %0 = "attn.stream"(%q, %q, %q, %i, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, index, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects first_row and num_rows together}}
  %0 = "attn.stream"(%q, %q, %q, %i, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, index, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op operand count (4) does not match with the total size (5) specified in attribute 'operandSegmentSizes'}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op expects one operand in segment 0 of operandSegmentSizes, but got 0}}
  %0 = "attn.stream"(%q, %q) <{operandSegmentSizes = array<i32: 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op operand #3 must be rank-3 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x1x4x8xf32>'}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1>, scale = 1.0, sources = [#attn.source<ranges = [(b)[rows, n] -> (0, rows)], mask = <none>, log_weight = false, bias = false>]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x1x4x8xf32>, %w: tensor<1x1x4xf32>, %i: index) {
  // expected-error @below {{'attn.stream' op attribute 'sources' failed to satisfy constraint: array of source descriptions}}
  %0 = "attn.stream"(%q, %q, %q, %q) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0>, scale = 1.0, sources = [3]}> : (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return
}

// -----

// A sink is an entry of a soft-max.
func.func @f(%q: tensor<1x4x16x8xf32>, %s: tensor<1x4xf32>) {
  // expected-error @below {{'attn.stream' op expects no sink with weighting squared_relu, which has no normaliser}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%q, %q : tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] sink(%s : tensor<1x4xf32>)
      outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5, weighting = #attn.weighting<squared_relu>} -> tensor<1x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<1x4x16x8xf32>, %s: tensor<1x4xf32>) {
  // expected-error @below {{expected 1 operand, but got 2}}
  %0 = attn.stream query(%q : tensor<1x4x16x8xf32>) source(%q, %q : tensor<1x4x16x8xf32>, tensor<1x4x16x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] sink(%s, %s : tensor<1x4xf32>, tensor<1x4xf32>)
      outs(%q : tensor<1x4x16x8xf32>) {scale = 0.5} -> tensor<1x4x16x8xf32>
  return
}

// -----

// Which rows two ranges share would depend on the batch entry.
func.func @f(%q: tensor<2x4x16x8xf32>, %n: tensor<2xi32>) {
  // expected-error @below {{'attn.stream' op expects at most one range of source 0 beside lengths, but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%q, %q : tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) lengths(%n : tensor<2xi32>)
      ranges [affine_map<(b)[rows, n] -> (0, 2)>, affine_map<(b)[rows, n] -> (4, rows)>]
      outs(%q : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %n: tensor<2xi32>) {
  // expected-error @below {{'attn.stream' op expects at most one range of source 0 beside query_lengths, but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%q, %q : tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, 2)>, affine_map<(b)[rows, n] -> (4, rows)>] query_lengths(%n : tensor<2xi32>)
      outs(%q : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %n: tensor<3xi32>) {
  // expected-error @below {{'attn.stream' op expects extent 0 of keys of source 0 to be 3 or 1 (extent 0 of lengths of source 0), but got 2}}
  %0 = attn.stream query(%q : tensor<2x4x16x8xf32>) source(%q, %q : tensor<2x4x16x8xf32>, tensor<2x4x16x8xf32>) lengths(%n : tensor<3xi32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<2x4x16x8xf32>) {scale = 0.5} -> tensor<2x4x16x8xf32>
  return
}
