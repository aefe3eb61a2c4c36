// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s
// RUN: fovea-opt %s --convert-attn-to-vector | FileCheck %s --check-prefix=MANAGED
// RUN: fovea-opt %s --convert-attn-to-vector=manage-cache=false | FileCheck %s --check-prefix=PLAIN

// MANAGED: memref.prefetch
// PLAIN-NOT: memref.prefetch
// PLAIN-NOT: nontemporal

// Zeros to what is added to; a progress word for every item of a chain; then a
// task for every block of queries. Scores and their gradients, those of the
// query, and, when it is the block's turn, those of the values and keys.
// CHECK: llvm.func @fovea_rt_end_turn(!llvm.ptr, i64, i64)
// CHECK: llvm.func @fovea_rt_wait_for_turn(!llvm.ptr, i64, i64, i64, i64)
// CHECK-LABEL: func @dense(
// CHECK-NOT: attn.stream
// CHECK: %[[PROGRESS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<2x16xi64>
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (2, 2)
// CHECK: vector.reduction <add>
// CHECK: vector.fma
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK: vector.fma
// The block behind has to be a tile further: its rows are asked for.
// CHECK: %[[NEXT:.*]] = arith.addi %[[END:.*]], %c64_{{.*}} : index
// CHECK: %[[TURN:.*]] = arith.index_cast %[[NEXT]] : index to i64
// CHECK: llvm.call @fovea_rt_wait_for_turn({{.*}}, %[[TURN]])
// CHECK: vector.fma
// CHECK: vector.fma
// CHECK: %[[ENDED:.*]] = arith.index_cast %[[END]] : index to i64
// CHECK: llvm.call @fovea_rt_end_turn({{.*}}, %[[ENDED]])
// CHECK: llvm.call @fovea_rt_end_turn(
// CHECK: memref.dealloc %[[PROGRESS]]
func.func @dense(%q: memref<1x2x128x16xf32>, %l: memref<1x2x128xf32>, %d: memref<1x2x128x16xf32>,
                 %dq: memref<1x2x128x16xf32>, %dk: memref<1x2x128x16xf32>, %dv: memref<1x2x128x16xf32>) {
  attn.stream_backward query(%q : memref<1x2x128x16xf32>)
      source(%q, %q : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%q, %l : memref<1x2x128x16xf32>, memref<1x2x128xf32>) gradient(%d : memref<1x2x128x16xf32>)
      outs(%dq, %dk, %dv : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>, memref<1x2x128x16xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Ranges that follow the queries, and few of them: a task is all of a key head,
// and nobody waits.
// CHECK-LABEL: func @blocks(
// CHECK-NOT: fovea_rt
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (2, 1)
// CHECK-NOT: fovea_rt
// CHECK: return
func.func @blocks(%q: memref<1x2x128x16xf32>, %l: memref<1x2x128xf32>, %d: memref<1x2x128x16xf32>,
                  %dq: memref<1x2x128x16xf32>, %dk: memref<1x2x128x16xf32>, %dv: memref<1x2x128x16xf32>) {
  attn.stream_backward query(%q : memref<1x2x128x16xf32>)
      source(%q, %q : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 64 - 64, b * 64 + 64)>] mask <causal>
      forward(%q, %l : memref<1x2x128x16xf32>, memref<1x2x128xf32>) gradient(%d : memref<1x2x128x16xf32>)
      outs(%dq, %dk, %dv : memref<1x2x128x16xf32>, memref<1x2x128x16xf32>, memref<1x2x128x16xf32>)
      {block = 64 : i64, scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// More of them: a task is a chunk of 256 queries. It sums gradients of summaries
// in a window of its own, waits for the chunk behind it before every block, and
// adds the window when that has ended.
// CHECK-LABEL: func @chunks(
// CHECK: %[[PROGRESS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x32xi64>
// CHECK: scf.forall (%{{.*}}, %{{.*}}) in (1, 4)
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<16x16xf32>
// CHECK: memref.alloc() {alignment = 64 : i64} : memref<16x16xf32>
// CHECK: scf.for
// CHECK: llvm.call @fovea_rt_end_turn(
// CHECK: llvm.call @fovea_rt_wait_for_turn(
// CHECK: vector.fma
// CHECK: llvm.call @fovea_rt_end_turn(
// CHECK: llvm.call @fovea_rt_wait_for_turn(
// CHECK: arith.addf
// CHECK: llvm.call @fovea_rt_end_turn(
// CHECK-NOT: fovea_rt
// CHECK: return
func.func @chunks(%q: memref<1x1x1024x16xf32>, %s: memref<1x1x64x16xf32>, %l: memref<1x1x1024xf32>,
                  %d: memref<1x1x1024x16xf32>, %dq: memref<1x1x1024x16xf32>,
                  %dk: memref<1x1x1024x16xf32>, %dv: memref<1x1x1024x16xf32>,
                  %dsk: memref<1x1x64x16xf32>, %dsv: memref<1x1x64x16xf32>) {
  attn.stream_backward query(%q : memref<1x1x1024x16xf32>)
      source(%q, %q : memref<1x1x1024x16xf32>, memref<1x1x1024x16xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 64 - 64, b * 64 + 64)>] mask <causal>
      source(%s, %s : memref<1x1x64x16xf32>, memref<1x1x64x16xf32>)
          ranges [affine_map<(b)[rows, n] -> ((b floordiv 2) * 8 - 8, b * 4 - 4)>]
      forward(%q, %l : memref<1x1x1024x16xf32>, memref<1x1x1024xf32>) gradient(%d : memref<1x1x1024x16xf32>)
      outs(%dq, %dk, %dsk, %dv, %dsv : memref<1x1x1024x16xf32>, memref<1x1x1024x16xf32>, memref<1x1x64x16xf32>, memref<1x1x1024x16xf32>, memref<1x1x64x16xf32>)
      {block = 64 : i64, scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
