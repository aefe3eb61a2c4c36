// RUN: fovea-opt %s --attn-check-sizes | FileCheck %s
// RUN: fovea-opt %s --attn-check-sizes --attn-lower-to-reference | FileCheck %s --check-prefix=REFERENCE

// The sizes are checked before anything is written.

// CHECK-DAG: llvm.func @fovea_rt_check_sizes(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64, i64, i64)
// CHECK-DAG: llvm.mlir.global internal constant @attn_check_text{{.*}}("attn.conv_apply: sizes\00")
// CHECK-DAG: llvm.mlir.global internal constant @attn_check_text{{.*}}("attn.conv_apply_backward: sizes\00")
// CHECK-DAG: llvm.mlir.global internal constant @attn_check_text{{.*}}("attn.conv_recover_backward: sizes\00")
// CHECK-LABEL: func @apply(
// CHECK: llvm.call @fovea_rt_check_sizes(
// CHECK: attn.conv_apply
// REFERENCE-LABEL: func @apply(
// REFERENCE: llvm.call @fovea_rt_check_sizes(
// REFERENCE-NOT: attn.
func.func @apply(%b: memref<1x2x3x9xf32>, %m: memref<1x2x3xi32>, %v: memref<1x2x9x5xf32>, %o: memref<1x2x9x5xf32>, %c: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x9xf32>, memref<1x2x3xi32>, memref<1x2x9x5xf32>)
      outs(%o, %c : memref<1x2x9x5xf32>, memref<1x2xi32>)
  return
}

// CHECK-LABEL: func @apply_backward(
// CHECK: llvm.call @fovea_rt_check_sizes(
// CHECK: attn.conv_apply_backward
func.func @apply_backward(%b: memref<1x2x3x9xf32>, %m: memref<1x2x3xi32>, %v: memref<1x2x9x5xf32>, %o: memref<1x2x9x5xf32>, %d: memref<1x2x9x5xf32>,
                          %db: memref<1x2x3x9xf32>, %dv: memref<1x2x9x5xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x9xf32>, memref<1x2x3xi32>, memref<1x2x9x5xf32>)
      forward(%o : memref<1x2x9x5xf32>) gradient(%d : memref<1x2x9x5xf32>) outs(%db, %dv : memref<1x2x3x9xf32>, memref<1x2x9x5xf32>)
  return
}

// CHECK-LABEL: func @recover_backward(
// CHECK: llvm.call @fovea_rt_check_sizes(
// CHECK: attn.conv_recover_backward
func.func @recover_backward(%q: memref<1x2x9x5xf32>, %m: memref<1x2x3xi32>, %d: memref<1x2x3x9xf32>, %dq: memref<1x2x9x5xf32>, %dk: memref<1x2x9x5xf32>) {
  attn.conv_recover_backward ins(%q, %q, %m : memref<1x2x9x5xf32>, memref<1x2x9x5xf32>, memref<1x2x3xi32>)
      gradient(%d : memref<1x2x3x9xf32>) outs(%dq, %dk : memref<1x2x9x5xf32>, memref<1x2x9x5xf32>)
  return
}
