// RUN: fovea-opt %s --canonicalize --cse | FileCheck %s

// On tensors the operations have no effects, except that a check may fail.
// CHECK-LABEL: func @tensors(
// CHECK: %[[N:.*]]:2 = attn.codebook_accumulate
// CHECK-NEXT: attn.check_codes
// CHECK-NEXT: return %[[N]]#1, %[[N]]#1
func.func @tensors(%k: tensor<1x1x9x8xf32>, %c: tensor<1x4x8xf32>, %z: tensor<1x1x9xi32>, %m: tensor<1x1x4x8xf32>, %n: tensor<1x1x4xi32>,
    %ms: tensor<1x1x2x4x8xf32>, %ns: tensor<1x1x2x4xi32>, %w: tensor<1x1x4xf32>, %f: tensor<1x4xf32>, %s: index) -> (tensor<1x1x4xi32>, tensor<1x1x4xi32>) {
  %0:2 = attn.codebook_accumulate ins(%z, %k : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>) outs(%m, %n : tensor<1x1x4x8xf32>, tensor<1x1x4xi32>) -> tensor<1x1x4x8xf32>, tensor<1x1x4xi32>
  %1:2 = attn.codebook_accumulate ins(%z, %k : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>) outs(%m, %n : tensor<1x1x4x8xf32>, tensor<1x1x4xi32>) -> tensor<1x1x4x8xf32>, tensor<1x1x4xi32>
  %2 = attn.quantize ins(%k, %c : tensor<1x1x9x8xf32>, tensor<1x4x8xf32>) outs(%z : tensor<1x1x9xi32>) -> tensor<1x1x9xi32>
  %3:2 = attn.codebook_scan ins(%z, %k, %m, %n : tensor<1x1x9xi32>, tensor<1x1x9x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x4xi32>)
      outs(%ms, %ns : tensor<1x1x2x4x8xf32>, tensor<1x1x2x4xi32>) {block = 3 : i64} -> tensor<1x1x2x4x8xf32>, tensor<1x1x2x4xi32>
  %4 = attn.log_count ins(%n : tensor<1x1x4xi32>) outs(%w : tensor<1x1x4xf32>) -> tensor<1x1x4xf32>
  %5:3 = attn.codebook_update ins(%k, %z : tensor<1x1x9x8xf32>, tensor<1x1x9xi32>) outs(%c, %c, %f : tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4xf32>) -> tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4xf32>
  attn.check_codes %z below %s {name = "codes"} : tensor<1x1x9xi32>
  return %0#1, %1#1 : tensor<1x1x4xi32>, tensor<1x1x4xi32>
}

// On memrefs they read and write; those that update read what they write, so a
// store before them stays.
// CHECK-LABEL: func @memrefs(
// CHECK: memref.store
// CHECK: attn.codebook_accumulate
// CHECK: %[[A:.*]] = memref.load
// CHECK: attn.codebook_accumulate
// CHECK: %[[B:.*]] = memref.load
// CHECK: return %[[A]], %[[B]]
func.func @memrefs(%v: memref<1x1x9x8xf32>, %z: memref<1x1x9xi32>, %m: memref<1x1x4x8xf32>, %n: memref<1x1x4xi32>) -> (i32, i32) {
  %c0 = arith.constant 0 : index
  %one = arith.constant 1 : i32
  memref.store %one, %n[%c0, %c0, %c0] : memref<1x1x4xi32>
  attn.codebook_accumulate ins(%z, %v : memref<1x1x9xi32>, memref<1x1x9x8xf32>) outs(%m, %n : memref<1x1x4x8xf32>, memref<1x1x4xi32>)
  %a = memref.load %n[%c0, %c0, %c0] : memref<1x1x4xi32>
  attn.codebook_accumulate ins(%z, %v : memref<1x1x9xi32>, memref<1x1x9x8xf32>) outs(%m, %n : memref<1x1x4x8xf32>, memref<1x1x4xi32>)
  %b = memref.load %n[%c0, %c0, %c0] : memref<1x1x4xi32>
  return %a, %b : i32, i32
}
