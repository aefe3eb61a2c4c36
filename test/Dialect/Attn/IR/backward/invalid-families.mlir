// RUN: fovea-opt %s --split-input-file --verify-diagnostics

// Gradients of another shape, an lse of another run, a gradient where an input
// lies, and integers: of every family, as far as its own file has none.

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x15x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.stream_backward' op expects d_output to have the shape of output: extent 2 to be 16, but got 15}}
  attn.stream_backward query(%q : memref<1x1x16x3xf32>) source(%k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x15x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {scale = 1.0 : f64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x15xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.stream_backward' op expects extent 2 of lse to be 16 (extent 2 of query), but got 15}}
  attn.stream_backward query(%q : memref<1x1x16x3xf32>) source(%k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x15xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {scale = 1.0 : f64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.stream_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 6 are one}}
  attn.stream_backward query(%q : memref<1x1x16x3xf32>) source(%k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%q, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {scale = 1.0 : f64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.stream_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.stream_backward query(%q : memref<1x1x16x3xi32>) source(%k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {scale = 1.0 : f64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %w: memref<1x2x4x3xf32>, %d: memref<1x1x8x3xf32>, %dw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.summarize_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 3 are one}}
  attn.summarize_backward ins(%q : memref<1x1x16x3xf32>) weights(%w : memref<1x2x4x3xf32>) gradient(%d : memref<1x1x8x3xf32>)
      outs(%q, %dw : memref<1x1x16x3xf32>, memref<1x2x4x3xf32>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %w: memref<1x2x4x3xf32>, %d: memref<1x1x8x3xf32>, %dq: memref<1x1x16x3xf32>, %dw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.summarize_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.summarize_backward ins(%q : memref<1x1x16x3xi32>) weights(%w : memref<1x2x4x3xf32>) gradient(%d : memref<1x1x8x3xf32>)
      outs(%dq, %dw : memref<1x1x16x3xf32>, memref<1x2x4x3xf32>)
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x15x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_backward' op expects d_output to have the shape of output: extent 2 to be 16, but got 15}}
  attn.fast_multipole_backward ins(%q, %k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>)
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x15x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x15xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_backward' op expects extent 2 of lse to be 16 (extent 2 of query), but got 15}}
  attn.fast_multipole_backward ins(%q, %k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>)
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x15xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 8 are one}}
  attn.fast_multipole_backward ins(%q, %k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>)
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%q, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %o: memref<1x1x16x3xf32>, %l: memref<1x1x16xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.fast_multipole_backward ins(%q, %k, %v : memref<1x1x16x3xi32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>)
      forward(%o, %l : memref<1x1x16x3xf32>, memref<1x1x16xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %qw: memref<1x2x4x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %d: memref<1x1x15x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dqw: memref<1x2x4x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear_backward' op expects extent 2 of d_output to be 16 (extent 2 of query), but got 15}}
  attn.fast_multipole_linear_backward ins(%q, %k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      query_weights(%qw : memref<1x2x4x3xf32>) key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>) gradient(%d : memref<1x1x15x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_query_weights(%dqw : memref<1x2x4x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xf32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %qw: memref<1x2x4x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %d: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dqw: memref<1x2x4x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear_backward' op expects buffers of gradients to be apart from all others, but operands 0 and 7 are one}}
  attn.fast_multipole_linear_backward ins(%q, %k, %v : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      query_weights(%qw : memref<1x2x4x3xf32>) key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%q, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_query_weights(%dqw : memref<1x2x4x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %k: memref<1x1x16x3xf32>, %v: memref<1x1x16x3xf32>, %qw: memref<1x2x4x3xf32>, %kw: memref<1x2x4x3xf32>, %vw: memref<1x2x4x3xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>, %dqw: memref<1x2x4x3xf32>, %dkw: memref<1x2x4x3xf32>, %dvw: memref<1x2x4x3xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.fast_multipole_linear_backward ins(%q, %k, %v : memref<1x1x16x3xi32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>)
      query_weights(%qw : memref<1x2x4x3xf32>) key_weights(%kw : memref<1x2x4x3xf32>) value_weights(%vw : memref<1x2x4x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) d_query_weights(%dqw : memref<1x2x4x3xf32>) d_key_weights(%dkw : memref<1x2x4x3xf32>) d_value_weights(%dvw : memref<1x2x4x3xf32>) {group = 4 : i64}
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

func.func @f(%q: memref<1x1x16x3xi32>, %z: memref<1x1x16xi32>, %v: memref<1x1x16x3xf32>, %c: memref<1x5x3xf32>, %d: memref<1x1x16x3xf32>, %dq: memref<1x1x16x3xf32>, %dk: memref<1x1x16x3xf32>, %dv: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.vq_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.vq_backward ins(%q, %z, %v, %c : memref<1x1x16x3xi32>, memref<1x1x16xi32>, memref<1x1x16x3xf32>, memref<1x5x3xf32>) gradient(%d : memref<1x1x16x3xf32>)
      outs(%dq, %dk, %dv : memref<1x1x16x3xf32>, memref<1x1x16x3xf32>, memref<1x1x16x3xf32>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  return
}

// -----

func.func @f(%q: memref<1x1x16x3xi32>, %d: memref<1x1x16x4xf32>, %dq: memref<1x1x16x3xf32>) {
  // expected-error @below {{'attn.polynomial_features_backward' op operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'memref<1x1x16x3xi32>'}}
  attn.polynomial_features_backward ins(%q : memref<1x1x16x3xi32>) gradient(%d : memref<1x1x16x4xf32>) outs(%dq : memref<1x1x16x3xf32>) {degree = 1 : i64, scale = 1.0 : f64}
  return
}
