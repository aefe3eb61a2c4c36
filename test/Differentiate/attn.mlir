// RUN: fovea-opt %s --split-input-file --attn-differentiate | FileCheck %s

// The forward operation returns its log-sum-exp; narrow data has gradients in f32
// that are rounded at the end.

// CHECK-LABEL: func.func @dense_vjp(
//  CHECK-SAME:     %[[Q:.*]]: tensor<1x4x8x16xbf16>, %[[K:.*]]: tensor<1x2x8x16xbf16>, %[[V:.*]]: tensor<1x2x8x16xbf16>, %[[W:.*]]: tensor<1x2x8xf32>, %[[D:.*]]: tensor<1x4x8x16xbf16>)
//       CHECK:   %[[LSE:.*]] = tensor.empty() : tensor<1x4x8xf32>
//       CHECK:   %[[OUT:.*]]:2 = attn.dense ins(%[[Q]], %[[K]], %[[V]] {{.*}} outs(%{{.*}}, %[[LSE]]
//  CHECK-SAME:       {mask = #attn.mask<causal>, scale = 2.500000e-01 : f64}
//       CHECK:   %[[G:.*]]:4 = attn.dense_backward ins(%[[Q]], %[[K]], %[[V]] :
//  CHECK-SAME:       log_weight(%[[W]] : tensor<1x2x8xf32>) forward(%[[OUT]]#0, %[[OUT]]#1 :
//  CHECK-SAME:       gradient(%[[D]] : tensor<1x4x8x16xbf16>)
//  CHECK-SAME:       d_log_weight(%{{.*}} : tensor<1x2x8xf32>) {mask = #attn.mask<causal>, scale = 2.500000e-01 : f64}
//  CHECK-SAME:       -> tensor<1x4x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8x16xf32>, tensor<1x2x8xf32>
//       CHECK:   %[[DQ:.*]] = arith.truncf %[[G]]#0
//       CHECK:   %[[DK:.*]] = arith.truncf %[[G]]#1
//       CHECK:   %[[DV:.*]] = arith.truncf %[[G]]#2
//       CHECK:   return %[[DQ]], %[[DK]], %[[DV]], %[[G]]#3
func.func @dense(%q: tensor<1x4x8x16xbf16>, %k: tensor<1x2x8x16xbf16>, %v: tensor<1x2x8x16xbf16>,
                 %w: tensor<1x2x8xf32>) -> tensor<1x4x8x16xbf16> {
  %init = tensor.empty() : tensor<1x4x8x16xbf16>
  %out = attn.dense ins(%q, %k, %v : tensor<1x4x8x16xbf16>, tensor<1x2x8x16xbf16>, tensor<1x2x8x16xbf16>)
      log_weight(%w : tensor<1x2x8xf32>) outs(%init : tensor<1x4x8x16xbf16>)
      {mask = #attn.mask<causal>, scale = 2.5e-01 : f64} -> tensor<1x4x8x16xbf16>
  return %out : tensor<1x4x8x16xbf16>
}

// -----

// What the log-sum-exp gets goes in, too. A bias that depends on nothing has no gradient.

// CHECK-LABEL: func.func @lse_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<1x1x?x16xf32>, %[[DLSE:[a-z0-9]*]]: tensor<1x1x?xf32>) ->
//       CHECK:   attn.dense_backward {{.*}} bias({{.*}} gradient(%[[D]], %[[DLSE]] :
//   CHECK-NOT:   d_bias
func.func @lse(%q: tensor<1x1x?x16xf32>, %k: tensor<1x1x?x16xf32>, %v: tensor<1x1x?x16xf32>,
               %init: tensor<1x1x?x16xf32>, %lse_init: tensor<1x1x?xf32>) -> (tensor<1x1x?x16xf32>, tensor<1x1x?xf32>) {
  %bias = arith.constant dense<1.0> : tensor<1x1x1x1xf32>
  %out, %lse = attn.dense ins(%q, %k, %v : tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>, tensor<1x1x?x16xf32>)
      bias(%bias : tensor<1x1x1x1xf32>)
      outs(%init, %lse_init : tensor<1x1x?x16xf32>, tensor<1x1x?xf32>) -> tensor<1x1x?x16xf32>, tensor<1x1x?xf32>
  return %out, %lse : tensor<1x1x?x16xf32>, tensor<1x1x?xf32>
}

// -----

// CHECK-LABEL: func.func @stream_vjp(
//       CHECK:   %[[OUT:.*]]:2 = attn.stream
//       CHECK:   %[[G:.*]]:6 = attn.stream_backward
//       CHECK:     forward(%[[OUT]]#0, %[[OUT]]#1 :
//       CHECK:     {block = 16 : i64, scale = 2.500000e-01 : f64}
//       CHECK:   return %[[G]]#0, %[[G]]#1, %[[G]]#3, %[[G]]#2, %[[G]]#4, %[[G]]#5
func.func @stream(%q: tensor<1x1x64x16xf32>, %k: tensor<1x1x64x16xf32>, %v: tensor<1x1x64x16xf32>,
                  %ks: tensor<1x1x4x16xf32>, %vs: tensor<1x1x4x16xf32>, %w: tensor<1x1x4xf32>) -> tensor<1x1x64x16xf32> {
  %init = tensor.empty() : tensor<1x1x64x16xf32>
  %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
      source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
          log_weight(%w : tensor<1x1x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
      outs(%init : tensor<1x1x64x16xf32>)
      {block = 16 : i64, scale = 2.5e-01 : f64} -> tensor<1x1x64x16xf32>
  return %out : tensor<1x1x64x16xf32>
}

// -----

// Sums of several uses continue in one destination.

// CHECK-LABEL: func.func @summarize_vjp(
//       CHECK:   %[[T:.*]]:3 = attn.summarize_backward
//       CHECK:   %[[S:.*]]:2 = attn.summarize_backward {{.*}} outs(%[[T]]#0, %[[T]]#1 :
//       CHECK:   return %[[S]]#0, %[[S]]#1, %[[T]]#2
func.func @summarize(%x: tensor<1x8x64x16xf32>, %w: tensor<1x4x16x16xf32>, %b: tensor<1x4x16xf32>)
    -> (tensor<1x8x16x16xf32>, tensor<1x8x16x16xf32>) {
  %init = tensor.empty() : tensor<1x8x16x16xf32>
  %s = attn.summarize ins(%x : tensor<1x8x64x16xf32>) weights(%w : tensor<1x4x16x16xf32>)
      outs(%init : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  %t = attn.summarize ins(%x : tensor<1x8x64x16xf32>) weights(%w : tensor<1x4x16x16xf32>)
      bias(%b : tensor<1x4x16xf32>) outs(%init : tensor<1x8x16x16xf32>) -> tensor<1x8x16x16xf32>
  return %s, %t : tensor<1x8x16x16xf32>, tensor<1x8x16x16xf32>
}

// -----

// CHECK-LABEL: func.func @multipole_vjp(
//       CHECK:   %[[OUT:.*]]:2 = attn.fast_multipole ins
//       CHECK:   %[[G:.*]]:5 = attn.fast_multipole_backward {{.*}} forward(%[[OUT]]#0, %[[OUT]]#1 :
//  CHECK-SAME:       {causal, group = 64 : i64}
//       CHECK:   return %[[G]]#0, %[[G]]#1, %[[G]]#2, %[[G]]#3, %[[G]]#4
func.func @multipole(%q: tensor<1x8x256x64xf32>, %k: tensor<1x8x256x64xf32>, %v: tensor<1x8x256x64xf32>,
                     %kw: tensor<1x4x64x64xf32>, %vw: tensor<1x4x64x64xf32>) -> tensor<1x8x256x64xf32> {
  %init = tensor.empty() : tensor<1x8x256x64xf32>
  %out = attn.fast_multipole ins(%q, %k, %v : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
      key_weights(%kw : tensor<1x4x64x64xf32>) value_weights(%vw : tensor<1x4x64x64xf32>)
      outs(%init : tensor<1x8x256x64xf32>) {group = 64 : i64, causal} -> tensor<1x8x256x64xf32>
  return %out : tensor<1x8x256x64xf32>
}

// -----

// CHECK-LABEL: func.func @linear_vjp(
//   CHECK-NOT:   attn.fast_multipole_linear ins
//       CHECK:   %[[G:.*]]:6 = attn.fast_multipole_linear_backward
//       CHECK:   %[[TWO:.*]] = arith.addf %[[G]]#3, %[[G]]#4
//       CHECK:   arith.addf %[[TWO]], %[[G]]#5
func.func @linear(%q: tensor<1x2x128x16xf32>, %k: tensor<1x2x128x16xf32>, %v: tensor<1x2x128x16xf32>,
                  %w: tensor<1x2x32x16xf32>) -> tensor<1x2x128x16xf32> {
  %init = tensor.empty() : tensor<1x2x128x16xf32>
  %out = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
      query_weights(%w : tensor<1x2x32x16xf32>) key_weights(%w : tensor<1x2x32x16xf32>)
      value_weights(%w : tensor<1x2x32x16xf32>)
      outs(%init : tensor<1x2x128x16xf32>) {group = 32 : i64} -> tensor<1x2x128x16xf32>
  return %out : tensor<1x2x128x16xf32>
}

// -----

// What attn.vq has for its codes goes straight through attn.quantize to the keys.

// CHECK-LABEL: func.func @vq_vjp(
//  CHECK-SAME:     %[[Q:.*]]: tensor<1x2x64x16xf64>, %[[K:.*]]: tensor<1x1x64x16xf64>, %[[V:.*]]: tensor<1x1x64x16xf64>, %[[C:.*]]: tensor<1x8x16xf64>, %[[D:.*]]: tensor<1x2x64x16xf64>)
//       CHECK:   %[[Z:.*]] = attn.quantize ins(%[[K]], %[[C]]
//       CHECK:   %[[OUT:.*]]:2 = attn.vq ins(%[[Q]], %[[Z]], %[[V]], %[[C]]
//       CHECK:   %[[G:.*]]:3 = attn.vq_backward ins(%[[Q]], %[[Z]], %[[V]], %[[C]] {{.*}} forward(%[[OUT]]#0, %[[OUT]]#1 :
//  CHECK-SAME:       gradient(%[[D]] :
//       CHECK:   %[[ZEROS:.*]] = linalg.fill {{.*}} -> tensor<1x8x16xf64>
//       CHECK:   return %[[G]]#0, %[[G]]#1, %[[G]]#2, %[[ZEROS]]
func.func @vq(%q: tensor<1x2x64x16xf64>, %k: tensor<1x1x64x16xf64>, %v: tensor<1x1x64x16xf64>, %c: tensor<1x8x16xf64>)
    -> tensor<1x2x64x16xf64> {
  %z_init = tensor.empty() : tensor<1x1x64xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x64x16xf64>, tensor<1x8x16xf64>)
      outs(%z_init : tensor<1x1x64xi32>) -> tensor<1x1x64xi32>
  %init = tensor.empty() : tensor<1x2x64x16xf64>
  %out = attn.vq ins(%q, %z, %v, %c : tensor<1x2x64x16xf64>, tensor<1x1x64xi32>, tensor<1x1x64x16xf64>, tensor<1x8x16xf64>)
      outs(%init : tensor<1x2x64x16xf64>) {block = 16 : i64, causal} -> tensor<1x2x64x16xf64>
  return %out : tensor<1x2x64x16xf64>
}

// -----

// Two windows: what the second one has for its state is what the first one gets
// for the state that it leaves. Kept codes have adjoints, too: those of the keys.

// CHECK-LABEL: func.func @vq_windows_vjp(
//       CHECK:   %[[FIRST:.*]]:7 = attn.vq ins(%[[Q:.*]], %[[Z:.*]], %[[V:.*]], %[[C:[^ ]*]] : {{.*}} next_state(
//       CHECK:   %[[SECOND:.*]]:2 = attn.vq ins({{.*}} state(%[[FIRST]]#2, %[[FIRST]]#3, %[[FIRST]]#4, %[[FIRST]]#5, %[[FIRST]]#6 :
//       CHECK:   %[[D:.*]]:6 = attn.vq_backward ins({{.*}} state(%[[FIRST]]#2, %[[FIRST]]#3, %[[FIRST]]#4, %[[FIRST]]#5, %[[FIRST]]#6 : {{.*}} forward(%[[SECOND]]#0, %[[SECOND]]#1 :
//  CHECK-SAME:       d_state(%{{.*}} : tensor<1x1x8x16xf64>, tensor<1x1x32x16xf64>, tensor<1x1x32x16xf64>)
//  CHECK-SAME:       {block = 16 : i64, causal, padded}
//       CHECK:   attn.vq_backward ins({{.*}} forward(%[[FIRST]]#0, %[[FIRST]]#1 :
//  CHECK-SAME:       d_next_state(%[[D]]#3, %[[D]]#4, %[[D]]#5 : tensor<1x1x8x16xf64>, tensor<1x1x32x16xf64>, tensor<1x1x32x16xf64>)
func.func @vq_windows(%q: tensor<1x2x64x16xf64>, %k: tensor<1x1x64x16xf64>, %v: tensor<1x1x64x16xf64>, %c: tensor<1x8x16xf64>)
    -> tensor<1x2x64x16xf64> {
  %z_init = tensor.empty() : tensor<1x1x64xi32>
  %z = attn.quantize ins(%k, %c : tensor<1x1x64x16xf64>, tensor<1x8x16xf64>)
      outs(%z_init : tensor<1x1x64xi32>) -> tensor<1x1x64xi32>
  %init = tensor.empty() : tensor<1x2x64x16xf64>
  %s0 = tensor.empty() : tensor<1x1x8x16xf64>
  %s1 = tensor.empty() : tensor<1x1x8xi32>
  %s2 = tensor.empty() : tensor<1x1x32xi32>
  %s3 = tensor.empty() : tensor<1x1x32x16xf64>
  %s4 = tensor.empty() : tensor<i64>
  %first:6 = attn.vq ins(%q, %z, %v, %c : tensor<1x2x64x16xf64>, tensor<1x1x64xi32>, tensor<1x1x64x16xf64>, tensor<1x8x16xf64>)
      outs(%init : tensor<1x2x64x16xf64>) next_state(%s0, %s1, %s2, %s3, %s4 : tensor<1x1x8x16xf64>, tensor<1x1x8xi32>, tensor<1x1x32xi32>, tensor<1x1x32x16xf64>, tensor<i64>)
      {block = 16 : i64, causal} -> tensor<1x2x64x16xf64>, tensor<1x1x8x16xf64>, tensor<1x1x8xi32>, tensor<1x1x32xi32>, tensor<1x1x32x16xf64>, tensor<i64>
  %out = attn.vq ins(%first#0, %z, %v, %c : tensor<1x2x64x16xf64>, tensor<1x1x64xi32>, tensor<1x1x64x16xf64>, tensor<1x8x16xf64>)
      state(%first#1, %first#2, %first#3, %first#4, %first#5 : tensor<1x1x8x16xf64>, tensor<1x1x8xi32>, tensor<1x1x32xi32>, tensor<1x1x32x16xf64>, tensor<i64>)
      outs(%init : tensor<1x2x64x16xf64>) {block = 16 : i64, causal, padded} -> tensor<1x2x64x16xf64>
  return %out : tensor<1x2x64x16xf64>
}

// -----

// Features of queries and keys, low-rank attention with them, and the way back.

// CHECK-LABEL: func.func @low_rank_vjp(
//  CHECK-SAME:     %[[Q:.*]]: tensor<1x4x9x5xf32>, %[[K:.*]]: tensor<1x2x7x5xf32>, %[[V:.*]]: tensor<1x2x7x8xf32>, %[[D:.*]]: tensor<1x4x9x8xf32>)
//       CHECK:   %[[U1:.*]] = attn.polynomial_features ins(%[[Q]]
//       CHECK:   %[[U2:.*]] = attn.polynomial_features ins(%[[K]]
//       CHECK:   %[[OUT:.*]] = attn.low_rank ins(%[[U1]], %[[U2]], %[[V]]
//       CHECK:   %[[G:.*]]:3 = attn.low_rank_backward ins(%[[U1]], %[[U2]], %[[V]] {{.*}} forward(%[[OUT]] : {{.*}} gradient(%[[D]] :
//       CHECK:   %[[DK:.*]] = attn.polynomial_features_backward ins(%[[K]] {{.*}} gradient(%[[G]]#1
//       CHECK:   %[[DQ:.*]] = attn.polynomial_features_backward ins(%[[Q]] {{.*}} gradient(%[[G]]#0
//       CHECK:   return %[[DQ]], %[[DK]], %[[G]]#2
func.func @low_rank(%q: tensor<1x4x9x5xf32>, %k: tensor<1x2x7x5xf32>, %v: tensor<1x2x7x8xf32>) -> tensor<1x4x9x8xf32> {
  %i1 = tensor.empty() : tensor<1x4x9x21xf32>
  %i2 = tensor.empty() : tensor<1x2x7x21xf32>
  %init = tensor.empty() : tensor<1x4x9x8xf32>
  %u1 = attn.polynomial_features ins(%q : tensor<1x4x9x5xf32>) outs(%i1 : tensor<1x4x9x21xf32>) {degree = 2 : i64, scale = 0.5 : f64} -> tensor<1x4x9x21xf32>
  %u2 = attn.polynomial_features ins(%k : tensor<1x2x7x5xf32>) outs(%i2 : tensor<1x2x7x21xf32>) {degree = 2 : i64, scale = 0.5 : f64} -> tensor<1x2x7x21xf32>
  %out = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x21xf32>, tensor<1x2x7x21xf32>, tensor<1x2x7x8xf32>)
      outs(%init : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x4x9x8xf32>
  return %out : tensor<1x4x9x8xf32>
}

// -----

// Transposes of trees: sums over children, shares of parents, and rows of listed
// nodes, which are checked, since attn.tree_fetch itself is not run any more.

// CHECK-LABEL: func.func @tree_vjp(
//  CHECK-SAME:     %[[C:.*]]: tensor<?x4x3xf32>, %[[L:.*]]: tensor<?x2xi32>, %[[I:.*]]: tensor<?x2xi32>, %{{.*}}: index, %[[D:.*]]: tensor<?x2x3xf32>)
//   CHECK-NOT:   attn.tree_fetch ins
//       CHECK:   attn.check_codes %{{.*}} below %{{.*}} {name = "attn.tree_fetch: level"}
//       CHECK:   attn.check_intervals %{{.*}}, %{{.*}} below %{{.*}} {name = "attn.tree_fetch: nodes, index and last"}
//       CHECK:   scf.for
//       CHECK:     scf.for
//       CHECK:       tensor.extract_slice %[[D]]
//       CHECK:       tensor.insert_slice
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction", "parallel"]
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel"]
//       CHECK:   return %{{.*}} : tensor<?x4x3xf32>
func.func @tree(%c: tensor<?x4x3xf32>, %level: tensor<?x2xi32>, %index: tensor<?x2xi32>, %batch: index) -> tensor<?x2x3xf32> {
  %ti = tensor.empty(%batch) : tensor<?x5x3xf32>
  %ri = tensor.empty(%batch) : tensor<?x2x3xf32>
  %tree = attn.tree_build ins(%c : tensor<?x4x3xf32>) outs(%ti : tensor<?x5x3xf32>)
      {shape = #attn.tree<ratio = 4, levels = 1>} -> tensor<?x5x3xf32>
  %rows = attn.tree_fetch ins(%tree : tensor<?x5x3xf32>) nodes(%level, %index : tensor<?x2xi32>, tensor<?x2xi32>)
      outs(%ri : tensor<?x2x3xf32>) {shape = #attn.tree<ratio = 4, levels = 1>} -> tensor<?x2x3xf32>
  return %rows : tensor<?x2x3xf32>
}

// -----

// Half of the commitment loss: nothing goes through what stops the gradient.

// CHECK-LABEL: func.func @stop_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<4xf32>) -> tensor<4xf32>
//   CHECK-NOT:   linalg
//       CHECK:   return %[[D]]
func.func @stop(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = arith.negf %x {attn.stop_gradient} : tensor<4xf32>
  %y = arith.addf %x, %c : tensor<4xf32>
  return %y : tensor<4xf32>
}

// -----

// The sizes that a search has found are constants: bases pass gradients on to
// queries and keys.

// CHECK-LABEL: func.func @convolutions_vjp(
//  CHECK-SAME:     %[[Q:[a-z0-9]*]]: tensor<1x4x20x6xbf16>, %[[K:[a-z0-9]*]]: tensor<1x2x20x6xbf16>, %[[V:[a-z0-9]*]]: tensor<1x2x20x5xbf16>, %[[D:[a-z0-9]*]]: tensor<1x4x20x5xbf16>)
//       CHECK:   %[[B:.*]]:3 = attn.conv_recover
//       CHECK:   %[[O:.*]]:2 = attn.conv_apply
//       CHECK:   %[[A:.*]]:2 = attn.conv_apply_backward ins(%[[B]]#0, %[[B]]#1, %[[V]] : {{.*}}) forward(%[[O]]#0 : {{.*}}) gradient(%[[D]] : {{.*}}) {algorithm = #attn.conv_algorithm<partitioned>, block = 8 : i64} -> tensor<1x4x3x20xf32>, tensor<1x2x20x5xf32>
//       CHECK:   %[[S:.*]]:2 = attn.conv_recover_backward ins(%[[Q]], %[[K]], %[[B]]#1 : {{.*}}) gradient(%[[A]]#0 : {{.*}}) {scale = 2.000000e+00 : f64} -> tensor<1x4x20x6xf32>, tensor<1x2x20x6xf32>
func.func @convolutions(%q: tensor<1x4x20x6xbf16>, %k: tensor<1x2x20x6xbf16>, %v: tensor<1x2x20x5xbf16>) -> tensor<1x4x20x5xbf16> {
  %b = tensor.empty() : tensor<1x4x3x20xf32>
  %m = tensor.empty() : tensor<1x4x3xi32>
  %n = tensor.empty() : tensor<1x4xi32>
  %o = tensor.empty() : tensor<1x4x20x5xbf16>
  %r:3 = attn.conv_recover ins(%q, %k : tensor<1x4x20x6xbf16>, tensor<1x2x20x6xbf16>)
      outs(%b, %m, %n : tensor<1x4x3x20xf32>, tensor<1x4x3xi32>, tensor<1x4xi32>)
      {window = 4 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64, scale = 2.0 : f64} -> tensor<1x4x3x20xf32>, tensor<1x4x3xi32>, tensor<1x4xi32>
  %out:2 = attn.conv_apply ins(%r#0, %r#1, %v : tensor<1x4x3x20xf32>, tensor<1x4x3xi32>, tensor<1x2x20x5xbf16>)
      outs(%o, %n : tensor<1x4x20x5xbf16>, tensor<1x4xi32>)
      {algorithm = #attn.conv_algorithm<partitioned>, block = 8 : i64} -> tensor<1x4x20x5xbf16>, tensor<1x4xi32>
  return %out#0 : tensor<1x4x20x5xbf16>
}

// -----

// CHECK-LABEL: func.func @pool_vjp(
//  CHECK-SAME:     %[[X:[a-z0-9]*]]: tensor<1x2x20x6xf32>, %[[G:[a-z0-9]*]]: tensor<1x2x20x6xf32>, %[[P:[a-z0-9]*]]: tensor<4x6xf32>, %[[D:[a-z0-9]*]]: tensor<1x2x5x6xf32>)
//       CHECK:   %[[R:.*]]:3 = attn.pool_backward ins(%[[X]], %[[G]], %[[D]] : {{.*}}) position_bias(%[[P]] : {{.*}}) outs({{.*}}) {interval = 4 : i64, overlap = 2 : i64}
func.func @pool(%x: tensor<1x2x20x6xf32>, %g: tensor<1x2x20x6xf32>, %p: tensor<4x6xf32>) -> tensor<1x2x5x6xf32> {
  %o = tensor.empty() : tensor<1x2x5x6xf32>
  %r = attn.pool ins(%x, %g : tensor<1x2x20x6xf32>, tensor<1x2x20x6xf32>) position_bias(%p : tensor<4x6xf32>)
      outs(%o : tensor<1x2x5x6xf32>) {interval = 4 : i64, overlap = 2 : i64} -> tensor<1x2x5x6xf32>
  return %r : tensor<1x2x5x6xf32>
}

// -----

// CHECK-LABEL: func.func @conv_vjp(
//  CHECK-SAME:     %[[Q:[a-z0-9]*]]: tensor<1x2x20x6xf32>, %[[P:[a-z0-9]*]]: tensor<1x1x20xi32>, %[[D:[a-z0-9]*]]: tensor<1x2x20x6xf32>)
//       CHECK:   %[[R:.*]] = attn.rope
//       CHECK:   %[[O:.*]]:3 = attn.conv ins(%[[R]], %[[R]], %[[Q]]
//       CHECK:   %[[G:.*]]:3 = attn.conv_backward ins(%[[R]], %[[R]], %[[Q]] : {{.*}}) forward(%[[O]]#0 : {{.*}}) gradient(%[[D]] :
//  CHECK-SAME:       {delta = 0.000000e+00 : f64, epsilon = 0.000000e+00 : f64, group = 4 : i64, num_basis = 2 : i64, window = 1 : i64}
//       CHECK:   %[[SUM:.*]] = arith.addf %[[G]]#0, %[[G]]#1
//       CHECK:   attn.rope_backward ins(%[[P]] : {{.*}}) gradient(%[[SUM]] : {{.*}}) {base = 1.000000e+02 : f64}
func.func @conv(%q: tensor<1x2x20x6xf32>, %p: tensor<1x1x20xi32>) -> tensor<1x2x20x6xf32> {
  %o = tensor.empty() : tensor<1x2x20x6xf32>
  %n = tensor.empty() : tensor<1x2xi32>
  %r = attn.rope ins(%q, %p : tensor<1x2x20x6xf32>, tensor<1x1x20xi32>) outs(%o : tensor<1x2x20x6xf32>) {base = 1.0e+02 : f64} -> tensor<1x2x20x6xf32>
  %out:3 = attn.conv ins(%r, %r, %q : tensor<1x2x20x6xf32>, tensor<1x2x20x6xf32>, tensor<1x2x20x6xf32>)
      outs(%o, %n, %n : tensor<1x2x20x6xf32>, tensor<1x2xi32>, tensor<1x2xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64, group = 4 : i64} -> tensor<1x2x20x6xf32>, tensor<1x2xi32>, tensor<1x2xi32>
  return %out#0 : tensor<1x2x20x6xf32>
}

// -----

// A score is made of attention, whose gradients are those of the score.

// CHECK-LABEL: func.func @score_vjp(
//       CHECK:   %[[ONE:.*]]:2 = attn.dense ins(%[[Q:.*]], %[[K:[^ ,]*]], %{{.*}} : {{.*}}) outs(
//       CHECK:   %[[TWO:.*]]:2 = attn.dense ins(%[[K]], %[[Q]], %{{.*}} : {{.*}}) log_weight(
//       CHECK:   attn.dense_backward ins(%[[K]], %[[Q]], {{.*}} forward(%[[TWO]]#0, %[[TWO]]#1 :
//       CHECK:   attn.dense_backward ins(%[[Q]], %[[K]], {{.*}} forward(%[[ONE]]#0, %[[ONE]]#1 :
func.func @score(%q: tensor<1x2x3x4xf32>, %k: tensor<1x2x9x4xf32>) -> tensor<1x9xf32> {
  %init = tensor.empty() : tensor<1x9xf32>
  %s = attn.tree_score ins(%q, %k : tensor<1x2x3x4xf32>, tensor<1x2x9x4xf32>) outs(%init : tensor<1x9xf32>) -> tensor<1x9xf32>
  return %s : tensor<1x9xf32>
}

// -----

// A mask of tokens is a constant, which the gradient has as well.

// CHECK-LABEL: func.func @masks_vjp(
//  CHECK-SAME:     %{{[^:]*}}: tensor<2x2x20x6xf32>, %[[M:[a-z0-9]*]]: tensor<2x20xi1>
//       CHECK:   attn.low_rank_backward ins({{[^)]*}}) query_mask(%[[M]] : tensor<2x20xi1>) forward(
//       CHECK:   attn.conv_backward ins({{[^)]*}}) mask(%[[M]] : tensor<2x20xi1>) forward(
func.func @masks(%q: tensor<2x2x20x6xf32>, %m: tensor<2x20xi1>) -> tensor<2x2x20x6xf32> {
  %o = tensor.empty() : tensor<2x2x20x6xf32>
  %n = tensor.empty() : tensor<2x2xi32>
  %c:3 = attn.conv ins(%q, %q, %q : tensor<2x2x20x6xf32>, tensor<2x2x20x6xf32>, tensor<2x2x20x6xf32>) mask(%m : tensor<2x20xi1>)
      outs(%o, %n, %n : tensor<2x2x20x6xf32>, tensor<2x2xi32>, tensor<2x2xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64} -> tensor<2x2x20x6xf32>, tensor<2x2xi32>, tensor<2x2xi32>
  %r = attn.low_rank ins(%c#0, %q, %q : tensor<2x2x20x6xf32>, tensor<2x2x20x6xf32>, tensor<2x2x20x6xf32>) query_mask(%m : tensor<2x20xi1>)
      outs(%o : tensor<2x2x20x6xf32>) {mask = #attn.row_mask<causal>} -> tensor<2x2x20x6xf32>
  return %r : tensor<2x2x20x6xf32>
}

// -----

// A mask of tokens has no gradient.
// CHECK-LABEL: func @masked_multipole_vjp(
// CHECK: attn.fast_multipole ins({{.*}}) key_weights({{.*}}) value_weights({{.*}}) mask(%[[M:.*]] : tensor<2x65xi1>)
// CHECK: attn.fast_multipole_backward ins({{.*}}) key_weights({{.*}}) value_weights({{.*}}) mask(%[[M]] : tensor<2x65xi1>) forward(
func.func @masked_multipole(%q: tensor<2x1x65x8xf32>, %w: tensor<1x2x32x8xf32>, %m: tensor<2x65xi1>) -> tensor<2x1x65x8xf32> {
  %o = tensor.empty() : tensor<2x1x65x8xf32>
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<2x1x65x8xf32>, tensor<2x1x65x8xf32>, tensor<2x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>) mask(%m : tensor<2x65xi1>)
      outs(%o : tensor<2x1x65x8xf32>) {group = 32 : i64} -> tensor<2x1x65x8xf32>
  return %0 : tensor<2x1x65x8xf32>
}

// -----

// A gradient has the score region of its operation; captures may be constant.

// CHECK-LABEL: func.func @score_region_vjp(
//       CHECK:   %[[T:.*]] = arith.constant dense<2.000000e+00>
//       CHECK:   attn.dense ins({{.*}} score(%[[T]] : tensor<1xf32>) {
//       CHECK:   %[[AGAIN:.*]] = arith.constant dense<2.000000e+00>
//       CHECK:   attn.dense_backward ins({{.*}} score(%[[AGAIN]] : tensor<1xf32>) {
//  CHECK-NEXT:   ^bb0(%[[S:.*]]: f32, %{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %{{.*}}: index, %[[X:.*]]: tensor<1xf32>):
//  CHECK-NEXT:     %[[E:.*]] = tensor.extract %[[X]][%[[H]]]
//  CHECK-NEXT:     %[[P:.*]] = arith.mulf %[[S]], %[[E]]
//  CHECK-NEXT:     attn.yield %[[P]]
func.func @score_region(%q: tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32> {
  %t = arith.constant dense<2.0> : tensor<1xf32>
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>) score(%t : tensor<1xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<1xf32>):
        %e = tensor.extract %x[%h] : tensor<1xf32>
        %p = arith.mulf %s, %e : f32
        attn.yield %p : f32
      } outs(%q : tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}

// -----

// Of what a region captures, floating-point tensors have gradients.

// CHECK-LABEL: func.func @captured_vjp(
//       CHECK:   attn.dense_backward ins({{.*}} score(%{{.*}}, %{{.*}} : tensor<1xf32>, tensor<4xi32>) {
//       CHECK:   d_captures(%{{.*}} : tensor<1xf32>)
func.func @captured(%q: tensor<1x1x4x2xf32>, %t: tensor<1xf32>, %n: tensor<4xi32>) -> tensor<1x1x4x2xf32> {
  %r = attn.dense ins(%q, %q, %q : tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>, tensor<1x1x4x2xf32>)
      score(%t, %n : tensor<1xf32>, tensor<4xi32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<1xf32>, %m: tensor<4xi32>):
        %e = tensor.extract %x[%h] : tensor<1xf32>
        %c = tensor.extract %m[%j] : tensor<4xi32>
        %d = arith.sitofp %c : i32 to f32
        %p = arith.mulf %d, %e : f32
        %y = arith.addf %s, %p : f32
        attn.yield %y : f32
      } outs(%q : tensor<1x1x4x2xf32>) -> tensor<1x1x4x2xf32>
  return %r : tensor<1x1x4x2xf32>
}
