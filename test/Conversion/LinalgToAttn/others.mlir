// RUN: fovea-opt %s --allow-unregistered-dialect --split-input-file --attn-raise --canonicalize --remarks-filter='attn-raise' --remark-policy=all 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t

// Attention operations of torch-mlir and IREE, in the generic form.

// CHECK-LABEL: func.func @torch(
//  CHECK-SAME:   %[[Q:.*]]: tensor<6x5x8xf32>, %[[K:.*]]: tensor<6x7x8xf32>, %[[V:.*]]: tensor<6x7x4xf32>
//       CHECK:   attn.dense
//  CHECK-SAME:   scale = 0.353
func.func @torch(%q: tensor<6x5x8xf32>, %k: tensor<6x7x8xf32>, %v: tensor<6x7x4xf32>) -> tensor<6x5x4xf32> {
  %0 = tensor.empty() : tensor<6x5x4xf32>
  %1 = "tm_tensor.attention"(%q, %k, %v, %0) <{operandSegmentSizes = array<i32: 3, 1>}>
      : (tensor<6x5x8xf32>, tensor<6x7x8xf32>, tensor<6x7x4xf32>, tensor<6x5x4xf32>) -> tensor<6x5x4xf32>
  return %1 : tensor<6x5x4xf32>
}

// -----

// A mask of index arithmetic is evaluated.

// CHECK-LABEL: func.func @torch_causal(
//       CHECK:   attn.dense
//  CHECK-SAME:   mask = #attn.mask<causal>, scale = 0.30000
#map = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
func.func @torch_causal(%q: tensor<6x5x8xf32>, %k: tensor<6x5x8xf32>, %v: tensor<6x5x4xf32>) -> tensor<6x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %empty = tensor.empty() : tensor<6x5x5xf32>
  %mask = linalg.generic {indexing_maps = [#map], iterator_types = ["parallel", "parallel", "parallel"]} outs(%empty : tensor<6x5x5xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 1 : index
    %j = linalg.index 2 : index
    %c = arith.cmpi sge, %i, %j : index
    %s = arith.select %c, %zero, %low : f32
    linalg.yield %s : f32
  } -> tensor<6x5x5xf32>
  %0 = tensor.empty() : tensor<6x5x4xf32>
  %1 = "tm_tensor.attention"(%q, %k, %v, %mask, %0) <{operandSegmentSizes = array<i32: 4, 1>, scale = 3.000000e-01 : f64}>
      : (tensor<6x5x8xf32>, tensor<6x5x8xf32>, tensor<6x5x4xf32>, tensor<6x5x5xf32>, tensor<6x5x4xf32>) -> tensor<6x5x4xf32>
  return %1 : tensor<6x5x4xf32>
}

// -----

// Grouped heads, transposed values, a boolean mask, and f16: by maps.

// CHECK-LABEL: func.func @iree(
//       CHECK:   attn.dense
//  CHECK-SAME:   tensor<2x6x5x8xf32>, tensor<2x3x7x8xf32>, tensor<2x3x7x4xf32>
//  CHECK-SAME:   bias(%{{.*}} : tensor<2x1x1x7xf32>)
//  CHECK-SAME:   scale = 2.500000e-01
#q = affine_map<(b, g, h, m, d, n, e) -> (b, g, h, m, d)>
#k = affine_map<(b, g, h, m, d, n, e) -> (b, n, g, d)>
#v = affine_map<(b, g, h, m, d, n, e) -> (b, g, e, n)>
#s = affine_map<(b, g, h, m, d, n, e) -> ()>
#mask = affine_map<(b, g, h, m, d, n, e) -> (b, n)>
#o = affine_map<(b, g, h, m, d, n, e) -> (b, m, g, h, e)>
func.func @iree(%q: tensor<2x3x2x5x8xf16>, %k: tensor<2x7x3x8xf16>, %v: tensor<2x3x4x7xf16>, %mask: tensor<2x7xi1>) -> tensor<2x5x3x2x4xf16> {
  %scale = arith.constant 0.25 : f16
  %0 = tensor.empty() : tensor<2x5x3x2x4xf16>
  %1 = "iree_linalg_ext.attention"(%q, %k, %v, %scale, %mask, %0) <{indexing_maps = [#q, #k, #v, #s, #mask, #o]}> ({
  ^bb0(%score: f32):
    "iree_linalg_ext.yield"(%score) : (f32) -> ()
  }) : (tensor<2x3x2x5x8xf16>, tensor<2x7x3x8xf16>, tensor<2x3x4x7xf16>, f16, tensor<2x7xi1>, tensor<2x5x3x2x4xf16>) -> tensor<2x5x3x2x4xf16>
  return %1 : tensor<2x5x3x2x4xf16>
}

// -----

// Near misses stay what they are.

// CHECK-LABEL: func.func @other_scores(
//       CHECK:   "iree_linalg_ext.attention"
//   CHECK-NOT:   linalg.generic
//      REMARK: its region computes other scores, at 'iree_linalg_ext.attention'
#q = affine_map<(m, d, n, e) -> (m, d)>
#k = affine_map<(m, d, n, e) -> (n, d)>
#v = affine_map<(m, d, n, e) -> (n, e)>
#s = affine_map<(m, d, n, e) -> ()>
#o = affine_map<(m, d, n, e) -> (m, e)>
func.func @other_scores(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>, %scale: f32, %0: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %1 = "iree_linalg_ext.attention"(%q, %k, %v, %scale, %0) <{indexing_maps = [#q, #k, #v, #s, #o]}> ({
  ^bb0(%score: f32):
    %t = math.tanh %score : f32
    "iree_linalg_ext.yield"(%t) : (f32) -> ()
  }) : (tensor<5x8xf32>, tensor<7x8xf32>, tensor<7x4xf32>, f32, tensor<5x4xf32>) -> tensor<5x4xf32>
  return %1 : tensor<5x4xf32>
}

// -----

// CHECK-LABEL: func.func @two_axes_of_keys(
//       CHECK:   "iree_linalg_ext.attention"
//      REMARK: needed one loop over keys and one over the depth, at 'iree_linalg_ext.attention'
#q = affine_map<(m, d, n, p, e) -> (m, d)>
#k = affine_map<(m, d, n, p, e) -> (n, p, d)>
#v = affine_map<(m, d, n, p, e) -> (n, p, e)>
#s = affine_map<(m, d, n, p, e) -> ()>
#o = affine_map<(m, d, n, p, e) -> (m, e)>
func.func @two_axes_of_keys(%q: tensor<5x8xf32>, %k: tensor<7x2x8xf32>, %v: tensor<7x2x4xf32>, %scale: f32, %0: tensor<5x4xf32>) -> tensor<5x4xf32> {
  %1 = "iree_linalg_ext.attention"(%q, %k, %v, %scale, %0) <{indexing_maps = [#q, #k, #v, #s, #o]}> ({
  ^bb0(%score: f32):
    "iree_linalg_ext.yield"(%score) : (f32) -> ()
  }) : (tensor<5x8xf32>, tensor<7x2x8xf32>, tensor<7x2x4xf32>, f32, tensor<5x4xf32>) -> tensor<5x4xf32>
  return %1 : tensor<5x4xf32>
}

// -----

// CHECK-LABEL: func.func @odd(
// CHECK-COUNT-6: "{{.*}}.attention"
//   CHECK-NOT: linalg.generic
//  REMARK-DAG: extents of operands do not agree, at 'tm_tensor.attention'
//  REMARK-DAG: needed queries, keys, values, a mask if any, and an output, at 'tm_tensor.attention'
//  REMARK-DAG: an operand has elements of another type than floating point, at 'tm_tensor.attention'
//  REMARK-DAG: the width of heads, of which the scale is made, is not known, at 'tm_tensor.attention'
//  REMARK-DAG: the result has another type than the output, at 'tm_tensor.attention'
//  REMARK-DAG: needed queries, keys, values, a scale, a mask if any, and an output, each with a map, at 'iree_linalg_ext.attention'
func.func @odd(%q: tensor<6x5x8xf32>, %k: tensor<6x7x8xf32>, %short: tensor<6x3x8xf32>, %codes: tensor<6x7x8xi32>, %any: tensor<6x5x?xf32>,
               %f: f32) -> tensor<6x5x8xf32> {
  %0 = tensor.empty() : tensor<6x5x8xf32>
  %1 = "tm_tensor.attention"(%q, %k, %short, %0)
      : (tensor<6x5x8xf32>, tensor<6x7x8xf32>, tensor<6x3x8xf32>, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %2 = "tm_tensor.attention"(%q, %k, %1) : (tensor<6x5x8xf32>, tensor<6x7x8xf32>, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %3 = "tm_tensor.attention"(%q, %k, %codes, %2)
      : (tensor<6x5x8xf32>, tensor<6x7x8xf32>, tensor<6x7x8xi32>, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %4 = "tm_tensor.attention"(%any, %k, %k, %3)
      : (tensor<6x5x?xf32>, tensor<6x7x8xf32>, tensor<6x7x8xf32>, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  %5 = "tm_tensor.attention"(%q, %k, %k, %4)
      : (tensor<6x5x8xf32>, tensor<6x7x8xf32>, tensor<6x7x8xf32>, tensor<6x5x8xf32>) -> tensor<6x5x?xf32>
  %6 = "iree_linalg_ext.attention"(%5, %k, %k, %f, %4)
      : (tensor<6x5x?xf32>, tensor<6x7x8xf32>, tensor<6x7x8xf32>, f32, tensor<6x5x8xf32>) -> tensor<6x5x8xf32>
  return %6 : tensor<6x5x8xf32>
}
