// RUN: fovea-opt %s --attn-loops-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

// One thread for two neighbours: rows of 120 bytes start at multiples of 8.
// CHECK-LABEL: func.func @add
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c2,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c256,
// CHECK: scf.if
// CHECK: arith.addf
func.func @add(%a: memref<20x30xf32>, %b: memref<20x30xf32>) {
  linalg.add ins(%a, %b : memref<20x30xf32>, memref<20x30xf32>) outs(%b : memref<20x30xf32>)
  return
}

// Contiguous copies are for the runtime, others are loops.
// CHECK-LABEL: func.func @copy
// CHECK: gpu.launch
// CHECK: vector.load
// CHECK: vector.store
// CHECK: memref.copy
func.func @copy(%a: memref<4x8xf32>, %b: memref<4x8xf32, strided<[16, 1]>>, %c: memref<4x8xf32>) {
  memref.copy %a, %b : memref<4x8xf32> to memref<4x8xf32, strided<[16, 1]>>
  memref.copy %a, %c : memref<4x8xf32> to memref<4x8xf32>
  return
}

// A reduction to one number: many parts at once, sums of these, and one of all.
// CHECK-LABEL: func.func @all
// CHECK: %[[PARTS:.*]] = memref.alloc() : memref<16384xf32>
// CHECK: %[[SUMS:.*]] = memref.alloc() : memref<128xf32>
// CHECK: gpu.launch
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: memref.store %{{.*}}, %[[PARTS]]
// CHECK: gpu.launch
// CHECK: memref.load %[[PARTS]]
// CHECK: arith.addf
// CHECK: memref.store %{{.*}}, %[[SUMS]]
// CHECK: gpu.launch
// CHECK: memref.load %arg1[]
// CHECK: memref.load %[[SUMS]]
// CHECK: memref.store %{{.*}}, %arg1[]
func.func @all(%a: memref<20x3000xf32>, %sum: memref<f32>) {
  linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> ()>], iterator_types = ["reduction", "reduction"]}
      ins(%a : memref<20x3000xf32>) outs(%sum : memref<f32>) {
  ^bb0(%v: f32, %s: f32):
    %square = arith.mulf %v, %v : f32
    %next = arith.addf %s, %square : f32
    linalg.yield %next : f32
  }
  return
}

// A loop over a list is one block, whose threads share the columns of a row.
// CHECK-LABEL: func.func @listed
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c1,
// CHECK: scf.for
// CHECK: memref.load
// CHECK: scf.for {{.*}} to %c10{{.*}} step %c256
// CHECK: vector.load
// CHECK: arith.addf
// CHECK: gpu.barrier
func.func @listed(%list: memref<8xi32>, %a: memref<8x40xf32>, %b: memref<5x40xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %number = memref.load %list[%i] : memref<8xi32>
    %row = arith.index_cast %number : i32 to index
    %from = memref.subview %a[%i, 0] [1, 40] [1, 1] : memref<8x40xf32> to memref<1x40xf32, strided<[40, 1], offset: ?>>
    %to = memref.subview %b[%row, 0] [1, 40] [1, 1] : memref<5x40xf32> to memref<1x40xf32, strided<[40, 1], offset: ?>>
    linalg.add ins(%from, %to : memref<1x40xf32, strided<[40, 1], offset: ?>>, memref<1x40xf32, strided<[40, 1], offset: ?>>)
        outs(%to : memref<1x40xf32, strided<[40, 1], offset: ?>>)
  }
  return
}

// Single numbers are made by a thread: the host need not read them.
// CHECK-LABEL: func.func @single
// CHECK: gpu.launch
// CHECK: arith.divf
// CHECK: gpu.terminator
// CHECK: return
func.func @single(%a: memref<f32>, %b: memref<f32>, %c: memref<f32>) {
  linalg.div ins(%a, %b : memref<f32>, memref<f32>) outs(%c : memref<f32>)
  return
}

// -----

// A number and its place: one thread goes through all.
// CHECK-LABEL: func.func @greatest
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK: arith.maxsi
// CHECK: gpu.terminator
// CHECK-NOT: memref.load
func.func @greatest(%x: memref<9xi32>, %most: memref<i32>, %place: memref<index>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> ()>, affine_map<(i) -> ()>],
                  iterator_types = ["reduction"]}
      ins(%x : memref<9xi32>) outs(%most, %place : memref<i32>, memref<index>) {
  ^bb0(%each: i32, %old: i32, %at: index):
    %i = linalg.index 0 : index
    %new = arith.maxsi %each, %old : i32
    %isMore = arith.cmpi sgt, %each, %old : i32
    %here = arith.select %isMore, %i, %at : index
    linalg.yield %new, %here : i32, index
  }
  return
}

// -----

// The sum of a line goes from element to element, and its last value to memory, in one kernel.
// CHECK-LABEL: func.func @line
// CHECK: gpu.launch
// CHECK: scf.for {{.*}} -> (f32)
// CHECK: memref.store {{.*}} : memref<f32>
// CHECK: gpu.terminator
// CHECK-NOT: memref.load
func.func @line(%x: memref<9xf32>, %sums: memref<9xf32>, %total: memref<f32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c9 = arith.constant 9 : index
  %zero = arith.constant 0.0 : f32
  %all = scf.for %i = %c0 to %c9 step %c1 iter_args(%before = %zero) -> (f32) {
    %each = memref.load %x[%i] : memref<9xf32>
    %sum = arith.addf %before, %each : f32
    memref.store %sum, %sums[%i] : memref<9xf32>
    scf.yield %sum : f32
  }
  %square = arith.mulf %all, %all : f32
  memref.store %square, %total[] : memref<f32>
  return
}

// -----

// A loop inside that ends by what the elements are, as an element is put in its place.
// CHECK-LABEL: func.func @place
// CHECK: gpu.launch
// CHECK: scf.for
// CHECK: scf.while
// CHECK: gpu.terminator
func.func @place(%a: memref<8xf32>, %places: memref<8xindex>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  scf.for %i = %c0 to %c8 step %c1 {
    %x = memref.load %a[%i] : memref<8xf32>
    %place = scf.while (%at = %i) : (index) -> index {
      %isBehind = arith.cmpi sgt, %at, %c0 : index
      %before = arith.subi %at, %c1 : index
      %least = arith.maxsi %before, %c0 : index
      %other = memref.load %a[%least] : memref<8xf32>
      %isLess = arith.cmpf olt, %other, %x : f32
      %goesOn = arith.andi %isBehind, %isLess : i1
      scf.condition(%goesOn) %at : index
    } do {
    ^bb0(%at: index):
      %next = arith.subi %at, %c1 : index
      scf.yield %next : index
    }
    memref.store %place, %places[%i] : memref<8xindex>
  }
  return
}

// -----

func.func @sum(%a: memref<8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{'scf.parallel' op reduces across its iterations, which GPU loops cannot}}
  %sum = scf.parallel (%i) = (%c0) to (%c8) step (%c1) init (%zero) -> f32 {
    %x = memref.load %a[%i] : memref<8xf32>
    scf.reduce(%x : f32) {
    ^bb0(%l: f32, %r: f32):
      %s = arith.addf %l, %r : f32
      scf.reduce.return %s : f32
    }
  }
  return %sum : f32
}

// -----

// Tensors have no buffers yet.
// CHECK-LABEL: func.func @tensors
// CHECK-NOT: gpu.launch
// CHECK: linalg.fill
func.func @tensors(%x: tensor<8xf32>) -> tensor<8xf32> {
  %zero = arith.constant 0.0 : f32
  %filled = linalg.fill ins(%zero : f32) outs(%x : tensor<8xf32>) -> tensor<8xf32>
  return %filled : tensor<8xf32>
}
