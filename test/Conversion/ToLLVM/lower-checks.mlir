// RUN: fovea-opt %s --attn-lower-checks | FileCheck %s

// One call with the address of the first code, extents, strides and the bound;
// equal texts are one.

//       CHECK: llvm.func @fovea_rt_check_codes(!llvm.ptr, !llvm.ptr, i64, i64, i64, i64, i64, i64, i64)
//       CHECK: llvm.mlir.global internal constant @[[$TEXT:.*]]("attn.vq: codes\00")
//   CHECK-NOT: llvm.mlir.global
// CHECK-LABEL: func.func @check(
//  CHECK-SAME:   %[[Z:[a-z0-9]+]]: memref<2x3x?xi32, strided<[100, 30, 1], offset: ?>>, %[[S:[a-z0-9]+]]: index
//       CHECK:   %{{.*}}, %[[OFFSET:.*]], %{{.*}}:3, %{{.*}}:3 = memref.extract_strided_metadata %[[Z]]
//       CHECK:   %[[BASE:.*]] = memref.extract_aligned_pointer_as_index %[[Z]]
//       CHECK:   %[[BYTES:.*]] = arith.muli %[[OFFSET]], %c4
//       CHECK:   arith.addi %[[BASE]], %[[BYTES]]
//       CHECK:   %[[POINTER:.*]] = llvm.inttoptr
//       CHECK:   %[[BOUND:.*]] = arith.index_cast %[[S]] : index to i64
//       CHECK:   %[[NAME:.*]] = llvm.mlir.addressof @[[$TEXT]]
//       CHECK:   llvm.call @fovea_rt_check_codes(%[[NAME]], %[[POINTER]], {{.*}}, %[[BOUND]])
//       CHECK:   llvm.call @fovea_rt_check_codes_or_absent(
//   CHECK-NOT:   attn.check_codes
func.func @check(%z: memref<2x3x?xi32, strided<[100, 30, 1], offset: ?>>, %s: index) {
  attn.check_codes %z below %s {name = "attn.vq: codes"} : memref<2x3x?xi32, strided<[100, 30, 1], offset: ?>>
  attn.check_codes %z below %s {name = "attn.vq: codes", or_absent} : memref<2x3x?xi32, strided<[100, 30, 1], offset: ?>>
  return
}

// Lists have an extent more.
// CHECK-LABEL: func.func @check_lists(
//       CHECK:   %{{.*}}, %{{.*}}, %{{.*}}:4, %{{.*}}:4 = memref.extract_strided_metadata
//       CHECK:   llvm.call @fovea_rt_check_rows(
//   CHECK-NOT:   attn.check_codes
func.func @check_lists(%r: memref<2x3x?x8xi32>, %s: index) {
  attn.check_codes %r below %s {name = "attn.stream: rows of source 0", or_absent} : memref<2x3x?x8xi32>
  return
}
