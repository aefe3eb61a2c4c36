// RUN: fovea-opt %s --convert-attn-to-gpu | FileCheck %s

!q = memref<3x8x2x16xf16>
!k = memref<3x2x600x16xf16>

// Two queries that stand where the caller says: a block of threads for each batch entry, each key head and each of three parts of what they
// read. The rows of a tile are four heads of each of them.
// CHECK-LABEL: func.func @few_queries
// CHECK-SAME: %[[Q:[^:]*]]: memref<3x8x2x16xf16>{{.*}} %[[FIRST:[^:]*]]: index, %{{[^:]*}}: index
// CHECK: gpu.launch blocks{{.*}} = %c18, {{.*}} threads{{.*}} = %c32
// CHECK: memref.subview %[[Q]][%{{.*}}, %{{.*}}, 0, 0] [1, 4, 2, 16]
// CHECK: nvvm.mma.sync
// CHECK-NOT: attn.stream
func.func @few_queries(%q: !q, %k: !k, %o: !q, %first: index, %n: index) {
  attn.stream query(%q : !q)
      source(%k, %k : !k, !k) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      tile(%first of %n) outs(%o : !q)
      {scale = 0.125 : f64, tiles = #attn.tiles<query = 16, key = 32, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Blocks of the sequence may begin between them, so each query has tiles of its own.
// CHECK-LABEL: func.func @queries_of_blocks
// CHECK: gpu.launch blocks{{.*}} = %c36, {{.*}} threads{{.*}} = %c32
// CHECK: nvvm.mma.sync
// CHECK-NOT: attn.stream
func.func @queries_of_blocks(%q: !q, %k: !k, %o: !q, %first: index, %n: index) {
  attn.stream query(%q : !q)
      source(%k, %k : !k, !k) ranges [affine_map<(b)[rows, n] -> (b, rows)>] mask <causal>
      tile(%first of %n) outs(%o : !q)
      {block = 8 : i64, scale = 0.125 : f64, tiles = #attn.tiles<query = 16, key = 32, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// The more queries, the fewer parts, so that these do not take more memory: 128 for one, 32 for eight.
// CHECK-LABEL: func.func @long_cache
// CHECK: memref.alloc() {{.*}} : memref<1x8x1x128x16xf32>
// CHECK: memref.alloc() {{.*}} : memref<1x8x8x32x16xf32>
func.func @long_cache(%q: memref<1x8x1x16xf16>, %q8: memref<1x8x8x16xf16>, %k: memref<1x2x100000x16xf16>, %o: memref<1x8x1x16xf16>, %o8: memref<1x8x8x16xf16>) {
  attn.stream query(%q : memref<1x8x1x16xf16>)
      source(%k, %k : memref<1x2x100000x16xf16>, memref<1x2x100000x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x16xf16>)
      {scale = 0.125 : f64, tiles = #attn.tiles<query = 16, key = 32, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  attn.stream query(%q8 : memref<1x8x8x16xf16>)
      source(%k, %k : memref<1x2x100000x16xf16>, memref<1x2x100000x16xf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o8 : memref<1x8x8x16xf16>)
      {scale = 0.125 : f64, tiles = #attn.tiles<query = 32, key = 64, lanes = 16, vectors = 2, keys = 8, columns = 8>}
  return
}
