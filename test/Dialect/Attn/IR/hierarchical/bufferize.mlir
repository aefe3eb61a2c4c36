// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s

// CHECK-LABEL: func @summarize(
// CHECK-SAME: %[[X:[^:]*]]: memref<1x1x8x8xf32>, %[[W:[^:]*]]: memref<1x1x2x8xf32>, %[[B:[^:]*]]: memref<1x1x8xf32>, %[[O:[^:]*]]: memref<1x1x4x8xf32>
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.summarize ins(%[[X]] : memref<1x1x8x8xf32>) weights(%[[W]] : memref<1x1x2x8xf32>) bias(%[[B]] : memref<1x1x8xf32>) outs(%[[O]] : memref<1x1x4x8xf32>){{$}}
// CHECK-NEXT: return %[[O]]
func.func @summarize(%x: tensor<1x1x8x8xf32>, %w: tensor<1x1x2x8xf32>, %b: tensor<1x1x8xf32>, %o: tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32> {
  %0 = attn.summarize ins(%x : tensor<1x1x8x8xf32>) weights(%w : tensor<1x1x2x8xf32>) bias(%b : tensor<1x1x8xf32>) outs(%o : tensor<1x1x4x8xf32>) -> tensor<1x1x4x8xf32>
  return %0 : tensor<1x1x4x8xf32>
}

// CHECK-LABEL: func @fast_multipole(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x1x8x8xf32>, %[[W:[^:]*]]: memref<1x1x2x8xf32>, %[[B:[^:]*]]: memref<1x1x8xf32>, %[[O:[^:]*]]: memref<1x1x8x8xf32>, %[[L:[^:]*]]: memref<1x1x8xf32>
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.fast_multipole ins(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) key_weights(%[[W]] : {{.*}}) value_weights(%[[W]] : {{.*}}) key_biases(%[[B]] : {{.*}}) value_biases(%[[B]] : {{.*}}) outs(%[[O]], %[[L]] : memref<1x1x8x8xf32>, memref<1x1x8xf32>) {causal, group = 2 : i64, multiplicity = false}{{$}}
// CHECK-NEXT: return %[[O]], %[[L]]
func.func @fast_multipole(%q: tensor<1x1x8x8xf32>, %w: tensor<1x1x2x8xf32>, %b: tensor<1x1x8xf32>, %o: tensor<1x1x8x8xf32>, %l: tensor<1x1x8xf32>) -> (tensor<1x1x8x8xf32>, tensor<1x1x8xf32>) {
  %0, %1 = attn.fast_multipole ins(%q, %q, %q : tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>)
      key_weights(%w : tensor<1x1x2x8xf32>) value_weights(%w : tensor<1x1x2x8xf32>) key_biases(%b : tensor<1x1x8xf32>) value_biases(%b : tensor<1x1x8xf32>)
      outs(%o, %l : tensor<1x1x8x8xf32>, tensor<1x1x8xf32>) {group = 2 : i64, causal, multiplicity = false} -> tensor<1x1x8x8xf32>, tensor<1x1x8xf32>
  return %0, %1 : tensor<1x1x8x8xf32>, tensor<1x1x8xf32>
}

// CHECK-LABEL: func @linear(
// CHECK-SAME: %[[Q:[^:]*]]: memref<1x1x8x8xf32>, %[[W:[^:]*]]: memref<1x1x2x8xf32>, %[[O:[^:]*]]: memref<1x1x8x8xf32>
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.fast_multipole_linear ins(%[[Q]], %[[Q]], %[[Q]] : {{.*}}) query_weights(%[[W]] : {{.*}}) key_weights(%[[W]] : {{.*}}) value_weights(%[[W]] : {{.*}}) outs(%[[O]] : memref<1x1x8x8xf32>) {group = 2 : i64}{{$}}
// CHECK-NEXT: return %[[O]]
func.func @linear(%q: tensor<1x1x8x8xf32>, %w: tensor<1x1x2x8xf32>, %o: tensor<1x1x8x8xf32>) -> tensor<1x1x8x8xf32> {
  %0 = attn.fast_multipole_linear ins(%q, %q, %q : tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>, tensor<1x1x8x8xf32>)
      query_weights(%w : tensor<1x1x2x8xf32>) key_weights(%w : tensor<1x1x2x8xf32>) value_weights(%w : tensor<1x1x2x8xf32>)
      outs(%o : tensor<1x1x8x8xf32>) {group = 2 : i64} -> tensor<1x1x8x8xf32>
  return %0 : tensor<1x1x8x8xf32>
}
