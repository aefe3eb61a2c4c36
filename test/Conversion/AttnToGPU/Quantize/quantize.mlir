// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s
// Half norms, then 2 heads of 200 keys, 64 keys to a block of 4 warps. Of every
// score only the best and its code are kept.
// CHECK-LABEL: func.func @quantize
// CHECK: memref.alloc() : memref<2x100xf32>
// CHECK: scf.parallel
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c8,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c128,
// CHECK: scf.for {{.*}} -> (f32, f32, i32, i32)
// CHECK: nvvm.cp.async.wait.group 1
// CHECK: nvvm.mma.sync
// CHECK: arith.cmpf ogt
// CHECK: nvvm.shfl.sync
// CHECK: memref.store {{.*}} : memref<1x2x200xi32>
// CHECK: memref.dealloc
func.func @quantize(%k: memref<1x2x200x64xf16>, %c: memref<2x100x64xf16>, %z: memref<1x2x200xi32>) {
  attn.quantize ins(%k, %c : memref<1x2x200x64xf16>, memref<2x100x64xf16>) outs(%z : memref<1x2x200xi32>)
  return
}

// -----

func.func @f64(%k: memref<1x1x8x4xf64>, %c: memref<1x3x4xf64>, %z: memref<1x1x8xi32>) {
  // expected-error@+1 {{'attn.quantize' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.quantize ins(%k, %c : memref<1x1x8x4xf64>, memref<1x3x4xf64>) outs(%z : memref<1x1x8xi32>)
  return
}

// -----

func.func @wide(%k: memref<1x1x8x300xf32>, %c: memref<1x3x300xf32>, %z: memref<1x1x8xi32>) {
  // expected-error@+1 {{'attn.quantize' op has heads of width 300, but GPU kernels take at most 256}}
  attn.quantize ins(%k, %c : memref<1x1x8x300xf32>, memref<1x3x300xf32>) outs(%z : memref<1x1x8xi32>)
  return
}

// -----

func.func @many(%k: memref<1x1x1073741824x4xf32>, %c: memref<1x3x4xf32>, %z: memref<1x1x1073741824xi32>) {
  // expected-error@+1 {{'attn.quantize' op has 1073741824 keys or codewords, but GPU kernels take fewer than 2^30}}
  attn.quantize ins(%k, %c : memref<1x1x1073741824x4xf32>, memref<1x3x4xf32>) outs(%z : memref<1x1x1073741824xi32>)
  return
}
