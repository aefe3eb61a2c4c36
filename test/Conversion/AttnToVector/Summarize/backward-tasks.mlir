// RUN: fovea-opt %s --attn-set-target=vector-bits=512 --convert-attn-to-vector=min-tasks=1 | FileCheck %s --check-prefixes=CHECK,ONE
// RUN: fovea-opt %s --attn-set-target=vector-bits=512 --convert-attn-to-vector=min-tasks=2 | FileCheck %s --check-prefixes=CHECK,TWO
// RUN: fovea-opt %s --attn-set-target=vector-bits=512 --convert-attn-to-vector=min-tasks=8 | FileCheck %s --check-prefixes=CHECK,EIGHT

// Tasks are sets of weights, parts of the finest interval and slices of the
// columns. Rows are divided last.

// CHECK-LABEL: func @four_chunks(
// ONE: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 1, 1)
// TWO: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 2, 1)
// EIGHT: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 8, 1)
// EIGHT: memref<2x4x2x128x16xf32>
func.func @four_chunks(%x: memref<1x2x256x64xf32>, %w: memref<1x4x64x64xf32>, %g: memref<1x2x16x64xf32>,
                       %dx: memref<1x2x256x64xf32>, %dw: memref<1x4x64x64xf32>) {
  attn.summarize_backward ins(%x : memref<1x2x256x64xf32>) weights(%w : memref<1x4x64x64xf32>) gradient(%g : memref<1x2x16x64xf32>)
      outs(%dx, %dw : memref<1x2x256x64xf32>, memref<1x4x64x64xf32>)
  return
}

// Shorter chunks, where an interval is one.
// CHECK-LABEL: func @one_chunk(
// ONE: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 1, 1)
// ONE: memref<2x4x4x128x16xf32>
// TWO: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 2, 1)
// TWO: memref<2x4x2x128x16xf32>
// EIGHT: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (1, 4, 2)
// EIGHT: memref<2x2x1x128x16xf32>
func.func @one_chunk(%x: memref<1x2x256x64xf32>, %w: memref<1x4x16x64xf32>, %g: memref<1x2x64x64xf32>,
                     %dx: memref<1x2x256x64xf32>, %dw: memref<1x4x16x64xf32>) {
  attn.summarize_backward ins(%x : memref<1x2x256x64xf32>) weights(%w : memref<1x4x16x64xf32>) gradient(%g : memref<1x2x64x64xf32>)
      outs(%dx, %dw : memref<1x2x256x64xf32>, memref<1x4x16x64xf32>)
  return
}

// Sets come first; wide rows are always divided, and biases belong to one part.
// CHECK-LABEL: func @sets_of_wide_rows(
// ONE: scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (2, 1, 2)
// TWO: scf.forall (%{{.*}}, %[[PART:.*]], %{{.*}}) in (2, 1, 2)
// EIGHT: scf.forall (%{{.*}}, %[[PART:.*]], %{{.*}}) in (2, 2, 2)
// EIGHT: %[[FIRST:.*]] = arith.cmpi eq, %[[PART]], %{{.*}}
// EIGHT: scf.if %[[FIRST]]
func.func @sets_of_wide_rows(%x: memref<1x2x256x512xf32>, %w: memref<2x4x64x512xf32>, %g: memref<1x2x16x512xf32>,
                             %dx: memref<1x2x256x512xf32>, %dw: memref<2x4x64x512xf32>, %db: memref<2x4x512xf32>) {
  attn.summarize_backward ins(%x : memref<1x2x256x512xf32>) weights(%w : memref<2x4x64x512xf32>) gradient(%g : memref<1x2x16x512xf32>)
      outs(%dx, %dw, %db : memref<1x2x256x512xf32>, memref<2x4x64x512xf32>, memref<2x4x512xf32>)
  return
}
