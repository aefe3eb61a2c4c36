// RUN: fovea-compile %s --cpu=x86-64-v3 --emit=llvm -o - | FileCheck %s

// What is added outside of the inner loop is added there, once for all four
// elements, and what differs is a constant.

// CHECK-LABEL: define {{.*}} @sum(
//       CHECK:   %[[ROW:.*]] = getelementptr {{float|i8}}, ptr %{{.*}}, i64 %{{.*}}
//       CHECK:   phi <8 x float>
//       CHECK:   %[[ELEMENT:.*]] = getelementptr float, ptr %[[ROW]], i64 %{{.*}}
//   CHECK-DAG:   load <8 x float>, ptr %[[ELEMENT]]
//   CHECK-DAG:   %[[A:.*]] = getelementptr {{.*}}, ptr %[[ELEMENT]], i64 32
//   CHECK-DAG:   %[[B:.*]] = getelementptr {{.*}}, ptr %[[ELEMENT]], i64 256
//   CHECK-DAG:   %[[C:.*]] = getelementptr {{.*}}, ptr %[[ELEMENT]], i64 288
//   CHECK-NOT:   getelementptr
//       CHECK:   fadd
func.func @sum(%x: memref<64x64xf32>, %y: memref<64x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %zero = arith.constant dense<0.0> : vector<8xf32>
  scf.for %i = %c0 to %c64 step %c2 {
    %next = arith.addi %i, %c1 : index
    %sum = scf.for %k = %c0 to %c64 step %c16 iter_args(%s = %zero) -> vector<8xf32> {
      %behind = arith.addi %k, %c8 : index
      %0 = vector.load %x[%i, %k] : memref<64x64xf32>, vector<8xf32>
      %1 = vector.load %x[%i, %behind] : memref<64x64xf32>, vector<8xf32>
      %2 = vector.load %x[%next, %k] : memref<64x64xf32>, vector<8xf32>
      %3 = vector.load %x[%next, %behind] : memref<64x64xf32>, vector<8xf32>
      %4 = arith.addf %s, %0 : vector<8xf32>
      %5 = arith.addf %4, %1 : vector<8xf32>
      %6 = arith.addf %5, %2 : vector<8xf32>
      %7 = arith.addf %6, %3 : vector<8xf32>
      scf.yield %7 : vector<8xf32>
    }
    vector.store %sum, %y[%i, %c0] : memref<64x8xf32>, vector<8xf32>
  }
  return
}
