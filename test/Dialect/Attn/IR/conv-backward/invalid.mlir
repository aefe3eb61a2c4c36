// RUN: fovea-opt %s --split-input-file --verify-diagnostics

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
  // expected-error @below {{'attn.conv_backward' op expects extent 2 of query to be static, but got a dynamic extent}}
  %r:3 = attn.conv_backward ins(%q, %k, %v : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>) forward(%o : tensor<2x4x?x5xf32>) gradient(%d : tensor<2x4x?x5xf32>) outs(%iq, %ik, %iv : tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>) {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x4x?x6xf32>, tensor<2x2x?x6xf32>, tensor<2x2x?x5xf32>
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
