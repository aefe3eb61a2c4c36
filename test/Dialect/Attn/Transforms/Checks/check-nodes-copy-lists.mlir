// RUN: fovea-opt %s --attn-set-target=gpu --attn-check-nodes | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// Lists that lie on a device are copied to the host and checked there.

// CHECK-LABEL: func @copied(
// CHECK: memref.alloc() : memref<2x3xi32>
// CHECK: memref.copy %{{.*}}, %{{.*}} : memref<2x3xi32, strided<[8, 1]>> to memref<2x3xi32>
// CHECK: llvm.call @fovea_rt_alloc
// CHECK: memref.copy
// CHECK: llvm.call @fovea_rt_check_nodes(
// CHECK: llvm.call @fovea_rt_free
// CHECK: attn.tree_fetch
// CHECK: llvm.call @fovea_rt_alloc
// CHECK: attn.check_codes
// CHECK: llvm.call @fovea_rt_free
func.func @copied(%r: memref<2x3x8xf32>, %l: memref<2x3xi32, strided<[8, 1]>>, %t: memref<2x7x8xf32>, %z: memref<1x2x9xi32>, %n: index) {
  attn.tree_fetch ins(%t : memref<2x7x8xf32>) nodes(%l, %l : memref<2x3xi32, strided<[8, 1]>>, memref<2x3xi32, strided<[8, 1]>>)
      outs(%r : memref<2x3x8xf32>) {shape = #tree}
  attn.check_codes %z below %n {name = "codes"} : memref<1x2x9xi32>
  return
}
