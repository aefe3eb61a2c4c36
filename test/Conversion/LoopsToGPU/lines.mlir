// Loops over lines that know nothing of each other are around the others, and have a thread for each iteration.

// RUN: fovea-opt %s --split-input-file --pass-pipeline='builtin.module(func.func(attn-loops-to-gpu,canonicalize,cse))' | FileCheck %s

// A row of sums of what came before: one kernel, whose threads go down a column each. The extents are equal.
// CHECK-LABEL: func.func @columns
// CHECK: %[[ROW:.*]] = memref.alloc() : memref<6xf32>
// CHECK: gpu.launch
// CHECK: scf.if
// CHECK: memref.store %{{.*}}, %[[ROW]]
// CHECK-NOT: gpu.barrier
// CHECK: gpu.launch {{.*}} threads(%[[J:[a-z0-9]*]],
// CHECK: scf.if
// CHECK: scf.for %[[K:.*]] = %c0 to %c6
// CHECK-NOT: scf.for
// CHECK: memref.load %[[ROW]][%[[J]]]
// CHECK: memref.load %{{.*}}[%[[K]], %[[J]]]
// CHECK: memref.store %{{.*}}, %{{.*}}[%[[K]], %[[J]]]
// CHECK: memref.store %{{.*}}, %[[ROW]][%[[J]]]
// CHECK-NOT: gpu.launch
func.func @columns(%x: memref<6x6xf32>) -> memref<6x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant 0.0 : f32
  %out = memref.alloc() : memref<6x6xf32>
  %row = memref.alloc() : memref<6xf32>
  scf.for %j = %c0 to %c6 step %c1 {
    memref.store %zero, %row[%j] : memref<6xf32>
  }
  scf.for %k = %c0 to %c6 step %c1 {
    scf.for %j = %c0 to %c6 step %c1 {
      %0 = memref.load %row[%j] : memref<6xf32>
      %1 = memref.load %x[%k, %j] : memref<6x6xf32>
      %2 = arith.addf %0, %1 : f32
      memref.store %2, %out[%k, %j] : memref<6x6xf32>
      memref.store %2, %row[%j] : memref<6xf32>
    }
  }
  memref.dealloc %row : memref<6xf32>
  return %out : memref<6x6xf32>
}

// -----

// Rows of each batch entry are parts of one buffer, and all loops over columns are one.
// CHECK-LABEL: func.func @batches
// CHECK-SAME: %{{.*}}: memref<?x5x7xf32>, %[[COUNT:.*]]: index
// CHECK: %[[ROWS:.*]] = memref.alloc(%[[COUNT]]) : memref<?x7xf32>
// CHECK: gpu.launch
// CHECK: memref.store %{{.*}}, %[[ROWS]][%[[I:.*]], %[[J:.*]]]
// CHECK: scf.for
// CHECK: memref.load %[[ROWS]][%[[I]], %[[J]]]
// CHECK-NOT: gpu.launch
// CHECK: memref.dealloc %[[ROWS]]
func.func @batches(%x: memref<?x5x7xf32>, %count: index) -> memref<?x5x7xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c7 = arith.constant 7 : index
  %zero = arith.constant 0.0 : f32
  %out = memref.alloc(%count) : memref<?x5x7xf32>
  scf.for %i = %c0 to %count step %c1 {
    %row = memref.alloc() : memref<7xf32>
    scf.for %j = %c0 to %c7 step %c1 {
      memref.store %zero, %row[%j] : memref<7xf32>
    }
    scf.for %k = %c0 to %c5 step %c1 {
      scf.for %j = %c0 to %c7 step %c1 {
        %0 = memref.load %row[%j] : memref<7xf32>
        %1 = memref.load %x[%i, %k, %j] : memref<?x5x7xf32>
        %2 = arith.maximumf %0, %1 : f32
        memref.store %2, %out[%i, %k, %j] : memref<?x5x7xf32>
        memref.store %2, %row[%j] : memref<7xf32>
      }
    }
    memref.dealloc %row : memref<7xf32>
  }
  return %out : memref<?x5x7xf32>
}

// -----

// A line that reads what another writes has to wait for it: one block, as before.
// CHECK-LABEL: func.func @neighbours
// CHECK: gpu.launch
// CHECK: gpu.barrier
func.func @neighbours(%x: memref<6x6xf32>) -> memref<6x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %out = memref.alloc() : memref<6x6xf32>
  scf.for %k = %c0 to %c5 step %c1 {
    scf.for %j = %c0 to %c5 step %c1 {
      %next = arith.addi %j, %c1 : index
      %0 = memref.load %out[%k, %next] : memref<6x6xf32>
      %below = arith.addi %k, %c1 : index
      memref.store %0, %out[%below, %j] : memref<6x6xf32>
    }
  }
  return %out : memref<6x6xf32>
}

// -----

// So has one whose elements a view of the buffer may read.
// CHECK-LABEL: func.func @views
// CHECK: gpu.launch
// CHECK: gpu.barrier
func.func @views(%x: memref<6x6xf32>) -> memref<6x6xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %out = memref.alloc() : memref<6x6xf32>
  %turned = memref.reinterpret_cast %out to offset: [0], sizes: [6, 6], strides: [1, 6] : memref<6x6xf32> to memref<6x6xf32, strided<[1, 6]>>
  scf.for %k = %c0 to %c6 step %c1 {
    scf.for %j = %c0 to %c6 step %c1 {
      %0 = memref.load %turned[%k, %j] : memref<6x6xf32, strided<[1, 6]>>
      memref.store %0, %out[%k, %j] : memref<6x6xf32>
    }
  }
  return %out : memref<6x6xf32>
}
