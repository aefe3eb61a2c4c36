// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s

// A destination is overwritten in place; inputs are only read.
// CHECK-LABEL: func @dense(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x4x8x16xf32>, %[[K:[^:]*]]: memref<1x2x6x16xf32>, %[[W:[^:]*]]: memref<1x2x6xf32>, %[[B:[^:]*]]: memref<1x1x8x6xf32>, %[[O:[^:]*]]: memref<1x4x8x16xf32>, %[[L:[^:]*]]: memref<1x4x8xf32>
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: attn.dense ins(%[[Q]], %[[K]], %[[K]] : memref<1x4x8x16xf32>, memref<1x2x6x16xf32>, memref<1x2x6x16xf32>)
// CHECK-SAME: log_weight(%[[W]] : memref<1x2x6xf32>) bias(%[[B]] : memref<1x1x8x6xf32>) outs(%[[O]], %[[L]] : memref<1x4x8x16xf32>, memref<1x4x8xf32>)
// CHECK-SAME: {mask = #attn.mask<causal>, my.note = 1 : i64, scale = 5.000000e-01 : f64}
// CHECK-NOT: memref.copy
// CHECK: return %[[O]], %[[L]]
func.func @dense(%q: tensor<1x4x8x16xf32>, %k: tensor<1x2x6x16xf32>, %w: tensor<1x2x6xf32>, %b: tensor<1x1x8x6xf32>, %o: tensor<1x4x8x16xf32>, %l: tensor<1x4x8xf32>)
    -> (tensor<1x4x8x16xf32>, tensor<1x4x8xf32>) {
  %0, %1 = attn.dense ins(%q, %k, %k : tensor<1x4x8x16xf32>, tensor<1x2x6x16xf32>, tensor<1x2x6x16xf32>)
      log_weight(%w : tensor<1x2x6xf32>) bias(%b : tensor<1x1x8x6xf32>)
      outs(%o, %l : tensor<1x4x8x16xf32>, tensor<1x4x8xf32>) {scale = 0.5, mask = #attn.mask<causal>, my.note = 1} -> tensor<1x4x8x16xf32>, tensor<1x4x8xf32>
  return %0, %1 : tensor<1x4x8x16xf32>, tensor<1x4x8xf32>
}

// What a destination held before is never read, so a second use of it after the
// operation is the only reason to copy, and an empty one none.
// CHECK-LABEL: func @empty_destination(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x2x4x8xf32>
// CHECK: %[[A:.*]] = memref.alloc() {{.*}} : memref<1x2x4x8xf32>
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: attn.dense {{.*}} outs(%[[A]] : memref<1x2x4x8xf32>)
// CHECK-NOT: memref.copy
// CHECK: return %[[A]]
func.func @empty_destination(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %o = tensor.empty() : tensor<1x2x4x8xf32>
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) outs(%o : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// The destination is also an input: it must not be overwritten while it is read,
// and since its old contents do not matter, nothing is copied.
// CHECK-LABEL: func @destination_is_input(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x2x4x8xf32>
// CHECK: %[[A:.*]] = memref.alloc() {{.*}} : memref<1x2x4x8xf32>
// CHECK-NOT: memref.copy
// CHECK: attn.dense ins(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) outs(%[[A]] : memref<1x2x4x8xf32>)
// CHECK-NOT: memref.copy
// CHECK: return %[[A]]
func.func @destination_is_input(%q: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) outs(%q : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}

// CHECK-LABEL: func @stream(
// CHECK-SAME: %[[Q:[^:]*]]: memref<?x?x?x16xf32>, %[[K:[^:]*]]: memref<?x?x?x16xf32>, %[[W:[^:]*]]: memref<?x?x?xf32>, %[[I:[^:]*]]: index, %[[N:[^:]*]]: index, %[[O:[^:]*]]: memref<?x?x?x16xf32>, %[[L:[^:]*]]: memref<?x?x?xf32>
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.copy
// CHECK: attn.stream query(%[[Q]] : memref<?x?x?x16xf32>)
// CHECK-NEXT: source(%[[K]], %[[K]] : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>) ranges [#{{.*}}] mask <causal>
// CHECK-NEXT: source(%[[Q]], %[[K]] : memref<?x?x?x16xf32>, memref<?x?x?x16xf32>) log_weight(%[[W]] : memref<?x?x?xf32>) ranges [#{{.*}}]
// CHECK-NEXT: tile(%[[I]] of %[[N]]) outs(%[[O]], %[[L]] : memref<?x?x?x16xf32>, memref<?x?x?xf32>) {block = 16 : i64, scale = 1.000000e+00 : f64}{{$}}
// CHECK-NOT: memref.copy
// CHECK: return %[[O]], %[[L]]
func.func @stream(%q: tensor<?x?x?x16xf32>, %k: tensor<?x?x?x16xf32>, %w: tensor<?x?x?xf32>, %i: index, %n: index, %o: tensor<?x?x?x16xf32>, %l: tensor<?x?x?xf32>)
    -> (tensor<?x?x?x16xf32>, tensor<?x?x?xf32>) {
  %0, %1 = attn.stream query(%q : tensor<?x?x?x16xf32>)
      source(%k, %k : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (b * 16, rows)>] mask <causal>
      source(%q, %k : tensor<?x?x?x16xf32>, tensor<?x?x?x16xf32>) log_weight(%w : tensor<?x?x?xf32>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
      tile(%i of %n) outs(%o, %l : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>) {block = 16 : i64, scale = 1.0} -> tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
  return %0, %1 : tensor<?x?x?x16xf32>, tensor<?x?x?xf32>
}

// What a score region captures is a memref, and a tensor in the region.
// CHECK-LABEL: func @score(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x2x4x8xf32>, %[[T:[^:]*]]: memref<2x7xf32>, %[[O:[^:]*]]: memref<1x2x4x8xf32>
// CHECK-NOT: memref.alloc
// CHECK: attn.dense {{.*}} score(%[[T]] : memref<2x7xf32>) {
// CHECK-NEXT: ^bb0(%{{.*}}: f32, %{{.*}}: index, %[[H:.*]]: index, %{{.*}}: index, %[[J:.*]]: index, %[[X:.*]]: tensor<2x7xf32>):
// CHECK-NEXT: tensor.extract %[[X]][%[[H]], %[[J]]] : tensor<2x7xf32>
// CHECK: outs(%[[O]] : memref<1x2x4x8xf32>)
func.func @score(%q: tensor<1x2x4x8xf32>, %t: tensor<2x7xf32>, %o: tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32> {
  %0 = attn.dense ins(%q, %q, %q : tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>, tensor<1x2x4x8xf32>) score(%t : tensor<2x7xf32>) {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: tensor<2x7xf32>):
        %e = tensor.extract %x[%h, %j] : tensor<2x7xf32>
        %r = arith.addf %s, %e : f32
        attn.yield %r : f32
      } outs(%o : tensor<1x2x4x8xf32>) -> tensor<1x2x4x8xf32>
  return %0 : tensor<1x2x4x8xf32>
}
