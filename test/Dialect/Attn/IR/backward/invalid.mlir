// RUN: fovea-opt %s --split-input-file --verify-diagnostics

func.func @d_output_shape(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x3x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects d_output to have the shape of output: extent 2 to be 4, but got 3}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x3x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @d_output_type(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf64>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects d_output not to hold f64, since query holds 'f32', but got 'f64'}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf64>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @lse_of_another_run(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x5xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects extent 2 of lse to be 4 (extent 2 of query), but got 5}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x5xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @lse_type(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf64>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects lse to hold 'f32', but got 'f64'}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf64>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @d_lse_shape(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %dl: tensor<1x1x4xf32>) {
  // expected-error @below {{expects d_lse to have the shape of lse: extent 1 to be 2, but got 1}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do, %dl : tensor<1x2x4x5xf32>, tensor<1x1x4xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @output_width(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x8xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x8xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects extent 3 of output to be 5 (extent 3 of value), but got 8}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x8xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x8xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @d_query_shape(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x5x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects d_query to have the shape of query: extent 2 to be 4, but got 5}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x5x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x5x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @d_key_shape(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x1x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{expects d_key to have the shape of key: extent 1 to be 2, but got 1}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x1x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @d_value_type(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xbf16>) {
  // expected-error @below {{expects d_value to hold 'f32', but got 'bf16'}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xbf16>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xbf16>
  return
}

// -----

func.func @narrow_d_value_type(%q: tensor<1x2x4x8xbf16>, %k: tensor<1x2x6x8xbf16>, %v: tensor<1x2x6x5xbf16>, %o: tensor<1x2x4x5xbf16>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xbf16>, %dq: tensor<1x2x4x8xbf16>, %dk: tensor<1x2x6x8xbf16>, %dv: tensor<1x2x6x5xf16>) {
  // expected-error @below {{expects d_value to hold 'bf16' or f32, but got 'f16'}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xbf16>, tensor<1x2x6x8xbf16>, tensor<1x2x6x5xbf16>)
      forward(%o, %l : tensor<1x2x4x5xbf16>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xbf16>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xbf16>, tensor<1x2x6x8xbf16>, tensor<1x2x6x5xf16>)
      -> tensor<1x2x4x8xbf16>, tensor<1x2x6x8xbf16>, tensor<1x2x6x5xf16>
  return
}

// -----

func.func @no_log_weight(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %dw: tensor<1x2x6xf32>) {
  // expected-error @below {{expects log_weight beside d_log_weight}}
  %r:4 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) d_log_weight(%dw : tensor<1x2x6xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>, tensor<1x2x6xf32>
  return
}

// -----

func.func @no_bias(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %db: tensor<1x2x4x6xf32>) {
  // expected-error @below {{expects bias beside d_bias}}
  %r:4 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) d_bias(%db : tensor<1x2x4x6xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>, tensor<1x2x4x6xf32>
  return
}

// -----

func.func @d_bias_not_reduced(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %b: tensor<1x1x4x6xf32>, %db: tensor<1x2x4x6xf32>) {
  // expected-error @below {{expects d_bias to have the shape of bias: extent 1 to be 1, but got 2}}
  %r:4 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) bias(%b : tensor<1x1x4x6xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) d_bias(%db : tensor<1x2x4x6xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>, tensor<1x2x4x6xf32>
  return
}

// -----

func.func @d_log_weight_dynamic(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %w: tensor<1x1x6xf32>, %dw: tensor<1x?x6xf32>) {
  // expected-error @below {{expects d_log_weight to have the shape of log_weight: extent 1 to be 1, but got ?}}
  %r:4 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) log_weight(%w : tensor<1x1x6xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) d_log_weight(%dw : tensor<1x?x6xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>, tensor<1x?x6xf32>
  return
}

// -----

func.func @bias_shape(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>, %b: tensor<1x1x4x7xf32>) {
  // expected-error @below {{expects extent 3 of bias to be 6 or 1 (extent 2 of key), but got 7}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) bias(%b : tensor<1x1x4x7xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @scale(%q: tensor<1x2x4x8xf32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @+3 {{attribute 'scale' failed to satisfy constraint: 64-bit float attribute which is finite}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>) {scale = 0x7FF0000000000000 : f64}
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @alias(%q: memref<1x2x4x8xf32>, %k: memref<1x2x6x8xf32>, %v: memref<1x2x6x5xf32>, %o: memref<1x2x4x5xf32>, %l: memref<1x2x4xf32>, %do: memref<1x2x4x5xf32>, %dq: memref<1x2x4x8xf32>, %dk: memref<1x2x6x8xf32>, %dv: memref<1x2x6x5xf32>) {
  // expected-error @below {{expects buffers of gradients to be apart from all others, but operands 0 and 6 are one}}
  attn.dense_backward ins(%q, %k, %v : memref<1x2x4x8xf32>, memref<1x2x6x8xf32>, memref<1x2x6x5xf32>)
      forward(%o, %l : memref<1x2x4x5xf32>, memref<1x2x4xf32>) gradient(%do : memref<1x2x4x5xf32>)
      outs(%q, %dk, %dv : memref<1x2x4x8xf32>, memref<1x2x6x8xf32>, memref<1x2x6x5xf32>)
  return
}

// -----

func.func @integers(%q: tensor<1x2x4x8xi32>, %k: tensor<1x2x6x8xf32>, %v: tensor<1x2x6x5xf32>, %o: tensor<1x2x4x5xf32>, %l: tensor<1x2x4xf32>, %do: tensor<1x2x4x5xf32>, %dq: tensor<1x2x4x8xf32>, %dk: tensor<1x2x6x8xf32>, %dv: tensor<1x2x6x5xf32>) {
  // expected-error @below {{operand #0 must be rank-4 tensor or memref of f32, f64, bf16 or f16, but got 'tensor<1x2x4x8xi32>'}}
  %r:3 = attn.dense_backward ins(%q, %k, %v : tensor<1x2x4x8xi32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      forward(%o, %l : tensor<1x2x4x5xf32>, tensor<1x2x4xf32>) gradient(%do : tensor<1x2x4x5xf32>)
      outs(%dq, %dk, %dv : tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>)
      -> tensor<1x2x4x8xf32>, tensor<1x2x6x8xf32>, tensor<1x2x6x5xf32>
  return
}

// -----

func.func @stream_no_source(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expects at least one source}}
  %r:1 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q : tensor<1x1x4x2xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>
  return
}

// -----

func.func @stream_block(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expects a block size, since a range of source 0 depends on the block index}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      source(%k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) ranges [affine_map<(b)[rows, n] -> (b, rows)>]
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q, %k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>
  return
}

// -----

func.func @stream_negative_block(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expects a block size that is not negative, but got -1}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      source(%k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q, %k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) {scale = 1.0 : f64, block = -1 : i64} -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>
  return
}

// -----

func.func @stream_local_bias(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expects no local_bias in source 0, which have no gradient}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      source(%k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) local_bias(%b : tensor<1x1x4x4xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q, %k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>
  return
}

// -----

func.func @stream_codes(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expected no codes, which have no gradient}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      source(%k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) codes(%z : tensor<1x1x4xi32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q, %k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>
  return
}

// -----

func.func @stream_d_keys(%q: tensor<1x1x4x2xf32>, %k: tensor<1x1x4x2xf32>, %v: tensor<1x1x4x3xf32>, %w: tensor<1x1x4xf32>, %b: tensor<1x1x4x4xf32>, %z: tensor<1x1x4xi32>, %l: tensor<1x1x4xf32>) {
  // expected-error @below {{expects d_keys[0] to have the shape of keys[0]: extent 3 to be 2, but got 3}}
  %r:3 = attn.stream_backward query(%q : tensor<1x1x4x2xf32>)
      source(%k, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%v, %l : tensor<1x1x4x3xf32>, tensor<1x1x4xf32>) gradient(%v : tensor<1x1x4x3xf32>)
      outs(%q, %v, %v : tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>, tensor<1x1x4x3xf32>) {scale = 1.0 : f64} -> tensor<1x1x4x2xf32>, tensor<1x1x4x3xf32>, tensor<1x1x4x3xf32>
  return
}

// -----

func.func @summarize_rows(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x5x3xf32>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<1x2x4x3xf32>) {
  // expected-error @below {{expects extent 2 of d_output to be 6 (the summaries of extent 2 of input), but got 5}}
  %r:2 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x5x3xf32>)
      outs(%dx, %dw : tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @summarize_type(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x6x3xf64>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<1x2x4x3xf32>) {
  // expected-error @below {{expects d_output to hold 'f32', but got 'f64'}}
  %r:2 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf64>)
      outs(%dx, %dw : tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @summarize_weights(%x: tensor<1x2x10x3xf32>, %w: tensor<3x2x4x3xf32>, %g: tensor<1x2x6x3xf32>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<3x2x4x3xf32>) {
  // expected-error @below {{expects extent 1 of input to be a multiple of extent 0 of weights, but got 2 and 3}}
  %r:2 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<3x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf32>)
      outs(%dx, %dw : tensor<1x2x10x3xf32>, tensor<3x2x4x3xf32>) -> tensor<1x2x10x3xf32>, tensor<3x2x4x3xf32>
  return
}

// -----

func.func @summarize_d_input(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x6x3xf32>, %dx: tensor<1x2x12x3xf32>, %dw: tensor<1x2x4x3xf32>) {
  // expected-error @below {{expects d_input to have the shape of input: extent 2 to be 10, but got 12}}
  %r:2 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf32>)
      outs(%dx, %dw : tensor<1x2x12x3xf32>, tensor<1x2x4x3xf32>) -> tensor<1x2x12x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @summarize_d_weights(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x6x3xf32>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<2x2x4x3xf32>) {
  // expected-error @below {{expects d_weights to have the shape of weights: extent 0 to be 1, but got 2}}
  %r:2 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf32>)
      outs(%dx, %dw : tensor<1x2x10x3xf32>, tensor<2x2x4x3xf32>) -> tensor<1x2x10x3xf32>, tensor<2x2x4x3xf32>
  return
}

// -----

func.func @summarize_d_bias(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x6x3xf32>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<1x2x4x3xf32>, %db: tensor<1x3x3xf32>) {
  // expected-error @below {{expects extent 1 of d_bias to be 2 (extent 1 of weights), but got 3}}
  %r:3 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf32>)
      outs(%dx, %dw, %db : tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>, tensor<1x3x3xf32>) -> tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>, tensor<1x3x3xf32>
  return
}

// -----

func.func @summarize_d_bias_type(%x: tensor<1x2x10x3xf32>, %w: tensor<1x2x4x3xf32>, %g: tensor<1x2x6x3xf32>, %dx: tensor<1x2x10x3xf32>, %dw: tensor<1x2x4x3xf32>, %db: tensor<1x2x3xf16>) {
  // expected-error @below {{expects d_bias to hold 'f32', but got 'f16'}}
  %r:3 = attn.summarize_backward ins(%x : tensor<1x2x10x3xf32>) weights(%w : tensor<1x2x4x3xf32>) gradient(%g : tensor<1x2x6x3xf32>)
      outs(%dx, %dw, %db : tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x3xf16>) -> tensor<1x2x10x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x3xf16>
  return
}

// -----

func.func @multipole_levels(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects d_key_weights to have a gradient for each of the 2 key_weights, but got 1}}
  %r:5 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) key_weights(%w, %w : tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 4 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @multipole_gradients(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects d_key_weights to have a gradient for each of the 1 key_weights, but got 2}}
  %r:6 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_key_weights(%w, %w : tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 4 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @multipole_no_biases(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects d_key_biases to have a gradient for each of the 0 key_biases, but got 1}}
  %r:6 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>) d_key_biases(%b : tensor<1x2x3xf32>)
      {group = 4 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x3xf32>
  return
}

// -----

func.func @multipole_missing_biases(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects d_key_biases to have a gradient for each of the 1 key_biases, but got 0}}
  %r:5 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>) key_biases(%b : tensor<1x2x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 4 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @multipole_group(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects a group of at least 1 token, but got 0}}
  %r:5 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 0 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @linear_lookahead(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects allow_query_lookahead beside causal, since summarised queries mix later queries of their interval into a row}}
  %r:6 = attn.fast_multipole_linear_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) query_weights(%w : tensor<1x2x4x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_query_weights(%w : tensor<1x2x4x3xf32>) d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 4 : i64, causal} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

func.func @linear_gradients(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  // expected-error @below {{expects d_key_weights to have a gradient for each of the 1 key_weights, but got 2}}
  %r:7 = attn.fast_multipole_linear_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) query_weights(%w : tensor<1x2x4x3xf32>) key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>)
      gradient(%x : tensor<1x1x16x3xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>) d_query_weights(%w : tensor<1x2x4x3xf32>) d_key_weights(%w, %w : tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>)
      {group = 4 : i64} -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>
  return
}

// -----

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

// A gradient is that of an operand.
func.func @f(%q: tensor<2x4x8x16xf32>, %l: tensor<2x4x8xf32>, %s: tensor<1x4xf32>) {
  // expected-error @below {{'attn.dense_backward' op expects sink beside d_sink}}
  %r:4 = attn.dense_backward ins(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      forward(%q, %l : tensor<2x4x8x16xf32>, tensor<2x4x8xf32>) gradient(%q : tensor<2x4x8x16xf32>)
      outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) d_sink(%s : tensor<1x4xf32>)
      -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<1x4xf32>
  return
}
