// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s

// CHECK-LABEL: func @tensors(
// CHECK: attn.conv_apply ins(%{{.*}}, %{{.*}}, %{{.*}} : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x1x9x5xbf16>) outs(%{{.*}}, %{{.*}} : tensor<2x4x9x5xbf16>, tensor<2x4xi32>) -> tensor<2x4x9x5xbf16>, tensor<2x4xi32>
func.func @tensors(%b: tensor<2x4x3x9xf32>, %m: tensor<2x4x3xi32>, %v: tensor<2x1x9x5xbf16>, %o: tensor<2x4x9x5xbf16>, %c: tensor<2x4xi32>) -> (tensor<2x4x9x5xbf16>, tensor<2x4xi32>) {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<2x4x3x9xf32>, tensor<2x4x3xi32>, tensor<2x1x9x5xbf16>)
      outs(%o, %c : tensor<2x4x9x5xbf16>, tensor<2x4xi32>) {algorithm = #attn.conv_algorithm<auto>} -> tensor<2x4x9x5xbf16>, tensor<2x4xi32>
  return %r#0, %r#1 : tensor<2x4x9x5xbf16>, tensor<2x4xi32>
}

// CHECK-LABEL: func @dynamic(
// CHECK: {algorithm = #attn.conv_algorithm<toeplitz>}
func.func @dynamic(%b: tensor<?x?x?x?xf64>, %m: tensor<?x?x?xi32>, %v: tensor<?x?x?x7xf64>, %o: tensor<?x?x?x7xf64>, %c: tensor<?x?xi32>) -> tensor<?x?x?x7xf64> {
  %r:2 = attn.conv_apply ins(%b, %m, %v : tensor<?x?x?x?xf64>, tensor<?x?x?xi32>, tensor<?x?x?x7xf64>)
      outs(%o, %c : tensor<?x?x?x7xf64>, tensor<?x?xi32>) {algorithm = #attn.conv_algorithm<toeplitz>} -> tensor<?x?x?x7xf64>, tensor<?x?xi32>
  return %r#0 : tensor<?x?x?x7xf64>
}

// CHECK-LABEL: func @memrefs(
// CHECK: attn.conv_apply ins({{.*}}) outs({{.*}} : memref<1x1x9x5xf16>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}{{$}}
func.func @memrefs(%b: memref<1x1x1x9xf16>, %m: memref<1x1x1xi32>, %v: memref<1x1x9x5xf16>, %o: memref<1x1x9x5xf16>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x9xf16>, memref<1x1x1xi32>, memref<1x1x9x5xf16>)
      outs(%o, %c : memref<1x1x9x5xf16>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}
  return
}
