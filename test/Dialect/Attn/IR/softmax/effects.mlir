// RUN: fovea-opt %s --canonicalize --cse | FileCheck %s

// On tensors the operations have no effects: what is unused goes, what is equal
// is computed once.
// CHECK-LABEL: func @tensors(
// CHECK: %[[R:.*]] = attn.dense
// CHECK: %[[S:.*]] = attn.stream
// CHECK-NOT: attn.
// CHECK: return %[[R]], %[[R]], %[[S]], %[[S]]
func.func @tensors(%q: tensor<1x2x4x8xf32>) -> (tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %1 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  %dead = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) outs(%q : tensor<1x2x4x8xf32>) {scale = 2.0} -> tensor<1x2x4x8xf32>
  %2 = attn.stream query(%q : tensor<1x2x4x8xf32>) source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x2x4x8xf32>) {scale = 1.0} -> tensor<1x2x4x8xf32>
  %3 = attn.stream query(%q : tensor<1x2x4x8xf32>) source(%q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x2x4x8xf32>) {scale = 1.0} -> tensor<1x2x4x8xf32>
  return %0, %1, %2, %3 : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>
}

// On memrefs they write their destinations: none goes, and a load after one of
// them is not the load before it. Reading alone would let the loads merge.
// CHECK-LABEL: func @memrefs(
// CHECK: %[[A:.*]] = memref.load
// CHECK: attn.dense
// CHECK: %[[B:.*]] = memref.load
// CHECK: attn.stream
// CHECK: %[[C:.*]] = memref.load
// CHECK: return %[[A]], %[[B]], %[[C]]
func.func @memrefs(%q: memref<1x2x4x8xf32>, %o: memref<1x2x4x8xf32>) -> (f32, f32, f32) {
  %c0 = arith.constant 0 : index
  %a = memref.load %o[%c0, %c0, %c0, %c0] : memref<1x2x4x8xf32>
  attn.dense ins(%q, %q, %q : memref<1x2x4x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4x8xf32>) outs(%o : memref<1x2x4x8xf32>)
  %b = memref.load %o[%c0, %c0, %c0, %c0] : memref<1x2x4x8xf32>
  attn.stream query(%q : memref<1x2x4x8xf32>) source(%q, %q : memref<1x2x4x8xf32>, memref<1x2x4x8xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x2x4x8xf32>) {scale = 1.0}
  %c = memref.load %o[%c0, %c0, %c0, %c0] : memref<1x2x4x8xf32>
  return %a, %b, %c : f32, f32, f32
}
