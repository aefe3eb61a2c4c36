// The gradient of a stream with two sources, ranges that follow the queries and a
// log weight, on the emulated GPU. Any order of threads gives the same result.

// REQUIRES: long-tests
// RUN: fovea-run %s --entry=gradient --target=gpu-sim --random --compare=reference --schedule=seed=3 | FileCheck %s
// CHECK-COUNT-6: agrees with the reference
// CHECK-NOT: differs

// RUN: fovea-run %s --entry=summaries --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=SUMMARIES
// SUMMARIES-COUNT-3: agrees with the reference
// SUMMARIES-NOT: differs

// RUN: fovea-run %s --entry=no_heads --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=EMPTY
// EMPTY-COUNT-6: agrees with the reference
// EMPTY-NOT: differs

// RUN: fovea-run %s --entry=empty_window --target=gpu-sim --random --compare=reference | FileCheck %s --check-prefix=WINDOW
// WINDOW-COUNT-7: agrees with the reference
// WINDOW-NOT: differs

!rows = tensor<1x2x80x8xf32>
!keys = tensor<1x1x80x8xf32>
!few = tensor<1x1x10x8xf32>

func.func @gradient(%q: !rows, %k: !keys, %ks: !few, %w: tensor<1x1x10xf32>, %out: !rows, %lse: tensor<1x2x80xf32>, %d: !rows)
    -> (!rows, !keys, !few, !keys, !few, tensor<1x1x10xf32>) {
  %iq = tensor.empty() : !rows
  %ik = tensor.empty() : !keys
  %is = tensor.empty() : !few
  %iw = tensor.empty() : tensor<1x1x10xf32>
  %r:6 = attn.stream_backward query(%q : !rows)
      source(%k, %k : !keys, !keys) ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%ks, %ks : !few, !few) log_weight(%w : tensor<1x1x10xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b * 2 - 2)>]
      forward(%out, %lse : !rows, tensor<1x2x80xf32>) gradient(%d : !rows)
      outs(%iq, %ik, %is, %ik, %is : !rows, !keys, !few, !keys, !few)
      d_log_weights(%iw : tensor<1x1x10xf32>) {block = 16 : i64, scale = 2.5e-01 : f64}
      -> !rows, !keys, !few, !keys, !few, tensor<1x1x10xf32>
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5 : !rows, !keys, !few, !keys, !few, tensor<1x1x10xf32>
}

// Two heads to a set of weights; a last interval that is not whole.
func.func @summaries(%x: tensor<2x4x11x5xf32>, %w: tensor<2x3x6x5xf32>, %d: tensor<2x4x6x5xf32>, %ix: tensor<2x4x11x5xf32>, %iw: tensor<2x3x6x5xf32>,
                     %ib: tensor<2x3x5xf32>) -> (tensor<2x4x11x5xf32>, tensor<2x3x6x5xf32>, tensor<2x3x5xf32>) {
  %r:3 = attn.summarize_backward ins(%x : tensor<2x4x11x5xf32>) weights(%w : tensor<2x3x6x5xf32>) gradient(%d : tensor<2x4x6x5xf32>)
      outs(%ix, %iw, %ib : tensor<2x4x11x5xf32>, tensor<2x3x6x5xf32>, tensor<2x3x5xf32>)
      -> tensor<2x4x11x5xf32>, tensor<2x3x6x5xf32>, tensor<2x3x5xf32>
  return %r#0, %r#1, %r#2 : tensor<2x4x11x5xf32>, tensor<2x3x6x5xf32>, tensor<2x3x5xf32>
}

// Keys without a query head get zeros.
func.func @no_heads(%q: tensor<1x0x70x8xf32>, %k: tensor<1x1x70x8xf32>, %l: tensor<1x0x70xf32>, %c: tensor<1x3x8xf32>)
    -> (tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>) {
  %codes = arith.constant dense<0> : tensor<1x1x70xi32>
  %iq = tensor.empty() : tensor<1x0x70x8xf32>
  %ik = tensor.empty() : tensor<1x1x70x8xf32>
  %r:3 = attn.dense_backward ins(%q, %k, %k : tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>)
      forward(%q, %l : tensor<1x0x70x8xf32>, tensor<1x0x70xf32>) gradient(%q : tensor<1x0x70x8xf32>)
      outs(%iq, %ik, %ik : tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>)
      -> tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>
  %s:3 = attn.vq_backward ins(%q, %codes, %k, %c : tensor<1x0x70x8xf32>, tensor<1x1x70xi32>, tensor<1x1x70x8xf32>, tensor<1x3x8xf32>)
      forward(%q, %l : tensor<1x0x70x8xf32>, tensor<1x0x70xf32>) gradient(%q : tensor<1x0x70x8xf32>)
      outs(%iq, %ik, %ik : tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>) {block = 16 : i64, causal}
      -> tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>
  return %r#0, %r#1, %r#2, %s#0, %s#1, %s#2 : tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>,
      tensor<1x0x70x8xf32>, tensor<1x1x70x8xf32>, tensor<1x1x70x8xf32>
}

// A window of nothing behind 9 tokens passes on what the next one gives.
func.func @empty_window(%q: tensor<1x2x0x8xf32>, %v: tensor<1x1x0x6xf32>, %c: tensor<1x3x8xf32>, %bias: tensor<1x2x1x8xf32>, %m: tensor<1x1x3x6xf32>,
                        %kk: tensor<1x1x8x8xf32>, %kv: tensor<1x1x8x6xf32>)
    -> (tensor<1x2x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x6xf32>, tensor<1x2x1x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>) {
  %codes = arith.constant dense<0> : tensor<1x1x0xi32>
  %kept = arith.constant dense<[[[2, 1, 0, 1, 2, 0, 0, 1]]]> : tensor<1x1x8xi32>
  %count = arith.constant dense<[[[3, 0, 1]]]> : tensor<1x1x3xi32>
  %position = arith.constant dense<9> : tensor<i64>
  %dout = tensor.empty() : tensor<1x2x0x6xf32>
  %ik = tensor.empty() : tensor<1x1x0x8xf32>
  %r:7 = attn.vq_backward ins(%q, %codes, %v, %c : tensor<1x2x0x8xf32>, tensor<1x1x0xi32>, tensor<1x1x0x6xf32>, tensor<1x3x8xf32>)
      bias(%bias : tensor<1x2x1x8xf32>)
      state(%m, %count, %kept, %kv, %position : tensor<1x1x3x6xf32>, tensor<1x1x3xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf32>, tensor<i64>)
      gradient(%dout : tensor<1x2x0x6xf32>) d_next_state(%m, %kk, %kv : tensor<1x1x3x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>)
      outs(%q, %ik, %v : tensor<1x2x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x6xf32>) d_bias(%bias : tensor<1x2x1x8xf32>)
      d_state(%m, %kk, %kv : tensor<1x1x3x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>)
      {block = 4 : i64, causal, weighting = #attn.weighting<squared_relu>}
      -> tensor<1x2x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x6xf32>, tensor<1x2x1x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
  return %r#0, %r#1, %r#2, %r#3, %r#4, %r#5, %r#6 : tensor<1x2x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x6xf32>, tensor<1x2x1x8xf32>, tensor<1x1x3x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf32>
}
