// RUN: fovea-opt %s --attn-fuse-elementwise | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="gpu shared-bytes=65536" --attn-fuse-elementwise | FileCheck %s --check-prefix=GPU

// What follows from a number of the host is computed there. Kernels of GPUs take it as an operand.

// CHECK-LABEL: func.func @count(
//       CHECK:   %[[NEXT:.*]] = arith.addi
//       CHECK:   %[[TENSOR:.*]] = tensor.from_elements %[[NEXT]] : tensor<i32>
//       CHECK:   linalg.generic
//  CHECK-SAME:     ins({{.*}}, %[[TENSOR]] :
//       CHECK:   return %{{.*}}, %[[NEXT]]

// GPU-LABEL: func.func @count(
//       GPU:   %[[NEXT:.*]] = arith.addi
//   GPU-NOT:   tensor.from_elements
//       GPU:   linalg.generic
//  GPU-SAME:     ins(%{{[^,]*}} : tensor<8xi32>)
//       GPU:     arith.muli %{{.*}}, %[[NEXT]]
//       GPU:   return %{{.*}}, %[[NEXT]]
func.func @count(%i: i32, %step: i32, %x: tensor<8xi32>) -> (tensor<8xi32>, i32) {
  %t = tensor.from_elements %i : tensor<i32>
  %e = tensor.empty() : tensor<i32>
  %next = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%t : tensor<i32>) outs(%e : tensor<i32>) {
  ^bb0(%a: i32, %old: i32):
    %n = arith.addi %a, %step : i32
    linalg.yield %n : i32
  } -> tensor<i32>
  %o = tensor.empty() : tensor<8xi32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%x, %next : tensor<8xi32>, tensor<i32>) outs(%o : tensor<8xi32>) {
  ^bb0(%a: i32, %b: i32, %old: i32):
    %m = arith.muli %a, %b : i32
    linalg.yield %m : i32
  } -> tensor<8xi32>
  %n = tensor.extract %next[] : tensor<i32>
  return %r, %n : tensor<8xi32>, i32
}

// What the device has computed is not.

// GPU-LABEL: func.func @loaded(
//       GPU:   linalg.generic
//       GPU:     arith.addi
func.func @loaded(%x: tensor<i32>) -> tensor<i32> {
  %e = tensor.empty() : tensor<i32>
  %next = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>], iterator_types = []}
      ins(%x : tensor<i32>) outs(%e : tensor<i32>) {
  ^bb0(%a: i32, %old: i32):
    %n = arith.addi %a, %a : i32
    linalg.yield %n : i32
  } -> tensor<i32>
  return %next : tensor<i32>
}
