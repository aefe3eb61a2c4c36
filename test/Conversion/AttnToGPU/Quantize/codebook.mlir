// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

// A warp for each of 16 codes, 8 to a block, of each of 2 heads; its 64 columns
// are 2 for each lane. 32 codes are looked at in one vote.
// CHECK-LABEL: func.func @accumulate
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c256,
// CHECK: nvvm.bar.warp.sync
// CHECK: scf.for {{.*}} step %c32 {{.*}} -> (f32, f32, i32)
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.while
// CHECK: llvm.intr.cttz
// CHECK-COUNT-2: math.fma
// CHECK-COUNT-2: memref.store {{.*}} : memref<1x2x16x64xf32>
// CHECK: memref.store {{.*}} : memref<1x2x16xi32>
func.func @accumulate(%z: memref<1x2x128xi32>, %v: memref<1x2x128x64xbf16>, %m: memref<1x2x16x64xf32>, %n: memref<1x2x16xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<1x2x128xi32>, memref<1x2x128x64xbf16>) outs(%m, %n : memref<1x2x16x64xf32>, memref<1x2x16xi32>)
  return
}

// Blocks on their own, then a thread for each number of the state.
// CHECK-LABEL: func.func @scan
// CHECK: gpu.launch
// CHECK: nvvm.vote.sync ballot
// CHECK: scf.parallel
// CHECK: scf.parallel
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @scan(%z: memref<1x2x64xi32>, %v: memref<1x2x64x8xf32>, %m: memref<1x2x4x8xf32>, %n: memref<1x2x4xi32>, %ms: memref<1x2x5x4x8xf32>, %ns: memref<1x2x5x4xi32>) {
  attn.codebook_scan ins(%z, %v, %m, %n : memref<1x2x64xi32>, memref<1x2x64x8xf32>, memref<1x2x4x8xf32>, memref<1x2x4xi32>)
      outs(%ms, %ns : memref<1x2x5x4x8xf32>, memref<1x2x5x4xi32>) {block = 16 : i64, reduction = #attn.reduction<associative>}
  return
}

// CHECK-LABEL: func.func @log_count
// CHECK: scf.parallel
// CHECK: arith.sitofp
func.func @log_count(%n: memref<1x2x4xi32>, %w: memref<1x2x4xf32>) {
  attn.log_count ins(%n : memref<1x2x4xi32>) outs(%w : memref<1x2x4xf32>)
  return
}

// -----

func.func @f64(%n: memref<4xi32>, %w: memref<4xf64>) {
  // expected-error@+1 {{'attn.log_count' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.log_count ins(%n : memref<4xi32>) outs(%w : memref<4xf64>)
  return
}
