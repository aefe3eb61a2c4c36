// RUN: fovea-opt %s --convert-attn-to-gpu --canonicalize --cse | FileCheck %s

// The order of blocks: sections of heads, in each the last blocks of queries of
// all heads first.

// 32 MiB of keys and values are those of half of the heads.
// CHECK-LABEL: func.func @causal
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-DAG: %[[IN:.+]] = arith.remui %[[BLOCK]], %c4096
// CHECK-DAG: %[[NUMBER:.+]] = arith.divui %[[BLOCK]], %c4096
// CHECK: %[[FIRST:.+]] = arith.muli %[[NUMBER]], %c32
// CHECK: %[[HEAD:.+]] = arith.remui %[[IN]], %c32
// CHECK: arith.addi %[[FIRST]], %[[HEAD]]
// CHECK: arith.divui %[[IN]], %c32
func.func @causal(%q: memref<1x64x16384x128xbf16>, %k: memref<1x8x16384x128xbf16>, %o: memref<1x64x16384x128xbf16>) {
  %n = arith.constant 16384 : index
  scf.forall (%h, %first) = (0, 0) to (64, 16384) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 8)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[134217728, 2097152, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 16384, 128] [1, 1, 1, 1] : memref<1x8x16384x128xbf16> to memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x16384x128xbf16> to memref<1x1x128x128xbf16, strided<[134217728, 2097152, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[134217728, 2097152, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>, memref<1x1x16384x128xbf16, strided<[16777216, 2097152, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[134217728, 2097152, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// Those of one head of keys are more: the heads that share it.
// CHECK-LABEL: func.func @long
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-DAG: %[[IN:.+]] = arith.remui %[[BLOCK]], %c8192
// CHECK-DAG: %[[NUMBER:.+]] = arith.divui %[[BLOCK]], %c8192
// CHECK: %[[FIRST:.+]] = arith.muli %[[NUMBER]], %c8
// CHECK: %[[HEAD:.+]] = arith.remui %[[IN]], %c8
// CHECK: arith.addi %[[FIRST]], %[[HEAD]]
// CHECK: arith.divui %[[IN]], %c8
func.func @long(%q: memref<1x64x131072x128xbf16>, %k: memref<1x8x131072x128xbf16>, %o: memref<1x64x131072x128xbf16>) {
  %n = arith.constant 131072 : index
  scf.forall (%h, %first) = (0, 0) to (64, 131072) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 8)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x131072x128xbf16> to memref<1x1x128x128xbf16, strided<[1073741824, 16777216, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 131072, 128] [1, 1, 1, 1] : memref<1x8x131072x128xbf16> to memref<1x1x131072x128xbf16, strided<[134217728, 16777216, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x131072x128xbf16> to memref<1x1x128x128xbf16, strided<[1073741824, 16777216, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[1073741824, 16777216, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x131072x128xbf16, strided<[134217728, 16777216, 128, 1], offset: ?>>, memref<1x1x131072x128xbf16, strided<[134217728, 16777216, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[1073741824, 16777216, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// Of 10 heads of keys, 8 are 32 MiB: the last section has fewer.
// CHECK-LABEL: func.func @ragged
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK: arith.divui %[[BLOCK]], %c1024
// CHECK: arith.minsi {{.*}}, %c16
func.func @ragged(%q: memref<1x20x8192x128xbf16>, %k: memref<1x10x8192x128xbf16>, %o: memref<1x20x8192x128xbf16>) {
  %n = arith.constant 8192 : index
  scf.forall (%h, %first) = (0, 0) to (20, 8192) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 2)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x20x8192x128xbf16> to memref<1x1x128x128xbf16, strided<[20971520, 1048576, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 8192, 128] [1, 1, 1, 1] : memref<1x10x8192x128xbf16> to memref<1x1x8192x128xbf16, strided<[10485760, 1048576, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x20x8192x128xbf16> to memref<1x1x128x128xbf16, strided<[20971520, 1048576, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[20971520, 1048576, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x8192x128xbf16, strided<[10485760, 1048576, 128, 1], offset: ?>>, memref<1x1x8192x128xbf16, strided<[10485760, 1048576, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[20971520, 1048576, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// Without a mask all blocks are equal, as they are in a window.
// CHECK-LABEL: func.func @full
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-DAG: %[[IN:.+]] = arith.remui %[[BLOCK]], %c64
// CHECK-DAG: %[[NUMBER:.+]] = arith.divui %[[BLOCK]], %c64
// CHECK: %[[FIRST:.+]] = arith.muli %[[NUMBER]], %c8
// CHECK: %[[HEAD:.+]] = arith.remui %[[IN]], %c8
// CHECK: arith.addi %[[FIRST]], %[[HEAD]]
// CHECK: arith.divui %[[IN]], %c8
func.func @full(%q: memref<1x64x1024x128xbf16>, %k: memref<1x8x1024x128xbf16>, %o: memref<1x64x1024x128xbf16>) {
  %n = arith.constant 1024 : index
  scf.forall (%h, %first) = (0, 0) to (64, 1024) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 8)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 1024, 128] [1, 1, 1, 1] : memref<1x8x1024x128xbf16> to memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>, memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// CHECK-LABEL: func.func @window
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-DAG: %[[IN:.+]] = arith.remui %[[BLOCK]], %c64
// CHECK-DAG: %[[NUMBER:.+]] = arith.divui %[[BLOCK]], %c64
// CHECK: %[[FIRST:.+]] = arith.muli %[[NUMBER]], %c8
// CHECK: %[[HEAD:.+]] = arith.remui %[[IN]], %c8
// CHECK: arith.addi %[[FIRST]], %[[HEAD]]
// CHECK: arith.divui %[[IN]], %c8
func.func @window(%q: memref<1x64x1024x128xbf16>, %k: memref<1x8x1024x128xbf16>, %o: memref<1x64x1024x128xbf16>) {
  %n = arith.constant 1024 : index
  scf.forall (%h, %first) = (0, 0) to (64, 1024) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 8)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 1024, 128] [1, 1, 1, 1] : memref<1x8x1024x128xbf16> to memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x64x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>, memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 256>
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[8388608, 131072, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// Heads with keys of their own go one after the other.
// CHECK-LABEL: func.func @own
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-NEXT: %[[OF_HEAD:.+]] = arith.remui %[[BLOCK]], %c8
// CHECK-NEXT: arith.divui %[[BLOCK]], %c8
// CHECK-NEXT: arith.subi %c7, %[[OF_HEAD]]
func.func @own(%q: memref<1x8x1024x128xbf16>, %k: memref<1x8x1024x128xbf16>, %o: memref<1x8x1024x128xbf16>) {
  %n = arith.constant 1024 : index
  scf.forall (%h, %first) = (0, 0) to (8, 1024) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 1)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 1024, 128] [1, 1, 1, 1] : memref<1x8x1024x128xbf16> to memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 128] [1, 1, 1, 1] : memref<1x8x1024x128xbf16> to memref<1x1x128x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>, memref<1x1x1024x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
        tile(%first of %n) outs(%out : memref<1x1x128x128xbf16, strided<[1048576, 131072, 128, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}

// So do wide ones, whose registers do not suffice for numbers of sections.
// CHECK-LABEL: func.func @wide
// CHECK: gpu.launch blocks(%[[BLOCK:[a-z0-9_]+]],
// CHECK-NEXT: %[[OF_HEAD:.+]] = arith.remui %[[BLOCK]], %c128
// CHECK-NEXT: arith.divui %[[BLOCK]], %c128
// CHECK-NEXT: arith.subi %c127, %[[OF_HEAD]]
func.func @wide(%q: memref<1x64x16384x256xbf16>, %k: memref<1x8x16384x256xbf16>, %o: memref<1x64x16384x256xbf16>) {
  %n = arith.constant 16384 : index
  scf.forall (%h, %first) = (0, 0) to (64, 16384) step (1, 128) {
    %g = affine.apply affine_map<(h) -> (h floordiv 8)>(%h)
    %tile = memref.subview %q[0, %h, %first, 0] [1, 1, 128, 256] [1, 1, 1, 1] : memref<1x64x16384x256xbf16> to memref<1x1x128x256xbf16, strided<[268435456, 4194304, 256, 1], offset: ?>>
    %keys = memref.subview %k[0, %g, 0, 0] [1, 1, 16384, 256] [1, 1, 1, 1] : memref<1x8x16384x256xbf16> to memref<1x1x16384x256xbf16, strided<[33554432, 4194304, 256, 1], offset: ?>>
    %out = memref.subview %o[0, %h, %first, 0] [1, 1, 128, 256] [1, 1, 1, 1] : memref<1x64x16384x256xbf16> to memref<1x1x128x256xbf16, strided<[268435456, 4194304, 256, 1], offset: ?>>
    attn.stream query(%tile : memref<1x1x128x256xbf16, strided<[268435456, 4194304, 256, 1], offset: ?>>)
        source(%keys, %keys : memref<1x1x16384x256xbf16, strided<[33554432, 4194304, 256, 1], offset: ?>>, memref<1x1x16384x256xbf16, strided<[33554432, 4194304, 256, 1], offset: ?>>) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        tile(%first of %n) outs(%out : memref<1x1x128x256xbf16, strided<[268435456, 4194304, 256, 1], offset: ?>>)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 128, key = 80, lanes = 64, vectors = 2, keys = 8, columns = 8>}
  }
  return
}
