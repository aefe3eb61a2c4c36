// RUN: fovea-opt %s --attn-check-shapes | FileCheck %s

// What operations of linalg and tensor take for granted is checked where it does not follow.

// CHECK-DAG: #[[$FOUR:.+]] = affine_map<()[s0, s1, s2, s3] -> (((s0 * s1) * s2) * s3)>
// CHECK-DAG: @[[$LOOP:.+]]("linalg.generic: extent 0 of operand 1 must be extent 0 of operand 0\00")
// CHECK-DAG: @[[$CAST:.+]]("tensor.cast: extent 0 differs from the type\00")
// CHECK-DAG: @[[$PARTS:.+]]("tensor.expand_shape: the parts of extent 0 must make it up\00")
// CHECK-DAG: @[[$COUNT:.+]]("tensor.reshape: the result must have as many elements\00")
// CHECK-DAG: @[[$REACH:.+]]("linalg.conv_1d: reads too far along extent 0 of operand 0\00")
// CHECK-DAG: @[[$NEGATIVE:.+]]("tensor.extract_slice: offset 0 is negative\00")
// CHECK-DAG: @[[$BEYOND:.+]]("tensor.extract_slice: reaches beyond extent 0\00")
// CHECK-DAG: @[[$LOW:.+]]("tensor.pad: low padding 1 is negative\00")
// CHECK-DAG: @[[$HIGH:.+]]("tensor.pad: high padding 0 is negative\00")
// CHECK-DAG: @[[$CONCAT:.+]]("tensor.concat: extent 1 of operand 1 must be that of operand 0\00")

#id = affine_map<(d0) -> (d0)>

// The second time, it is known.
// CHECK-LABEL: func.func @loops
// CHECK: llvm.mlir.addressof @[[$LOOP]]
// CHECK: call @fovea_rt_check_extent
// CHECK-NOT: call @fovea_rt_check_extent
// CHECK-LABEL: func.func @casts
func.func @loops(%a: tensor<?xf32>, %b: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %a, %c0 : tensor<?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%a, %b : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.addf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types = ["parallel"]} ins(%0, %b : tensor<?xf32>, tensor<?xf32>) outs(%e : tensor<?xf32>) {
  ^bb0(%x: f32, %y: f32, %o: f32):
    %s = arith.mulf %x, %y : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %1 : tensor<?xf32>
}

// CHECK: llvm.mlir.addressof @[[$CAST]]
func.func @casts(%a: tensor<?x?xf32>) -> tensor<4x?xf32> {
  %0 = tensor.cast %a : tensor<?x?xf32> to tensor<4x?xf32>
  return %0 : tensor<4x?xf32>
}

// CHECK-LABEL: func.func @reshapes
// CHECK: llvm.mlir.addressof @[[$PARTS]]
// CHECK: llvm.mlir.addressof @[[$COUNT]]
func.func @reshapes(%a: tensor<?xf32>, %n: index) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
  %0 = tensor.expand_shape %a [[0, 1]] output_shape [%n, 4] : tensor<?xf32> into tensor<?x4xf32>
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %s = tensor.from_elements %c2, %c4 : tensor<2xindex>
  %1 = tensor.reshape %a(%s) : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x4xf32>
  return %0, %1 : tensor<?x4xf32>, tensor<?x4xf32>
}

// Numbers for four unknown extents do not fit in one.
// CHECK-LABEL: func.func @four(
// CHECK-SAME:    %[[A:.+]]: tensor<?x?x?x?xf32>, %[[N:.+]]: index)
// CHECK-DAG:   %[[ALL:.+]] = affine.apply #[[$FOUR]]()
// CHECK-DAG:   %[[FOUND:.+]] = arith.index_cast %[[N]] : index to i64
// CHECK-DAG:   %[[EXPECTED:.+]] = arith.index_cast %[[ALL]] : index to i64
// CHECK:       llvm.call @fovea_rt_check_extent(%{{.*}}, %[[FOUND]], %[[EXPECTED]])
func.func @four(%a: tensor<?x?x?x?xf32>, %n: index) -> tensor<?xf32> {
  %s = tensor.from_elements %n : tensor<1xindex>
  %0 = tensor.reshape %a(%s) : (tensor<?x?x?x?xf32>, tensor<1xindex>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// Heads apart and together again, as frontends write it, need none.
// CHECK-LABEL: func.func @proved
// CHECK-NOT: call @fovea_rt_check_extent
// CHECK: return
func.func @proved(%a: tensor<?x?x8xf32>) -> tensor<?x?x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %b = tensor.dim %a, %c0 : tensor<?x?x8xf32>
  %n = tensor.dim %a, %c1 : tensor<?x?x8xf32>
  %0 = tensor.expand_shape %a [[0], [1], [2, 3]] output_shape [%b, %n, 4, 2] : tensor<?x?x8xf32> into tensor<?x?x4x2xf32>
  %e = tensor.empty(%b, %n) : tensor<?x4x?x2xf32>
  %1 = linalg.transpose ins(%0 : tensor<?x?x4x2xf32>) outs(%e : tensor<?x4x?x2xf32>) permutation = [0, 2, 1, 3]
  %2 = tensor.collapse_shape %1 [[0, 1], [2], [3]] : tensor<?x4x?x2xf32> into tensor<?x?x2xf32>
  %heads = tensor.dim %2, %c0 : tensor<?x?x2xf32>
  %batch = arith.divsi %heads, %c4 : index
  %3 = tensor.expand_shape %2 [[0, 1], [2], [3]] output_shape [%batch, 4, %n, 2] : tensor<?x?x2xf32> into tensor<?x4x?x2xf32>
  %f = tensor.empty(%b, %n) : tensor<?x?x4x2xf32>
  %4 = linalg.transpose ins(%3 : tensor<?x4x?x2xf32>) outs(%f : tensor<?x?x4x2xf32>) permutation = [0, 2, 1, 3]
  %5 = tensor.collapse_shape %4 [[0], [1], [2, 3]] : tensor<?x?x4x2xf32> into tensor<?x?x8xf32>
  return %5 : tensor<?x?x8xf32>
}

// CHECK-LABEL: func.func @windows
// CHECK: llvm.mlir.addressof @[[$REACH]]
func.func @windows(%a: tensor<?xf32>, %w: tensor<3xf32>, %o: tensor<?xf32>) -> tensor<?xf32> {
  %0 = linalg.conv_1d ins(%a, %w : tensor<?xf32>, tensor<3xf32>) outs(%o : tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// CHECK-LABEL: func.func @slices
// CHECK: llvm.mlir.addressof @[[$NEGATIVE]]
// CHECK: llvm.mlir.addressof @[[$BEYOND]]
// CHECK: llvm.mlir.addressof @[[$CONCAT]]
func.func @slices(%a: tensor<?x?xf32>, %b: tensor<3x?xf32>, %i: index) -> tensor<?x?xf32> {
  %c1 = arith.constant 1 : index
  %n = tensor.dim %a, %c1 : tensor<?x?xf32>
  %0 = tensor.extract_slice %a[%i, 0] [2, %n] [1, 1] : tensor<?x?xf32> to tensor<2x?xf32>
  %1 = tensor.concat dim(0) %0, %b : (tensor<2x?xf32>, tensor<3x?xf32>) -> tensor<?x?xf32>
  return %1 : tensor<?x?xf32>
}

// What is known not to be negative is not looked at.
// CHECK-LABEL: func.func @paddings
// CHECK: llvm.mlir.addressof @[[$HIGH]]
// CHECK: call @fovea_rt_check_extent
// CHECK: llvm.mlir.addressof @[[$LOW]]
// CHECK: call @fovea_rt_check_extent
// CHECK-NOT: call @fovea_rt_check_extent
// CHECK: tensor.pad
func.func @paddings(%a: tensor<?x?xf32>, %n: index) -> tensor<?x?xf32> {
  %z = arith.constant 0.0 : f32
  %0 = tensor.pad %a low[1, -1] high[%n, 2] {
  ^bb0(%i: index, %j: index):
    tensor.yield %z : f32
  } : tensor<?x?xf32> to tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}

// Rows of a table are those that there are; columns are all of them.
// CHECK-LABEL: func.func @elements
// CHECK: %[[ROWS:.+]] = tensor.dim
// CHECK: linalg.generic
// CHECK: ^bb0(%[[ROW:.+]]: index, %{{.+}}: f32):
// CHECK: %[[INSIDE:.+]] = arith.cmpi ult, %[[ROW]], %[[ROWS]] : index
// CHECK: cf.assert %[[INSIDE]], "tensor.extract: index 0 is out of bounds"
// CHECK-NOT: cf.assert
// CHECK: linalg.yield
func.func @elements(%table: tensor<?x8xf32>, %rows: tensor<5xindex>) -> tensor<5x8xf32> {
  %e = tensor.empty() : tensor<5x8xf32>
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<5xindex>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%row: index, %o: f32):
    %column = linalg.index 1 : index
    %x = tensor.extract %table[%row, %column] : tensor<?x8xf32>
    linalg.yield %x : f32
  } -> tensor<5x8xf32>
  return %0 : tensor<5x8xf32>
}
