// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector --remarks-filter='attn.*' --remark-policy=all 2>&1 | FileCheck %s --check-prefix=REMARK

// REMARK: remark: [Passed] ConvPlanned | Category:attn.conv_apply | Algorithm=toeplitz

// A task is 64 queries and a tile of columns. Weights are neighbours in a
// profile, each broadcast from memory.
// CHECK-LABEL: func @toeplitz(
// CHECK-NOT: attn.
// CHECK: vector.maskedload {{.*}} : memref<1x2x3x200xf32>
// CHECK: scf.forall {{.*}} in (1, 4)
// CHECK: scf.for
// CHECK: scf.for
// CHECK: scf.for {{.*}} iter_args
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-4: vector.load {{.*}} : memref<1x1x200x64xf32{{.*}}>, vector<16xf32>
// CHECK: memref.load
// CHECK-NEXT: vector.broadcast
// CHECK-NEXT: vector.fma
// Marked rows once more, up to the last task that has any: their scores, then
// 16 rows a task.
// CHECK: scf.if
// CHECK: scf.forall {{.*}} in (%{{.*}})
// CHECK: vector.store {{.*}} : memref<624xf32>, vector<16xf32>
// CHECK: scf.forall {{.*}} in (%{{.*}})
// CHECK: memref.load {{.*}} : memref<200xi8>
// CHECK: arith.divf
// CHECK-NOT: attn.
func.func @toeplitz(%b: memref<1x2x3x200xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x200x64xf32>, %o: memref<1x2x200x64xf32>, %c: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x200xf32>, memref<1x2x3xi32>, memref<1x1x200x64xf32>)
      outs(%o, %c : memref<1x2x200x64xf32>, memref<1x2xi32>) {algorithm = #attn.conv_algorithm<toeplitz>}
  return
}

// Many small heads are tasks; what lies inside of one is not parallel.
// CHECK-LABEL: func @many_heads(
// CHECK: scf.forall {{.*}} in (4, 8)
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<3xindex>
func.func @many_heads(%b: memref<4x8x2x64xf32>, %m: memref<4x8x2xi32>, %v: memref<4x2x64x64xf32>, %o: memref<4x8x64x64xf32>, %c: memref<4x8xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<4x8x2x64xf32>, memref<4x8x2xi32>, memref<4x2x64x64xf32>)
      outs(%o, %c : memref<4x8x64x64xf32>, memref<4x8xi32>) {algorithm = #attn.conv_algorithm<toeplitz>}
  return
}

// So they are where how many there are is known at run time only; a few come one
// after the other.
// CHECK-LABEL: func @some_heads(
// CHECK: %[[FEW:.*]] = arith.cmpi slt, %{{.*}}, %c16
// CHECK: scf.if %[[FEW]] {
// CHECK:   memref.alloc() {alignment = 64 : i64} : memref<3xindex>
// CHECK:   scf.for
// CHECK:     scf.for
// CHECK:       scf.forall {{.*}} in (1)
// CHECK: } else {
// CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (%{{.*}}, %{{.*}}) {
// CHECK:     memref.alloc() {alignment = 64 : i64} : memref<3xindex>
func.func @some_heads(%b: memref<?x?x2x64xf32>, %m: memref<?x?x2xi32>, %v: memref<?x?x64x64xf32>, %o: memref<?x?x64x64xf32>, %c: memref<?x?xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<?x?x2x64xf32>, memref<?x?x2xi32>, memref<?x?x64x64xf32>)
      outs(%o, %c : memref<?x?x64x64xf32>, memref<?x?xi32>) {algorithm = #attn.conv_algorithm<toeplitz>}
  return
}

// Segments of 34 columns are a piece each, 30 rows a block: transforms of 64.
// REMARK: Algorithm=partitioned, Block=30,
// CHECK-LABEL: func @long_segments(
// CHECK: %[[REST:.*]] = arith.subi %{{.*}}, %c34{{(_[0-9]+)?}} : index
// CHECK: arith.maxsi %[[REST]], %c0
// CHECK: arith.divui %{{.*}}, %c30{{(_[0-9]+)?}} : index
// CHECK: memref.store {{.*}} : memref<20x4xindex>
// CHECK-NOT: attn.
func.func @long_segments(%b: memref<1x2x9x306xf32>, %m: memref<1x2x9xi32>, %v: memref<1x1x306x64xf32>, %o: memref<1x2x306x64xf32>, %c: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x9x306xf32>, memref<1x2x9xi32>, memref<1x1x306x64xf32>)
      outs(%o, %c : memref<1x2x306x64xf32>, memref<1x2xi32>) {algorithm = #attn.conv_algorithm<partitioned>}
  return
}

// Windows are real and imaginary parts of a transform, and have spectra for one
// of a frequency and its negative. Products at the other are conjugate. Pieces
// that begin in a block of a tile are multiplied for the blocks from there on.
// CHECK-LABEL: func @partitioned(
// CHECK: %[[W:.*]] = memref.alloc() {alignment = 64 : i64} : memref<128x2x32xf32>
// CHECK: memref.store {{.*}}x4xindex>
// CHECK: math.sqrt
// CHECK: vector.interleave
// CHECK: vector.interleave {{.*}} : vector<16xf32> -> vector<32xf32>
// CHECK: vector.store %{{.*}}, %[[W]]
// CHECK: memref.prefetch %[[W]][{{.*}}], write
// CHECK: scf.forall {{.*}} in (16) {
// CHECK: memref.prefetch %[[W]]
// CHECK: scf.for {{.*}} iter_args
// CHECK: arith.xori
// CHECK-COUNT-8: memref.load %[[W]]
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-6: memref.load %[[W]]
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-4: memref.load %[[W]]
// CHECK: scf.for {{.*}} iter_args
// CHECK-COUNT-2: memref.load %[[W]]
// CHECK: scf.yield
// CHECK-NOT: memref.load %[[W]]
// CHECK: vector.store
func.func @partitioned(%b: memref<1x1x3x200xf32>, %m: memref<1x1x3xi32>, %v: memref<1x1x200x64xf32>, %o: memref<1x1x200x64xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x3x200xf32>, memref<1x1x3xi32>, memref<1x1x200x64xf32>)
      outs(%o, %c : memref<1x1x200x64xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 64 : i64}
  return
}
