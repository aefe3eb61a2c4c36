// RUN: fovea-opt %s --attn-vectorize-fft | FileCheck %s
// RUN: fovea-opt %s --attn-vectorize-fft=separate-adds | FileCheck %s --check-prefix=ADDS

#form = #attn.spectrum<lanes = 16, radices = [8, 4]>

// Half of the rows are zero: the first stage loads four rows of eight, each of
// two vectors, and has four butterflies without factors; the second has eight,
// each with two factors, which are one with the additions: four butterflies of
// two rows are six operations each. Both groups of columns share them.
// CHECK-DAG: llvm.func @fovea_rt_fft_twiddles(i64, i64) -> !llvm.ptr
// CHECK-LABEL: func @forward(
// CHECK: %[[CODE:.*]] = arith.constant 35 : i64
// CHECK: llvm.call @fovea_rt_fft_twiddles(%[[CODE]], {{.*}})
// CHECK: scf.forall {{.*}} in (2, 1)
// CHECK: scf.for {{.*}} to %c4
// CHECK: scf.for {{.*}} to %c2
// CHECK-COUNT-8: vector.load {{.*}} : memref<2x16x64xf32>, vector<16xf32>
// CHECK-NOT: vector.load {{.*}} memref<2x16x64xf32>
// CHECK-NOT: llvm.load
// CHECK: vector.fma
// CHECK-COUNT-16: vector.store {{.*}} : memref<2x32x64xf32>
// CHECK: scf.for {{.*}} step %c4
// CHECK-COUNT-4: llvm.load
// CHECK-NOT: llvm.load
// CHECK: scf.for {{.*}} to %c2
// CHECK-COUNT-8: vector.load {{.*}} : memref<2x32x64xf32>
// CHECK-COUNT-24: vector.fma
// CHECK-NOT: arith.addf
// CHECK-NOT: vector.fma
// CHECK-COUNT-8: vector.store {{.*}} : memref<2x32x64xf32>
// CHECK-NOT: attn.
//
// Where additions have ports of their own, the same butterflies are a product,
// of four operations of which two are multiply-adds, and four additions.
// ADDS-LABEL: func @forward(
// ADDS-COUNT-16: vector.store {{.*}} : memref<2x32x64xf32>
// ADDS-COUNT-8: vector.load {{.*}} : memref<2x32x64xf32>
// ADDS-COUNT-2: vector.fma
// ADDS: arith.addf
// ADDS: arith.subf
// ADDS-COUNT-6: vector.fma
// ADDS-NOT: vector.fma
// ADDS-COUNT-8: vector.store {{.*}} : memref<2x32x64xf32>
func.func @forward(%x: memref<2x16x64xf32>, %s: memref<2x32x64xf32>) {
  attn.fft_forward ins(%x : memref<2x16x64xf32>) outs(%s : memref<2x32x64xf32>) {form = #form}
  return
}

// The second half of the rows, scaled.
// CHECK-LABEL: func @inverse(
// CHECK: scf.forall
// CHECK: memref.alloc() {{.*}} : memref<1x32x64xf32>
// CHECK-COUNT-8: vector.store {{.*}} : memref<2x16x64xf32>
// CHECK-NOT: vector.store
// CHECK: memref.dealloc
func.func @inverse(%s: memref<2x32x64xf32>, %y: memref<2x16x64xf32>) {
  attn.fft_inverse ins(%s : memref<2x32x64xf32>) outs(%y : memref<2x16x64xf32>) {form = #form, first = 16 : i64}
  return
}

// A transform that the second cache holds has one sweep, in place after its
// first stage.
// CHECK-LABEL: func @one_sweep(
// CHECK: scf.forall {{.*}} in (1, 1)
// CHECK-NOT: memref.alloc
// CHECK: scf.for {{.*}} to %c512
// CHECK-COUNT-16: vector.load {{.*}} : memref<1x4096x32xf32>
// CHECK-COUNT-16: vector.store {{.*}} : memref<1x4096x32xf32>
// CHECK: scf.for {{.*}} to %c4096{{.*}} step %c512
// CHECK: scf.for {{.*}} to %c64
// CHECK: scf.for {{.*}} step %c64
// CHECK: scf.for {{.*}} to %c8
// CHECK: scf.for {{.*}} step %c8
func.func @one_sweep(%x: memref<1x4096x32xf32>, %s: memref<1x4096x32xf32>) {
  attn.fft_forward ins(%x : memref<1x4096x32xf32>) outs(%s : memref<1x4096x32xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 8, 8, 8]>}
  return
}

// Groups of columns that are no whole rows are transformed in a buffer.
// CHECK-LABEL: func @wide(
// CHECK: scf.forall {{.*}} in (1, 4)
// CHECK: memref.alloc() {{.*}} : memref<1x512x64xf32>
// CHECK-COUNT-16: vector.load {{.*}} : memref<1x512x256xf32>
// CHECK-COUNT-16: vector.store {{.*}} : memref<1x512x64xf32>
// CHECK-COUNT-16: vector.load {{.*}} : memref<1x512x64xf32>
// CHECK-COUNT-16: vector.store {{.*}} : memref<1x512x64xf32>
// CHECK-COUNT-16: vector.load {{.*}} : memref<1x512x64xf32>
// CHECK-COUNT-16: vector.store {{.*}} : memref<1x512x256xf32>
// CHECK: memref.dealloc
func.func @wide(%x: memref<1x512x256xf32>, %s: memref<1x512x256xf32>) {
  attn.fft_forward ins(%x : memref<1x512x256xf32>) outs(%s : memref<1x512x256xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 8, 8]>}
  return
}

// A longer one has a loop of tasks for each of two sweeps, over tiles: 64 times
// 16 neighbouring rows that are 512 apart, a page, through a buffer, and 512
// neighbouring rows.
// CHECK-LABEL: func @long(
// CHECK: scf.forall {{.*}} in (1, 1, 32)
// CHECK: memref.alloc() {{.*}} : memref<16x64x64xf32>
// CHECK: scf.forall {{.*}} in (1, 1, 64)
// CHECK-NOT: scf.forall
func.func @long(%x: memref<1x32768x64xf32>, %s: memref<1x32768x64xf32>) {
  attn.fft_forward ins(%x : memref<1x32768x64xf32>) outs(%s : memref<1x32768x64xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 8, 8, 8, 8]>}
  return
}

// All groups of columns of a page go through such a transform together, so that
// what is far apart is four whole rows here, too.
// CHECK-LABEL: func @long_and_wide(
// CHECK: scf.forall {{.*}} in (1, 1, 128)
// CHECK: memref.alloc() {{.*}} : memref<4x64x256xf32>
// CHECK: scf.forall {{.*}} in (1, 1, 64)
// CHECK-NOT: scf.forall
func.func @long_and_wide(%x: memref<1x32768x256xf32>, %s: memref<1x32768x256xf32>) {
  attn.fft_forward ins(%x : memref<1x32768x256xf32>) outs(%s : memref<1x32768x256xf32>) {form = #attn.spectrum<lanes = 16, radices = [8, 8, 8, 8, 8]>}
  return
}
