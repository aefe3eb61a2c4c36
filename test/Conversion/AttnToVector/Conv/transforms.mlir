// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 separate-adds" --convert-attn-to-vector | FileCheck %s --check-prefix=ADDS

// A transform of 32 rows, by radices 8 and 4, there and back.
// CHECK-LABEL: func @one_block(
// CHECK: llvm.call @fovea_rt_fft_twiddles(%c35_i64, %c0_i64)
// CHECK: %[[SPECTRUM:.*]] = memref.alloc() {alignment = 64 : i64} : memref<5x1x41x32xf32>
// CHECK: scf.for {{.*}} = %c0{{.*}} to %c4{{.*}} {
//
// Half of the rows are zero: the first stage loads four rows of eight, each of
// two vectors, and has no factors.
// CHECK-COUNT-8: vector.maskedload {{.*}} : memref<1x1x16x32xf32>
// CHECK-NOT: vector.maskedload
// CHECK-NOT: llvm.load
// CHECK-COUNT-16: vector.store {{.*}}, %[[SPECTRUM]]
//
// The second has two factors, one with the additions: four butterflies of two
// rows are six operations each. Products with the spectrum of weights are two
// of four rows, and the inverse begins without factors.
// CHECK: scf.for {{.*}} step %c4
// CHECK-COUNT-4: llvm.load
// CHECK-NOT: llvm.load
// CHECK-COUNT-8: vector.load %[[SPECTRUM]]
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// CHECK-COUNT-8: vector.store {{.*}}, %[[SPECTRUM]]
//
// The last stage gives the second half of the rows, scaled.
// CHECK: scf.for
// CHECK-COUNT-8: llvm.load
// CHECK-NOT: llvm.load
// CHECK-COUNT-16: vector.load %[[SPECTRUM]]
// CHECK-NOT: vector.store {{.*}}, %[[SPECTRUM]]
// CHECK-COUNT-8: vector.store {{.*}}, %arg3{{.*}} : memref<1x1x16x32xf32>
// CHECK-NOT: vector.store {{.*}}, %arg3
// CHECK: scf.forall
//
// Where additions have ports of their own, the same butterflies are a product,
// of four operations of which two are multiply-adds, and four additions.
// ADDS-LABEL: func @one_block(
// ADDS: %[[SPECTRUM:.*]] = memref.alloc() {alignment = 64 : i64} : memref<5x1x41x32xf32>
// ADDS-COUNT-16: vector.store {{.*}}, %[[SPECTRUM]]
// ADDS-COUNT-8: vector.load %[[SPECTRUM]]
// ADDS-COUNT-2: vector.fma
// ADDS: arith.addf
// ADDS: arith.subf
// ADDS-COUNT-14: vector.fma
// ADDS-NOT: vector.fma
// ADDS-COUNT-8: vector.store {{.*}}, %[[SPECTRUM]]
func.func @one_block(%b: memref<1x1x1x16xf32>, %m: memref<1x1x1xi32>, %v: memref<1x1x16x32xf32>, %o: memref<1x1x16x32xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x16xf32>, memref<1x1x1xi32>, memref<1x1x16x32xf32>)
      outs(%o, %c : memref<1x1x16x32xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}
  return
}

// What the second cache holds has one sweep, in place after its first stage.
// CHECK-LABEL: func @one_sweep(
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<5x1x4105x32xf32>
// CHECK-NOT: memref<{{[0-9]+}}x64x32xf32>
// CHECK: return
func.func @one_sweep(%b: memref<1x1x1x2048xf32>, %m: memref<1x1x1xi32>, %v: memref<1x1x2048x32xf32>, %o: memref<1x1x2048x32xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x2048xf32>, memref<1x1x1xi32>, memref<1x1x2048x32xf32>)
      outs(%o, %c : memref<1x1x2048x32xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}
  return
}

// A longer one has a sweep over tiles of 64 rows that are 512 apart, 32
// neighbours of each, a page, through a buffer; one over 512 neighbouring rows;
// and the first again for the inverse.
// CHECK-LABEL: func @two_sweeps(
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<5x1x32777x32xf32>
// CHECK: %[[TILE:.*]] = memref.alloc() {alignment = 64 : i64} : memref<32x64x32xf32>
// CHECK: vector.store {{.*}}, %[[TILE]]
// CHECK: vector.load %[[TILE]]
func.func @two_sweeps(%b: memref<1x1x1x16384xf32>, %m: memref<1x1x1xi32>, %v: memref<1x1x16384x32xf32>, %o: memref<1x1x16384x32xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x16384xf32>, memref<1x1x1xi32>, memref<1x1x16384x32xf32>)
      outs(%o, %c : memref<1x1x16384x32xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<single>}
  return
}
