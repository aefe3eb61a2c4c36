// RUN: fovea-opt %s --split-input-file --verify-diagnostics --attn-vq-backward-to-gpu

func.func @state(%q: memref<1x1x7x8xf32>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>, %m: memref<1x1x5x8xf32>, %n: memref<1x1x5xi32>, %kz: memref<1x1x8xi32>, %kv: memref<1x1x8x8xf32>, %p: memref<i64>,
                 %dq: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>, %dv: memref<1x1x7x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op has no kernel for GPUs with a state: expected none}}
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf32>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      state(%m, %n, %kz, %kv, %p : memref<1x1x5x8xf32>, memref<1x1x5xi32>, memref<1x1x8xi32>, memref<1x1x8x8xf32>, memref<i64>)
      gradient(%q : memref<1x1x7x8xf32>) outs(%dq, %dk, %dv : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>}
  return
}

// -----

func.func @next_state(%q: memref<1x1x7x8xf32>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf32>, %m: memref<1x1x5x8xf32>, %kv: memref<1x1x8x8xf32>,
                      %dq: memref<1x1x7x8xf32>, %dk: memref<1x1x7x8xf32>, %dv: memref<1x1x7x8xf32>) {
  // expected-error @below {{'attn.vq_backward' op has no kernel for GPUs with a state: expected none}}
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf32>, memref<1x1x7xi32>, memref<1x1x7x8xf32>, memref<1x5x8xf32>)
      gradient(%q : memref<1x1x7x8xf32>) d_next_state(%m, %kv, %kv : memref<1x1x5x8xf32>, memref<1x1x8x8xf32>, memref<1x1x8x8xf32>)
      outs(%dq, %dk, %dv : memref<1x1x7x8xf32>, memref<1x1x7x8xf32>, memref<1x1x7x8xf32>)
      {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>}
  return
}
