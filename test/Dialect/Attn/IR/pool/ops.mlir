// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @dynamic(
// CHECK: attn.pool ins(%{{.*}}, %{{.*}} : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>) outs(%{{.*}} : tensor<?x?x?x7xf32>) {interval = 4 : i64, overlap = 3 : i64} -> tensor<?x?x?x7xf32>
// CHECK: attn.pool_backward ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>, tensor<?x?x?x7xf32>) outs(%{{.*}}, %{{.*}} : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>) {interval = 4 : i64, overlap = 3 : i64} -> tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>
// CHECK: attn.top_k ins(%{{.*}} : tensor<?x?x?x?xbf16>) outs(%{{.*}} : tensor<?x?x?x?xi32>) -> tensor<?x?x?x?xi32>
func.func @dynamic(%x: tensor<?x?x?x7xbf16>, %o: tensor<?x?x?x7xf32>, %s: tensor<?x?x?x?xbf16>, %i: tensor<?x?x?x?xi32>) -> tensor<?x?x?x?xi32> {
  %p = attn.pool ins(%x, %x : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>) outs(%o : tensor<?x?x?x7xf32>) {interval = 4 : i64, overlap = 3 : i64} -> tensor<?x?x?x7xf32>
  %d:2 = attn.pool_backward ins(%x, %x, %p : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>, tensor<?x?x?x7xf32>) outs(%x, %x : tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>) {interval = 4 : i64, overlap = 3 : i64} -> tensor<?x?x?x7xbf16>, tensor<?x?x?x7xbf16>
  %t = attn.top_k ins(%s : tensor<?x?x?x?xbf16>) outs(%i : tensor<?x?x?x?xi32>) -> tensor<?x?x?x?xi32>
  return %t : tensor<?x?x?x?xi32>
}

// CHECK-LABEL: func @memrefs(
// CHECK: attn.pool ins(%{{.*}}, %{{.*}} : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>) position_bias(%{{.*}} : memref<4x7xf64>) outs(%{{.*}} : memref<2x3x3x7xf64>) {interval = 4 : i64}{{$}}
// CHECK: attn.pool_backward ins(%{{.*}} : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>, memref<2x3x3x7xf64>) position_bias(%{{.*}} : memref<4x7xf64>) outs(%{{.*}} : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>, memref<4x7xf64>) {interval = 4 : i64}{{$}}
// CHECK: attn.top_k ins(%{{.*}} : memref<2x3x4x9xf32>) outs(%{{.*}} : memref<2x3x4x11xi32>) {mask = #attn.mask<causal, stride = 4>}{{$}}
func.func @memrefs(%x: memref<2x3x9x7xf64>, %g: memref<2x3x9x7xf64>, %p: memref<4x7xf64>, %o: memref<2x3x3x7xf64>, %dp: memref<4x7xf64>, %dx: memref<2x3x9x7xf64>, %dg: memref<2x3x9x7xf64>, %s: memref<2x3x4x9xf32>, %i: memref<2x3x4x11xi32>) {
  attn.pool ins(%x, %g : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>) position_bias(%p : memref<4x7xf64>) outs(%o : memref<2x3x3x7xf64>) {interval = 4 : i64}
  attn.pool_backward ins(%x, %g, %o : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>, memref<2x3x3x7xf64>) position_bias(%p : memref<4x7xf64>) outs(%dx, %dg, %dp : memref<2x3x9x7xf64>, memref<2x3x9x7xf64>, memref<4x7xf64>) {interval = 4 : i64}
  attn.top_k ins(%s : memref<2x3x4x9xf32>) outs(%i : memref<2x3x4x11xi32>) {mask = #attn.mask<causal, stride = 4>}
  return
}
