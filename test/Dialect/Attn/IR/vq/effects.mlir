// RUN: fovea-opt %s --canonicalize --cse | FileCheck %s

// On tensors the operations have no effects: what is unused goes.
// CHECK-LABEL: func @tensors(
// CHECK-NOT: attn.
// CHECK: return
func.func @tensors(%q: tensor<1x1x1x8xf32>, %z: tensor<1x1x1xi32>, %c: tensor<1x5x8xf32>,
    %m: tensor<1x1x5x8xf32>, %n: tensor<1x1x5xi32>, %kz: tensor<1x1x8xi32>, %kv: tensor<1x1x8x8xf32>, %p: tensor<i64>) {
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x1x8xf32>, tensor<1x1x1xi32>, tensor<1x1x1x8xf32>, tensor<1x5x8xf32>)
      outs(%q : tensor<1x1x1x8xf32>) {block = 4 : i64, causal} -> tensor<1x1x1x8xf32>
  %1:6 = attn.vq_decode ins(%q, %z, %q, %c : tensor<1x1x1x8xf32>, tensor<1x1x1xi32>, tensor<1x1x1x8xf32>, tensor<1x5x8xf32>)
      outs(%q : tensor<1x1x1x8xf32>) state(%m, %n, %kz, %kv, %p : tensor<1x1x5x8xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x8xf32>, tensor<i64>)
      {block = 4 : i64} -> tensor<1x1x1x8xf32>, tensor<1x1x5x8xf32>, tensor<1x1x5xi32>, tensor<1x1x8xi32>, tensor<1x1x8x8xf32>, tensor<i64>
  return
}

// On memrefs attn.vq reads its inputs, and attn.vq_decode reads and writes its
// state: the loads before and after are not the same.
// CHECK-LABEL: func @memrefs(
// CHECK: memref.load
// CHECK: attn.vq ins
// CHECK: memref.load
// CHECK: attn.vq_decode ins
// CHECK: memref.load
// CHECK-NEXT: return
func.func @memrefs(%q: memref<1x1x1x8xf32>, %z: memref<1x1x1xi32>, %c: memref<1x5x8xf32>, %o: memref<1x1x1x8xf32>,
    %m: memref<1x1x5x8xf32>, %n: memref<1x1x5xi32>, %kz: memref<1x1x8xi32>, %kv: memref<1x1x8x8xf32>, %p: memref<i64>) -> (i64, f32, i64) {
  %c0 = arith.constant 0 : index
  %a = memref.load %p[] : memref<i64>
  attn.vq ins(%q, %z, %q, %c : memref<1x1x1x8xf32>, memref<1x1x1xi32>, memref<1x1x1x8xf32>, memref<1x5x8xf32>)
      outs(%o : memref<1x1x1x8xf32>) {block = 4 : i64, causal}
  %b = memref.load %o[%c0, %c0, %c0, %c0] : memref<1x1x1x8xf32>
  attn.vq_decode ins(%q, %z, %q, %c : memref<1x1x1x8xf32>, memref<1x1x1xi32>, memref<1x1x1x8xf32>, memref<1x5x8xf32>)
      outs(%o : memref<1x1x1x8xf32>) state(%m, %n, %kz, %kv, %p : memref<1x1x5x8xf32>, memref<1x1x5xi32>, memref<1x1x8xi32>, memref<1x1x8x8xf32>, memref<i64>)
      {block = 4 : i64}
  %d = memref.load %p[] : memref<i64>
  return %a, %b, %d : i64, f32, i64
}
