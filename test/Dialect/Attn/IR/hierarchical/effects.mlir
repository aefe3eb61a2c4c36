// RUN: fovea-opt %s --canonicalize --cse | FileCheck %s

// On tensors the operations have no effects: what is unused goes, what is equal
// is computed once.
// CHECK-LABEL: func @tensors(
// CHECK: %[[S:.*]] = attn.summarize
// CHECK: %[[F:.*]] = attn.fast_multipole ins
// CHECK-NOT: attn.
// CHECK: return %[[S]], %[[S]], %[[F]]
func.func @tensors(%x: tensor<1x1x8x8xf32>, %w: tensor<1x1x2x8xf32>, %o: tensor<1x1x4x8xf32>) -> (tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x8x8xf32>) {
  %0 = attn.summarize ins(%x : tensor<1x1x8x8xf32>) weights(%w : tensor<1x1x2x8xf32>) outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %1 = attn.summarize ins(%x : tensor<1x1x8x8xf32>) weights(%w : tensor<1x1x2x8xf32>) outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  %2 = attn.fast_multipole ins(%x, %x, %x : tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>)
      key_weights(%w : tensor<1x1x2x8xf32>) value_weights(%w : tensor<1x1x2x8xf32>) outs(%x : tensor<1x1x8x8xf32>) {group = 2 : i64} -> tensor<1x1x8x8xf32>
  %dead = attn.fast_multipole_linear ins(%x, %x, %x : tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>)
      query_weights(%w : tensor<1x1x2x8xf32>) key_weights(%w : tensor<1x1x2x8xf32>) value_weights(%w : tensor<1x1x2x8xf32>)
      outs(%x : tensor<1x1x8x8xf32>) {group = 2 : i64} -> tensor<1x1x8x8xf32>
  return %0, %1, %2 : tensor<1x1x4x8xf32>, tensor<1x1x4x8xf32>, tensor<1x1x8x8xf32>
}

// CHECK-LABEL: func @memrefs(
// CHECK: memref.load
// CHECK: attn.summarize
// CHECK: memref.load
// CHECK: attn.fast_multipole ins
// CHECK: memref.load
// CHECK: attn.fast_multipole_linear ins
// CHECK: memref.load
func.func @memrefs(%x: memref<1x1x8x8xf32>, %w: memref<1x1x2x8xf32>, %s: memref<1x1x4x8xf32>, %o: memref<1x1x8x8xf32>) -> (f32, f32, f32, f32) {
  %c0 = arith.constant 0 : index
  %a = memref.load %s[%c0, %c0, %c0, %c0] : memref<1x1x4x8xf32>
  attn.summarize ins(%x : memref<1x1x8x8xf32>) weights(%w : memref<1x1x2x8xf32>) outs(%s : memref<1x1x4x8xf32>)
  %b = memref.load %s[%c0, %c0, %c0, %c0] : memref<1x1x4x8xf32>
  attn.fast_multipole ins(%x, %x, %x : memref<1x1x8x8xf32>, memref<1x1x8x8xf32>, memref<1x1x8x8xf32>)
      key_weights(%w : memref<1x1x2x8xf32>) value_weights(%w : memref<1x1x2x8xf32>) outs(%o : memref<1x1x8x8xf32>) {group = 2 : i64}
  %c = memref.load %s[%c0, %c0, %c0, %c0] : memref<1x1x4x8xf32>
  attn.fast_multipole_linear ins(%x, %x, %x : memref<1x1x8x8xf32>, memref<1x1x8x8xf32>, memref<1x1x8x8xf32>)
      query_weights(%w : memref<1x1x2x8xf32>) key_weights(%w : memref<1x1x2x8xf32>) value_weights(%w : memref<1x1x2x8xf32>) outs(%o : memref<1x1x8x8xf32>) {group = 2 : i64}
  %d = memref.load %s[%c0, %c0, %c0, %c0] : memref<1x1x4x8xf32>
  return %a, %b, %c, %d : f32, f32, f32, f32
}
