// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s --implicit-check-not=memref.alloc --implicit-check-not=memref.dealloc
// RUN: fovea-opt %s --convert-attn-to-vector -attn-outline-parallel | FileCheck %s --check-prefix=OUTLINED

// A tile outside a parallel loop, which is what a loop of one iteration leaves
// behind, frees its working memory.

// CHECK-LABEL: func.func @alone(
// CHECK-COUNT-9: memref.alloc() {alignment = 64 : i64}
// CHECK-COUNT-9: memref.dealloc
//       CHECK:   return
func.func @alone(%q: memref<1x1x8x4xf32>, %o: memref<1x1x8x4xf32>) {
  attn.stream query(%q : memref<1x1x8x4xf32>)
      source(%q, %q : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x8x4xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 1, keys = 4, columns = 4>}
  return
}

// In a parallel loop the same memory becomes the scratch of the thread.

// CHECK-LABEL: func.func @parallel(
// CHECK-COUNT-9: memref.alloc() {alignment = 64 : i64}
// CHECK-COUNT-9: memref.dealloc
//       CHECK:   return
// OUTLINED-LABEL: func.func private @parallel_parallel_0(
//   OUTLINED-NOT:   memref.alloc
//   OUTLINED-NOT:   memref.dealloc
//       OUTLINED:   return
func.func @parallel(%q: memref<1x1x8x4xf32>, %o: memref<1x1x8x4xf32>) {
  scf.forall (%i) in (4) {
    attn.stream query(%q : memref<1x1x8x4xf32>)
        source(%q, %q : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        outs(%o : memref<1x1x8x4xf32>)
        {scale = 1.0 : f64, tiles = #attn.tiles<query = 8, key = 8, lanes = 8, vectors = 1, keys = 4, columns = 4>}
  }
  return
}
