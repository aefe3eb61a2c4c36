// RUN: fovea-opt %s --one-shot-bufferize="bufferize-function-boundaries function-boundary-type-conversion=identity-layout-map" --canonicalize | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// Three layers of a tree that nothing else needs: it is never copied.

// CHECK-LABEL: func @in_place(
// CHECK-SAME: %[[C:[^:]*]]: memref<1x4x8xf32>, %[[L:[^:]*]]: memref<1x3xi32>, %[[R:[^:]*]]: memref<1x3x8xf32>, %[[O:[^:]*]]: memref<1x4x8xf32>
// CHECK: %[[T:.*]] = memref.alloc() {{.*}} : memref<1x7x8xf32>
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.tree_build ins(%[[C]] : memref<1x4x8xf32>) outs(%[[T]] : memref<1x7x8xf32>)
// CHECK-COUNT-3: attn.tree_update ins(%[[R]] : memref<1x3x8xf32>) nodes(%[[L]], %[[L]] : memref<1x3xi32>, memref<1x3xi32>) outs(%[[T]] : memref<1x7x8xf32>)
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: attn.tree_materialize ins(%[[T]] : memref<1x7x8xf32>) outs(%[[O]] : memref<1x4x8xf32>)
// CHECK-NOT: memref.{{alloc|copy}}
// CHECK: return %[[O]]
func.func @in_place(%c: tensor<1x4x8xf32>, %l: tensor<1x3xi32>, %r: tensor<1x3x8xf32>, %o: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
  %e = tensor.empty() : tensor<1x7x8xf32>
  %0 = attn.tree_build ins(%c : tensor<1x4x8xf32>) outs(%e : tensor<1x7x8xf32>) {shape = #tree} -> tensor<1x7x8xf32>
  %1 = attn.tree_update ins(%r : tensor<1x3x8xf32>) nodes(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) outs(%0 : tensor<1x7x8xf32>) {shape = #tree} -> tensor<1x7x8xf32>
  %2 = attn.tree_update ins(%r : tensor<1x3x8xf32>) nodes(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) outs(%1 : tensor<1x7x8xf32>) {shape = #tree} -> tensor<1x7x8xf32>
  %3 = attn.tree_update ins(%r : tensor<1x3x8xf32>) nodes(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) outs(%2 : tensor<1x7x8xf32>) {shape = #tree} -> tensor<1x7x8xf32>
  %4 = attn.tree_materialize ins(%3 : tensor<1x7x8xf32>) outs(%o : tensor<1x4x8xf32>) {shape = #tree} -> tensor<1x4x8xf32>
  return %4 : tensor<1x4x8xf32>
}

// Where the old tree is read later, the update works on a copy.

// CHECK-LABEL: func @old_is_needed(
// CHECK-SAME: %{{[^:]*}}: memref<1x3xi32>, %{{[^:]*}}: memref<1x3x8xf32>, %[[T:[^:]*]]: memref<1x7x8xf32>
// CHECK: %[[NEW:.*]] = memref.alloc() {{.*}} : memref<1x7x8xf32>
// CHECK: memref.copy %[[T]], %[[NEW]]
// CHECK: attn.tree_update {{.*}} outs(%[[NEW]] : memref<1x7x8xf32>)
// CHECK: attn.tree_materialize ins(%[[T]] : memref<1x7x8xf32>)
func.func @old_is_needed(%l: tensor<1x3xi32>, %r: tensor<1x3x8xf32>, %t: tensor<1x7x8xf32>, %o: tensor<1x4x8xf32>) -> (tensor<1x7x8xf32>, tensor<1x4x8xf32>) {
  %0 = attn.tree_update ins(%r : tensor<1x3x8xf32>) nodes(%l, %l : tensor<1x3xi32>, tensor<1x3xi32>) outs(%t : tensor<1x7x8xf32>) {shape = #tree} -> tensor<1x7x8xf32>
  %1 = attn.tree_materialize ins(%t : tensor<1x7x8xf32>) outs(%o : tensor<1x4x8xf32>) {shape = #tree} -> tensor<1x4x8xf32>
  return %0, %1 : tensor<1x7x8xf32>, tensor<1x4x8xf32>
}
