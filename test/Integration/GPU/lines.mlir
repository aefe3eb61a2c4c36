// Sums of what came before, down columns of each batch entry, are one kernel with a thread for each column.

// RUN: fovea-run %s --target=gpu-sim --random --compare=reference | FileCheck %s
// RUN: fovea-run %s --target=gpu-sim --random --bench | FileCheck %s --check-prefix=LAUNCHES
// CHECK: result 0: {{.*}} agrees with the reference
// CHECK-NOT: differs
// LAUNCHES: launches 1 kernels, 1 blocks, 256 threads, 0 barriers

func.func @sums(%x: tensor<3x40x6xf32>) -> tensor<3x40x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c6 = arith.constant 6 : index
  %c40 = arith.constant 40 : index
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x40x6xf32>
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%out = %empty) -> (tensor<3x40x6xf32>) {
    %none = tensor.empty() : tensor<6xf32>
    %first = scf.for %j = %c0 to %c6 step %c1 iter_args(%row = %none) -> (tensor<6xf32>) {
      %0 = tensor.insert %zero into %row[%j] : tensor<6xf32>
      scf.yield %0 : tensor<6xf32>
    }
    %all:2 = scf.for %k = %c0 to %c40 step %c1 iter_args(%o = %out, %s = %first) -> (tensor<3x40x6xf32>, tensor<6xf32>) {
      %line:2 = scf.for %j = %c0 to %c6 step %c1 iter_args(%p = %o, %t = %s) -> (tensor<3x40x6xf32>, tensor<6xf32>) {
        %before = tensor.extract %t[%j] : tensor<6xf32>
        %element = tensor.extract %x[%i, %k, %j] : tensor<3x40x6xf32>
        %sum = arith.addf %before, %element : f32
        %0 = tensor.insert %sum into %p[%i, %k, %j] : tensor<3x40x6xf32>
        %1 = tensor.insert %sum into %t[%j] : tensor<6xf32>
        scf.yield %0, %1 : tensor<3x40x6xf32>, tensor<6xf32>
      }
      scf.yield %line#0, %line#1 : tensor<3x40x6xf32>, tensor<6xf32>
    }
    scf.yield %all#0 : tensor<3x40x6xf32>
  }
  return %r : tensor<3x40x6xf32>
}
