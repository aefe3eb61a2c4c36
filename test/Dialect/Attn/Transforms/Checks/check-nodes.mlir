// RUN: fovea-opt %s --attn-check-nodes | FileCheck %s
// RUN: fovea-opt %s --attn-check-nodes --attn-lower-to-reference | FileCheck %s --check-prefix=REFERENCE

#tree = #attn.tree<ratio = 2, levels = 2>

// The list is checked before the tree is touched.

// CHECK-DAG: llvm.func @fovea_rt_check_nodes(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64, !llvm.ptr, i64, i64, i64, i64, i64, i64, i64, i64)
// CHECK-LABEL: func @update(
// CHECK: llvm.call @fovea_rt_check_nodes(
// CHECK: attn.tree_update
// REFERENCE-LABEL: func @update(
// REFERENCE: llvm.call @fovea_rt_check_nodes(
// REFERENCE-NOT: attn.
func.func @update(%r: memref<2x3x8xf32>, %l: memref<2x3xi32>, %t: memref<2x7x8xf32>) {
  attn.tree_update ins(%r : memref<2x3x8xf32>) nodes(%l, %l : memref<2x3xi32>, memref<2x3xi32>) outs(%t : memref<2x7x8xf32>) {shape = #tree}
  return
}
