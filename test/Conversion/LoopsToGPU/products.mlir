// RUN: fovea-opt %s --attn-products-to-runtime --canonicalize | FileCheck %s
// RUN: fovea-opt %s --attn-products-to-runtime=f32=tf32 --canonicalize | FileCheck %s --check-prefix=TF32

// Types are those of fovea_rt/gpu.h, kinds of axes: rows 1, columns 2, depth 3.
// CHECK-LABEL: func.func @matmul
//   CHECK-DAG: %[[F32:.*]] = arith.constant 7 : i32
//   CHECK-DAG: %[[ADD:.*]] = arith.constant 1 : i32
//   CHECK-DAG: %[[NONE:.*]] = llvm.mlir.zero : !llvm.ptr
//   CHECK-DAG: %[[AXES:.*]] = llvm.alloca {{.*}} x !llvm.array<18 x i64>
//   CHECK-NOT: linalg
//       CHECK: llvm.call @fovea_rt_gpu_multiply(%[[F32]], %[[F32]], %[[ADD]], %{{.*}}, %{{.*}}, %{{.*}}, %[[NONE]], %{{.*}}, %[[AXES]])
// TF32-LABEL: func.func @matmul
//       TF32: %[[FLAGS:.*]] = arith.constant 3 : i32
//       TF32: llvm.call @fovea_rt_gpu_multiply(%{{.*}}, %{{.*}}, %[[FLAGS]],
func.func @matmul(%a: memref<4x8xf32>, %b: memref<8x16xf32>, %c: memref<4x16xf32>) {
  linalg.matmul ins(%a, %b : memref<4x8xf32>, memref<8x16xf32>) outs(%c : memref<4x16xf32>)
  return
}

// Zeros, and a bias with a rounding, are parts of the call.
// CHECK-LABEL: func.func @layer
//   CHECK-DAG: %[[BF16:.*]] = arith.constant 9 : i32
//   CHECK-DAG: %[[FLAGS:.*]] = arith.constant 0 : i32
//   CHECK-DAG: %[[RESULT:.*]] = memref.alloc() : memref<4x16xbf16>
//   CHECK-NOT: memref.alloc
//   CHECK-NOT: linalg
//       CHECK: llvm.call @fovea_rt_gpu_multiply(%[[BF16]], %[[BF16]], %[[FLAGS]],
//  CHECK-NEXT: return %[[RESULT]]
#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (j)>
func.func @layer(%a: memref<4x8xbf16>, %b: memref<8x16xbf16>, %bias: memref<16xbf16>) -> memref<4x16xbf16> {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : memref<4x16xf32>
  linalg.fill ins(%zero : f32) outs(%sums : memref<4x16xf32>)
  linalg.matmul ins(%a, %b : memref<4x8xbf16>, memref<8x16xbf16>) outs(%sums : memref<4x16xf32>)
  %r = memref.alloc() : memref<4x16xbf16>
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%sums, %bias : memref<4x16xf32>, memref<16xbf16>) outs(%r : memref<4x16xbf16>) {
  ^bb0(%s: f32, %t: bf16, %old: bf16):
    %wide = arith.extf %t : bf16 to f32
    %sum = arith.addf %s, %wide : f32
    %narrow = arith.truncf %sum : f32 to bf16
    linalg.yield %narrow : bf16
  }
  memref.dealloc %sums : memref<4x16xf32>
  return %r : memref<4x16xbf16>
}

// A bias that is added in place.
// CHECK-LABEL: func.func @in_place
//   CHECK-NOT: linalg
//       CHECK: llvm.call @fovea_rt_gpu_multiply
//   CHECK-NOT: linalg
func.func @in_place(%a: memref<4x8xf32>, %b: memref<8x16xf32>, %bias: memref<16xf32>) -> memref<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %sums = memref.alloc() : memref<4x16xf32>
  linalg.fill ins(%zero : f32) outs(%sums : memref<4x16xf32>)
  linalg.matmul ins(%a, %b : memref<4x8xf32>, memref<8x16xf32>) outs(%sums : memref<4x16xf32>)
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%sums, %bias : memref<4x16xf32>, memref<16xf32>) outs(%sums : memref<4x16xf32>) {
  ^bb0(%s: f32, %t: f32, %old: f32):
    %sum = arith.addf %t, %s : f32
    linalg.yield %sum : f32
  }
  return %sums : memref<4x16xf32>
}

// A bias by row, sums that are read twice, and a result in place of a factor
// are not parts of the call.
// CHECK-LABEL: func.func @apart
//       CHECK: llvm.call @fovea_rt_gpu_multiply
//       CHECK: linalg.generic
//       CHECK: llvm.call @fovea_rt_gpu_multiply
//       CHECK: linalg.generic
//       CHECK: llvm.call @fovea_rt_gpu_multiply
#column = affine_map<(i, j) -> (i)>
func.func @apart(%a: memref<8x8xf32>, %b: memref<8x8xf32>, %bias: memref<8xf32>) -> (memref<8x8xf32>, memref<8x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %x = memref.alloc() : memref<8x8xf32>
  linalg.fill ins(%zero : f32) outs(%x : memref<8x8xf32>)
  linalg.matmul ins(%a, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%x : memref<8x8xf32>)
  linalg.generic {indexing_maps = [#id, #column, #id], iterator_types = ["parallel", "parallel"]}
      ins(%x, %bias : memref<8x8xf32>, memref<8xf32>) outs(%x : memref<8x8xf32>) {
  ^bb0(%s: f32, %t: f32, %old: f32):
    %sum = arith.addf %t, %s : f32
    linalg.yield %sum : f32
  }
  %y = memref.alloc() : memref<8x8xf32>
  linalg.fill ins(%zero : f32) outs(%y : memref<8x8xf32>)
  linalg.matmul ins(%x, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%y : memref<8x8xf32>)
  linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%y, %bias : memref<8x8xf32>, memref<8xf32>) outs(%x : memref<8x8xf32>) {
  ^bb0(%s: f32, %t: f32, %old: f32):
    %sum = arith.addf %t, %s : f32
    linalg.yield %sum : f32
  }
  linalg.matmul ins(%x, %b : memref<8x8xf32>, memref<8x8xf32>) outs(%y : memref<8x8xf32>)
  return %x, %y : memref<8x8xf32>, memref<8x8xf32>
}

// Heads of tokens as they lie: a batch of two axes, both factors transposed.
// CHECK-LABEL: func.func @heads
//       CHECK: llvm.alloca {{.*}} x !llvm.array<30 x i64>
//       CHECK: llvm.call @fovea_rt_gpu_multiply
func.func @heads(%q: memref<?x?x4x64xf16>, %k: memref<?x?x4x64xf16>, %s: memref<?x4x?x?xf32>) {
  linalg.generic {indexing_maps = [affine_map<(b, h, n, m, d) -> (b, n, h, d)>, affine_map<(b, h, n, m, d) -> (b, m, h, d)>,
                                   affine_map<(b, h, n, m, d) -> (b, h, n, m)>],
                  iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : memref<?x?x4x64xf16>, memref<?x?x4x64xf16>) outs(%s : memref<?x4x?x?xf32>) {
  ^bb0(%a: f16, %b: f16, %old: f32):
    %x = arith.extf %a : f16 to f32
    %y = arith.extf %b : f16 to f32
    %p = arith.mulf %x, %y : f32
    %sum = arith.addf %old, %p : f32
    linalg.yield %sum : f32
  }
  return
}

// Not for the library: f64, mixed types, sums of everything, rows apart from
// each other, a depth of two axes in another order where sums are narrow, and
// kernels.
// CHECK-LABEL: func.func @loops
//   CHECK-NOT: llvm.call
//       CHECK: return
func.func @loops(%a: memref<4x8xf64>, %b: memref<8x16xf64>, %c: memref<4x16xf64>, %h: memref<4x8xf16>, %f: memref<8x16xf32>,
                 %g: memref<4x16xf32>, %v: memref<8xf32>, %n: memref<f32>, %x: memref<4x8xf32, strided<[16, 2]>>,
                 %v2: memref<16xf32>, %l: memref<4x2x3xbf16>, %r: memref<3x2x5xbf16>, %o: memref<4x5xbf16>) {
  linalg.matmul ins(%a, %b : memref<4x8xf64>, memref<8x16xf64>) outs(%c : memref<4x16xf64>)
  linalg.matmul ins(%h, %f : memref<4x8xf16>, memref<8x16xf32>) outs(%g : memref<4x16xf32>)
  linalg.dot ins(%v, %v : memref<8xf32>, memref<8xf32>) outs(%n : memref<f32>)
  linalg.matmul ins(%x, %f : memref<4x8xf32, strided<[16, 2]>>, memref<8x16xf32>) outs(%g : memref<4x16xf32>)
  linalg.generic {indexing_maps = [affine_map<(i, j, s, t) -> (i, s, t)>, affine_map<(i, j, s, t) -> (t, s, j)>,
                                   affine_map<(i, j, s, t) -> (i, j)>],
                  iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%l, %r : memref<4x2x3xbf16>, memref<3x2x5xbf16>) outs(%o : memref<4x5xbf16>) {
  ^bb0(%p: bf16, %q: bf16, %old: bf16):
    %m = arith.mulf %p, %q : bf16
    %sum = arith.addf %old, %m : bf16
    linalg.yield %sum : bf16
  }
  %c2 = arith.constant 2 : index
  scf.forall (%i) in (%c2) {
    linalg.matvec ins(%f, %v2 : memref<8x16xf32>, memref<16xf32>) outs(%v : memref<8xf32>)
  }
  return
}
