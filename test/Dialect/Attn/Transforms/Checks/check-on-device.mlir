// RUN: fovea-opt %s --attn-set-target=gpu --attn-check-nodes | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// Lists that lie on a device are checked there: any number of threads find the
// first wrong place, one tells what is wrong.

// CHECK-LABEL: func @checked(
// CHECK-DAG: llvm.call @fovea_rt_gpu_failure()
// CHECK-COUNT-2: llvm.call @fovea_rt_gpu_report(
// CHECK-NOT: llvm.call
// CHECK: scf.parallel
// CHECK: memref.atomic_rmw minu
// CHECK: scf.parallel
// CHECK: memref.store
// CHECK: attn.tree_fetch
// CHECK: scf.parallel
// CHECK: memref.atomic_rmw minu
// CHECK: scf.parallel
// CHECK-NOT: attn.check_codes
func.func @checked(%r: memref<2x3x8xf32>, %l: memref<2x3xi32, strided<[8, 1]>>, %t: memref<2x7x8xf32>, %z: memref<1x2x9xi32>, %n: index) {
  attn.tree_fetch ins(%t : memref<2x7x8xf32>) nodes(%l, %l : memref<2x3xi32, strided<[8, 1]>>, memref<2x3xi32, strided<[8, 1]>>)
      outs(%r : memref<2x3x8xf32>) {shape = #tree}
  attn.check_codes %z below %n {name = "codes"} : memref<1x2x9xi32>
  return
}
