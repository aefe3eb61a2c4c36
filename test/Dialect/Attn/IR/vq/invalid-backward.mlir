// RUN: fovea-opt %s --split-input-file --verify-diagnostics

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
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of bias to be 0 (2 * block), but got 8}}
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x16x8xf32>, tensor<2x2x16xi32>, tensor<2x2x16x6xf32>, tensor<1x5x8xf32>) bias(%b : tensor<2x4x16x8xf32>) forward(%o, %l : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) gradient(%d, %e : tensor<2x4x16x6xf32>, tensor<2x4x16xf32>) outs(%dq, %dk, %dv : tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>) d_bias(%db : tensor<2x4x16x8xf32>) {block = 0 : i64, causal} -> tensor<2x4x16x8xf32>, tensor<2x2x16x8xf32>, tensor<2x2x16x6xf32>, tensor<2x4x16x8xf32>
  return
}

// -----

func.func @f(%q: tensor<2x4x16x8xf32>, %z: tensor<2x2x16xi32>, %v: tensor<2x2x16x6xf32>, %c: tensor<1x5x8xf32>, %b: tensor<2x4x16x9xf32>, %o: tensor<2x4x16x6xf32>, %l: tensor<2x4x16xf32>, %d: tensor<2x4x16x6xf32>, %e: tensor<2x4x16xf32>, %dq: tensor<2x4x16x8xf32>, %dk: tensor<2x2x16x8xf32>, %dv: tensor<2x2x16x6xf32>, %db: tensor<2x4x16x9xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 3 of bias to be 8 (2 * block), but got 9}}
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
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of kept values of d_state to be 8 (2 * block), but got 7}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %dkk, %bad : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x7x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x7x6xf32>
  return
}

// -----

func.func @f(%q: tensor<1x2x3x8xf32>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf32>, %c: tensor<1x5x8xf32>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf32>, %p: tensor<i64>, %d: tensor<1x2x3x6xf32>, %dk: tensor<1x1x3x8xf32>, %dkk: tensor<1x1x8x8xf32>, %bad: tensor<1x1x?x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op expects extent 2 of kept keys of d_state to be static, but got a dynamic extent}}
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf32>, tensor<1x1x3xi32>, tensor<1x1x3x6xf32>, tensor<1x5x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>) gradient(%d : tensor<1x2x3x6xf32>) d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) outs(%q, %dk, %v : tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>) d_state(%m, %bad, %kv : tensor<1x1x5x6xf32>, tensor<1x1x?x8xf32>, tensor<1x1x8x6xf32>) {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>} -> tensor<1x2x3x8xf32>, tensor<1x1x3x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x5x6xf32>, tensor<1x1x?x8xf32>, tensor<1x1x8x6xf32>
  return
}
