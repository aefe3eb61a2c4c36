// RUN: fovea-opt %s --split-input-file --attn-differentiate --canonicalize | FileCheck %s

// Adjoints of slices are added in place.

// CHECK-LABEL: func.func @slices_vjp(
//  CHECK-SAME:     %{{[a-z0-9]*}}: tensor<4x8xf32>, %[[DA:.*]]: tensor<4x4xf32>, %[[DB:.*]]: tensor<4x6xf32>)
//       CHECK:   %[[ZEROS:.*]] = linalg.fill
//       CHECK:   %[[ONE:.*]] = tensor.insert_slice %[[DB]] into %[[ZEROS]][0, 2]
//       CHECK:   %[[OLD:.*]] = tensor.extract_slice %[[ONE]][0, 0] [4, 4]
//       CHECK:   %[[NEW:.*]] = arith.addf %[[OLD]], %[[DA]]
//       CHECK:   %[[BOTH:.*]] = tensor.insert_slice %[[NEW]] into %[[ONE]][0, 0] [4, 4]
//       CHECK:   return %[[BOTH]]
func.func @slices(%x: tensor<4x8xf32>) -> (tensor<4x4xf32>, tensor<4x6xf32>) {
  %a = tensor.extract_slice %x[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %b = tensor.extract_slice %x[0, 2] [4, 6] [1, 1] : tensor<4x8xf32> to tensor<4x6xf32>
  return %a, %b : tensor<4x4xf32>, tensor<4x6xf32>
}

// -----

// CHECK-LABEL: func.func @insert_vjp(
//  CHECK-SAME:     %[[D:[a-z0-9]*]]: tensor<8xf32>) ->
//       CHECK:   %[[DX:.*]] = tensor.extract_slice %[[D]][2] [4] [1]
//       CHECK:   %[[ZEROS:.*]] = linalg.fill
//       CHECK:   %[[DINTO:.*]] = tensor.insert_slice %[[ZEROS]] into %[[D]][2] [4] [1]
//       CHECK:   return %[[DX]], %[[DINTO]]
func.func @insert(%x: tensor<4xf32>, %into: tensor<8xf32>) -> tensor<8xf32> {
  %y = tensor.insert_slice %x into %into[2] [4] [1] : tensor<4xf32> into tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// CHECK-LABEL: func.func @heads_vjp(
//       CHECK:   tensor.collapse_shape %{{.*}} {{\[}}[0], [1], [2, 3]] : tensor<2x?x4x8xf32> into tensor<2x?x32xf32>
func.func @heads(%x: tensor<2x?x32xf32>, %n: index) -> tensor<2x?x4x8xf32> {
  %y = tensor.expand_shape %x [[0], [1], [2, 3]] output_shape [2, %n, 4, 8]
      : tensor<2x?x32xf32> into tensor<2x?x4x8xf32>
  return %y : tensor<2x?x4x8xf32>
}

// -----

// CHECK-LABEL: func.func @merge_vjp(
//       CHECK:   %[[DIM:.*]] = tensor.dim
//       CHECK:   tensor.expand_shape %{{.*}} {{\[}}[0], [1], [2, 3]] output_shape [2, %[[DIM]], 4, 8]
func.func @merge(%x: tensor<2x?x4x8xf32>) -> tensor<2x?x32xf32> {
  %y = tensor.collapse_shape %x [[0], [1], [2, 3]] : tensor<2x?x4x8xf32> into tensor<2x?x32xf32>
  return %y : tensor<2x?x32xf32>
}

// -----

// CHECK-LABEL: func.func @pad_vjp(
//       CHECK:   tensor.extract_slice %{{.*}}[2] [4] [1] : tensor<9xf32> to tensor<4xf32>
func.func @pad(%x: tensor<4xf32>) -> tensor<9xf32> {
  %zero = arith.constant 0.0 : f32
  %y = tensor.pad %x low[2] high[3] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<9xf32>
  return %y : tensor<9xf32>
}

// -----

// CHECK-LABEL: func.func @concat_vjp(
//       CHECK:   tensor.extract_slice %{{.*}}[0, 0] [4, 3] [1, 1]
//       CHECK:   tensor.extract_slice %{{.*}}[0, 3] [4, 5] [1, 1]
func.func @concat(%x: tensor<4x3xf32>, %y: tensor<4x5xf32>) -> tensor<4x8xf32> {
  %z = tensor.concat dim(1) %x, %y : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}

// -----

// CHECK-LABEL: func.func @element_vjp(
//  CHECK-SAME:     %[[I:[a-z0-9]*]]: index, %{{.*}}: f32) -> tensor<4xf32>
//       CHECK:   %[[ZEROS:.*]] = linalg.fill
//       CHECK:   tensor.insert %{{.*}} into %[[ZEROS]][%[[I]]]
func.func @element(%x: tensor<4xf32>, %i: index) -> f32 {
  %y = tensor.extract %x[%i] : tensor<4xf32>
  return %y : f32
}
