// RUN: fovea-opt %s --attn-vectorize-fft | FileCheck %s

#form = #attn.spectrum<lanes = 16, radices = [8, 4]>

// Half of the rows are zero: the first stage loads four rows of eight, each of
// two vectors, and has four butterflies; the second has eight.
// CHECK-DAG: llvm.func @fovea_rt_fft_twiddles(i64, i64) -> !llvm.ptr
// CHECK-LABEL: func @forward(
// CHECK: %[[CODE:.*]] = arith.constant 35 : i64
// CHECK: llvm.call @fovea_rt_fft_twiddles(%[[CODE]], {{.*}})
// CHECK: scf.forall {{.*}} in (2, 2)
// CHECK: scf.for {{.*}} to %c4
// CHECK-COUNT-8: vector.load {{.*}} : memref<2x16x64xf32>, vector<16xf32>
// CHECK-NOT: vector.load {{.*}} memref<2x16x64xf32>
// CHECK: llvm.load
// CHECK: vector.fma
// CHECK-COUNT-14: vector.store {{.*}} : memref<2x32x64xf32>
// CHECK: scf.for {{.*}} step %c4
// CHECK-COUNT-8: vector.load {{.*}} : memref<2x32x64xf32>
// CHECK-NOT: llvm.load
// CHECK-COUNT-8: vector.store {{.*}} : memref<2x32x64xf32>
// CHECK-NOT: attn.
func.func @forward(%x: memref<2x16x64xf32>, %s: memref<2x32x64xf32>) {
  attn.fft_forward ins(%x : memref<2x16x64xf32>) outs(%s : memref<2x32x64xf32>) {form = #form}
  return
}

// The second half of the rows, scaled.
// CHECK-LABEL: func @inverse(
// CHECK: scf.forall
// CHECK: memref.alloc() {{.*}} : memref<1x32x32xf32>
// CHECK-COUNT-8: vector.store {{.*}} : memref<2x16x64xf32>
// CHECK-NOT: vector.store
// CHECK: memref.dealloc
func.func @inverse(%s: memref<2x32x64xf32>, %y: memref<2x16x64xf32>) {
  attn.fft_inverse ins(%s : memref<2x32x64xf32>) outs(%y : memref<2x16x64xf32>) {form = #form, first = 16 : i64}
  return
}
