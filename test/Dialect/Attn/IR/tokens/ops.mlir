// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @dynamic(
// CHECK: attn.list_tokens ins(%{{.*}} : tensor<?x?xi1>) outs(%{{.*}}, %{{.*}}, %{{.*}} : tensor<?x?xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32>, tensor<?x?xi32>, tensor<?xi32>
// CHECK: attn.take_rows ins(%{{.*}}, %{{.*}} : tensor<?x?x?x7xbf16>, tensor<?x?xi32>) outs(%{{.*}} : tensor<?x?x?x7xbf16>) -> tensor<?x?x?x7xbf16>
func.func @dynamic(%m: tensor<?x?xi1>, %t: tensor<?x?xi32>, %c: tensor<?xi32>, %x: tensor<?x?x?x7xbf16>) -> tensor<?x?x?x7xbf16> {
  %l:3 = attn.list_tokens ins(%m : tensor<?x?xi1>) outs(%t, %t, %c : tensor<?x?xi32>, tensor<?x?xi32>, tensor<?xi32>) -> tensor<?x?xi32>, tensor<?x?xi32>, tensor<?xi32>
  %r = attn.take_rows ins(%x, %l#0 : tensor<?x?x?x7xbf16>, tensor<?x?xi32>) outs(%x : tensor<?x?x?x7xbf16>) -> tensor<?x?x?x7xbf16>
  return %r : tensor<?x?x?x7xbf16>
}

// Fewer rows than there are tokens, or more.
// CHECK-LABEL: func @memrefs(
// CHECK: attn.list_tokens ins(%{{.*}} : memref<2x9xi1>) outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<2x9xi32>, memref<2x9xi32>, memref<2xi32>){{$}}
// CHECK: attn.take_rows ins(%{{.*}}, %{{.*}} : memref<2x3x4x7xf64>, memref<2x9xi32>) outs(%{{.*}} : memref<2x3x9x7xf64>){{$}}
func.func @memrefs(%m: memref<2x9xi1>, %t: memref<2x9xi32>, %p: memref<2x9xi32>, %c: memref<2xi32>, %x: memref<2x3x4x7xf64>, %o: memref<2x3x9x7xf64>) {
  attn.list_tokens ins(%m : memref<2x9xi1>) outs(%t, %p, %c : memref<2x9xi32>, memref<2x9xi32>, memref<2xi32>)
  attn.take_rows ins(%x, %t : memref<2x3x4x7xf64>, memref<2x9xi32>) outs(%o : memref<2x3x9x7xf64>)
  return
}
