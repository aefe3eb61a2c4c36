// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

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
