// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --emit-bytecode | fovea-opt | FileCheck %s

//===----------------------------------------------------------------------===//
// attn.summarize
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @summarize(
// CHECK-SAME: %[[X:.*]]: tensor<2x4x100x8xf32>, %[[W:.*]]: tensor<1x2x16x8xf32>, %[[O:.*]]: tensor<2x4x14x8xf32>
// CHECK: attn.summarize ins(%[[X]] : tensor<2x4x100x8xf32>) weights(%[[W]] : tensor<1x2x16x8xf32>) outs(%[[O]] : tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32>
func.func @summarize(%x: tensor<2x4x100x8xf32>, %w: tensor<1x2x16x8xf32>, %o: tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32> {
  %0 = attn.summarize ins(%x : tensor<2x4x100x8xf32>) weights(%w : tensor<1x2x16x8xf32>) outs(%o : tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32>
  return %0 : tensor<2x4x14x8xf32>
}

// One set of weights for every two heads, with a bias.
// CHECK-LABEL: func @summarize_bias(
// CHECK: attn.summarize ins(%{{.*}} : tensor<?x4x?x8xbf16>) weights(%{{.*}} : tensor<2x2x16x8xbf16>) bias(%{{.*}} : tensor<2x2x8xbf16>) outs(%{{.*}} : tensor<?x4x?x8xbf16>) -> tensor<?x4x?x8xbf16>
func.func @summarize_bias(%x: tensor<?x4x?x8xbf16>, %w: tensor<2x2x16x8xbf16>, %b: tensor<2x2x8xbf16>, %o: tensor<?x4x?x8xbf16>) -> tensor<?x4x?x8xbf16> {
  %0 = attn.summarize ins(%x : tensor<?x4x?x8xbf16>) weights(%w : tensor<2x2x16x8xbf16>) bias(%b : tensor<2x2x8xbf16>)
      outs(%o : tensor<?x4x?x8xbf16>) -> tensor<?x4x?x8xbf16>
  return %0 : tensor<?x4x?x8xbf16>
}

// Sums of narrow data may be kept as they are.
// CHECK-LABEL: func @summarize_unrounded(
// CHECK: outs(%{{.*}} : tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32>
func.func @summarize_unrounded(%x: tensor<1x2x100x8xf16>, %w: tensor<1x2x16x8xf16>, %o: tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32> {
  %0 = attn.summarize ins(%x : tensor<1x2x100x8xf16>) weights(%w : tensor<1x2x16x8xf16>) outs(%o : tensor<1x2x14x8xf32>) -> tensor<1x2x14x8xf32>
  return %0 : tensor<1x2x14x8xf32>
}

// CHECK-LABEL: func @summarize_memref(
// CHECK: attn.summarize ins(%{{.*}} : memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>) weights(%{{.*}} : memref<2x1x32x8xf16>) bias(%{{.*}} : memref<2x1x8xf16>) outs(%{{.*}} : memref<1x?x2x8xf16>){{$}}
func.func @summarize_memref(%x: memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>, %w: memref<2x1x32x8xf16>, %b: memref<2x1x8xf16>, %o: memref<1x?x2x8xf16>) {
  attn.summarize ins(%x : memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>) weights(%w : memref<2x1x32x8xf16>) bias(%b : memref<2x1x8xf16>) outs(%o : memref<1x?x2x8xf16>)
  return
}

// No rows, no heads and no batch give empty summaries.
// CHECK-LABEL: func @summarize_empty(
// CHECK: outs(%{{.*}} : tensor<0x0x0x8xf64>)
func.func @summarize_empty(%x: tensor<0x0x0x8xf64>, %w: tensor<1x2x16x8xf64>) -> tensor<0x0x0x8xf64> {
  %0 = attn.summarize ins(%x : tensor<0x0x0x8xf64>) weights(%w : tensor<1x2x16x8xf64>) outs(%x : tensor<0x0x0x8xf64>) -> tensor<0x0x0x8xf64>
  return %0 : tensor<0x0x0x8xf64>
}

//===----------------------------------------------------------------------===//
// attn.fast_multipole
//===----------------------------------------------------------------------===//

// 250 tokens in groups of 32: levels of 32 and 64 tokens.
// CHECK-LABEL: func @fast_multipole(
// CHECK: attn.fast_multipole ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x4x250x8xf32>, tensor<1x2x250x8xf32>, tensor<1x2x250x16xf32>)
// CHECK-SAME: key_weights(%{{.*}}, %{{.*}} : tensor<1x4x32x8xf32>, tensor<2x4x64x8xf32>)
// CHECK-SAME: value_weights(%{{.*}}, %{{.*}} : tensor<2x4x32x16xf32>, tensor<1x4x64x16xf32>)
// CHECK-SAME: outs(%{{.*}} : tensor<1x4x250x16xf32>) {group = 32 : i64} -> tensor<1x4x250x16xf32>
func.func @fast_multipole(%q: tensor<1x4x250x8xf32>, %k: tensor<1x2x250x8xf32>, %v: tensor<1x2x250x16xf32>, %kw1: tensor<1x4x32x8xf32>, %kw2: tensor<2x4x64x8xf32>,
    %vw1: tensor<2x4x32x16xf32>, %vw2: tensor<1x4x64x16xf32>, %o: tensor<1x4x250x16xf32>) -> tensor<1x4x250x16xf32> {
  %0 = attn.fast_multipole ins(%q, %k, %v : tensor<1x4x250x8xf32>, tensor<1x2x250x8xf32>, tensor<1x2x250x16xf32>)
      key_weights(%kw1, %kw2 : tensor<1x4x32x8xf32>, tensor<2x4x64x8xf32>) value_weights(%vw1, %vw2 : tensor<2x4x32x16xf32>, tensor<1x4x64x16xf32>)
      outs(%o : tensor<1x4x250x16xf32>) {group = 32 : i64} -> tensor<1x4x250x16xf32>
  return %0 : tensor<1x4x250x16xf32>
}

// CHECK-LABEL: func @fast_multipole_everything(
// CHECK: %{{.*}}:2 = attn.fast_multipole ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x128x8xbf16>, tensor<?x?x128x8xbf16>, tensor<?x?x128x8xbf16>)
// CHECK-SAME: key_weights(%[[KW:[^ ]*]] : tensor<1x2x32x8xbf16>) value_weights(%{{.*}} : tensor<1x2x32x8xbf16>)
// CHECK-SAME: key_biases(%[[KB:[^ ]*]] : tensor<1x2x8xbf16>) value_biases(%[[VB:[^ ]*]] : tensor<1x2x8xbf16>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>)
// CHECK-SAME: {causal, group = 32 : i64, multiplicity = false, scale = 5.000000e-01 : f64} -> tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>
func.func @fast_multipole_everything(%q: tensor<?x?x128x8xbf16>, %w: tensor<1x2x32x8xbf16>, %kb: tensor<1x2x8xbf16>, %vb: tensor<1x2x8xbf16>,
    %l: tensor<?x?x128xf32>) -> (tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>) {
  %0, %lse = attn.fast_multipole ins(%q, %q, %q : tensor<?x?x128x8xbf16>, tensor<?x?x128x8xbf16>, tensor<?x?x128x8xbf16>)
      key_weights(%w : tensor<1x2x32x8xbf16>) value_weights(%w : tensor<1x2x32x8xbf16>)
      key_biases(%kb : tensor<1x2x8xbf16>) value_biases(%vb : tensor<1x2x8xbf16>)
      outs(%q, %l : tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>)
      {group = 32 : i64, causal, scale = 0.5 : f64, multiplicity = false} -> tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>
  return %0, %lse : tensor<?x?x128x8xbf16>, tensor<?x?x128xf32>
}

// Up to two groups there are no levels, and no tokens need none; the default
// multiplicity is not printed.
// CHECK-LABEL: func @fast_multipole_no_levels(
// CHECK: outs(%{{.*}} : tensor<1x1x64x8xf32>) {group = 32 : i64} -> tensor<1x1x64x8xf32>
// CHECK: outs(%{{.*}} : tensor<1x1x0x8xf32>) {group = 1 : i64} -> tensor<1x1x0x8xf32>
func.func @fast_multipole_no_levels(%q: tensor<1x1x64x8xf32>, %e: tensor<1x1x0x8xf32>) -> (tensor<1x1x64x8xf32>, tensor<1x1x0x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
      outs(%q : tensor<1x1x64x8xf32>) {group = 32 : i64, multiplicity = true} -> tensor<1x1x64x8xf32>
  %1 = attn.fast_multipole ins(%e, %e, %e : tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>, tensor<1x1x0x8xf32>)
      outs(%e : tensor<1x1x0x8xf32>) {group = 1 : i64} -> tensor<1x1x0x8xf32>
  return %0, %1 : tensor<1x1x64x8xf32>, tensor<1x1x0x8xf32>
}

// Doubling a group of 2^62 would overflow; it covers any sequence.
// CHECK-LABEL: func @fast_multipole_huge_group(
// CHECK: {group = 4611686018427387904 : i64}
// CHECK: {group = 9223372036854775807 : i64}
func.func @fast_multipole_huge_group(%q: tensor<1x1x64x8xf32>, %h: tensor<1x1x9223372036854775807x8xf32>)
    -> (tensor<1x1x64x8xf32>, tensor<1x1x9223372036854775807x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>, tensor<1x1x64x8xf32>)
      outs(%q : tensor<1x1x64x8xf32>) {group = 4611686018427387904 : i64} -> tensor<1x1x64x8xf32>
  %1 = attn.fast_multipole ins(%h, %h, %h : tensor<1x1x9223372036854775807x8xf32>, tensor<1x1x9223372036854775807x8xf32>, tensor<1x1x9223372036854775807x8xf32>)
      outs(%h : tensor<1x1x9223372036854775807x8xf32>) {group = 9223372036854775807 : i64} -> tensor<1x1x9223372036854775807x8xf32>
  return %0, %1 : tensor<1x1x64x8xf32>, tensor<1x1x9223372036854775807x8xf32>
}

// CHECK-LABEL: func @fast_multipole_memref(
// CHECK: attn.fast_multipole ins({{.*}}) key_weights(%{{.*}} : memref<1x1x2x8xf64>) value_weights(%{{.*}} : memref<1x1x2x8xf64>) outs(%{{.*}}, %{{.*}} : memref<1x1x8x8xf64, strided<[?, ?, ?, 1], offset: ?>>, memref<1x1x8xf64>) {group = 2 : i64}{{$}}
func.func @fast_multipole_memref(%q: memref<1x1x8x8xf64>, %w: memref<1x1x2x8xf64>, %o: memref<1x1x8x8xf64, strided<[?, ?, ?, 1], offset: ?>>, %l: memref<1x1x8xf64>) {
  attn.fast_multipole ins(%q, %q, %q : memref<1x1x8x8xf64>, memref<1x1x8x8xf64>, memref<1x1x8x8xf64>)
      key_weights(%w : memref<1x1x2x8xf64>) value_weights(%w : memref<1x1x2x8xf64>)
      outs(%o, %l : memref<1x1x8x8xf64, strided<[?, ?, ?, 1], offset: ?>>, memref<1x1x8xf64>) {group = 2 : i64}
  return
}

//===----------------------------------------------------------------------===//
// attn.fast_multipole_linear
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @linear(
// CHECK: attn.fast_multipole_linear ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>)
// CHECK-SAME: query_weights(%{{.*}} : tensor<4x2x32x8xf32>) key_weights(%{{.*}} : tensor<2x2x32x8xf32>) value_weights(%{{.*}} : tensor<1x2x32x4xf32>)
// CHECK-SAME: outs(%{{.*}} : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
func.func @linear(%q: tensor<1x4x128x8xf32>, %k: tensor<1x2x128x8xf32>, %v: tensor<1x2x128x4xf32>, %qw: tensor<4x2x32x8xf32>,
    %kw: tensor<2x2x32x8xf32>, %vw: tensor<1x2x32x4xf32>, %o: tensor<1x4x128x4xf32>) -> tensor<1x4x128x4xf32> {
  %0 = attn.fast_multipole_linear ins(%q, %k, %v : tensor<1x4x128x8xf32>, tensor<1x2x128x8xf32>, tensor<1x2x128x4xf32>)
      query_weights(%qw : tensor<4x2x32x8xf32>) key_weights(%kw : tensor<2x2x32x8xf32>) value_weights(%vw : tensor<1x2x32x4xf32>)
      outs(%o : tensor<1x4x128x4xf32>) {group = 32 : i64} -> tensor<1x4x128x4xf32>
  return %0 : tensor<1x4x128x4xf32>
}

// CHECK-LABEL: func @linear_everything(
// CHECK: attn.fast_multipole_linear ins({{.*}} : memref<?x?x16x8xf16>, memref<?x?x16x8xf16>, memref<?x?x16x8xf16>)
// CHECK-SAME: query_weights(%{{.*}}, %{{.*}} : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>) key_weights(%{{.*}}, %{{.*}} : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>) value_weights(%{{.*}}, %{{.*}} : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>)
// CHECK-SAME: query_biases(%{{.*}}, %{{.*}} : memref<1x2x8xf16>, memref<1x2x8xf16>) key_biases(%{{.*}}, %{{.*}} : memref<1x2x8xf16>, memref<1x2x8xf16>) value_biases(%{{.*}}, %{{.*}} : memref<1x2x8xf16>, memref<1x2x8xf16>)
// CHECK-SAME: outs(%{{.*}} : memref<?x?x16x8xf16>) {allow_query_lookahead, causal, group = 2 : i64, scale = 1.000000e+00 : f64}{{$}}
func.func @linear_everything(%q: memref<?x?x16x8xf16>, %w1: memref<1x2x2x8xf16>, %w2: memref<1x2x4x8xf16>, %b: memref<1x2x8xf16>) {
  attn.fast_multipole_linear ins(%q, %q, %q : memref<?x?x16x8xf16>, memref<?x?x16x8xf16>, memref<?x?x16x8xf16>)
      query_weights(%w1, %w2 : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>) key_weights(%w1, %w2 : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>)
      value_weights(%w1, %w2 : memref<1x2x2x8xf16>, memref<1x2x4x8xf16>) query_biases(%b, %b : memref<1x2x8xf16>, memref<1x2x8xf16>)
      key_biases(%b, %b : memref<1x2x8xf16>, memref<1x2x8xf16>) value_biases(%b, %b : memref<1x2x8xf16>, memref<1x2x8xf16>)
      outs(%q : memref<?x?x16x8xf16>) {group = 2 : i64, causal, allow_query_lookahead, scale = 1.0 : f64}
  return
}

//===----------------------------------------------------------------------===//
// Masks of tokens
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @masked(
// CHECK: attn.fast_multipole ins({{.*}}) key_weights({{.*}}) value_weights({{.*}}) mask(%{{.*}} : tensor<?x65xi1>) outs(
// CHECK: attn.fast_multipole_linear ins({{.*}}) query_weights({{.*}}) key_weights({{.*}}) value_weights({{.*}}) mask(%{{.*}} : tensor<?x65xi1>) outs(
func.func @masked(%q: tensor<?x1x65x8xf32>, %w: tensor<1x2x32x8xf32>, %m: tensor<?x65xi1>) -> (tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>) mask(%m : tensor<?x65xi1>)
      outs(%q : tensor<?x1x65x8xf32>) {group = 32 : i64} -> tensor<?x1x65x8xf32>
  %1 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>)
      query_weights(%w : tensor<1x2x32x8xf32>) key_weights(%w : tensor<1x2x32x8xf32>) value_weights(%w : tensor<1x2x32x8xf32>)
      mask(%m : tensor<?x65xi1>) outs(%q : tensor<?x1x65x8xf32>) {group = 32 : i64} -> tensor<?x1x65x8xf32>
  return %0, %1 : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>
}

// CHECK-LABEL: func @mixed(
// CHECK: attn.summarize ins(%{{.*}} : tensor<2x4x100x8xf32>) weights(%{{.*}} : tensor<2x2x16x8x8xf32>) outs(
func.func @mixed(%x: tensor<2x4x100x8xf32>, %w: tensor<2x2x16x8x8xf32>, %o: tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32> {
  %0 = attn.summarize ins(%x : tensor<2x4x100x8xf32>) weights(%w : tensor<2x2x16x8x8xf32>)
      outs(%o : tensor<2x4x14x8xf32>) -> tensor<2x4x14x8xf32>
  return %0 : tensor<2x4x14x8xf32>
}

// CHECK-LABEL: func @ready_made(
// CHECK: attn.fast_multipole ins({{[^)]*}}) value_weights({{[^)]*}}) key_summaries(%{{.*}} : tensor<?x1x3x2x8xf32>) outs(
// CHECK: attn.fast_multipole_linear ins({{[^)]*}}) key_weights({{[^)]*}}) query_summaries(%{{.*}}) value_summaries(%{{.*}}) outs(
func.func @ready_made(%q: tensor<?x1x65x8xf32>, %w: tensor<1x2x32x8xf32>, %s: tensor<?x1x3x2x8xf32>) -> (tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>) {
  %0 = attn.fast_multipole ins(%q, %q, %q : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>)
      value_weights(%w : tensor<1x2x32x8xf32>) key_summaries(%s : tensor<?x1x3x2x8xf32>)
      outs(%q : tensor<?x1x65x8xf32>) {group = 32 : i64} -> tensor<?x1x65x8xf32>
  %1 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>)
      key_weights(%w : tensor<1x2x32x8xf32>) query_summaries(%s : tensor<?x1x3x2x8xf32>) value_summaries(%s : tensor<?x1x3x2x8xf32>)
      outs(%q : tensor<?x1x65x8xf32>) {group = 32 : i64} -> tensor<?x1x65x8xf32>
  return %0, %1 : tensor<?x1x65x8xf32>, tensor<?x1x65x8xf32>
}
