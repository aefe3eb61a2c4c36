// RUN: fovea-opt %s --attn-prepare-products | FileCheck %s

// Taps are in the order of the filter, and neighbours in the input lie together
// in the patches. Those of a filter that moves by less than its width overlap.

//   CHECK-DAG: #[[$TAP:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3 + d2 * 2)>
//   CHECK-DAG: #[[$PATCH:.*]] = affine_map<(d0, d1, d2, d3, d4, d5) -> (d0, d3, d1 * 16 + d4, d2 * 16 + d5)>
//   CHECK-DAG: #[[$IDENTITY:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
//   CHECK-DAG: #[[$COLUMNS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d3, d1)>
//   CHECK-DAG: #[[$ROWS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
//   CHECK-DAG: #[[$FILTER:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d3)>
//   CHECK-DAG: #[[$LAST:.*]] = affine_map<(d0, d1, d2, d3) -> (d3, d2)>
//   CHECK-DAG: #[[$OUT:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d1)>
//   CHECK-DAG: #[[$OUT_ROWS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
//   CHECK-DAG: #[[$LEFT:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
//   CHECK-DAG: #[[$STORED:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
//   CHECK-DAG: #[[$KEYS:.*]] = affine_map<(d0, d1, d2, d3) -> (d2, d0, d3)>

// CHECK-LABEL: func.func @overlapping(
//  CHECK-SAME:   %[[X:.*]]: tensor<2x80x100xf32>, %[[W:.*]]: tensor<256x80x3xf32>, %[[O:.*]]: tensor<2x256x96xf32>)
//       CHECK:   %[[EMPTY:.*]] = tensor.empty() : tensor<2x80x3x96xf32>
//       CHECK:   %[[TAPS:.*]] = linalg.generic {indexing_maps = [#[[$TAP]], #[[$IDENTITY]]]
//  CHECK-SAME:     ins(%[[X]] : tensor<2x80x100xf32>) outs(%[[EMPTY]] : tensor<2x80x3x96xf32>)
//       CHECK:   %[[P:.*]] = tensor.collapse_shape %[[TAPS]] {{\[}}[0], [1, 2], [3]] : {{.*}} into tensor<2x240x96xf32>
//       CHECK:   %[[F:.*]] = tensor.collapse_shape %[[W]] {{\[}}[0], [1, 2]] : {{.*}} into tensor<256x240xf32>
//       CHECK:   %[[R:.*]] = linalg.generic {indexing_maps = [#[[$COLUMNS]], #[[$FILTER]], #[[$OUT]]]
//  CHECK-SAME:     iterator_types = ["parallel", "parallel", "parallel", "reduction"]
//  CHECK-SAME:     ins(%[[P]], %[[F]] : {{.*}}) outs(%[[O]] : tensor<2x256x96xf32>)
//       CHECK:   return %[[R]]
func.func @overlapping(%x: tensor<2x80x100xf32>, %w: tensor<256x80x3xf32>, %o: tensor<2x256x96xf32>) -> tensor<2x256x96xf32> {
  %r = linalg.conv_1d_ncw_fcw {dilations = dense<2> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%x, %w : tensor<2x80x100xf32>, tensor<256x80x3xf32>) outs(%o : tensor<2x256x96xf32>) -> tensor<2x256x96xf32>
  return %r : tensor<2x256x96xf32>
}

// CHECK-LABEL: func.func @patches(
//       CHECK:   linalg.generic {indexing_maps = [#[[$PATCH]], #{{.*}}]
//  CHECK-SAME:     outs(%{{.*}} : tensor<1x14x14x3x16x16xf32>)
//       CHECK:   tensor.collapse_shape %{{.*}} {{\[}}[0], [1, 2], [3, 4, 5]] : {{.*}} into tensor<1x196x768xf32>
//       CHECK:   %[[R:.*]] = linalg.generic {indexing_maps = [#[[$ROWS]], #[[$FILTER]], #[[$OUT]]]
//       CHECK:   tensor.expand_shape %[[R]] {{\[}}[0], [1], [2, 3]] output_shape [1, 256, 14, 14]
func.func @patches(%x: tensor<1x3x224x224xf32>, %w: tensor<256x3x16x16xf32>, %o: tensor<1x256x14x14xf32>)
    -> tensor<1x256x14x14xf32> {
  %r = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<16> : tensor<2xi64>}
      ins(%x, %w : tensor<1x3x224x224xf32>, tensor<256x3x16x16xf32>) outs(%o : tensor<1x256x14x14xf32>)
      -> tensor<1x256x14x14xf32>
  return %r : tensor<1x256x14x14xf32>
}

// A filter of one pixel needs no copy, unless it leaves pixels out.

// CHECK-LABEL: func.func @pixel(
//       CHECK:   %[[P:.*]] = tensor.collapse_shape %{{.*}} {{\[}}[0], [1, 2], [3]] : tensor<2x8x9x4xf32> into tensor<2x72x4xf32>
//       CHECK:   linalg.generic {indexing_maps = [#[[$ROWS]], #[[$LAST]], #[[$OUT_ROWS]]]{{.*}} ins(%[[P]], %{{.*}} : tensor<2x72x4xf32>, tensor<4x5xf32>)
//       CHECK:   tensor.expand_shape
func.func @pixel(%x: tensor<2x8x9x4xf32>, %w: tensor<1x1x4x5xf32>, %o: tensor<2x8x9x5xf32>) -> tensor<2x8x9x5xf32> {
  %r = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x8x9x4xf32>, tensor<1x1x4x5xf32>) outs(%o : tensor<2x8x9x5xf32>) -> tensor<2x8x9x5xf32>
  return %r : tensor<2x8x9x5xf32>
}

// CHECK-LABEL: func.func @cropped(
//       CHECK:   tensor.empty() : tensor<2x7x9x1x1x4xf32>
func.func @cropped(%x: tensor<2x8x9x4xf32>, %w: tensor<1x1x4x5xf32>, %o: tensor<2x7x9x5xf32>) -> tensor<2x7x9x5xf32> {
  %r = linalg.conv_2d_nhwc_hwcf {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<2x8x9x4xf32>, tensor<1x1x4x5xf32>) outs(%o : tensor<2x7x9x5xf32>) -> tensor<2x7x9x5xf32>
  return %r : tensor<2x7x9x5xf32>
}

// Extents may be unknown, and the bodies of narrow types stay as they are.

// CHECK-LABEL: func.func @dynamic(
//   CHECK-DAG:   tensor.dim
//       CHECK:   tensor.empty(%{{.*}}) : tensor<?x?x?x?x?x?xbf16>
//       CHECK:   linalg.generic
//       CHECK:     arith.extf %{{.*}} : bf16 to f32
//       CHECK:   tensor.expand_shape
func.func @dynamic(%x: tensor<?x?x?x?xbf16>, %w: tensor<?x?x?x?xbf16>, %o: tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32> {
  %r = linalg.conv_2d_nhwc_fhwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<?x?x?x?xbf16>, tensor<?x?x?x?xbf16>) outs(%o : tensor<?x?x?x?xf32>) -> tensor<?x?x?x?xf32>
  return %r : tensor<?x?x?x?xf32>
}

// Channels of their own, and integers, stay loops; so does a pooling.

// CHECK-LABEL: func.func @others(
//       CHECK:   linalg.depthwise_conv_2d_nchw_chw
//       CHECK:   linalg.conv_1d_ncw_fcw
//       CHECK:   linalg.pooling_nchw_max
func.func @others(%x: tensor<1x4x8x8xf32>, %w: tensor<4x3x3xf32>, %o: tensor<1x4x6x6xf32>, %i: tensor<1x4x8xi32>,
                  %j: tensor<4x4x3xi32>, %k: tensor<1x4x6xi32>, %size: tensor<3x3xf32>)
    -> (tensor<1x4x6x6xf32>, tensor<1x4x6xi32>, tensor<1x4x6x6xf32>) {
  %r = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %w : tensor<1x4x8x8xf32>, tensor<4x3x3xf32>) outs(%o : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %s = linalg.conv_1d_ncw_fcw {dilations = dense<1> : tensor<1xi64>, strides = dense<1> : tensor<1xi64>}
      ins(%i, %j : tensor<1x4x8xi32>, tensor<4x4x3xi32>) outs(%k : tensor<1x4x6xi32>) -> tensor<1x4x6xi32>
  %t = linalg.pooling_nchw_max {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
      ins(%x, %size : tensor<1x4x8x8xf32>, tensor<3x3xf32>) outs(%o : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %r, %s, %t : tensor<1x4x6x6xf32>, tensor<1x4x6xi32>, tensor<1x4x6x6xf32>
}

// Weights are read as PyTorch stores them, batches of keys as they are, and what
// is transposed twice is not transposed.

// CHECK-LABEL: func.func @transposed(
//  CHECK-SAME:   %[[X:.*]]: tensor<5x7xf32>, %[[W:[^:]*]]: tensor<3x7xf32>,
//       CHECK:   linalg.generic {indexing_maps = [#[[$LEFT]], #[[$STORED]], #{{.*}}]{{.*}} ins(%[[X]], %[[W]] :
func.func @transposed(%x: tensor<5x7xf32>, %w: tensor<3x7xf32>, %e: tensor<7x3xf32>, %o: tensor<5x3xf32>) -> tensor<5x3xf32> {
  %t = linalg.transpose ins(%w : tensor<3x7xf32>) outs(%e : tensor<7x3xf32>) permutation = [1, 0]
  %r = linalg.matmul ins(%x, %t : tensor<5x7xf32>, tensor<7x3xf32>) outs(%o : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}

// CHECK-LABEL: func.func @cycle(
//  CHECK-SAME:   %[[Q:.*]]: tensor<2x5x7xf32>, %[[K:.*]]: tensor<3x2x7xf32>,
//       CHECK:   linalg.generic {indexing_maps = [#{{.*}}, #[[$KEYS]], #{{.*}}]{{.*}} ins(%[[Q]], %[[K]] :
func.func @cycle(%q: tensor<2x5x7xf32>, %k: tensor<3x2x7xf32>, %e: tensor<2x7x3xf32>, %o: tensor<2x5x3xf32>) -> tensor<2x5x3xf32> {
  %t = linalg.transpose ins(%k : tensor<3x2x7xf32>) outs(%e : tensor<2x7x3xf32>) permutation = [1, 2, 0]
  %r = linalg.batch_matmul ins(%q, %t : tensor<2x5x7xf32>, tensor<2x7x3xf32>) outs(%o : tensor<2x5x3xf32>) -> tensor<2x5x3xf32>
  return %r : tensor<2x5x3xf32>
}

// CHECK-LABEL: func.func @twice(
//  CHECK-SAME:   %[[X:.*]]: tensor<5x7xf32>, %[[W:[^:]*]]: tensor<3x7xf32>,
//       CHECK:   linalg.generic {{.*}} ins(%[[X]], %[[W]] :
func.func @twice(%x: tensor<5x7xf32>, %w: tensor<3x7xf32>, %e: tensor<7x3xf32>, %f: tensor<3x7xf32>, %o: tensor<5x3xf32>) -> tensor<5x3xf32> {
  %t = linalg.transpose ins(%w : tensor<3x7xf32>) outs(%e : tensor<7x3xf32>) permutation = [1, 0]
  %u = linalg.transpose ins(%t : tensor<7x3xf32>) outs(%f : tensor<3x7xf32>) permutation = [1, 0]
  %v = linalg.transpose ins(%u : tensor<3x7xf32>) outs(%e : tensor<7x3xf32>) permutation = [1, 0]
  %r = linalg.matmul ins(%x, %v : tensor<5x7xf32>, tensor<7x3xf32>) outs(%o : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %r : tensor<5x3xf32>
}

// Several products that start from the same zeros have their own each.

// CHECK-LABEL: func.func @zeros(
//       CHECK:   %[[LAST:.*]] = linalg.fill
//       CHECK:   %[[FIRST:.*]] = linalg.fill
//       CHECK:   linalg.matmul {{.*}} outs(%[[FIRST]] :
//       CHECK:   linalg.matmul {{.*}} outs(%[[LAST]] :
func.func @zeros(%x: tensor<5x7xf32>, %w: tensor<7x3xf32>) -> (tensor<5x3xf32>, tensor<5x3xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x3xf32>
  %o = linalg.fill ins(%zero : f32) outs(%e : tensor<5x3xf32>) -> tensor<5x3xf32>
  %r = linalg.matmul ins(%x, %w : tensor<5x7xf32>, tensor<7x3xf32>) outs(%o : tensor<5x3xf32>) -> tensor<5x3xf32>
  %s = linalg.matmul ins(%x, %w : tensor<5x7xf32>, tensor<7x3xf32>) outs(%o : tensor<5x3xf32>) -> tensor<5x3xf32>
  return %r, %s : tensor<5x3xf32>, tensor<5x3xf32>
}

// Elementwise operations have the dimensions of the product, not those that its
// rows get afterwards, and sums keep no dimension of extent 1.

#all = affine_map<(b, i, j) -> (b, i, j)>
#columns = affine_map<(b, i, j) -> (j)>
#kept = affine_map<(b, i, j) -> (b, i, 0)>

// CHECK-LABEL: func.func @reshaped(
//       CHECK:   %[[PRODUCT:.*]] = linalg.matmul
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "parallel"]} ins(%[[PRODUCT]], %{{.*}} : tensor<12x16xf32>, tensor<16xf32>)
//       CHECK:   linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins({{.*}} : tensor<12x16xf32>) outs({{.*}} : tensor<12xf32>)
//       CHECK:   tensor.expand_shape %{{.*}} {{.*}} into tensor<2x6x1xf32>
func.func @reshaped(%a: tensor<12x8xf32>, %b: tensor<8x16xf32>, %bias: tensor<16xf32>) -> (tensor<2x6x16xf32>, tensor<2x6x1xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<12x16xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<12x16xf32>) -> tensor<12x16xf32>
  %p = linalg.matmul ins(%a, %b : tensor<12x8xf32>, tensor<8x16xf32>) outs(%z : tensor<12x16xf32>) -> tensor<12x16xf32>
  %r = tensor.expand_shape %p [[0, 1], [2]] output_shape [2, 6, 16] : tensor<12x16xf32> into tensor<2x6x16xf32>
  %o = tensor.empty() : tensor<2x6x16xf32>
  %s = linalg.generic {indexing_maps = [#all, #columns, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r, %bias : tensor<2x6x16xf32>, tensor<16xf32>) outs(%o : tensor<2x6x16xf32>) {
  ^bb0(%x: f32, %y: f32, %old: f32):
    %sum = arith.addf %x, %y : f32
    linalg.yield %sum : f32
  } -> tensor<2x6x16xf32>
  %k = tensor.empty() : tensor<2x6x1xf32>
  %kz = linalg.fill ins(%zero : f32) outs(%k : tensor<2x6x1xf32>) -> tensor<2x6x1xf32>
  %t = linalg.generic {indexing_maps = [#all, #kept], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%s : tensor<2x6x16xf32>) outs(%kz : tensor<2x6x1xf32>) {
  ^bb0(%x: f32, %old: f32):
    %sum = arith.addf %x, %old : f32
    linalg.yield %sum : f32
  } -> tensor<2x6x1xf32>
  return %s, %t : tensor<2x6x16xf32>, tensor<2x6x1xf32>
}

// Weights that are repeated for each entry of a batch are read as they are, and
// entries are rows of one product.

// CHECK-LABEL: func.func @shared_weights(
//  CHECK-SAME:   %[[X:.*]]: tensor<2x7x16xf32>, %[[W:.*]]: tensor<32x16xf32>, %[[O:.*]]: tensor<2x7x32xf32>)
//   CHECK-DAG:   %[[ROWS:.*]] = tensor.collapse_shape %[[X]] {{\[}}[0, 1], [2]] : tensor<2x7x16xf32> into tensor<14x16xf32>
//   CHECK-DAG:   %[[OUT:.*]] = tensor.collapse_shape %[[O]] {{\[}}[0, 1], [2]] : tensor<2x7x32xf32> into tensor<14x32xf32>
//       CHECK:   %[[R:.*]] = linalg.generic {indexing_maps = [#[[$LEFT]], #[[$STORED]], #{{.*}}]{{.*}} ins(%[[ROWS]], %[[W]] : {{.*}}) outs(%[[OUT]] :
//       CHECK:   tensor.expand_shape %[[R]] {{\[}}[0, 1], [2]]
func.func @shared_weights(%x: tensor<2x7x16xf32>, %w: tensor<32x16xf32>, %o: tensor<2x7x32xf32>) -> tensor<2x7x32xf32> {
  %empty = tensor.empty() : tensor<16x32xf32>
  %t = linalg.transpose ins(%w : tensor<32x16xf32>) outs(%empty : tensor<16x32xf32>) permutation = [1, 0]
  %both = tensor.empty() : tensor<2x16x32xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(b, k, n) -> (k, n)>, affine_map<(b, k, n) -> (b, k, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%t : tensor<16x32xf32>) outs(%both : tensor<2x16x32xf32>) {
  ^bb0(%a: f32, %out: f32):
    linalg.yield %a : f32
  } -> tensor<2x16x32xf32>
  %r = linalg.batch_matmul ins(%x, %b : tensor<2x7x16xf32>, tensor<2x16x32xf32>) outs(%o : tensor<2x7x32xf32>) -> tensor<2x7x32xf32>
  return %r : tensor<2x7x32xf32>
}

// What is repeated along a sum, or along columns, stays: no loop of the result would be left to a factor.

// CHECK-LABEL: func.func @repeated_columns(
//       CHECK:   linalg.broadcast
//       CHECK:   linalg.matmul
func.func @repeated_columns(%x: tensor<8x16xf32>, %w: tensor<16xf32>, %o: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %empty = tensor.empty() : tensor<16x32xf32>
  %b = linalg.broadcast ins(%w : tensor<16xf32>) outs(%empty : tensor<16x32xf32>) dimensions = [1]
  %r = linalg.matmul ins(%x, %b : tensor<8x16xf32>, tensor<16x32xf32>) outs(%o : tensor<8x32xf32>) -> tensor<8x32xf32>
  return %r : tensor<8x32xf32>
}

// Factors that indices choose, as of a mixture of experts, are read where they
// are, one product after the other, also when they are transposed.

// CHECK-LABEL: func.func @chosen_weights(
//  CHECK-SAME:   %[[X:.*]]: tensor<5x7x16xf32>, %[[W:.*]]: tensor<3x32x16xf32>, %[[I:.*]]: tensor<5xi64>, %[[O:.*]]: tensor<5x7x32xf32>)
//       CHECK:   scf.for %[[B:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args(%[[SUMS:.*]] = %[[O]])
//       CHECK:     %[[CODE:.*]] = tensor.extract %[[I]][%[[B]]]
//       CHECK:     %[[EXPERT:.*]] = arith.index_cast %[[CODE]]
//       CHECK:     tensor.extract_slice %[[W]][%[[EXPERT]], 0, 0] [1, 32, 16]
//       CHECK:     tensor.extract_slice %[[SUMS]][%[[B]], 0, 0] [1, 7, 32]
//       CHECK:     linalg.generic {indexing_maps = [#[[$LEFT]], #[[$STORED]], #{{.*}}], iterator_types = ["parallel", "parallel", "reduction"]}
//       CHECK:     tensor.insert_slice
func.func @chosen_weights(%x: tensor<5x7x16xf32>, %w: tensor<3x32x16xf32>, %i: tensor<5xi64>, %o: tensor<5x7x32xf32>) -> tensor<5x7x32xf32> {
  %empty = tensor.empty() : tensor<5x32x16xf32>
  %g = linalg.generic {indexing_maps = [affine_map<(b, n, k) -> (b)>, affine_map<(b, n, k) -> (b, n, k)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%empty : tensor<5x32x16xf32>) {
  ^bb0(%code: i64, %out: f32):
    %b = arith.index_cast %code : i64 to index
    %n = linalg.index 1 : index
    %k = linalg.index 2 : index
    %a = tensor.extract %w[%b, %n, %k] : tensor<3x32x16xf32>
    linalg.yield %a : f32
  } -> tensor<5x32x16xf32>
  %turned = tensor.empty() : tensor<5x16x32xf32>
  %t = linalg.transpose ins(%g : tensor<5x32x16xf32>) outs(%turned : tensor<5x16x32xf32>) permutation = [0, 2, 1]
  %r = linalg.batch_matmul ins(%x, %t : tensor<5x7x16xf32>, tensor<5x16x32xf32>) outs(%o : tensor<5x7x32xf32>) -> tensor<5x7x32xf32>
  return %r : tensor<5x7x32xf32>
}

// Not where the place depends on the column, too.

// CHECK-LABEL: func.func @chosen_columns(
//   CHECK-NOT:   scf.for
//       CHECK:   linalg.batch_matmul
func.func @chosen_columns(%x: tensor<5x7x16xf32>, %w: tensor<3x16x32xf32>, %i: tensor<5xi64>, %o: tensor<5x7x32xf32>) -> tensor<5x7x32xf32> {
  %empty = tensor.empty() : tensor<5x16x32xf32>
  %three = arith.constant 3 : index
  %g = linalg.generic {indexing_maps = [affine_map<(b, k, n) -> (b)>, affine_map<(b, k, n) -> (b, k, n)>],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%i : tensor<5xi64>) outs(%empty : tensor<5x16x32xf32>) {
  ^bb0(%code: i64, %out: f32):
    %first = arith.index_cast %code : i64 to index
    %k = linalg.index 1 : index
    %n = linalg.index 2 : index
    %sum = arith.addi %first, %n : index
    %b = arith.remui %sum, %three : index
    %a = tensor.extract %w[%b, %k, %n] : tensor<3x16x32xf32>
    linalg.yield %a : f32
  } -> tensor<5x16x32xf32>
  %r = linalg.batch_matmul ins(%x, %g : tensor<5x7x16xf32>, tensor<5x16x32xf32>) outs(%o : tensor<5x7x32xf32>) -> tensor<5x7x32xf32>
  return %r : tensor<5x7x32xf32>
}

// One element without dimensions beside what a pad adds to it.

// CHECK-LABEL: func.func @pad(
//       CHECK:   tensor.pad %{{.*}} low[0, 2] high[0, 1]
func.func @pad(%x: tensor<1x1xf32>) -> tensor<1x4xf32> {
  %c = arith.constant 0.25 : f32
  %e = tensor.empty() : tensor<1x1xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1x1xf32>) outs(%e : tensor<1x1xf32>) {
  ^bb0(%a: f32, %o: f32):
    %p = arith.mulf %a, %a : f32
    linalg.yield %p : f32
  } -> tensor<1x1xf32>
  %r = tensor.pad %s low[0, 2] high[0, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %c : f32
  } : tensor<1x1xf32> to tensor<1x4xf32>
  return %r : tensor<1x4xf32>
}
