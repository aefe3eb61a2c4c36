// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --emit-bytecode | fovea-opt | FileCheck %s

// CHECK-LABEL: func @dense_everything(
// CHECK: %{{[^ ]*}}:6 = attn.dense_backward ins(%{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} : tensor<2x4x8x16xbf16>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
// CHECK-SAME: log_weight(%{{[^ ]*}} : tensor<1x1x12xf32>) bias(%{{[^ ]*}} : tensor<1x4x1x12xbf16>) sink(%{{[^ ]*}} : tensor<2x1xf32>)
// CHECK-SAME: forward(%{{[^ ]*}}, %{{[^ ]*}} : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
// CHECK-SAME: gradient(%{{[^ ]*}}, %{{[^ ]*}} : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
// CHECK-SAME: outs(%{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} : tensor<2x4x8x16xf32>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
// CHECK-SAME: d_log_weight(%{{[^ ]*}} : tensor<1x1x12xf32>) d_bias(%{{[^ ]*}} : tensor<1x4x1x12xbf16>) d_sink(%{{[^ ]*}} : tensor<2x1xf32>)
// CHECK-SAME: {mask = #attn.mask<causal, window = 5>, scale = 1.250000e-01 : f64}
// CHECK-SAME: -> tensor<2x4x8x16xf32>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>, tensor<1x1x12xf32>, tensor<1x4x1x12xbf16>, tensor<2x1xf32>
func.func @dense_everything(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x1x12x16xbf16>, %v: tensor<2x1x12x24xbf16>, %w: tensor<1x1x12xf32>,
    %b: tensor<1x4x1x12xbf16>, %o: tensor<2x4x8x24xbf16>, %l: tensor<2x4x8xf32>, %dq: tensor<2x4x8x16xf32>, %s: tensor<2x1xf32>) {
  %r:6 = attn.dense_backward ins(%q, %k, %v : tensor<2x4x8x16xbf16>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
      log_weight(%w : tensor<1x1x12xf32>) bias(%b : tensor<1x4x1x12xbf16>) sink(%s : tensor<2x1xf32>)
      forward(%o, %l : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
      gradient(%o, %l : tensor<2x4x8x24xbf16>, tensor<2x4x8xf32>)
      outs(%dq, %k, %v : tensor<2x4x8x16xf32>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>)
      d_log_weight(%w : tensor<1x1x12xf32>) d_bias(%b : tensor<1x4x1x12xbf16>) d_sink(%s : tensor<2x1xf32>)
      {scale = 0.125 : f64, mask = #attn.mask<causal, window = 5>}
      -> tensor<2x4x8x16xf32>, tensor<2x1x12x16xbf16>, tensor<2x1x12x24xbf16>, tensor<1x1x12xf32>, tensor<1x4x1x12xbf16>, tensor<2x1xf32>
  return
}

// Buffers, of any extents.
// CHECK-LABEL: func @dense_memref(
// CHECK: attn.dense_backward ins({{.*}}) forward({{.*}}) gradient({{.*}}) outs({{.*}}memref<?x?x?x4xf32>)
// CHECK-NOT: ->
func.func @dense_memref(%q: memref<?x?x?x4xf32>, %k: memref<?x?x?x4xf32>, %o: memref<?x?x?x4xf32>, %l: memref<?x?x?xf32>,
    %dq: memref<?x?x?x4xf32>, %dk: memref<?x?x?x4xf32>, %dv: memref<?x?x?x4xf32>) {
  attn.dense_backward ins(%q, %k, %k : memref<?x?x?x4xf32>, memref<?x?x?x4xf32>, memref<?x?x?x4xf32>)
      forward(%o, %l : memref<?x?x?x4xf32>, memref<?x?x?xf32>) gradient(%o : memref<?x?x?x4xf32>)
      outs(%dq, %dk, %dv : memref<?x?x?x4xf32>, memref<?x?x?x4xf32>, memref<?x?x?x4xf32>)
  return
}

// Gradients of log weights and biases, one for each of them.
// CHECK-LABEL: func @stream_terms(
// CHECK: %{{[^ ]*}}:7 = attn.stream_backward query(%{{[^ ]*}} : tensor<1x2x4x2xf32>)
// CHECK-NEXT: source(%{{[^ ]*}}, %{{[^ ]*}} : tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>) log_weight(%{{[^ ]*}} : tensor<1x1x6xf32>) ranges [#{{.*}}] mask <causal>
// CHECK-NEXT: source(%{{[^ ]*}}, %{{[^ ]*}} : tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>) bias(%{{[^ ]*}} : tensor<1x1x4x6xf32>) ranges [#{{.*}}]
// CHECK-NEXT: forward(%{{[^ ]*}}, %{{[^ ]*}} : tensor<1x2x4x3xf32>, tensor<1x2x4xf32>) gradient(%{{[^ ]*}}, %{{[^ ]*}} : tensor<1x2x4x3xf32>, tensor<1x2x4xf32>)
// CHECK-NEXT: outs({{[^:]*}} : tensor<1x2x4x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>, tensor<1x1x6x3xf32>)
// CHECK-SAME: d_log_weights(%{{[^ ]*}} : tensor<1x1x6xf32>) d_biases(%{{[^ ]*}} : tensor<1x1x4x6xf32>) {block = 0 : i64, scale = 1.000000e+00 : f64}
func.func @stream_terms(%q: tensor<1x2x4x2xf32>, %k: tensor<1x1x6x2xf32>, %v: tensor<1x1x6x3xf32>, %w: tensor<1x1x6xf32>, %b: tensor<1x1x4x6xf32>,
    %o: tensor<1x2x4x3xf32>, %l: tensor<1x2x4xf32>) {
  %r:7 = attn.stream_backward query(%q : tensor<1x2x4x2xf32>)
      source(%k, %v : tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>) log_weight(%w : tensor<1x1x6xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, 3)>] mask <causal>
      source(%k, %v : tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>) bias(%b : tensor<1x1x4x6xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : tensor<1x2x4x3xf32>, tensor<1x2x4xf32>) gradient(%o, %l : tensor<1x2x4x3xf32>, tensor<1x2x4xf32>)
      outs(%q, %k, %k, %v, %v : tensor<1x2x4x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>, tensor<1x1x6x3xf32>)
      d_log_weights(%w : tensor<1x1x6xf32>) d_biases(%b : tensor<1x1x4x6xf32>) {scale = 1.0 : f64}
      -> tensor<1x2x4x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x2xf32>, tensor<1x1x6x3xf32>, tensor<1x1x6x3xf32>, tensor<1x1x6xf32>, tensor<1x1x4x6xf32>
  return
}

// CHECK-LABEL: func @summarize_bias(
// CHECK: attn.summarize_backward ins(%{{[^ ]*}} : tensor<1x4x10x3xbf16>) weights(%{{[^ ]*}} : tensor<2x2x4x3xbf16>) gradient(%{{[^ ]*}} : tensor<1x4x6x3xf32>)
// CHECK-SAME: outs(%{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} : tensor<1x4x10x3xf32>, tensor<2x2x4x3xf32>, tensor<2x2x3xf32>)
func.func @summarize_bias(%x: tensor<1x4x10x3xbf16>, %w: tensor<2x2x4x3xbf16>, %g: tensor<1x4x6x3xf32>, %dx: tensor<1x4x10x3xf32>, %dw: tensor<2x2x4x3xf32>, %db: tensor<2x2x3xf32>) {
  %r:3 = attn.summarize_backward ins(%x : tensor<1x4x10x3xbf16>) weights(%w : tensor<2x2x4x3xbf16>) gradient(%g : tensor<1x4x6x3xf32>)
      outs(%dx, %dw, %db : tensor<1x4x10x3xf32>, tensor<2x2x4x3xf32>, tensor<2x2x3xf32>) -> tensor<1x4x10x3xf32>, tensor<2x2x4x3xf32>, tensor<2x2x3xf32>
  return
}

// CHECK-LABEL: func @multipole_biases(
// CHECK: attn.fast_multipole_backward
// CHECK-SAME: key_biases(%{{[^ ]*}} : tensor<1x2x3xf32>)
// CHECK-SAME: d_key_biases(%{{[^ ]*}} : tensor<1x2x3xf32>) {group = 4 : i64, multiplicity = false}
func.func @multipole_biases(%x: tensor<1x1x16x3xf32>, %w: tensor<1x2x4x3xf32>, %b: tensor<1x2x3xf32>, %l: tensor<1x1x16xf32>) {
  %r:6 = attn.fast_multipole_backward ins(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      key_weights(%w : tensor<1x2x4x3xf32>) value_weights(%w : tensor<1x2x4x3xf32>) key_biases(%b : tensor<1x2x3xf32>)
      forward(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>) gradient(%x, %l : tensor<1x1x16x3xf32>, tensor<1x1x16xf32>)
      outs(%x, %x, %x : tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>)
      d_key_weights(%w : tensor<1x2x4x3xf32>) d_value_weights(%w : tensor<1x2x4x3xf32>) d_key_biases(%b : tensor<1x2x3xf32>)
      {group = 4 : i64, multiplicity = false}
      -> tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x1x16x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x4x3xf32>, tensor<1x2x3xf32>
  return
}

// The gradient of a sink.
// CHECK-LABEL: func @stream_sink(
// CHECK: attn.stream_backward query
// CHECK: sink(%{{[^ ]*}} : tensor<1x4xf32>)
// CHECK-NEXT: forward
// CHECK-NEXT: outs({{.*}}) d_sink(%{{[^ ]*}} : tensor<1x4xf32>)
func.func @stream_sink(%q: tensor<2x4x8x16xf32>, %l: tensor<2x4x8xf32>, %s: tensor<1x4xf32>) {
  %r:4 = attn.stream_backward query(%q : tensor<2x4x8x16xf32>)
      source(%q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      sink(%s : tensor<1x4xf32>)
      forward(%q, %l : tensor<2x4x8x16xf32>, tensor<2x4x8xf32>) gradient(%q : tensor<2x4x8x16xf32>)
      outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) d_sink(%s : tensor<1x4xf32>)
      {scale = 0.5} -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<1x4xf32>
  return
}

// Lengths have no gradient.
// CHECK-LABEL: func @stream_lengths(
// CHECK: attn.stream_backward query
// CHECK-NEXT: source({{.*}}) lengths(%{{[^ ]*}} : tensor<2xi32>) ranges
// CHECK-NEXT: query_lengths(%{{[^ ]*}} : tensor<2xi32>)
// CHECK-NEXT: forward
func.func @stream_lengths(%q: tensor<2x4x8x16xf32>, %l: tensor<2x4x8xf32>, %n: tensor<2xi32>) {
  %r:3 = attn.stream_backward query(%q : tensor<2x4x8x16xf32>)
      source(%q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>) lengths(%n : tensor<2xi32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      query_lengths(%n : tensor<2xi32>)
      forward(%q, %l : tensor<2x4x8x16xf32>, tensor<2x4x8xf32>) gradient(%q : tensor<2x4x8x16xf32>)
      outs(%q, %q, %q : tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>)
      {scale = 0.5} -> tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>, tensor<2x4x8x16xf32>
  return
}
