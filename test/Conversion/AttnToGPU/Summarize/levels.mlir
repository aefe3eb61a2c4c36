// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file | FileCheck %s

// Levels whose intervals double share a kernel: 4 warps have a unit of 16 rows
// each, with the sums of all 3 levels, 2 of which meet in shared memory.
// CHECK-LABEL: func.func @summaries
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c128,
// CHECK-SAME: dynamic_shared_memory_size %c2048_i32
// CHECK: scf.for {{.*}} -> (f32, f32, f32, f32, f32, f32)
// CHECK-COUNT-6: math.fma
// CHECK: gpu.barrier
// CHECK-NOT: gpu.launch
// CHECK-NOT: scf.parallel
// CHECK: return
func.func @summaries(%x: memref<1x2x128x32xf16>, %w0: memref<1x2x16x32xf16>, %w1: memref<1x2x32x32xf16>, %w2: memref<1x2x64x32xf16>,
                     %o0: memref<1x2x16x32xf16>, %o1: memref<1x2x8x32xf16>, %o2: memref<1x2x4x32xf16>) {
  %a0 = memref.alloc() : memref<1x2x16x32xf16>
  %a1 = memref.alloc() : memref<1x2x8x32xf16>
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w0 : memref<1x2x16x32xf16>) outs(%a0 : memref<1x2x16x32xf16>)
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w1 : memref<1x2x32x32xf16>) outs(%a1 : memref<1x2x8x32xf16>)
  %a2 = memref.alloc() : memref<1x2x4x32xf16>
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w2 : memref<1x2x64x32xf16>) outs(%a2 : memref<1x2x4x32xf16>)
  return
}

// -----

// Intervals longer than the rows of a block are added up by another kernel.
// CHECK-LABEL: func.func @long
// CHECK: memref.alloc() {{.*}} : memref<1x1x3x1x32xf32>
// CHECK: gpu.launch
// CHECK: scf.parallel ({{.*}}) = ({{.*}}) to (%c2, %c32)
// CHECK: memref.dealloc
func.func @long(%x: memref<1x1x300x32xf16>, %w0: memref<1x1x16x32xf16>, %w1: memref<1x1x32x32xf16>, %w2: memref<1x1x64x32xf16>,
                %w3: memref<1x1x128x32xf16>, %w4: memref<1x1x256x32xf16>) -> memref<1x1x2x32xf16> {
  %a0 = memref.alloc() : memref<1x1x19x32xf16>
  %a1 = memref.alloc() : memref<1x1x10x32xf16>
  %a2 = memref.alloc() : memref<1x1x5x32xf16>
  %a3 = memref.alloc() : memref<1x1x3x32xf16>
  %a4 = memref.alloc() : memref<1x1x2x32xf16>
  attn.summarize ins(%x : memref<1x1x300x32xf16>) weights(%w0 : memref<1x1x16x32xf16>) outs(%a0 : memref<1x1x19x32xf16>)
  attn.summarize ins(%x : memref<1x1x300x32xf16>) weights(%w1 : memref<1x1x32x32xf16>) outs(%a1 : memref<1x1x10x32xf16>)
  attn.summarize ins(%x : memref<1x1x300x32xf16>) weights(%w2 : memref<1x1x64x32xf16>) outs(%a2 : memref<1x1x5x32xf16>)
  attn.summarize ins(%x : memref<1x1x300x32xf16>) weights(%w3 : memref<1x1x128x32xf16>) outs(%a3 : memref<1x1x3x32xf16>)
  attn.summarize ins(%x : memref<1x1x300x32xf16>) weights(%w4 : memref<1x1x256x32xf16>) outs(%a4 : memref<1x1x2x32xf16>)
  return %a4 : memref<1x1x2x32xf16>
}

// -----

// An operation between that reads sums keeps levels apart; so do few rows.
// CHECK-LABEL: func.func @apart
// CHECK-COUNT-3: gpu.launch
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @apart(%x: memref<1x2x128x32xf16>, %w0: memref<1x2x8x32xf16>, %w1: memref<1x2x16x32xf16>, %w2: memref<1x2x32x32xf16>) {
  %a0 = memref.alloc() : memref<1x2x32x32xf16>
  %a1 = memref.alloc() : memref<1x2x16x32xf16>
  %a2 = memref.alloc() : memref<1x2x8x32xf16>
  %c = memref.alloc() : memref<1x2x16x32xf16>
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w0 : memref<1x2x8x32xf16>) outs(%a0 : memref<1x2x32x32xf16>)
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w1 : memref<1x2x16x32xf16>) outs(%a1 : memref<1x2x16x32xf16>)
  memref.copy %a1, %c : memref<1x2x16x32xf16> to memref<1x2x16x32xf16>
  attn.summarize ins(%x : memref<1x2x128x32xf16>) weights(%w2 : memref<1x2x32x32xf16>) outs(%a2 : memref<1x2x8x32xf16>)
  return
}

// -----

#id = affine_map<(a, b, c, d) -> (a, b, c, d)>

// Gradients of the input have a kernel, which rounds them, and those of weights.
// CHECK-LABEL: func.func @gradients
// CHECK-SAME: %[[X:[^:]*]]: memref<1x2x128x32xf16>
// CHECK: %[[DX:.*]] = memref.alloc() : memref<1x2x128x32xf32>
// CHECK: %[[R:.*]] = memref.alloc() : memref<1x2x128x32xf16>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c16,
// CHECK: memref.load %[[DX]]
// CHECK-COUNT-4: math.fma
// CHECK: memref.store {{.*}}, %[[R]]
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8,
// CHECK: memref.load %[[X]]
// CHECK: gpu.barrier
// CHECK-NOT: linalg.generic
// CHECK: return %[[R]]
func.func @gradients(%x: memref<1x2x128x32xf16>, %w0: memref<1x2x16x32xf16>, %w1: memref<1x2x32x32xf16>,
                     %d0: memref<1x2x16x32xf32>, %d1: memref<1x2x8x32xf32>) -> (memref<1x2x128x32xf16>, memref<1x2x16x32xf32>, memref<1x2x32x32xf32>) {
  %f0 = memref.alloc() : memref<1x2x16x32xf32>
  %f1 = memref.alloc() : memref<1x2x32x32xf32>
  %dx = memref.alloc() : memref<1x2x128x32xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%dx : memref<1x2x128x32xf32>)
  attn.summarize_backward ins(%x : memref<1x2x128x32xf16>) weights(%w0 : memref<1x2x16x32xf16>) gradient(%d0 : memref<1x2x16x32xf32>)
      outs(%dx, %f0 : memref<1x2x128x32xf32>, memref<1x2x16x32xf32>)
  attn.summarize_backward ins(%x : memref<1x2x128x32xf16>) weights(%w1 : memref<1x2x32x32xf16>) gradient(%d1 : memref<1x2x8x32xf32>)
      outs(%dx, %f1 : memref<1x2x128x32xf32>, memref<1x2x32x32xf32>)
  %r = memref.alloc() : memref<1x2x128x32xf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%dx : memref<1x2x128x32xf32>) outs(%r : memref<1x2x128x32xf16>) {
  ^bb0(%in: f32, %out: f16):
    %1 = arith.truncf %in : f32 to f16
    linalg.yield %1 : f16
  }
  return %r, %f0, %f1 : memref<1x2x128x32xf16>, memref<1x2x16x32xf32>, memref<1x2x32x32xf32>
}

// -----

#id = affine_map<(a, b, c, d) -> (a, b, c, d)>

// What else reads the sums keeps the rounding behind them.
// CHECK-LABEL: func.func @also_read
// CHECK: scf.parallel
// CHECK: linalg.generic
func.func @also_read(%x: memref<1x2x128x32xf16>, %w: memref<1x2x16x32xf16>, %d: memref<1x2x16x32xf32>, %f: memref<1x2x16x32xf32>)
    -> (memref<1x2x128x32xf16>, memref<1x2x128x32xf32>) {
  %dx = memref.alloc() : memref<1x2x128x32xf32>
  %zero = arith.constant 0.0 : f32
  linalg.fill ins(%zero : f32) outs(%dx : memref<1x2x128x32xf32>)
  attn.summarize_backward ins(%x : memref<1x2x128x32xf16>) weights(%w : memref<1x2x16x32xf16>) gradient(%d : memref<1x2x16x32xf32>)
      outs(%dx, %f : memref<1x2x128x32xf32>, memref<1x2x16x32xf32>)
  %r = memref.alloc() : memref<1x2x128x32xf16>
  linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%dx : memref<1x2x128x32xf32>) outs(%r : memref<1x2x128x32xf16>) {
  ^bb0(%in: f32, %out: f16):
    %1 = arith.truncf %in : f32 to f16
    linalg.yield %1 : f16
  }
  return %r, %dx : memref<1x2x128x32xf16>, memref<1x2x128x32xf32>
}
