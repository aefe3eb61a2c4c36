// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize | FileCheck %s

// 2 heads, 8 intervals, one part of 32 columns; 8 warps share an interval.
// CHECK-LABEL: func.func @summarize
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c16,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c256,
// CHECK-SAME: dynamic_shared_memory_size %c4096_i32
// CHECK: scf.for {{.*}} -> (f32, f32, f32, f32)
// CHECK-COUNT-4: math.fma
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK-COUNT-8: memref.load {{.*}} : memref<8x4x32xf32, #gpu.address_space<workgroup>>
// CHECK: arith.truncf
// CHECK: memref.store
// CHECK-NOT: attn.summarize
func.func @summarize(%x: memref<1x2x512x32xf16>, %w: memref<1x4x64x32xf16>, %o: memref<1x2x32x32xf16>) {
  attn.summarize ins(%x : memref<1x2x512x32xf16>) weights(%w : memref<1x4x64x32xf16>) outs(%o : memref<1x2x32x32xf16>)
  return
}
