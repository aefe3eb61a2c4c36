// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s -mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @rope(
// CHECK: attn.rope ins(%{{.*}}, %{{.*}} : tensor<2x4x9x6xbf16>, tensor<2x1x9xi32>) outs(%{{.*}} : tensor<2x4x9x6xbf16>) -> tensor<2x4x9x6xbf16>
// CHECK: attn.rope ins(%{{.*}}, %{{.*}} : memref<?x?x?x2xf64>, memref<?x?x?xi32>) outs(%{{.*}} : memref<?x?x?x2xf64>) {base = 5.000000e+05 : f64}{{$}}
func.func @rope(%x: tensor<2x4x9x6xbf16>, %p: tensor<2x1x9xi32>, %y: memref<?x?x?x2xf64>, %q: memref<?x?x?xi32>) -> tensor<2x4x9x6xbf16> {
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xbf16>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xbf16>) -> tensor<2x4x9x6xbf16>
  attn.rope ins(%y, %q : memref<?x?x?x2xf64>, memref<?x?x?xi32>) outs(%y : memref<?x?x?x2xf64>) {base = 5.0e5 : f64}
  return %0 : tensor<2x4x9x6xbf16>
}

// CHECK-LABEL: func @features(
// CHECK: attn.polynomial_features ins(%{{.*}} : memref<?x2x?x3xf16>) outs(%{{.*}} : memref<?x2x?x20xf16>) {degree = 3 : i64, scale = 0.000000e+00 : f64}{{$}}
func.func @features(%x: memref<?x2x?x3xf16>, %y: memref<?x2x?x20xf16>) {
  attn.polynomial_features ins(%x : memref<?x2x?x3xf16>) outs(%y : memref<?x2x?x20xf16>) {degree = 3 : i64, scale = 0.0 : f64}
  return
}

// CHECK-LABEL: func @masks(
// CHECK: attn.low_rank ins({{.*}}) outs({{.*}}) {mask = #attn.row_mask<causal>}
// CHECK: attn.low_rank ins({{.*}}) mask(%{{.*}}, %{{.*}} : tensor<1x1x9xi32>, tensor<1x4x?xi32>) outs({{.*}}) {mask = #attn.row_mask<row_change>}
// CHECK: attn.low_rank ins({{.*}}) mask(%{{.*}}, %{{.*}} : tensor<1x1x9xi32>, tensor<1x1x9xi32>) outs({{.*}}) {mask = #attn.row_mask<row_interval>}
// CHECK: attn.low_rank ins({{.*}}) mask(%{{.*}}, %{{.*}} : tensor<1x1x9xi32>, tensor<1x4x3x7xi1>) outs({{.*}}) {mask = #attn.row_mask<distinct_rows>}
// CHECK: attn.low_rank ins({{.*}}) mask(%{{.*}}, %{{.*}} : tensor<1x1x7xi32>, tensor<1x1x?x9xi1>) outs({{.*}}) {mask = #attn.row_mask<distinct_columns>}
func.func @masks(%u1: tensor<1x4x9x5xf32>, %u2: tensor<1x2x7x5xf32>, %v: tensor<1x2x7x8xf32>, %o: tensor<1x4x9x8xf32>,
                 %i9: tensor<1x1x9xi32>, %i7: tensor<1x1x7xi32>, %c: tensor<1x4x?xi32>, %r: tensor<1x4x3x7xi1>, %s: tensor<1x1x?x9xi1>) {
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x4x9x8xf32>
  %1 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i9, %c : tensor<1x1x9xi32>, tensor<1x4x?xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_change>} -> tensor<1x4x9x8xf32>
  %2 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i9, %i9 : tensor<1x1x9xi32>, tensor<1x1x9xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<1x4x9x8xf32>
  %3 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i9, %r : tensor<1x1x9xi32>, tensor<1x4x3x7xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<1x4x9x8xf32>
  %4 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i7, %s : tensor<1x1x7xi32>, tensor<1x1x?x9xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<1x4x9x8xf32>
  return
}

// CHECK-LABEL: func @dynamic(
// CHECK: attn.low_rank ins({{.*}}) mask({{.*}}) outs(%{{.*}} : memref<?x?x?x8xbf16>) {mask = #attn.row_mask<row_interval>}{{$}}
// CHECK: attn.check_intervals %{{.*}}, %{{.*}} below %{{.*}} {name = "x"} : memref<?x?x?xi32>, memref<?x?x?xi32>
func.func @dynamic(%u1: memref<?x?x?x5xbf16>, %v: memref<?x?x?x8xbf16>, %i: memref<?x?x?xi32>, %n: index) {
  attn.low_rank ins(%u1, %u1, %v : memref<?x?x?x5xbf16>, memref<?x?x?x5xbf16>, memref<?x?x?x8xbf16>)
      mask(%i, %i : memref<?x?x?xi32>, memref<?x?x?xi32>) outs(%v : memref<?x?x?x8xbf16>) {mask = #attn.row_mask<row_interval>}
  attn.check_intervals %i, %i below %n {name = "x"} : memref<?x?x?xi32>, memref<?x?x?xi32>
  return
}

// Dynamic extents, and gradients in the type of their operand or of sums.
// CHECK-LABEL: func @low_rank(
// CHECK: attn.low_rank_backward ins({{[^:]*}} : tensor<?x4x?x5xbf16>, tensor<?x2x?x5xbf16>, tensor<?x2x?x8xbf16>) mask({{[^:]*}} : tensor<1x1x?xi32>, tensor<?x4x?xi32>)
// CHECK-SAME: forward(%{{[^:]*}} : tensor<?x4x?x8xbf16>) gradient(%{{[^:]*}} : tensor<?x4x?x8xbf16>)
// CHECK-SAME: outs({{[^:]*}} : tensor<?x4x?x5xbf16>, tensor<?x2x?x5xf32>, tensor<?x2x?x8xbf16>) {mask = #attn.row_mask<row_change>}
// CHECK-SAME: -> tensor<?x4x?x5xbf16>, tensor<?x2x?x5xf32>, tensor<?x2x?x8xbf16>
func.func @low_rank(%u1: tensor<?x4x?x5xbf16>, %u2: tensor<?x2x?x5xbf16>, %v: tensor<?x2x?x8xbf16>, %e: tensor<1x1x?xi32>, %c: tensor<?x4x?xi32>,
                    %o: tensor<?x4x?x8xbf16>, %s: tensor<?x2x?x5xf32>) -> tensor<?x2x?x5xf32> {
  %0:3 = attn.low_rank_backward ins(%u1, %u2, %v : tensor<?x4x?x5xbf16>, tensor<?x2x?x5xbf16>, tensor<?x2x?x8xbf16>)
      mask(%e, %c : tensor<1x1x?xi32>, tensor<?x4x?xi32>)
      forward(%o : tensor<?x4x?x8xbf16>) gradient(%o : tensor<?x4x?x8xbf16>)
      outs(%u1, %s, %v : tensor<?x4x?x5xbf16>, tensor<?x2x?x5xf32>, tensor<?x2x?x8xbf16>)
      {mask = #attn.row_mask<row_change>} -> tensor<?x4x?x5xbf16>, tensor<?x2x?x5xf32>, tensor<?x2x?x8xbf16>
  return %0#1 : tensor<?x2x?x5xf32>
}

// Memrefs are read, or written: loads of gradients before and after differ.
// CHECK-LABEL: func @memrefs(
// CHECK: memref.load
// CHECK: attn.low_rank_backward ins({{.*}}) forward({{.*}}) gradient({{.*}}) outs({{[^:]*}} : memref<1x1x7x8xf64>, memref<1x1x7x8xf64>, memref<1x1x7x8xf64>) {mask = #attn.row_mask<causal>}{{$}}
// CHECK: attn.polynomial_features_backward ins(%{{.*}} : memref<1x1x7x8xf64>) gradient(%{{.*}} : memref<1x1x7x45xf64>) outs(%{{.*}} : memref<1x1x7x8xf64>) {degree = 2 : i64, scale = 0.000000e+00 : f64}{{$}}
// CHECK: memref.load
func.func @memrefs(%x: memref<1x1x7x8xf64>, %a: memref<1x1x7x8xf64>, %b: memref<1x1x7x8xf64>, %c: memref<1x1x7x8xf64>, %p: memref<1x1x7x45xf64>) -> (f64, f64) {
  %c0 = arith.constant 0 : index
  %0 = memref.load %a[%c0, %c0, %c0, %c0] : memref<1x1x7x8xf64>
  attn.low_rank_backward ins(%x, %x, %x : memref<1x1x7x8xf64>, memref<1x1x7x8xf64>, memref<1x1x7x8xf64>)
      forward(%x : memref<1x1x7x8xf64>) gradient(%x : memref<1x1x7x8xf64>)
      outs(%a, %b, %c : memref<1x1x7x8xf64>, memref<1x1x7x8xf64>, memref<1x1x7x8xf64>) {mask = #attn.row_mask<causal>}
  attn.polynomial_features_backward ins(%x : memref<1x1x7x8xf64>) gradient(%p : memref<1x1x7x45xf64>)
      outs(%a : memref<1x1x7x8xf64>) {degree = 2 : i64, scale = 0.0 : f64}
  %1 = memref.load %a[%c0, %c0, %c0, %c0] : memref<1x1x7x8xf64>
  return %0, %1 : f64, f64
}

// CHECK-LABEL: func @rope_styles(
// CHECK: attn.rope ins({{.*}}) outs({{.*}}) {frequencies = array<f64: 1.000000e+00, 1.250000e-02>, magnitude = 1.100000e+00 : f64, style = #attn.rope_style<half>, width = 4 : i64}
// CHECK: attn.rope_backward ins({{.*}}) gradient({{.*}}) outs({{.*}}) {style = #attn.rope_style<half>, width = 2 : i64}
func.func @rope_styles(%x: tensor<2x4x9x6xf32>, %p: tensor<2x1x9xi32>) -> (tensor<2x4x9x6xf32>, tensor<2x4x9x6xf32>) {
  %0 = attn.rope ins(%x, %p : tensor<2x4x9x6xf32>, tensor<2x1x9xi32>) outs(%x : tensor<2x4x9x6xf32>) {frequencies = array<f64: 1.0, 1.25e-02>, magnitude = 1.1 : f64, style = #attn.rope_style<half>, width = 4 : i64} -> tensor<2x4x9x6xf32>
  %1 = attn.rope_backward ins(%p : tensor<2x1x9xi32>) gradient(%0 : tensor<2x4x9x6xf32>) outs(%x : tensor<2x4x9x6xf32>) {style = #attn.rope_style<half>, width = 2 : i64} -> tensor<2x4x9x6xf32>
  return %0, %1 : tensor<2x4x9x6xf32>, tensor<2x4x9x6xf32>
}
