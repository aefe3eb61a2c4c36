// RUN: fovea-opt %s --attn-assertions-to-checks --split-input-file | FileCheck %s
// RUN: fovea-opt %s --attn-assertions-to-checks --attn-loops-to-gpu --canonicalize --split-input-file | FileCheck %s --check-prefix=KERNEL

// An assertion of each text is a rule, whose number a thread stores if it fails; what is behind it is read if it holds.
// CHECK-DAG: llvm.mlir.global {{.*}}("index must be smaller than dim size\00")
// CHECK-DAG: llvm.mlir.global {{.*}}("index must be at least 0\00")
// CHECK-LABEL: func.func @look_up
// CHECK: llvm.call @fovea_rt_gpu_failure()
// CHECK-COUNT-2: llvm.call @fovea_rt_gpu_report(
// CHECK: linalg.generic
// CHECK: %[[BELOW:.*]] = arith.cmpi slt
// CHECK: %[[FAILS:.*]] = arith.xori %[[BELOW]]
// CHECK: scf.if %[[FAILS]]
// CHECK-COUNT-2: memref.store %[[NUMBER:.*]], %{{.*}} : memref<16xi64>
// CHECK: %[[ABOVE:.*]] = arith.cmpi sge
// CHECK: %[[HOLDS:.*]] = arith.andi %[[BELOW]], %[[ABOVE]]
// CHECK: scf.if %[[HOLDS]] -> (f32)
// CHECK-NEXT: memref.load %arg0
// CHECK: else
// CHECK-NEXT: arith.constant 0.0
// CHECK-NOT: cf.assert

// Kernels of the call do nothing once one of them has failed.
// KERNEL-LABEL: func.func @look_up
// KERNEL: gpu.launch
// KERNEL: %[[TOLD:.*]] = memref.load %{{.*}} : memref<16xi64>
// KERNEL: arith.cmpi eq, %[[TOLD]]
// KERNEL: scf.if
func.func @look_up(%table: memref<4x8xf32>, %codes: memref<6xi64>, %out: memref<6x8xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%codes : memref<6xi64>) outs(%out : memref<6x8xf32>) {
  ^bb0(%code: i64, %unused: f32):
    %c0 = arith.constant 0 : index
    %c4 = arith.constant 4 : index
    %row = arith.index_cast %code : i64 to index
    %column = linalg.index 1 : index
    %below = arith.cmpi slt, %row, %c4 : index
    cf.assert %below, "index must be smaller than dim size"
    %above = arith.cmpi sge, %row, %c0 : index
    cf.assert %above, "index must be at least 0"
    %value = memref.load %table[%row, %column] : memref<4x8xf32>
    linalg.yield %value : f32
  }
  return
}

// -----

// A loop that adds to the rows of a list, one after the other, is a kernel, and its assertions are.
// CHECK-LABEL: func.func @serial
// CHECK: scf.for
// CHECK: scf.if {{.*}} {
// CHECK: memref.store {{.*}} : memref<16xi64>
// CHECK-COUNT-2: scf.if {{.*}} -> (f32)
// CHECK: scf.if %{{[0-9]+}} {
// CHECK-NEXT: memref.store {{.*}} : memref<9xf32>
// CHECK-NOT: cf.assert
// KERNEL-LABEL: func.func @serial
// KERNEL: gpu.launch
// KERNEL: scf.for
func.func @serial(%list: memref<5xi64>, %x: memref<5xf32>, %sums: memref<9xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c9 = arith.constant 9 : index
  scf.for %i = %c0 to %c5 step %c1 {
    %code = memref.load %list[%i] : memref<5xi64>
    %row = arith.index_cast %code : i64 to index
    %below = arith.cmpi ult, %row, %c9 : index
    cf.assert %below, "an index is out of bounds"
    %old = memref.load %sums[%row] : memref<9xf32>
    %new = memref.load %x[%i] : memref<5xf32>
    %sum = arith.addf %old, %new : f32
    memref.store %sum, %sums[%row] : memref<9xf32>
  }
  return
}

// -----

// Rows that are copied or computed behind an assertion are if it holds.
// CHECK-LABEL: func.func @rows
// CHECK: %[[HOLDS:.*]] = arith.cmpi ult
// CHECK: scf.if %[[HOLDS]] {
// CHECK-NEXT: memref.copy
// CHECK: scf.if %[[HOLDS]] {
// CHECK-NEXT: linalg.generic
// CHECK-NOT: scf.if
// CHECK: memref.load %arg0
// CHECK-NOT: cf.assert
// KERNEL-LABEL: func.func @rows
// KERNEL: gpu.launch
// KERNEL: scf.for
func.func @rows(%table: memref<9x4xf32>, %list: memref<5xi64>, %out: memref<9x4xf32>, %scale: memref<4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c9 = arith.constant 9 : index
  scf.for %i = %c0 to %c5 step %c1 {
    %code = memref.load %list[%i] : memref<5xi64>
    %row = arith.index_cast %code : i64 to index
    %below = arith.cmpi ult, %row, %c9 : index
    cf.assert %below, "an index is out of bounds"
    %from = memref.subview %table[%row, 0] [1, 4] [1, 1] : memref<9x4xf32> to memref<4xf32, strided<[1], offset: ?>>
    %to = memref.subview %out[%row, 0] [1, 4] [1, 1] : memref<9x4xf32> to memref<4xf32, strided<[1], offset: ?>>
    memref.copy %from, %to : memref<4xf32, strided<[1], offset: ?>> to memref<4xf32, strided<[1], offset: ?>>
    linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
        ins(%scale : memref<4xf32>) outs(%to : memref<4xf32, strided<[1], offset: ?>>) {
    ^bb0(%factor: f32, %old: f32):
      %column = linalg.index 0 : index
      %again = memref.load %table[%row, %column] : memref<9x4xf32>
      %product = arith.mulf %factor, %old : f32
      %sum = arith.addf %product, %again : f32
      linalg.yield %sum : f32
    }
  }
  return
}

// -----

// What the host knows stays with it.
// CHECK-LABEL: func.func @host
// CHECK-NOT: fovea_rt_gpu
// CHECK: cf.assert
func.func @host(%x: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %same = arith.cmpi eq, %n, %c4 : index
  cf.assert %same, "needed 4 elements"
  return
}
