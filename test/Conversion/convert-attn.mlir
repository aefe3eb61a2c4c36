// One pass for each target lowers all operations, or those that it is told.

// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s --check-prefix=ALL
// RUN: fovea-opt %s --convert-attn-to-vector=ops=attn.rope | FileCheck %s --check-prefix=ROPE
// RUN: fovea-opt %s --convert-attn-to-vector=ops=attn.log_count,attn.tree_build | FileCheck %s --check-prefix=COUNT
// RUN: fovea-opt %s --convert-attn-to-gpu | FileCheck %s --check-prefix=ALL
// RUN: fovea-opt %s --convert-attn-to-gpu=ops=attn.rope | FileCheck %s --check-prefix=ROPE
// RUN: fovea-opt %s --convert-attn-to-gpu=ops=attn.log_count,attn.tree_build | FileCheck %s --check-prefix=COUNT

// RUN: not fovea-opt %s --convert-attn-to-vector=ops=attn.rope,attn.dense 2>&1 | FileCheck %s --check-prefix=PATTERN
// RUN: not fovea-opt %s --convert-attn-to-gpu=ops=rope 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not fovea-opt %s --convert-attn-to-gpu=f32=half 2>&1 | FileCheck %s --check-prefix=MATH

// ALL-LABEL: func.func @rope(
// ALL-NOT: attn.
// ROPE-LABEL: func.func @rope(
// ROPE-NOT: attn.rope
// ROPE: attn.log_count
// COUNT-LABEL: func.func @rope(
// COUNT: attn.rope
// COUNT-NOT: attn.log_count

// PATTERN: error: ops: found 'attn.dense', needed an operation that this pass lowers
// MATH: for the --f32 option: Cannot find option named 'half'!
// UNKNOWN: error: ops: found 'rope', needed an operation that this pass lowers
func.func @rope(%x: memref<1x2x8x16xf32>, %p: memref<1x1x8xi32>, %y: memref<1x2x8x16xf32>, %n: memref<1x2x8xi32>, %w: memref<1x2x8xf32>) {
  attn.rope ins(%x, %p : memref<1x2x8x16xf32>, memref<1x1x8xi32>) outs(%y : memref<1x2x8x16xf32>)
  attn.log_count ins(%n : memref<1x2x8xi32>) outs(%w : memref<1x2x8xf32>)
  return
}
