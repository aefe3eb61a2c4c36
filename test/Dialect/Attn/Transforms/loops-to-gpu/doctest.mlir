// RUN: fovea-opt %s --attn-loops-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

// One thread for each element.
// CHECK-LABEL: func.func @add
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c3,
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
// CHECK: memref.load
// CHECK: memref.store
// CHECK: memref.copy
func.func @copy(%a: memref<4x8xf32>, %b: memref<4x8xf32, strided<[16, 1]>>, %c: memref<4x8xf32>) {
  memref.copy %a, %b : memref<4x8xf32> to memref<4x8xf32, strided<[16, 1]>>
  memref.copy %a, %c : memref<4x8xf32> to memref<4x8xf32>
  return
}

// -----

func.func @sum(%a: memref<8xf32>) -> f32 {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{reduces across its iterations, which GPU loops cannot}}
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
