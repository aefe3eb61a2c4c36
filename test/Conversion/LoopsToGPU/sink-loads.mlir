// RUN: fovea-opt %s --attn-loops-to-gpu --canonicalize --split-input-file | FileCheck %s

// A number that says where a kernel writes is loaded by the kernel.
// CHECK-LABEL: func.func @place
// CHECK-NOT: memref.load
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: affine.apply
// CHECK: vector.store
// CHECK: return
func.func @place(%position: memref<i64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %at = affine.apply affine_map<()[s0] -> (s0 mod 16)>()[%number]
  %view = memref.subview %rows[%at, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  memref.copy %row, %view : memref<1x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  return
}

// -----

// Threads and memory are those of the bound.
// CHECK-LABEL: func.func @bound
// CHECK-NOT: memref.load
// CHECK: memref.alloc() : memref<12000xi8>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c6,
// CHECK: %[[LOADED:.*]] = memref.load %arg0[] : memref<i64>
// CHECK: %[[INDEX:.*]] = arith.index_cast %[[LOADED]]
// CHECK: %[[SIZE:.*]] = affine.min {{.*}}[%[[INDEX]]]
// CHECK: memref.view %{{.*}}[%c0][%[[SIZE]]] : memref<{{.*}}xi8> to memref<?x10xf32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c6,
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: memref.dealloc %{{.*}} : memref<{{.*}}xi8>
func.func @bound(%position: memref<i64>, %rows: memref<300x10xf32>, %more: memref<300x10xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %size = affine.min affine_map<()[s0] -> (s0, 300)>()[%number]
  %view = memref.subview %rows[0, 0] [%size, 10] [1, 1] : memref<300x10xf32> to memref<?x10xf32, strided<[10, 1]>>
  %to = memref.subview %more[0, 0] [%size, 10] [1, 1] : memref<300x10xf32> to memref<?x10xf32, strided<[10, 1]>>
  %twice = memref.alloc(%size) : memref<?x10xf32>
  linalg.add ins(%view, %view : memref<?x10xf32, strided<[10, 1]>>, memref<?x10xf32, strided<[10, 1]>>) outs(%twice : memref<?x10xf32>)
  linalg.add ins(%view, %twice : memref<?x10xf32, strided<[10, 1]>>, memref<?x10xf32>) outs(%to : memref<?x10xf32, strided<[10, 1]>>)
  memref.dealloc %twice : memref<?x10xf32>
  return
}

// -----

// So are decisions; the number is written by a kernel as well.
// CHECK-LABEL: func.func @decision
// CHECK-NOT: scf.if
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: arith.cmpi eq
// CHECK: scf.if
// CHECK: arith.addf
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: memref.store %{{.*}}, %arg2[] : memref<i64>
// CHECK: memref.copy %arg2, %arg0
func.func @decision(%position: memref<i64>, %a: memref<20x30xf32>, %after: memref<i64>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %c7 = arith.constant 7 : index
  %isLast = arith.cmpi eq, %number, %c7 : index
  scf.if %isLast {
    linalg.add ins(%a, %a : memref<20x30xf32>, memref<20x30xf32>) outs(%a : memref<20x30xf32>)
  }
  %c1 = arith.constant 1 : i64
  %next = arith.addi %loaded, %c1 : i64
  memref.store %next, %after[] : memref<i64>
  memref.copy %after, %position : memref<i64> to memref<i64>
  return
}

// -----

// Not what a kernel would read after another one has written it,
// CHECK-LABEL: func.func @written
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: gpu.launch
func.func @written(%position: memref<i64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %c1 = arith.constant 1 : i64
  %next = arith.addi %loaded, %c1 : i64
  memref.store %next, %position[] : memref<i64>
  %view = memref.subview %rows[%number, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  memref.copy %row, %view : memref<1x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  return
}

// -----

// nor what says how much memory there must be, without a bound.
// CHECK-LABEL: func.func @unbounded
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: memref.alloc(%{{.*}}) : memref<?x10xf32>
func.func @unbounded(%position: memref<i64>, %rows: memref<?x10xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %twice = memref.alloc(%number) : memref<?x10xf32>
  linalg.add ins(%rows, %rows : memref<?x10xf32>, memref<?x10xf32>) outs(%twice : memref<?x10xf32>)
  linalg.add ins(%rows, %twice : memref<?x10xf32>, memref<?x10xf32>) outs(%rows : memref<?x10xf32>)
  memref.dealloc %twice : memref<?x10xf32>
  return
}

// -----

// A loop that has no iteration whatever is loaded needs nothing, nor does a
// check that kernels repeat.
// CHECK-LABEL: func.func @never
// CHECK-NOT: memref.load
// CHECK-NOT: llvm.call
// CHECK-NOT: scf.for
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
llvm.func @check(i64)
func.func @never(%position: memref<i64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  llvm.call @check(%loaded) {attn.repeated_check} : (i64) -> ()
  %number = arith.index_cast %loaded : i64 to index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %count = affine.apply affine_map<()[s0] -> ((s0 mod 8 + 8) floordiv 16)>()[%number]
  scf.for %i = %c0 to %count step %c1 {
    %view = memref.subview %rows[%i, 0] [%count, 8] [1, 1] : memref<16x8xf32> to memref<?x8xf32, strided<[8, 1], offset: ?>>
    linalg.add ins(%view, %view : memref<?x8xf32, strided<[8, 1], offset: ?>>, memref<?x8xf32, strided<[8, 1], offset: ?>>)
               outs(%view : memref<?x8xf32, strided<[8, 1], offset: ?>>)
  }
  %at = affine.apply affine_map<()[s0] -> (s0 mod 16)>()[%number]
  %to = memref.subview %rows[%at, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  memref.copy %row, %to : memref<1x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  return
}

// -----

// Where it may have one, the host reads its bound.
// CHECK-LABEL: func.func @loop
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: scf.for
// CHECK: gpu.launch
func.func @loop(%position: memref<i64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %count = affine.apply affine_map<()[s0] -> ((s0 mod 8 + 9) floordiv 16)>()[%number]
  scf.for %i = %c0 to %count step %c1 {
    %view = memref.subview %rows[%i, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
    linalg.add ins(%row, %view : memref<1x8xf32>, memref<1x8xf32, strided<[8, 1], offset: ?>>)
               outs(%view : memref<1x8xf32, strided<[8, 1], offset: ?>>)
  }
  return
}

// -----

// A loop may go through places that follow from a number, unless it writes it.
// CHECK-LABEL: func.func @places
// CHECK-NOT: memref.load
// CHECK: scf.for
// CHECK-NEXT: memref.collapse_shape %arg1
// CHECK-NEXT: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: return
// CHECK-LABEL: func.func @written_in_a_loop
// CHECK: memref.load %arg0[%c0] : memref<1xi64>
// CHECK: scf.for
// CHECK: gpu.launch
#place = affine_map<()[s0, s1] -> ((s0 + s1) mod 16)>
func.func @places(%position: memref<i64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %at = affine.apply #place()[%number, %i]
    %view = memref.subview %rows[%at, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
    memref.copy %row, %view : memref<1x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
  }
  return
}
func.func @written_in_a_loop(%position: memref<1xi64>, %row: memref<1x8xf32>, %rows: memref<16x8xf32>, %numbers: memref<1xi64>) {
  %c0 = arith.constant 0 : index
  %loaded = memref.load %position[%c0] : memref<1xi64>
  %number = arith.index_cast %loaded : i64 to index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %at = affine.apply #place()[%number, %i]
    %view = memref.subview %rows[%at, 0] [1, 8] [1, 1] : memref<16x8xf32> to memref<1x8xf32, strided<[8, 1], offset: ?>>
    linalg.add ins(%row, %view : memref<1x8xf32>, memref<1x8xf32, strided<[8, 1], offset: ?>>)
               outs(%view : memref<1x8xf32, strided<[8, 1], offset: ?>>)
    linalg.copy ins(%numbers : memref<1xi64>) outs(%position : memref<1xi64>)
  }
  return
}

// -----

// Remainders have bounds, a smallest number has that of one, and a choice the
// greater one of two: 4 bytes of 10 columns of 7 + 16 rows, and of 8.
// CHECK-LABEL: func.func @bounds
// CHECK-NOT: = memref.load
// CHECK: memref.alloc() : memref<920xi8>
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
// CHECK: memref.alloc() : memref<320xi8>
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
func.func @bounds(%position: memref<i64>, %rows: memref<300x10xf32>) {
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %begun = arith.remui %number, %c8 : index
  %before = arith.subi %number, %begun : index
  %kept = arith.minsi %before, %c16 : index
  %size = arith.addi %begun, %kept : index
  %view = memref.subview %rows[0, 0] [%size, 10] [1, 1] : memref<300x10xf32> to memref<?x10xf32, strided<[10, 1]>>
  %twice = memref.alloc(%size) : memref<?x10xf32>
  linalg.add ins(%view, %view : memref<?x10xf32, strided<[10, 1]>>, memref<?x10xf32, strided<[10, 1]>>) outs(%twice : memref<?x10xf32>)
  linalg.copy ins(%twice : memref<?x10xf32>) outs(%view : memref<?x10xf32, strided<[10, 1]>>)
  memref.dealloc %twice : memref<?x10xf32>
  %isEarly = arith.cmpi slt, %number, %c16 : index
  %chosen = arith.select %isEarly, %begun, %c8 : index
  %other = memref.subview %rows[0, 0] [%chosen, 10] [1, 1] : memref<300x10xf32> to memref<?x10xf32, strided<[10, 1]>>
  %more = memref.alloc(%chosen) : memref<?x10xf32>
  linalg.add ins(%other, %other : memref<?x10xf32, strided<[10, 1]>>, memref<?x10xf32, strided<[10, 1]>>) outs(%more : memref<?x10xf32>)
  linalg.copy ins(%more : memref<?x10xf32>) outs(%other : memref<?x10xf32, strided<[10, 1]>>)
  memref.dealloc %more : memref<?x10xf32>
  return
}

// -----

// A bound whose sum swaps its operands where it is folded.
// CHECK-LABEL: func.func @swapped
// CHECK-NOT: memref.load
// CHECK: %[[LENGTH:.*]] = memref.dim %arg1
// CHECK: %[[MOST:.*]] = arith.addi %[[LENGTH]], %c7
// CHECK: %[[BYTES:.*]] = arith.muli %[[MOST]], %c40
// CHECK: memref.alloc(%[[BYTES]]) : memref<?xi8>
// CHECK: gpu.launch
// CHECK: memref.load %arg0[] : memref<i64>
func.func @swapped(%position: memref<i64>, %rows: memref<?x10xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %loaded = memref.load %position[] : memref<i64>
  %number = arith.index_cast %loaded : i64 to index
  %before = arith.remui %number, %c8 : index
  %length = memref.dim %rows, %c0 : memref<?x10xf32>
  %all = arith.addi %before, %length : index
  %sums = memref.alloc(%all) : memref<?x10xf32>
  linalg.add ins(%sums, %sums : memref<?x10xf32>, memref<?x10xf32>) outs(%sums : memref<?x10xf32>)
  memref.dealloc %sums : memref<?x10xf32>
  return
}
