// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s --implicit-check-not=memref.alloc --implicit-check-not=memref.dealloc
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize -attn-outline-parallel | FileCheck %s --check-prefix=OUTLINED

// A single task is no parallel loop, and frees its working memory: rows, carried
// sums and weights.

//   CHECK-LABEL: func.func @one_task(
//     CHECK-NOT:   scf.forall
// CHECK-COUNT-3:   memref.alloc() {alignment = 64 : i64}
// CHECK-COUNT-3:   memref.dealloc
//         CHECK:   return
func.func @one_task(%x: memref<1x1x1024x16xf32>, %w: memref<1x4x256x16xf32>,
                    %o: memref<1x1x16x16xf32>) {
  attn.summarize ins(%x : memref<1x1x1024x16xf32>)
      weights(%w : memref<1x4x256x16xf32>) outs(%o : memref<1x1x16x16xf32>)
  return
}

// In a parallel loop the same memory becomes the scratch of the thread.

//   CHECK-LABEL: func.func @tasks(
//         CHECK:   scf.forall
// CHECK-COUNT-3:   memref.alloc() {alignment = 64 : i64}
// CHECK-COUNT-3:   memref.dealloc
//         CHECK:   return
// OUTLINED-LABEL: func.func private @tasks_parallel_0(
//   OUTLINED-NOT:   memref.alloc
//   OUTLINED-NOT:   memref.dealloc
//       OUTLINED:   return
func.func @tasks(%x: memref<1x64x1024x16xf32>, %w: memref<1x4x256x16xf32>,
                 %o: memref<1x64x16x16xf32>) {
  attn.summarize ins(%x : memref<1x64x1024x16xf32>)
      weights(%w : memref<1x4x256x16xf32>) outs(%o : memref<1x64x16x16xf32>)
  return
}
