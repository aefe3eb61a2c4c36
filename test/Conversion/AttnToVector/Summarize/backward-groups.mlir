// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s

!x = memref<1x1x16x8xf32>
!w1 = memref<1x1x4x8xf32>
!w2 = memref<1x1x8x8xf32>
!g1 = memref<1x1x4x8xf32>
!g2 = memref<1x1x2x8xf32>

// Somebody reads the gradient between the levels: each has its own loop.
// CHECK-LABEL: func @read_between(
// CHECK: scf.forall
// CHECK: memref.load
// CHECK: scf.forall
// CHECK: return
func.func @read_between(%x: !x, %dx: !x) -> f32 {
  %c0 = arith.constant 0 : index
  %w1 = memref.alloc() : !w1
  %w2 = memref.alloc() : !w2
  %d1 = memref.alloc() : !w1
  %d2 = memref.alloc() : !w2
  %g1 = memref.alloc() : !g1
  %g2 = memref.alloc() : !g2
  attn.summarize_backward ins(%x : !x) weights(%w1 : !w1) gradient(%g1 : !g1) outs(%dx, %d1 : !x, !w1)
  %0 = memref.load %dx[%c0, %c0, %c0, %c0] : !x
  attn.summarize_backward ins(%x : !x) weights(%w2 : !w2) gradient(%g2 : !g2) outs(%dx, %d2 : !x, !w2)
  return %0 : f32
}

// Another input's gradients between them do not matter.
// CHECK-LABEL: func @other_between(
// CHECK-COUNT-2: scf.forall
// CHECK-NOT: scf.forall
// CHECK: return
func.func @other_between(%x: !x) {
  %y = memref.alloc() : !x
  %dx = memref.alloc() : !x
  %dy = memref.alloc() : !x
  %w1 = memref.alloc() : !w1
  %w2 = memref.alloc() : !w2
  %d1 = memref.alloc() : !w1
  %d2 = memref.alloc() : !w2
  %e1 = memref.alloc() : !w1
  %g1 = memref.alloc() : !g1
  %g2 = memref.alloc() : !g2
  attn.summarize_backward ins(%x : !x) weights(%w1 : !w1) gradient(%g1 : !g1) outs(%dx, %d1 : !x, !w1)
  attn.summarize_backward ins(%y : !x) weights(%w1 : !w1) gradient(%g1 : !g1) outs(%dy, %e1 : !x, !w1)
  attn.summarize_backward ins(%x : !x) weights(%w2 : !w2) gradient(%g2 : !g2) outs(%dx, %d2 : !x, !w2)
  return
}
