// RUN: fovea-opt %s --canonicalize | FileCheck %s

// Copies of codewords that nobody reads are not made.
// CHECK-LABEL: func @unused(
// CHECK-SAME: %[[K:.*]]: tensor<1x1x9x8xf32>, %[[C:.*]]: tensor<1x4x8xf32>, %[[Z:.*]]: tensor<1x1x9xi32>
// CHECK: %[[R:.*]] = attn.quantize ins(%[[K]], %[[C]] : {{.*}}) outs(%[[Z]] : tensor<1x1x9xi32>) {a.note = 1 : i64} -> tensor<1x1x9xi32>
// CHECK-NEXT: return %[[R]]
func.func @unused(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>, %o: tensor<1x1x9x8xf32>) -> tensor<1x1x9xi32> {
  %0:2 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) outs(%z, %o : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>) {a.note = 1 : i64}
      -> tensor<1x1x9xi32>, tensor<1x1x9x8xf32>
  return %0#0 : tensor<1x1x9xi32>
}

// CHECK-LABEL: func @used(
// CHECK: %[[R:.*]]:2 = attn.quantize
// CHECK-NEXT: return %[[R]]#1
func.func @used(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>, %o: tensor<1x1x9x8xf32>) -> tensor<1x1x9x8xf32> {
  %0:2 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) outs(%z, %o : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>)
      -> tensor<1x1x9xi32>, tensor<1x1x9x8xf32>
  return %0#1 : tensor<1x1x9x8xf32>
}

// A mask of all tokens is none.
// CHECK-LABEL: func @full_mask(
// CHECK: attn.quantize ins(%{{.*}}, %{{.*}} : {{[^)]*}}) outs(%{{.*}} : tensor<1x1x9xi32>)
func.func @full_mask(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>) -> tensor<1x1x9xi32> {
  %m = arith.constant dense<true> : tensor<1x9xi1>
  %0 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) mask(%m : tensor<1x9xi1>) outs(%z : tensor<1x1x9xi32>) -> tensor<1x1x9xi32>
  return %0 : tensor<1x1x9xi32>
}

// CHECK-LABEL: func @masked(
// CHECK: attn.quantize {{.*}} mask(%{{.*}} : tensor<1x9xi1>) outs(%{{.*}} : tensor<1x1x9xi32>)
func.func @masked(%k: tensor<1x1x9x8xf32>, %m: tensor<1x9xi1>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>, %o: tensor<1x1x9x8xf32>) -> tensor<1x1x9xi32> {
  %0:2 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) mask(%m : tensor<1x9xi1>) outs(%z, %o : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>)
      -> tensor<1x1x9xi32>, tensor<1x1x9x8xf32>
  return %0#0 : tensor<1x1x9xi32>
}

// On memrefs there are no results.
// CHECK-LABEL: func @memrefs(
// CHECK: outs(%{{.*}}, %{{.*}} : memref<1x1x9xi32>, memref<1x1x9x8xf32>)
func.func @memrefs(%k: memref<1x1x9x8xf32>, %c: memref<1x4x8xf32>, %z: memref<1x1x9xi32>, %o: memref<1x1x9x8xf32>) {
  attn.quantize ins(%k, %c : memref<1x1x9x8xf32>, memref<1x4x8xf32>) outs(%z, %o : memref<1x1x9xi32>, memref<1x1x9x8xf32>)
  return
}
