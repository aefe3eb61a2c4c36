// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --cse | FileCheck %s

// Blocks of threads that stay: as many as the device has multiprocessors, at
// most. Consumers and the producer have a loop of their own over blocks of
// queries, and number tiles on.
// CHECK-LABEL: func.func @near_and_far
// CHECK: %[[COUNT:.+]] = llvm.call @fovea_rt_gpu_multiprocessors() : () -> i64
// CHECK: %[[MOST:.+]] = arith.index_cast %[[COUNT]] : i64 to index
// CHECK: %[[BLOCKS:.+]] = arith.minsi %[[MOST]], %c1024
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]], {{.*}}) in (%[[GRID:[a-z0-9_]+]] = %[[BLOCKS]],
// CHECK: scf.if
// CHECK: scf.for %{{.+}} = %[[BLOCK]] to %c1024 step %[[GRID]] iter_args(%[[FIRST:.+]] = %c0_i32) -> (i32)
// A mask is words with a bit for each of a thread's 32 columns of a row: those
// from the first one on that is read, and not those behind.
// CHECK: %[[FROM:.+]] = arith.shli %c-1_i32
// CHECK: %[[FIRST:.+]] = arith.select %{{.+}}, %[[FROM]], %c0_i32
// CHECK: %[[BEHIND:.+]] = arith.shli %c-1_i32
// CHECK: %[[NEXT:.+]] = arith.select %{{.+}}, %[[BEHIND]], %c0_i32
// CHECK: %[[NOT:.+]] = arith.xori %[[NEXT]], %c-1_i32
// CHECK: %[[READ:.+]] = arith.andi %[[FIRST]], %[[NOT]]
// CHECK: %[[BIT:.+]] = arith.andi %[[READ]], %c1_i32
// CHECK: arith.cmpi eq, %[[BIT]], %c0_i32
// CHECK: arith.andi %[[READ]], %c2_i32
// CHECK-NOT: llvm.intr.fma{{.*}}vector<2xbf16>
// CHECK: } else {
// CHECK: scf.for %{{.+}} = %[[BLOCK]] to %c1024 step %[[GRID]] iter_args(%{{.+}} = %c0_i32) -> (i32)
// The producer multiplies values of a tile that a mask cuts by 0, two at once:
// only NaN and infinity give NaN.
// CHECK: llvm.intr.fma({{.*}}vector<2xbf16>
// CHECK-NOT: scf.for %{{.+}} = %[[BLOCK]]
func.func @near_and_far(%q: memref<1x8x16384x128xbf16>, %k: memref<1x8x16384x128xbf16>, %s: memref<1x8x500x128xbf16>, %o: memref<1x8x16384x128xbf16>) {
  %n = arith.constant 16384 : index
  scf.forall (%h, %first) = (0, 0) to (8, 16384) step (1, 128) {
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %h, 0, 0] [1, 1, 16384, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %far = memref.subview %s[0, %h, 0, 0] [1, 1, 500, 128] [1, 1, 1, 1] : memref<1x8x500x128xbf16> to memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>, memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
        source(%far, %far : memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>, memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        {block = 128 : i64, scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// A block of threads for each block of queries, whose single warpgroup of
// consumers would spill registers otherwise.
// CHECK-LABEL: func.func @of_one_warpgroup
// CHECK-NOT: fovea_rt_gpu_multiprocessors
// CHECK: gpu.launch
func.func @of_one_warpgroup(%q: memref<1x8x16384x128xbf16>, %k: memref<1x8x16384x128xbf16>, %s: memref<1x8x500x128xbf16>, %o: memref<1x8x16384x128xbf16>) {
  %n = arith.constant 16384 : index
  scf.forall (%h, %first) = (0, 0) to (8, 16384) step (1, 64) {
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 64, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x64x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %h, 0, 0] [1, 1, 16384, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %far = memref.subview %s[0, %h, 0, 0] [1, 1, 500, 128] [1, 1, 1, 1] : memref<1x8x500x128xbf16> to memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 64, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x64x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x64x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>, memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (b * 64 - 64, b * 64 + 64)>] mask <causal>
        source(%far, %far : memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>, memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, b)>]
        tile(%first of %n) outs(%out : memref<1x1x64x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        {block = 64 : i64, scale = 0.125 : f64, tiles = #attn.tiles<query = 64, key = 128, lanes = 64, vectors = 1, keys = 8, columns = 8>}
  }
  return
}

// One source has more tiles, most of which are not cut.
// CHECK-LABEL: func.func @of_one_source
// CHECK-NOT: fovea_rt_gpu_multiprocessors
// CHECK: gpu.launch
// CHECK-NOT: arith.shli %c-1_i32
// CHECK-NOT: llvm.intr.fma{{.*}}vector<2xbf16>
func.func @of_one_source(%q: memref<1x8x16384x128xbf16>, %k: memref<1x8x16384x128xbf16>, %s: memref<1x8x500x128xbf16>, %o: memref<1x8x16384x128xbf16>) {
  %n = arith.constant 16384 : index
  scf.forall (%h, %first) = (0, 0) to (8, 16384) step (1, 128) {
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %h, 0, 0] [1, 1, 16384, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %far = memref.subview %s[0, %h, 0, 0] [1, 1, 500, 128] [1, 1, 1, 1] : memref<1x8x500x128xbf16> to memref<1x1x500x128xbf16, strided<[512000, 64000, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>, memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (b * 128 - 128, b * 128 + 128)>] mask <causal>
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>)
        {block = 128 : i64, scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}
