// RUN: fovea-opt %s --allow-unregistered-dialect --split-input-file --attn-raise --canonicalize --remarks-filter='attn-raise' --remark-policy=all 2>%t | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK --input-file=%t

// Attention operations of ONNX and PyTorch, in the generic form.

// CHECK-LABEL: func.func @onnx(
//  CHECK-SAME:   %[[Q:.*]]: tensor<2x4x5x8xf32>, %[[K:.*]]: tensor<2x4x7x8xf32>, %[[V:.*]]: tensor<2x4x7x6xf32>
//   CHECK-NOT:   linalg
//       CHECK:   %[[O:.*]] = attn.dense ins(%[[Q]], %[[K]], %[[V]]
//  CHECK-SAME:   scale = 0.353
//       CHECK:   return %[[O]]
func.func @onnx(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x7x8xf32>, %v: tensor<2x4x7x6xf32>) -> tensor<2x4x5x6xf32> {
  %0 = "onnx.Attention"(%q, %k, %v) : (tensor<2x4x5x8xf32>, tensor<2x4x7x8xf32>, tensor<2x4x7x6xf32>) -> tensor<2x4x5x6xf32>
  return %0 : tensor<2x4x5x6xf32>
}

// -----

// Heads in the last dimension, grouped; a scale, and a causal mask from the first key on.

// CHECK-LABEL: func.func @heads_inside(
//       CHECK:   attn.dense
//  CHECK-SAME:   tensor<2x4x5x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>
//  CHECK-SAME:   mask = #attn.mask<causal>, scale = 2.500000e-01
func.func @heads_inside(%q: tensor<2x5x32xf32>, %k: tensor<2x5x16xf32>, %v: tensor<2x5x16xf32>) -> tensor<2x5x32xf32> {
  %0 = "onnx.Attention"(%q, %k, %v) {q_num_heads = 4 : si64, kv_num_heads = 2 : si64, is_causal = 1 : si64, scale = 0.25 : f32, onnx_node_name = "a"}
      : (tensor<2x5x32xf32>, tensor<2x5x16xf32>, tensor<2x5x16xf32>) -> tensor<2x5x32xf32>
  return %0 : tensor<2x5x32xf32>
}

// -----

// Keys of before come first, and are results together with those of now.

// CHECK-LABEL: func.func @past(
//   CHECK-NOT:   onnx
//       CHECK:   %[[KEYS:.*]] = tensor.concat dim(2) %{{.*}} : (tensor<2x4x3x8xf32>, tensor<2x4x2x8xf32>) -> tensor<2x4x5x8xf32>
//       CHECK:   %[[VALUES:.*]] = tensor.concat dim(2)
//       CHECK:   attn.dense ins(%{{.*}}, %[[KEYS]], %[[VALUES]]
//  CHECK-SAME:   mask = #attn.mask<causal>
//       CHECK:   return %{{.*}}, %[[KEYS]], %[[VALUES]]
func.func @past(%q: tensor<2x4x2x8xf32>, %k: tensor<2x4x2x8xf32>, %v: tensor<2x4x2x8xf32>, %before: tensor<2x4x3x8xf32>)
    -> (tensor<2x4x2x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>) {
  %none = "onnx.NoValue"() : () -> none
  %0:4 = "onnx.Attention"(%q, %k, %v, %none, %before, %before) {is_causal = 1 : si64, qk_matmul_output_mode = 0 : si64}
      : (tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>, tensor<2x4x2x8xf32>, none, tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>)
      -> (tensor<2x4x2x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>, none)
  return %0#0, %0#1, %0#2 : tensor<2x4x2x8xf32>, tensor<2x4x5x8xf32>, tensor<2x4x5x8xf32>
}

// -----

// A soft-cap, a mask of heads, and a window.

// CHECK-LABEL: func.func @cap_and_mask(
//       CHECK:   attn.dense
//  CHECK-SAME:   bias(%{{.*}} : tensor<1x4x1x5xf32>)
//       CHECK:   math.tanh
//       CHECK:   mask = #attn.mask<window = 3>
func.func @cap_and_mask(%q: tensor<2x4x5x8xf32>, %k: tensor<2x2x5x8xf32>, %v: tensor<2x2x5x8xf32>, %mask: tensor<4x1x5xi1>) -> tensor<2x4x5x8xf32> {
  %0 = "onnx.Attention"(%q, %k, %v, %mask) {softcap = 5.0 : f32, left_window_size = 2 : si64, right_window_size = 2 : si64, softmax_precision = 1 : si64}
      : (tensor<2x4x5x8xf32>, tensor<2x2x5x8xf32>, tensor<2x2x5x8xf32>, tensor<4x1x5xi1>) -> tensor<2x4x5x8xf32>
  return %0 : tensor<2x4x5x8xf32>
}

// -----

// As torch-mlir leaves an operation that it has no other for.

// CHECK-LABEL: func.func @lengths(
//   CHECK-NOT:   torch
//       CHECK:   attn.dense
//  CHECK-SAME:   lengths(%{{.*}} : tensor<2xi32>)
//   CHECK-NOT:   torch
!v = !torch.vtensor<[2,4,5,8],f32>
!l = !torch.vtensor<[2],si64>
func.func @lengths(%q: tensor<2x4x5x8xf32>, %n: tensor<2xi64>) -> tensor<2x4x5x8xf32> {
  %none = "torch.constant.none"() : () -> !torch.none
  %0 = "torch_c.from_builtin_tensor"(%q) : (tensor<2x4x5x8xf32>) -> !v
  %1 = "torch_c.from_builtin_tensor"(%n) : (tensor<2xi64>) -> !l
  %2 = "torch.operator"(%0, %0, %0, %none, %none, %none, %1) <{name = "onnx.Attention"}> {torch.onnx.is_causal = 0 : si64, torch.onnx.softcap = 0.0 : f32}
      : (!v, !v, !v, !torch.none, !torch.none, !torch.none, !l) -> !v
  %3 = "torch_c.to_builtin_tensor"(%2) : (!v) -> tensor<2x4x5x8xf32>
  return %3 : tensor<2x4x5x8xf32>
}

// -----

// CHECK-LABEL: func.func @torch(
//       CHECK:   attn.dense
//  CHECK-SAME:   tensor<2x12x5x8xf32>, tensor<2x6x5x8xf32>, tensor<2x6x5x8xf32>
//  CHECK-SAME:   mask = #attn.mask<causal>, scale = 5.000000e-01
!q = !torch.vtensor<[2,3,4,5,8],f32>
!k = !torch.vtensor<[2,3,2,5,8],f32>
func.func @torch(%q: tensor<2x3x4x5x8xf32>, %k: tensor<2x3x2x5x8xf32>) -> tensor<2x3x4x5x8xf32> {
  %none = "torch.constant.none"() : () -> !torch.none
  %dropout = "torch.constant.float"() <{value = 0.0 : f64}> : () -> !torch.float
  %scale = "torch.constant.float"() <{value = 5.0e-01 : f64}> : () -> !torch.float
  %true = "torch.constant.bool"() <{value = true}> : () -> !torch.bool
  %0 = "torch_c.from_builtin_tensor"(%q) : (tensor<2x3x4x5x8xf32>) -> !q
  %1 = "torch_c.from_builtin_tensor"(%k) : (tensor<2x3x2x5x8xf32>) -> !k
  %2 = "torch.aten.scaled_dot_product_attention"(%0, %1, %1, %none, %dropout, %true, %scale, %true)
      : (!q, !k, !k, !torch.none, !torch.float, !torch.bool, !torch.float, !torch.bool) -> !q
  %3 = "torch_c.to_builtin_tensor"(%2) : (!q) -> tensor<2x3x4x5x8xf32>
  return %3 : tensor<2x3x4x5x8xf32>
}

// -----

// Tensors as they are, of two dimensions, and a mask that is added.

// CHECK-LABEL: func.func @torch_plain(
//       CHECK:   attn.dense
//  CHECK-SAME:   bias(%{{.*}} : tensor<1x1x5x7xf32>)
func.func @torch_plain(%q: tensor<5x8xf32>, %k: tensor<7x8xf32>, %v: tensor<7x4xf32>, %mask: tensor<5x7xf32>) -> tensor<5x4xf32> {
  %none = "torch.constant.none"() : () -> !torch.none
  %dropout = arith.constant 0.0 : f64
  %false = arith.constant false
  %0 = "torch.aten.scaled_dot_product_attention"(%q, %k, %v, %mask, %dropout, %false, %none, %false)
      : (tensor<5x8xf32>, tensor<7x8xf32>, tensor<7x4xf32>, tensor<5x7xf32>, f64, i1, !torch.none, i1) -> tensor<5x4xf32>
  return %0 : tensor<5x4xf32>
}

// -----

// Extents that are not known, but the same.

// CHECK-LABEL: func.func @any_length(
//       CHECK:   attn.dense
//  CHECK-SAME:   mask = #attn.mask<causal>
func.func @any_length(%q: tensor<?x?x32xf32>) -> tensor<?x?x32xf32> {
  %0 = "onnx.Attention"(%q, %q, %q) {q_num_heads = 4 : si64, kv_num_heads = 4 : si64, is_causal = 1 : si64}
      : (tensor<?x?x32xf32>, tensor<?x?x32xf32>, tensor<?x?x32xf32>) -> tensor<?x?x32xf32>
  return %0 : tensor<?x?x32xf32>
}

// -----

// What says more stays, and nothing is written before it.

// CHECK-LABEL: func.func @onnx_near_misses(
//   CHECK-NOT:   {{linalg|tensor\.|attn}}
// CHECK-COUNT-13: "onnx.Attention"
//   CHECK-NOT:   {{linalg|attn}}
//  REMARK-DAG: its fourth result, the scores, is used, at 'onnx.Attention'
//  REMARK-DAG: its attribute 'sparsity' is not known, at 'onnx.Attention'
//  REMARK-DAG: its attribute 'is_causal' is not known, at 'onnx.Attention'
//  REMARK-DAG: softmax_precision is that of f64, needed that of the operands, at 'onnx.Attention'
//  REMARK-DAG: needed Q, K, V, and four other operands at most, at 'onnx.Attention'
//  REMARK-DAG: needed Q, K and V of three or four dimensions each, at 'onnx.Attention'
//  REMARK-DAG: the heads of queries are no multiple of those of keys, at 'onnx.Attention'
//  REMARK-DAG: it has either keys or values of before, needed both, at 'onnx.Attention'
//  REMARK-DAG: keys or values of before have another shape or type than those of now, at 'onnx.Attention'
//  REMARK-DAG: it has both keys of before and lengths, at 'onnx.Attention'
//  REMARK-DAG: extents of operands do not agree, at 'onnx.Attention'
//  REMARK-DAG: the mask has more dimensions than the scores, at 'onnx.Attention'
//  REMARK-DAG: its result is used as something else than a tensor of its shape, at 'onnx.Attention'
!t = tensor<2x4x5x8xf32>
func.func @onnx_near_misses(%q: !t, %flat: tensor<2x5x32xf32>, %mask: tensor<5x3xi1>, %big: tensor<1x1x1x5x5xi1>, %n: tensor<2xi64>, %three: tensor<2x3x5x8xf32>)
    -> (tensor<2x4x5x5xf32>, !t, !t, !t, !t, tensor<2x5x32xf32>, !t, !t, !t, !t, !t, !t, tensor<2x4x5x9xf32>) {
  %none = "onnx.NoValue"() : () -> none
  %0:4 = "onnx.Attention"(%q, %q, %q) {qk_matmul_output_mode = 3 : si64} : (!t, !t, !t) -> (!t, none, none, tensor<2x4x5x5xf32>)
  %1 = "onnx.Attention"(%q, %q, %q) {sparsity = 1 : si64} : (!t, !t, !t) -> !t
  %2 = "onnx.Attention"(%q, %q, %q) {is_causal = "yes"} : (!t, !t, !t) -> !t
  %3 = "onnx.Attention"(%q, %q, %q) {softmax_precision = 11 : si64} : (!t, !t, !t) -> !t
  %4 = "onnx.Attention"(%q, %q) : (!t, !t) -> !t
  %5 = "onnx.Attention"(%flat, %q, %q) {q_num_heads = 4 : si64, kv_num_heads = 4 : si64} : (tensor<2x5x32xf32>, !t, !t) -> tensor<2x5x32xf32>
  %6 = "onnx.Attention"(%q, %three, %three) : (!t, tensor<2x3x5x8xf32>, tensor<2x3x5x8xf32>) -> !t
  %7 = "onnx.Attention"(%q, %q, %q, %none, %q) : (!t, !t, !t, none, !t) -> !t
  %8 = "onnx.Attention"(%q, %q, %q, %none, %three, %three) : (!t, !t, !t, none, tensor<2x3x5x8xf32>, tensor<2x3x5x8xf32>) -> !t
  %9 = "onnx.Attention"(%q, %q, %q, %none, %q, %q, %n) : (!t, !t, !t, none, !t, !t, tensor<2xi64>) -> !t
  %10 = "onnx.Attention"(%q, %q, %q, %mask) : (!t, !t, !t, tensor<5x3xi1>) -> !t
  %11 = "onnx.Attention"(%q, %q, %q, %big) : (!t, !t, !t, tensor<1x1x1x5x5xi1>) -> !t
  %12 = "onnx.Attention"(%q, %q, %q) : (!t, !t, !t) -> tensor<2x4x5x9xf32>
  return %0#3, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12
      : tensor<2x4x5x5xf32>, !t, !t, !t, !t, tensor<2x5x32xf32>, !t, !t, !t, !t, !t, !t, tensor<2x4x5x9xf32>
}

// -----

// CHECK-LABEL: func.func @torch_near_misses(
//   CHECK-NOT:   {{linalg|attn}}
// CHECK-COUNT-6: "torch.aten.scaled_dot_product_attention"
//   CHECK-NOT:   {{linalg|attn}}
//  REMARK-DAG: dropout_p is no constant 0, at 'torch.aten.scaled_dot_product_attention'
//  REMARK-DAG: is_causal is no constant, at 'torch.aten.scaled_dot_product_attention'
//  REMARK-DAG: scale is no constant, at 'torch.aten.scaled_dot_product_attention'
//  REMARK-DAG: queries, keys or values are no tensor, at 'torch.aten.scaled_dot_product_attention'
//  REMARK-DAG: extents of operands do not agree, at 'torch.aten.scaled_dot_product_attention'
//  REMARK-DAG: needed queries, keys, values, a mask, a probability of dropout, {{.*}}, at 'torch.aten.scaled_dot_product_attention'
!t = tensor<4x5x8xf32>
func.func @torch_near_misses(%q: !t, %two: tensor<2x5x8xf32>, %any: !torch.vtensor<[4,5,8],f32>, %bool: i1, %real: f64)
    -> (!t, !t, !t, !torch.vtensor<[4,5,8],f32>, !t, !t) {
  %none = "torch.constant.none"() : () -> !torch.none
  %p = arith.constant 0.1 : f64
  %zero = arith.constant 0.0 : f64
  %false = arith.constant false
  %0 = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %none, %p, %false, %none, %false) : (!t, !t, !t, !torch.none, f64, i1, !torch.none, i1) -> !t
  %1 = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %none, %zero, %bool, %none, %false) : (!t, !t, !t, !torch.none, f64, i1, !torch.none, i1) -> !t
  %2 = "torch.aten.scaled_dot_product_attention"(%q, %q, %q, %none, %zero, %false, %real, %false) : (!t, !t, !t, !torch.none, f64, i1, f64, i1) -> !t
  %3 = "torch.aten.scaled_dot_product_attention"(%any, %any, %any, %none, %zero, %false, %none, %false)
      : (!torch.vtensor<[4,5,8],f32>, !torch.vtensor<[4,5,8],f32>, !torch.vtensor<[4,5,8],f32>, !torch.none, f64, i1, !torch.none, i1) -> !torch.vtensor<[4,5,8],f32>
  %4 = "torch.aten.scaled_dot_product_attention"(%q, %two, %two, %none, %zero, %false, %none, %false)
      : (!t, tensor<2x5x8xf32>, tensor<2x5x8xf32>, !torch.none, f64, i1, !torch.none, i1) -> !t
  %5 = "torch.aten.scaled_dot_product_attention"(%q, %q, %q) : (!t, !t, !t) -> !t
  return %0, %1, %2, %3, %4, %5 : !t, !t, !t, !torch.vtensor<[4,5,8],f32>, !t, !t
}
