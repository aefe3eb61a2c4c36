// RUN: fovea-opt %s --attn-set-target=vector-bits=256 --convert-attn-to-vector | FileCheck %s

#tree = #attn.tree<ratio = 2, levels = 2>

// Tokens are read once, four rows of a subtree at a time, and every difference is
// stored once. The last vector of columns is a shorter one.

// CHECK-LABEL: func @build(
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (3, {{.*}}) {
// CHECK: vector.load %{{.*}} : memref<3x64x20xf32>, vector<8xf32>
// CHECK: vector.load %{{.*}} : memref<3x64x20xf32>, vector<8xf32>
// CHECK: arith.mulf
// CHECK: vector.store %{{.*}} : memref<3x112x20xf32>, vector<8xf32>
// CHECK: vector.load %{{.*}} : memref<3x64x20xf32>, vector<4xf32>
// CHECK: vector.store %{{.*}} : memref<3x112x20xf32>, vector<4xf32>
// CHECK: scf.while
func.func @build(%c: memref<3x64x20xf32>, %t: memref<3x112x20xf32>) {
  attn.tree_build ins(%c : memref<3x64x20xf32>) outs(%t : memref<3x112x20xf32>) {shape = #tree}
  return
}

// Half precision is converted where it is loaded and stored.

// CHECK-LABEL: func @fetch(
// CHECK: scf.forall
// CHECK: %[[D:.*]] = vector.load %{{.*}} : memref<1x7x16xbf16>, vector<8xbf16>
// CHECK: arith.extf %[[D]] : vector<8xbf16> to vector<8xf32>
// CHECK: arith.truncf %{{.*}} : vector<8xf32> to vector<8xbf16>
func.func @fetch(%t: memref<1x7x16xbf16>, %l: memref<1x3xi32>, %r: memref<1x3x16xbf16>) {
  attn.tree_fetch ins(%t : memref<1x7x16xbf16>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>) outs(%r : memref<1x3x16xbf16>) {shape = #tree}
  return
}

// An update allocates scratch only: 5 rows for the changes that wait.

// CHECK-LABEL: func @update(
// CHECK-NOT: memref.alloc
// CHECK: scf.forall
// CHECK: memref.alloc() {{.*}} : memref<5x16xf32>
// CHECK-NOT: memref.copy
// CHECK: return
func.func @update(%r: memref<1x3x16xf32>, %l: memref<1x3xi32>, %t: memref<1x7x16xf32>) {
  attn.tree_update ins(%r : memref<1x3x16xf32>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>) outs(%t : memref<1x7x16xf32>) {shape = #tree}
  return
}

// Scores are counted a vector at a time, for each bit of the least one that is
// split.

// CHECK-LABEL: func @split(
// CHECK: scf.forall
// CHECK: scf.for {{.*}} to %c64 {{.*}} -> (i64, i64)
// CHECK: arith.cmpf oge, %{{.*}} : vector<4xf64>
// CHECK: vector.reduction <add>
// CHECK-NOT: llvm.call
// CHECK: return
func.func @split(%s: memref<2x4xf64>, %l: memref<2x5xi32>, %c: memref<2x2xi32>) {
  attn.tree_split scores(%s : memref<2x4xf64>) outs(%l, %l, %c : memref<2x5xi32>, memref<2x5xi32>, memref<2x2xi32>) {shape = #tree, at = 2 : i64, split = 1 : i64}
  return
}
