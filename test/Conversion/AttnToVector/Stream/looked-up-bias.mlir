// RUN: fovea-opt %s --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// Scores of the table are looked up and squares of the bias transposed: those of
// the first tile are copied, those of the next one in each turn of the products
// with the values, four rows long, which also asks for the tile after that. The
// first line of every row is asked for at once.

// CHECK-LABEL: func @lookedUp(
// CHECK-SAME: %[[BIAS:[a-z0-9]+]]: memref<1x1x4096x2048xf32>, %{{.*}}: memref<1x1x4096x32xf32>)
// CHECK: %[[COPY:.*]] = memref.alloc() {alignment = 64 : i64} : memref<32x64xf32>
// CHECK-COUNT-16: memref.prefetch %[[ROWS:.*]][{{.*}}], read, locality<2>, data : memref<4096x2048xf32,
// CHECK: scf.for
// CHECK: vector.load %[[ROWS]]
// CHECK-NEXT: vector.store %{{.*}}, %[[COPY]]
// CHECK: memref.prefetch %[[ROWS]]
// CHECK-COUNT-32: vector.load %[[COPY]]
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK: scf.for %{{.*}} step %c4 iter_args
// CHECK: vector.load %[[ROWS]]
// CHECK-NEXT: vector.store %{{.*}}, %[[COPY]]
// CHECK: memref.prefetch %[[ROWS]]
// CHECK-COUNT-4: memref.load %{{.*}} : memref<4096x32xf32,
// CHECK: scf.yield
func.func @lookedUp(%q: memref<1x1x4096x16xf32>, %c: memref<1x1x64x16xf32>, %z: memref<1x1x4096xi32>, %v: memref<1x1x4096x32xf32>, %b: memref<1x1x4096x2048xf32>, %o: memref<1x1x4096x32xf32>) {
  attn.stream query(%q : memref<1x1x4096x16xf32>)
      source(%c, %v : memref<1x1x64x16xf32>, memref<1x1x4096x32xf32>) codes(%z : memref<1x1x4096xi32>) local_bias(%b : memref<1x1x4096x2048xf32>) ranges [affine_map<(b)[rows, n] -> (b * 1024 - 1024, b * 1024 + 1024)>] mask <causal>
      outs(%o : memref<1x1x4096x32xf32>)
      {block = 1024 : i64, scale = 0.25 : f64, tiles = #attn.tiles<query = 32, key = 64, lanes = 16, vectors = 2, keys = 4, columns = 4>}
  return
}
