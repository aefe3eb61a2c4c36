// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @everything(
// CHECK: attn.vq ins(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x8xbf16>, tensor<2x2x?xi32>, tensor<2x2x?x6xbf16>, tensor<1x5x8xbf16>)
// CHECK-SAME: bias(%{{[^ ,)]*}} : tensor<1x4x?x8xf32>)
// CHECK-SAME: state(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>)
// CHECK-SAME: outs(%{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
// CHECK-SAME: next_state(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>)
// CHECK-SAME: {block = 4 : i64, causal, padded, reduction = #attn.reduction<serial>, scale = 5.000000e-01 : f64}
// CHECK-SAME: -> tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>
func.func @everything(%q: tensor<2x4x?x8xbf16>, %z: tensor<2x2x?xi32>, %v: tensor<2x2x?x6xbf16>, %c: tensor<1x5x8xbf16>, %b: tensor<1x4x?x8xf32>,
    %m: tensor<2x2x5x6xf32>, %n: tensor<2x2x5xi32>, %kz: tensor<2x2x8xi32>, %kv: tensor<2x2x8x6xbf16>, %p: tensor<i64>,
    %o: tensor<2x4x?x6xbf16>, %l: tensor<2x4x?xf32>) -> tensor<2x4x?x6xbf16> {
  %0:7 = attn.vq ins(%q, %z, %v, %c : tensor<2x4x?x8xbf16>, tensor<2x2x?xi32>, tensor<2x2x?x6xbf16>, tensor<1x5x8xbf16>)
      bias(%b : tensor<1x4x?x8xf32>)
      state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>)
      outs(%o, %l : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
      next_state(%m, %n, %kz, %kv, %p : tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>)
      {block = 4 : i64, causal, padded, scale = 0.5, reduction = #attn.reduction<serial>}
      -> tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>, tensor<2x2x5x6xf32>, tensor<2x2x5xi32>, tensor<2x2x8xi32>, tensor<2x2x8x6xbf16>, tensor<i64>
  return %0#0 : tensor<2x4x?x6xbf16>
}

// The encoder form, on memrefs.
// CHECK-LABEL: func @memrefs(
// CHECK: attn.vq ins({{[^:]*}} : memref<1x1x7x8xf64>, memref<1x1x7xi32>, memref<1x1x7x8xf64>, memref<1x5x8xf64>)
// CHECK-SAME: outs(%{{[^ ,)]*}} : memref<1x1x7x8xf64>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
// CHECK-NOT: ->
// CHECK: return
func.func @memrefs(%q: memref<1x1x7x8xf64>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf64>, %o: memref<1x1x7x8xf64>) {
  attn.vq ins(%q, %z, %q, %c : memref<1x1x7x8xf64>, memref<1x1x7xi32>, memref<1x1x7x8xf64>, memref<1x5x8xf64>)
      outs(%o : memref<1x1x7x8xf64>) {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  return
}

// CHECK-LABEL: func @decode(
// CHECK: attn.vq_decode ins({{[^:]*}} : tensor<1x2x1x8xf16>, tensor<1x1x1xi32>, tensor<1x1x1x6xf16>, tensor<1x5x8xf16>)
// CHECK-SAME: bias(%{{[^ ,)]*}} : tensor<1x2x1x8xf16>)
// CHECK-SAME: outs(%{{[^ ,)]*}} : tensor<1x2x1x6xf16>)
// CHECK-SAME: state({{[^:]*}} : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>)
// CHECK-SAME: {block = 4 : i64, scale = 2.000000e+00 : f64}
func.func @decode(%q: tensor<1x2x1x8xf16>, %z: tensor<1x1x1xi32>, %v: tensor<1x1x1x6xf16>, %c: tensor<1x5x8xf16>, %b: tensor<1x2x1x8xf16>,
    %o: tensor<1x2x1x6xf16>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf16>, %p: tensor<i64>) -> tensor<i64> {
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<1x2x1x8xf16>, tensor<1x1x1xi32>, tensor<1x1x1x6xf16>, tensor<1x5x8xf16>)
      bias(%b : tensor<1x2x1x8xf16>) outs(%o : tensor<1x2x1x6xf16>)
      state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>)
      {block = 4 : i64, scale = 2.0}
      -> tensor<1x2x1x6xf16>, tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>
  return %0#5 : tensor<i64>
}

// Terms by distance, of heads of their own and of all heads.
// CHECK-LABEL: func @decode_by_distance(
// CHECK: attn.vq_decode ins({{[^:]*}} : tensor<1x2x1x8xf16>, tensor<1x1x1xi32>, tensor<1x1x1x6xf16>, tensor<1x5x8xf16>)
// CHECK-SAME: relative(%{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x9x8xf32>, tensor<1x8xf16>) distance_bias(%{{[^ ,)]*}} : tensor<1x9xf16>)
// CHECK-SAME: outs(%{{[^ ,)]*}} : tensor<1x2x1x6xf16>)
func.func @decode_by_distance(%q: tensor<1x2x1x8xf16>, %z: tensor<1x1x1xi32>, %v: tensor<1x1x1x6xf16>, %c: tensor<1x5x8xf16>, %r: tensor<2x9x8xf32>,
    %u: tensor<1x8xf16>, %t: tensor<1x9xf16>, %o: tensor<1x2x1x6xf16>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>,
    %kv: tensor<1x1x8x6xf16>, %p: tensor<i64>) -> tensor<i64> {
  %0:6 = attn.vq_decode ins(%q, %z, %v, %c : tensor<1x2x1x8xf16>, tensor<1x1x1xi32>, tensor<1x1x1x6xf16>, tensor<1x5x8xf16>)
      relative(%r, %u : tensor<2x9x8xf32>, tensor<1x8xf16>) distance_bias(%t : tensor<1x9xf16>) outs(%o : tensor<1x2x1x6xf16>)
      state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>)
      {block = 4 : i64}
      -> tensor<1x2x1x6xf16>, tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>
  return %0#5 : tensor<i64>
}

// Everything, with dynamic extents and sums in their own type.
// CHECK-LABEL: func @everything_backward(
// CHECK: attn.vq_backward ins(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x8xbf16>, tensor<2x2x?xi32>, tensor<2x2x?x6xbf16>, tensor<1x5x8xbf16>)
// CHECK-SAME: bias(%{{[^ ,)]*}} : tensor<1x4x?x8xf32>)
// CHECK-SAME: forward(%{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
// CHECK-SAME: gradient(%{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
// CHECK-SAME: outs(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<2x4x?x8xbf16>, tensor<2x2x?x8xf32>, tensor<2x2x?x6xf32>)
// CHECK-SAME: d_bias(%{{[^ ,)]*}} : tensor<1x4x?x8xf32>)
// CHECK-SAME: {block = 4 : i64, causal, padded, scale = 5.000000e-01 : f64}
// CHECK-SAME: -> tensor<2x4x?x8xbf16>, tensor<2x2x?x8xf32>, tensor<2x2x?x6xf32>, tensor<1x4x?x8xf32>
func.func @everything_backward(%q: tensor<2x4x?x8xbf16>, %z: tensor<2x2x?xi32>, %v: tensor<2x2x?x6xbf16>, %c: tensor<1x5x8xbf16>, %b: tensor<1x4x?x8xf32>,
    %o: tensor<2x4x?x6xbf16>, %l: tensor<2x4x?xf32>, %dk: tensor<2x2x?x8xf32>, %dv: tensor<2x2x?x6xf32>) -> tensor<2x2x?x8xf32> {
  %0:4 = attn.vq_backward ins(%q, %z, %v, %c : tensor<2x4x?x8xbf16>, tensor<2x2x?xi32>, tensor<2x2x?x6xbf16>, tensor<1x5x8xbf16>)
      bias(%b : tensor<1x4x?x8xf32>)
      forward(%o, %l : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
      gradient(%o, %l : tensor<2x4x?x6xbf16>, tensor<2x4x?xf32>)
      outs(%q, %dk, %dv : tensor<2x4x?x8xbf16>, tensor<2x2x?x8xf32>, tensor<2x2x?x6xf32>)
      d_bias(%b : tensor<1x4x?x8xf32>)
      {block = 4 : i64, causal, padded, scale = 0.5}
      -> tensor<2x4x?x8xbf16>, tensor<2x2x?x8xf32>, tensor<2x2x?x6xf32>, tensor<1x4x?x8xf32>
  return %0#1 : tensor<2x2x?x8xf32>
}

// A window of a sequence: gradients from the next state, and for this one.
// CHECK-LABEL: func @window(
// CHECK: attn.vq_backward ins(
// CHECK-SAME: state(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>)
// CHECK-SAME: gradient(%{{[^ ,)]*}} : tensor<1x2x3x6xf16>)
// CHECK-SAME: d_next_state(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>)
// CHECK-SAME: outs(
// CHECK-SAME: d_state(%{{[^ ,)]*}}, %{{[^ ,)]*}}, %{{[^ ,)]*}} : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>)
// CHECK-SAME: -> tensor<1x2x3x8xf16>, tensor<1x1x3x8xf16>, tensor<1x1x3x6xf16>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>
func.func @window(%q: tensor<1x2x3x8xf16>, %z: tensor<1x1x3xi32>, %v: tensor<1x1x3x6xf16>, %c: tensor<1x5x8xf16>, %m: tensor<1x1x5x6xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x6xf16>, %p: tensor<i64>,
    %o: tensor<1x2x3x6xf16>, %l: tensor<1x2x3xf32>, %dk: tensor<1x1x3x8xf16>, %dkk: tensor<1x1x8x8xf32>) -> tensor<1x1x5x6xf32> {
  %0:6 = attn.vq_backward ins(%q, %z, %v, %c : tensor<1x2x3x8xf16>, tensor<1x1x3xi32>, tensor<1x1x3x6xf16>, tensor<1x5x8xf16>)
      state(%m, %n, %kz, %kv, %p : tensor<1x1x5x6xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x6xf16>, tensor<i64>)
      forward(%o, %l : tensor<1x2x3x6xf16>, tensor<1x2x3xf32>)
      gradient(%o : tensor<1x2x3x6xf16>)
      d_next_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>)
      outs(%q, %dk, %v : tensor<1x2x3x8xf16>, tensor<1x1x3x8xf16>, tensor<1x1x3x6xf16>)
      d_state(%m, %dkk, %kv : tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>)
      {block = 4 : i64, causal}
      -> tensor<1x2x3x8xf16>, tensor<1x1x3x8xf16>, tensor<1x1x3x6xf16>, tensor<1x1x5x6xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x6xf16>
  return %0#3 : tensor<1x1x5x6xf32>
}

// Without a normaliser, on memrefs: reads its inputs and writes its gradients.
// CHECK-LABEL: func @memrefs_backward(
// CHECK: memref.load
// CHECK: attn.vq_backward ins({{[^:]*}} : memref<1x1x7x8xf64>, memref<1x1x7xi32>, memref<1x1x7x8xf64>, memref<1x5x8xf64>)
// CHECK-SAME: gradient(%{{[^ ,)]*}} : memref<1x1x7x8xf64>) outs({{[^:]*}} : memref<1x1x7x8xf64>, memref<1x1x7x8xf64>, memref<1x1x7x8xf64>)
// CHECK-SAME: {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
// CHECK-NOT: ->
// CHECK: memref.load
// CHECK: return
func.func @memrefs_backward(%q: memref<1x1x7x8xf64>, %z: memref<1x1x7xi32>, %c: memref<1x5x8xf64>, %dq: memref<1x1x7x8xf64>, %dk: memref<1x1x7x8xf64>, %dv: memref<1x1x7x8xf64>) -> (f64, f64) {
  %c0 = arith.constant 0 : index
  %a = memref.load %dk[%c0, %c0, %c0, %c0] : memref<1x1x7x8xf64>
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x7x8xf64>, memref<1x1x7xi32>, memref<1x1x7x8xf64>, memref<1x5x8xf64>)
      gradient(%q : memref<1x1x7x8xf64>) outs(%dq, %dk, %dv : memref<1x1x7x8xf64>, memref<1x1x7x8xf64>, memref<1x1x7x8xf64>)
      {block = 4 : i64, weighting = #attn.weighting<squared_relu>}
  %b = memref.load %dk[%c0, %c0, %c0, %c0] : memref<1x1x7x8xf64>
  return %a, %b : f64, f64
}
