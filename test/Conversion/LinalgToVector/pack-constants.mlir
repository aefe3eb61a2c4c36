// RUN: fovea-opt %s --mlir-disable-threading --attn-set-target="vector-bits=256 num-registers=16" --attn-prepare-products | FileCheck %s
// RUN: fovea-opt %s --mlir-disable-threading --attn-set-target="vector-bits=256 num-registers=16" --attn-prepare-products --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --attn-vectorize-linalg --canonicalize --cse \
// RUN:     | FileCheck %s --check-prefix=KERNEL

#left = affine_map<(m, n, k) -> (m, k)>
#stored = affine_map<(m, n, k) -> (n, k)>
#plain = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>

// Panels of the columns of a register tile, in which columns that there are not
// are zero.

// CHECK: #[[$PANELS:.*]] = affine_map<(d0, d1, d2) -> (d1 floordiv 8, d2, d1 mod 8)>
// CHECK: #[[$BATCHES:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2 floordiv 16, d3, d2 mod 16)>

// CHECK-LABEL: func.func @stored(
//       CHECK:   %[[PACKED:.*]] = arith.constant dense_resource<packed> : tensor<1x3x8xf32>
//       CHECK:   linalg.generic {indexing_maps = [#{{.*}}, #[[$PANELS]], #{{.*}}]
//  CHECK-SAME:     ins(%{{.*}}, %[[PACKED]] :
// KERNEL-LABEL: func.func @stored(
//       KERNEL:   %[[PANELS:.*]] = memref.get_global @__constant_1x3x8xf32
//       KERNEL:   scf.forall
//   KERNEL-NOT:   memref.alloc() {alignment = 64 : i64} : memref<256x
//       KERNEL:     vector.load %[[PANELS]]
func.func @stored(%x: tensor<9x3xf32>, %o: tensor<9x2xf32>) -> tensor<9x2xf32> {
  %w = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %r = linalg.contract indexing_maps = [#left, #stored, #out]
      ins(%x, %w : tensor<9x3xf32>, tensor<2x3xf32>) outs(%o : tensor<9x2xf32>) -> tensor<9x2xf32>
  return %r : tensor<9x2xf32>
}

// Any number of rows.

// CHECK-LABEL: func.func @dynamic(
//       CHECK:   arith.constant dense_resource<packed_1> : tensor<1x3x8xf32>
func.func @dynamic(%x: tensor<?x3xf32>, %o: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = arith.constant dense<[[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]> : tensor<3x2xf32>
  %r = linalg.contract indexing_maps = [#left, #plain, #out]
      ins(%x, %w : tensor<?x3xf32>, tensor<3x2xf32>) outs(%o : tensor<?x2xf32>) -> tensor<?x2xf32>
  return %r : tensor<?x2xf32>
}

// A batch of weights; the order of a transposition that has gone.

// CHECK-LABEL: func.func @batch(
//       CHECK:   %[[PACKED:.*]] = arith.constant dense_resource<packed_2> : tensor<2x2x1x16xf32>
//       CHECK:   linalg.generic {indexing_maps = [#{{.*}}, #[[$BATCHES]], #{{.*}}]
func.func @batch(%x: tensor<2x20x1xf32>, %o: tensor<2x20x17xf32>) -> tensor<2x20x17xf32> {
  %w = arith.constant dense_resource<rows> : tensor<17x2x1xf32>
  %e = tensor.empty() : tensor<2x1x17xf32>
  %t = linalg.transpose ins(%w : tensor<17x2x1xf32>) outs(%e : tensor<2x1x17xf32>) permutation = [1, 2, 0]
  %r = linalg.batch_matmul ins(%x, %t : tensor<2x20x1xf32>, tensor<2x1x17xf32>) outs(%o : tensor<2x20x17xf32>) -> tensor<2x20x17xf32>
  return %r : tensor<2x20x17xf32>
}

// Few rows read weights where they are; narrow ones are converted by blocks.

// CHECK-LABEL: func.func @few(
//   CHECK-NOT:   packed
func.func @few(%x: tensor<8x3xf32>, %o: tensor<8x2xf32>, %y: tensor<9x3xf32>, %p: tensor<9x2xf32>)
    -> (tensor<8x2xf32>, tensor<9x2xf32>) {
  %w = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %v = arith.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xbf16>
  %r = linalg.contract indexing_maps = [#left, #stored, #out]
      ins(%x, %w : tensor<8x3xf32>, tensor<2x3xf32>) outs(%o : tensor<8x2xf32>) -> tensor<8x2xf32>
  %s = linalg.contract indexing_maps = [#left, #stored, #out]
      ins(%y, %v : tensor<9x3xf32>, tensor<2x3xbf16>) outs(%p : tensor<9x2xf32>) -> tensor<9x2xf32>
  return %r, %s : tensor<8x2xf32>, tensor<9x2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      rows: "0x04000000000000000000803F0000004000004040000080400000A0400000C040000000000000803F0000004000004040000080400000A0400000C040000000000000803F0000004000004040000080400000A0400000C040000000000000803F0000004000004040000080400000A0400000C040000000000000803F0000004000004040000080400000A040"
    }
  }
#-}
// Column 0 of the first step, column 1, and zeros; then the second step.
// CHECK: packed: "0x400000000000803F00008040{{0+}}400000A040{{0+}}
