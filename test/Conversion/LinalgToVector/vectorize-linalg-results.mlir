// RUN: fovea-opt %s --attn-vectorize-linalg --convert-linalg-to-loops | FileCheck %s

// Results over different loops, and one over a reduced loop, are for plain loops.
// CHECK-LABEL: func.func @different(
//   CHECK-NOT:   scf.forall
func.func @different(%x: memref<4x8xf32>, %y: memref<8xf32>, %z: memref<4xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : memref<4x8xf32>) outs(%y, %z : memref<8xf32>, memref<4xf32>) {
  ^bb0(%a: f32, %s: f32, %t: f32):
    %u = arith.addf %a, %s : f32
    %v = arith.addf %a, %t : f32
    linalg.yield %u, %v : f32, f32
  }
  return
}

// Of a result that nobody reads assertions alone are left, without an output.
// CHECK-LABEL: func.func @asserts(
//   CHECK-NOT:   scf.forall
//       CHECK:   scf.for
//       CHECK:     cf.assert
func.func @asserts(%indices: memref<3xi64>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} ins(%indices : memref<3xi64>) {
  ^bb0(%index: i64):
    %c8 = arith.constant 8 : i64
    %exists = arith.cmpi ult, %index, %c8 : i64
    cf.assert %exists, "index must be smaller than 8"
    linalg.yield
  }
  return
}
