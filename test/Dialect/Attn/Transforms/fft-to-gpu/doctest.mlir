// RUN: fovea-opt %s --attn-fft-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s

#form = #attn.spectrum<lanes = 16, radices = [8, 4]>

// Columns to lines of 32 complex numbers, their transforms, and rows of the
// spectrum, whose number p has frequency p / 4 + 8 (p % 4).
// CHECK-LABEL: func.func @forward
// CHECK: %[[LINES:.*]] = memref.alloc() {{.*}} : memref<2x32x32x2xf32>
// CHECK: scf.parallel
// CHECK: llvm.call @fovea_rt_gpu_transform({{.*}}) : (!llvm.ptr, i64, i64, i32) -> ()
// CHECK: scf.parallel
// CHECK: arith.divui {{.*}}, %c4
// CHECK: memref.dealloc %[[LINES]]
func.func @forward(%x: memref<2x20x48xf16>, %s: memref<2x32x64xf32>) {
  attn.fft_forward ins(%x : memref<2x20x48xf16>) outs(%s : memref<2x32x64xf32>) {form = #form}
  return
}

// CHECK-LABEL: func.func @inverse
// CHECK: scf.parallel
// CHECK: llvm.call @fovea_rt_gpu_transform
// CHECK: scf.parallel
// CHECK: arith.mulf {{.*}}, %cst
func.func @inverse(%s: memref<2x32x64xf32>, %y: memref<2x16x48xf32>) {
  attn.fft_inverse ins(%s : memref<2x32x64xf32>) outs(%y : memref<2x16x48xf32>) {form = #form, first = 16 : i64}
  return
}

// CHECK-LABEL: func.func @products
// CHECK: scf.parallel
// CHECK: scf.parallel
// CHECK: arith.addf
func.func @products(%s: memref<2x32x64xf32>, %k: memref<1x32x32xf32>, %t: memref<2x32x64xf32>) {
  attn.fft_multiply ins(%s, %k : memref<2x32x64xf32>, memref<1x32x32xf32>) outs(%t : memref<2x32x64xf32>) {form = #form}
  attn.fft_accumulate ins(%s, %k : memref<2x32x64xf32>, memref<1x32x32xf32>) outs(%t : memref<2x32x64xf32>) {form = #form}
  return
}

// -----

func.func @f64(%x: memref<2x20x48xf64>, %s: memref<2x32x64xf64>) {
  // expected-error@+1 {{'attn.fft_forward' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.fft_forward ins(%x : memref<2x20x48xf64>) outs(%s : memref<2x32x64xf64>) {form = #attn.spectrum<lanes = 16, radices = [8, 4]>}
  return
}
