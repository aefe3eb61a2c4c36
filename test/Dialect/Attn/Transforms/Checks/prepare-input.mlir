// RUN: fovea-opt %s --attn-prepare-input --mlir-print-debuginfo --mlir-print-local-scope | FileCheck %s
// Upstream's canonicalizer does not have to find out which unit a slice with strides drops.
// RUN: fovea-opt %s --attn-prepare-input --one-shot-bufferize=bufferize-function-boundaries --canonicalize \
// RUN:   --expand-strided-metadata -o /dev/null
// The results of a switch and what else has its buffer.
// RUN: fovea-run %s --entry=switch --random | FileCheck %s --check-prefix=SWITCH
// SWITCH: result 0: f32[4], min 2, max 2, mean 2
// SWITCH: result 1: f32[4], min 5, max 5, mean 5
// SWITCH: result 2: f32[4], min 0, max 0, mean 0

// Bodies that operations make for themselves have a place in errors.
// CHECK-LABEL: func.func @named(
//       CHECK: linalg.matmul
//   CHECK-NOT: loc(unknown)
func.func @named(%x: tensor<4x8xf32>, %y: tensor<8x4xf32>, %z: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %r = linalg.matmul ins(%x, %y : tensor<4x8xf32>, tensor<8x4xf32>) outs(%z : tensor<4x4xf32>) -> tensor<4x4xf32>
  return %r : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @some(
//       CHECK: %[[S:.*]] = tensor.extract_slice %{{.*}}[0, %{{.*}}, 0, 0] [1, 1, 4, 8] [2, 3, 1, 1] : tensor<1x8x8x8xf32> to tensor<1x1x4x8xf32>
//       CHECK: %[[C:.*]] = tensor.collapse_shape %[[S]] {{\[\[}}0, 1], [2], [3]]
//       CHECK: %[[E:.*]] = tensor.expand_shape %[[C]] {{\[\[}}0], [1], [2, 3]] output_shape [1, 4, 1, 8]
//       CHECK: tensor.insert_slice %[[E]] into %{{.*}}[0, 0, 0, 0] [1, 4, 1, 8] [5, 1, 7, 1]
func.func @some(%x: tensor<1x8x8x8xf32>, %i: index) -> tensor<1x8x8x8xf32> {
  %s = tensor.extract_slice %x[0, %i, 0, 0] [1, 1, 4, 8] [2, 3, 1, 1] : tensor<1x8x8x8xf32> to tensor<1x4x8xf32>
  %r = tensor.insert_slice %s into %x[0, 0, 0, 0] [1, 4, 1, 8] [5, 1, 7, 1] : tensor<1x4x8xf32> into tensor<1x8x8x8xf32>
  return %r : tensor<1x8x8x8xf32>
}

// CHECK-LABEL: func.func @parallel(
//       CHECK:   tensor.expand_shape
//       CHECK:   scf.forall.in_parallel
//       CHECK:     tensor.parallel_insert_slice %{{.*}} into %{{.*}}[0, %{{.*}}, 0] [1, 1, 4] [1, 1, 1] : tensor<1x1x4xf32> into
func.func @parallel(%x: tensor<1x8x4xf32>, %y: tensor<1x4xf32>) -> tensor<1x8x4xf32> {
  %r = scf.forall (%i) in (8) shared_outs(%o = %x) -> tensor<1x8x4xf32> {
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %y into %o[0, %i, 0] [1, 1, 4] [1, 1, 1] : tensor<1x4xf32> into tensor<1x8x4xf32>
    }
  }
  return %r : tensor<1x8x4xf32>
}

// All of them, or none.
// CHECK-LABEL: func.func @all(
//   CHECK-NOT:   tensor.collapse_shape
func.func @all(%x: tensor<1x8x4xf32>, %i: index) -> tensor<4xf32> {
  %s = tensor.extract_slice %x[0, %i, 0] [1, 1, 4] [1, 1, 1] : tensor<1x8x4xf32> to tensor<4xf32>
  return %s : tensor<4xf32>
}

// Upstream's bufferization gives the results of a switch, which are filled in place, and a later result one buffer.
// CHECK-LABEL: func.func @switch(
//   CHECK-NOT: scf.index_switch
//       CHECK: %[[C:.*]] = arith.constant 3 : index
//       CHECK: %[[IS_THREE:.*]] = arith.cmpi eq, %{{.*}}, %[[C]]
//       CHECK: %[[R:.*]] = scf.if %[[IS_THREE]] -> (tensor<4xf32>)
//       CHECK: } else {
//       CHECK:   %[[NEXT:.*]] = scf.if %{{.*}} -> (tensor<4xf32>)
//       CHECK:   scf.yield %[[NEXT]]
//       CHECK: return %[[R]]
func.func @switch() -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %c7 = arith.constant 7 : index
  %zero = arith.constant 0.0 : f32
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %five = arith.constant 5.0 : f32
  %e = tensor.empty() : tensor<4xf32>
  %r = scf.index_switch %c7 -> tensor<4xf32>
  case 3 {
    %f = linalg.fill ins(%one : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %f : tensor<4xf32>
  }
  case 7 {
    %f = linalg.fill ins(%two : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %f : tensor<4xf32>
  }
  default {
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %f : tensor<4xf32>
  }
  %s = linalg.fill ins(%five : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %d = scf.index_switch %c7 -> tensor<4xf32>
  default {
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4xf32>) -> tensor<4xf32>
    scf.yield %f : tensor<4xf32>
  }
  return %r, %s, %d : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
