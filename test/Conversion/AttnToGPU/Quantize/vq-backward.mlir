// RUN: fovea-opt %s --convert-attn-to-gpu=ops=attn.vq_backward --canonicalize --split-input-file --verify-diagnostics | FileCheck %s
// Means of older tokens; products of rows of four lanes each; 4 heads and 3 blocks of 2 tiles of
// queries; 2 key heads and as many tiles of tokens; 1 block that has older
// tokens, with 2 tiles of codewords; their sums, a team for each, and those of
// values.
// CHECK-LABEL: func.func @causal
// CHECK: attn.codebook_scan
// CHECK-SAME: reduction = #attn.reduction<associative>
// CHECK: memref.alloc() {{.*}} : memref<1x2x1x80x16xf32>
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c19,
// CHECK: vector.load {{.*}} : memref<1x4x300x16xf32>, vector<4xf32>
// CHECK-COUNT-2: nvvm.shfl.sync bfly
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c24,
// CHECK-COUNT-2: scf.for
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c12,
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK: nvvm.mma.sync
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c160, {{.*}}) threads({{.*}}) in (%{{.*}} = %c32,
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c600, {{.*}}) threads({{.*}}) in (%{{.*}} = %c32,
// CHECK-NOT: gpu.launch
// CHECK-NOT: attn.vq_backward
func.func @causal(%q: memref<1x4x300x8xf32>, %z: memref<1x2x300xi32>, %v: memref<1x2x300x16xf32>, %c: memref<1x80x8xf32>,
                  %o: memref<1x4x300x16xf32>, %l: memref<1x4x300xf32>, %d: memref<1x4x300x16xf32>,
                  %dq: memref<1x4x300x8xf32>, %dk: memref<1x2x300x8xf32>, %dv: memref<1x2x300x16xf32>) {
  attn.vq_backward ins(%q, %z, %v, %c : memref<1x4x300x8xf32>, memref<1x2x300xi32>, memref<1x2x300x16xf32>, memref<1x80x8xf32>)
      forward(%o, %l : memref<1x4x300x16xf32>, memref<1x4x300xf32>) gradient(%d : memref<1x4x300x16xf32>)
      outs(%dq, %dk, %dv : memref<1x4x300x8xf32>, memref<1x2x300x8xf32>, memref<1x2x300x16xf32>) {block = 128 : i64, causal}
  return
}

// -----

func.func @broad(%q: memref<1x1x4x1100xf32>, %z: memref<1x1x4xi32>, %c: memref<1x3x1100xf32>, %o: memref<1x1x4x1100xf32>, %l: memref<1x1x4xf32>,
                 %d: memref<1x1x4x1100xf32>, %dq: memref<1x1x4x1100xf32>, %dk: memref<1x1x4x1100xf32>, %dv: memref<1x1x4x1100xf32>) {
  // expected-error@+1 {{has heads of width 1100, but GPU kernels take at most 1024}}
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x4x1100xf32>, memref<1x1x4xi32>, memref<1x1x4x1100xf32>, memref<1x3x1100xf32>)
      forward(%o, %l : memref<1x1x4x1100xf32>, memref<1x1x4xf32>) gradient(%d : memref<1x1x4x1100xf32>)
      outs(%dq, %dk, %dv : memref<1x1x4x1100xf32>, memref<1x1x4x1100xf32>, memref<1x1x4x1100xf32>) {block = 2 : i64, causal}
  return
}
