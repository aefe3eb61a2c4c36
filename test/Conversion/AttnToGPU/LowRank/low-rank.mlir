// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s
// Turns of a position in units of 2^-64: 1 / (2 pi), and a hundredth of it. A
// warp for each head and row.
// CHECK: memref.global "private" constant @[[$TABLE:.*]] : memref<2xi64> = dense<[2935890503282001227, 29358905032820012]>
// CHECK-LABEL: func.func @rope
// CHECK: memref.get_global @[[$TABLE]]
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c16, {{.*}} threads({{.*}}) in (%{{.*}} = %c32
// CHECK: arith.extsi {{.*}} : i32 to i64
// CHECK: arith.muli {{.*}} : i64
// CHECK-NOT: f64
func.func @rope(%x: memref<1x2x8x4xf16>, %p: memref<1x1x8xi32>, %o: memref<1x2x8x4xf16>) {
  attn.rope ins(%x, %p : memref<1x2x8x4xf16>, memref<1x1x8xi32>) outs(%o : memref<1x2x8x4xf16>)
  return
}

// A warp for each row, which its lanes keep in shared memory.
// CHECK-LABEL: func.func @features
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8, {{.*}}) threads({{.*}}) in (%{{.*}} = %c32, {{.*}} dynamic_shared_memory_size %c16_i32
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.for %[[I:.*]] = %c0 to %c4 step %c1 iter_args
// CHECK: scf.for {{.*}} to %c4 step %c32
// CHECK: arith.divf
func.func @features(%x: memref<1x1x8x4xf32>, %o: memref<1x1x8x15xf32>) {
  attn.polynomial_features ins(%x : memref<1x1x8x4xf32>) outs(%o : memref<1x1x8x15xf32>) {degree = 2 : i64, scale = 1.0 : f64}
  return
}

// Sums of all chunks but the last of 64 rows, their scan, weights within
// chunks, rows, and the division, by a warp for each row.
// CHECK-LABEL: func.func @causal
// CHECK: memref.alloc() {{.*}} : memref<1x2x200x33xf32>
// CHECK: memref.alloc() {{.*}} : memref<1x1x4x16x33xf32>
// CHECK: memref.alloc() {{.*}} : memref<1x2x4x64x64xf32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c3,
// CHECK: nvvm.mma.sync
// CHECK: scf.parallel
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8,
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8,
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c400, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: arith.divf
// CHECK-COUNT-3: memref.dealloc
func.func @causal(%u1: memref<1x2x200x16xf32>, %u2: memref<1x1x200x16xf32>, %v: memref<1x1x200x32xf32>, %o: memref<1x2x200x32xf32>) {
  attn.low_rank ins(%u1, %u2, %v : memref<1x2x200x16xf32>, memref<1x1x200x16xf32>, memref<1x1x200x32xf32>)
      outs(%o : memref<1x2x200x32xf32>) {mask = #attn.row_mask<causal>}
  return
}

// Keys of every group by votes, their sums, and a warp for each row.
// CHECK-LABEL: func.func @groups
// CHECK: gpu.launch
// CHECK: nvvm.vote.sync
// CHECK: llvm.intr.ctpop
// CHECK: gpu.launch
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: arith.divf
func.func @groups(%u: memref<1x1x8x4xf32>, %g: memref<1x1x8xi32>, %r: memref<1x1x3x8xi1>, %o: memref<1x1x8x4xf32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
      mask(%g, %r : memref<1x1x8xi32>, memref<1x1x3x8xi1>)
      outs(%o : memref<1x1x8x4xf32>) {mask = #attn.row_mask<distinct_rows>}
  return
}

// Runs, the tree above them by a warp for each row of sums, and a warp for each
// row, whose lanes add up the weights of keys.
// CHECK-LABEL: func.func @intervals
// CHECK: gpu.launch
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: arith.addf
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c40, {{.*}} threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: nvvm.shfl.sync
// CHECK: arith.divf
func.func @intervals(%u: memref<1x1x40x4xf32>, %e: memref<1x1x40xi32>, %o: memref<1x1x40x4xf32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x40x4xf32>, memref<1x1x40x4xf32>, memref<1x1x40x4xf32>)
      mask(%e, %e : memref<1x1x40xi32>, memref<1x1x40xi32>)
      outs(%o : memref<1x1x40x4xf32>) {mask = #attn.row_mask<row_interval>}
  return
}

// A warp for each head and 31 columns of the values, with sums in f64, which
// are shuffled by halves.
// CHECK-LABEL: func.func @changes
// CHECK: %[[PLACES:.*]] = memref.alloc() {{.*}} : memref<1x1x8xi8>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c1, {{.*}}) threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: memref.load %[[PLACES]]
// CHECK-COUNT-20: nvvm.shfl.sync bfly {{.*}} : i32 -> i32
// CHECK: arith.cmpf ord
// CHECK: memref.store %{{.*}}, %[[PLACES]]
// CHECK: arith.mulf {{.*}} : f64
// CHECK: math.fma {{.*}} : f64
// CHECK: arith.divf {{.*}} : f64
// CHECK: arith.truncf {{.*}} : f64 to f32
func.func @changes(%u: memref<1x1x8x4xf32>, %e: memref<1x1x8xi32>, %o: memref<1x1x8x4xf32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x8x4xf32>, memref<1x1x8x4xf32>, memref<1x1x8x4xf32>)
      mask(%e, %e : memref<1x1x8xi32>, memref<1x1x8xi32>)
      outs(%o : memref<1x1x8x4xf32>) {mask = #attn.row_mask<row_change>}
  return
}

// Angles of the same table, turned back.
// CHECK-LABEL: func.func @rope_backward
// CHECK: memref.get_global @[[$TABLE]]
// CHECK: gpu.launch
// CHECK: arith.negf
func.func @rope_backward(%p: memref<1x1x8xi32>, %d: memref<1x2x8x4xf16>, %o: memref<1x2x8x4xf16>) {
  attn.rope_backward ins(%p : memref<1x1x8xi32>) gradient(%d : memref<1x2x8x4xf16>) outs(%o : memref<1x2x8x4xf16>)
  return
}

// A warp for each row; sums of columns are in shared memory.
// CHECK-LABEL: func.func @features_backward
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8, {{.*}}) threads({{.*}}) in (%{{.*}} = %c32, {{.*}} dynamic_shared_memory_size %c32_i32
// CHECK-COUNT-5: nvvm.shfl.sync bfly
func.func @features_backward(%x: memref<1x1x8x4xf32>, %d: memref<1x1x8x15xf32>, %o: memref<1x1x8x4xf32>) {
  attn.polynomial_features_backward ins(%x : memref<1x1x8x4xf32>) gradient(%d : memref<1x1x8x15xf32>)
      outs(%o : memref<1x1x8x4xf32>) {degree = 2 : i64, scale = 1.0 : f64}
  return
}

// Products of rows; the totals of rows; and three gradients, each of sums of
// chunks, their scan, weights within chunks, rows, and what becomes of them.
// CHECK-LABEL: func.func @causal_backward
// CHECK-COUNT-2: memref.alloc() {{.*}} : memref<1x2x200xf32>
// CHECK-COUNT-17: gpu.launch
// CHECK-NOT: gpu.launch
func.func @causal_backward(%u1: memref<1x2x200x16xf32>, %u2: memref<1x1x200x16xf32>, %v: memref<1x1x200x32xf32>, %o: memref<1x2x200x32xf32>,
                           %d: memref<1x2x200x32xf32>, %d1: memref<1x2x200x16xf32>, %d2: memref<1x1x200x16xf32>, %dv: memref<1x1x200x32xf32>) {
  attn.low_rank_backward ins(%u1, %u2, %v : memref<1x2x200x16xf32>, memref<1x1x200x16xf32>, memref<1x1x200x32xf32>)
      forward(%o : memref<1x2x200x32xf32>) gradient(%d : memref<1x2x200x32xf32>)
      outs(%d1, %d2, %dv : memref<1x2x200x16xf32>, memref<1x1x200x16xf32>, memref<1x1x200x32xf32>) {mask = #attn.row_mask<causal>}
  return
}

// -----

func.func @f64(%x: memref<1x2x8x4xf64>, %p: memref<1x1x8xi32>) {
  // expected-error@+1 {{'attn.rope' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.rope ins(%x, %p : memref<1x2x8x4xf64>, memref<1x1x8xi32>) outs(%x : memref<1x2x8x4xf64>)
  return
}
