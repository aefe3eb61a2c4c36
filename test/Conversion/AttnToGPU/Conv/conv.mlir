// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --split-input-file --verify-diagnostics | FileCheck %s
// Segments; the greatest score in two steps; profiles; sums of 16 and 256
// weights; normalisers; marks and their list; the product; exact rows.
// CHECK-LABEL: func.func @toeplitz
// CHECK: math.exp2
// CHECK: memref.alloc() {{.*}} : memref<1x2x3x19xf64>
// CHECK: memref.alloc() {{.*}} : memref<1x2x3x2xf64>
// CHECK: arith.cmpf oge, {{.*}} : f64
// CHECK: nvvm.vote.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c10,
// CHECK: nvvm.mma.sync
// CHECK: nvvm.shfl.sync
// CHECK: nvvm.mma.sync
// CHECK: scf.parallel
// CHECK-NOT: scf.parallel
func.func @toeplitz(%b: memref<1x2x3x300xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x300x64xf16>,
                    %o: memref<1x2x300x64xf16>, %n: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x300xf32>, memref<1x2x3xi32>, memref<1x1x300x64xf16>)
      outs(%o, %n : memref<1x2x300x64xf16>, memref<1x2xi32>)
  return
}

// Slots of pieces, blocks of 64 tokens, two columns in a complex one; noise in
// f64, of sums that warps share: a number is two words; windows; rows are judged before the products of spectra.
// CHECK-LABEL: func.func @transforms
// CHECK: memref.alloc() {{.*}} : memref<1x2x18xi32>
// CHECK: gpu.launch
// CHECK-COUNT-10: nvvm.shfl.sync bfly
// CHECK: gpu.launch
// CHECK-COUNT-10: nvvm.shfl.sync bfly
// CHECK: math.sqrt {{.*}} : f64
// CHECK: memref.alloc() {{.*}} : memref<1x2x18x3x128x2xf32>
// CHECK: memref.alloc() {{.*}} : memref<1x2x3x16x128x2xf32>
// CHECK-COUNT-2: llvm.call @fovea_rt_gpu_transform({{.*}}, %c0_i32)
// CHECK: arith.cmpf ole, {{.*}} : f64
// CHECK: memref.alloc() {{.*}} : memref<1x2x16x3x128x2xf32>
// Eight blocks and all three pairs at once: two numbers of each, from a number
// of eight windows.
// CHECK: scf.parallel {{.*}} to (%c2, %c2, %c4, %c32)
// CHECK-COUNT-96: math.fma
// CHECK-COUNT-48: memref.store {{.*}} : memref<1x2x16x3x128x2xf32>
// CHECK: llvm.call @fovea_rt_gpu_transform({{.*}}, %c1_i32)
// CHECK: nvvm.mma.sync
func.func @transforms(%b: memref<1x2x3x1000xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x1000x5xf32>,
                      %o: memref<1x2x1000x5xf32>, %n: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x1000xf32>, memref<1x2x3xi32>, memref<1x1x1000x5xf32>)
      outs(%o, %n : memref<1x2x1000x5xf32>, memref<1x2xi32>) {algorithm = #attn.conv_algorithm<partitioned>}
  return
}

// Sequences of any length: transforms where there are any, for long ones.
// CHECK-LABEL: func.func @auto
// CHECK: arith.cmpi sgt, {{.*}}, %c4096
// CHECK: scf.if
// CHECK: llvm.call @fovea_rt_gpu_has_transforms() : () -> i32
// CHECK: scf.if
// CHECK-COUNT-3: llvm.call @fovea_rt_gpu_transform(
// CHECK: } else {
// CHECK-NOT: llvm.call @
// CHECK: return
func.func @auto(%b: memref<1x2x3x?xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x?x5xf32>,
                %o: memref<1x2x?x5xf32>, %n: memref<1x2xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x2x3x?xf32>, memref<1x2x3xi32>, memref<1x1x?x5xf32>)
      outs(%o, %n : memref<1x2x?x5xf32>, memref<1x2xi32>)
  return
}

// A warp for each head searches; scores of all bases are one product.
// CHECK-LABEL: func.func @recover
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: nvvm.shfl.sync
// CHECK: gpu.launch
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c16,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: arith.subf {{.*}} : f64
// CHECK-NOT: scf.parallel
func.func @recover(%q: memref<1x4x100x16xf32>, %k: memref<1x2x100x16xf32>, %b: memref<1x4x3x100xf32>,
                   %m: memref<1x4x3xi32>, %n: memref<1x4xi32>) {
  attn.conv_recover ins(%q, %k : memref<1x4x100x16xf32>, memref<1x2x100x16xf32>)
      outs(%b, %m, %n : memref<1x4x3x100xf32>, memref<1x4x3xi32>, memref<1x4xi32>)
      {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.01 : f64}
  return
}

// Listed rows get a normaliser of their own; gradients of values are a product,
// which heads that share them add up; those of profiles a block of threads for
// each of 5 distances of tiles, and two heads.
// CHECK-LABEL: func.func @gradient
// CHECK: nvvm.vote.sync
// CHECK: nvvm.shfl.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c10,
// CHECK: nvvm.mma.sync
// CHECK: scf.parallel
// Of the last kernel, 16 kB for factors and a tile of sums, whose rows are odd.
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c10,
// CHECK-SAME: dynamic_shared_memory_size %c33024_i32
// CHECK: nvvm.mma.sync
// CHECK: math.exp2
// CHECK: scf.parallel
// CHECK-NOT: scf.parallel
func.func @gradient(%b: memref<1x2x3x300xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x300x64xf16>,
                    %o: memref<1x2x300x64xf16>, %d: memref<1x2x300x64xf16>, %db: memref<1x2x3x300xf32>, %dv: memref<1x1x300x64xf16>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x300xf32>, memref<1x2x3xi32>, memref<1x1x300x64xf16>)
      forward(%o : memref<1x2x300x64xf16>) gradient(%d : memref<1x2x300x64xf16>) outs(%db, %dv : memref<1x2x3x300xf32>, memref<1x1x300x64xf16>)
  return
}

// Norms of ones; spectra of pieces, windows and rows, in which listed rows are
// zero; those of lags and values. Nothing goes through all pairs of tokens: the
// products of tiles have the depth of the list.
// CHECK-LABEL: func.func @gradient_transforms
// CHECK: memref.alloc() {{.*}} : memref<1x2x10x1xf64>
// CHECK-DAG: memref.alloc() {{.*}} : memref<1x2x10x3x256x2xf32>
// CHECK-DAG: memref.alloc() {{.*}} : memref<1x2x8x3x256x2xf32>
// CHECK-DAG: memref.alloc() {{.*}} : memref<1x2x3x8x256x2xf32>
// CHECK-DAG: memref.alloc() {{.*}} : memref<1x2x3x8x256x2xf32>
// CHECK: nvvm.vote.sync
// CHECK: memref.store {{.*}}, %[[COUNTS:.*]][{{.*}}] : memref<1x2xi32>
// CHECK-COUNT-3: llvm.call @fovea_rt_gpu_transform({{.*}}, %c0_i32)
// CHECK-COUNT-2: llvm.call @fovea_rt_gpu_transform({{.*}}, %c1_i32)
// CHECK: gpu.launch
// CHECK: nvvm.shfl.sync
// CHECK: gpu.launch
// CHECK: %[[COUNT:.*]] = memref.load %[[COUNTS]]
// CHECK-NEXT: %[[DEPTH:.*]] = arith.index_cast %[[COUNT]]
// CHECK-NEXT: scf.for {{.*}} to %[[DEPTH]] step
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch
// CHECK: %[[COUNT:.*]] = memref.load %[[COUNTS]]
// CHECK-NEXT: %[[DEPTH:.*]] = arith.index_cast %[[COUNT]]
// CHECK-NEXT: scf.for {{.*}} to %[[DEPTH]] step
// CHECK: nvvm.mma.sync
// CHECK-NOT: gpu.launch
// CHECK: return
func.func @gradient_transforms(%b: memref<1x2x3x1000xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x1000x5xf32>,
                               %o: memref<1x2x1000x5xf32>, %d: memref<1x2x1000x5xf32>, %db: memref<1x2x3x1000xf32>,
                               %dv: memref<1x1x1000x5xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x1000xf32>, memref<1x2x3xi32>, memref<1x1x1000x5xf32>)
      forward(%o : memref<1x2x1000x5xf32>) gradient(%d : memref<1x2x1000x5xf32>)
      outs(%db, %dv : memref<1x2x3x1000xf32>, memref<1x1x1000x5xf32>) {algorithm = #attn.conv_algorithm<partitioned>}
  return
}

// CHECK-LABEL: func.func @gradient_auto
// CHECK: arith.cmpi sgt, {{.*}}, %c4096
// CHECK: scf.if
// CHECK: llvm.call @fovea_rt_gpu_has_transforms() : () -> i32
// CHECK: scf.if
// CHECK-COUNT-5: llvm.call @fovea_rt_gpu_transform(
// CHECK: } else {
// CHECK-NOT: llvm.call @
// CHECK: return
func.func @gradient_auto(%b: memref<1x2x3x?xf32>, %m: memref<1x2x3xi32>, %v: memref<1x1x?x5xf32>, %o: memref<1x2x?x5xf32>,
                         %d: memref<1x2x?x5xf32>, %db: memref<1x2x3x?xf32>, %dv: memref<1x1x?x5xf32>) {
  attn.conv_apply_backward ins(%b, %m, %v : memref<1x2x3x?xf32>, memref<1x2x3xi32>, memref<1x1x?x5xf32>)
      forward(%o : memref<1x2x?x5xf32>) gradient(%d : memref<1x2x?x5xf32>) outs(%db, %dv : memref<1x2x3x?xf32>, memref<1x1x?x5xf32>)
  return
}

// A warp for 32 rows; for a basis, whose sums the next launch adds up; for a key.
// CHECK-LABEL: func.func @recover_gradient
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c20,
// CHECK-SAME: threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: math.fma
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c6,
// CHECK: math.fma
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c300,
// CHECK: arith.addf
// CHECK-NOT: scf.parallel
func.func @recover_gradient(%q: memref<1x2x300x8xf32>, %k: memref<1x1x300x8xf32>, %m: memref<1x2x3xi32>, %d: memref<1x2x3x300xf32>,
                            %dq: memref<1x2x300x8xf32>, %dk: memref<1x1x300x8xf32>) {
  attn.conv_recover_backward ins(%q, %k, %m : memref<1x2x300x8xf32>, memref<1x1x300x8xf32>, memref<1x2x3xi32>)
      gradient(%d : memref<1x2x3x300xf32>) outs(%dq, %dk : memref<1x2x300x8xf32>, memref<1x1x300x8xf32>)
  return
}

// -----

func.func @f64(%b: memref<1x1x1x8xf64>, %m: memref<1x1x1xi32>, %v: memref<1x1x8x4xf64>, %n: memref<1x1xi32>) {
  // expected-error@+1 {{'attn.conv_apply' op has data of type 'f64', but GPU kernels take f16, bf16 and f32}}
  attn.conv_apply ins(%b, %m, %v : memref<1x1x1x8xf64>, memref<1x1x1xi32>, memref<1x1x8x4xf64>)
      outs(%v, %n : memref<1x1x8x4xf64>, memref<1x1xi32>)
  return
}
