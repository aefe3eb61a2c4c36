// RUN: fovea-opt %s --convert-attn-to-gpu | FileCheck %s
!rows = memref<2x4x100x64xf16>
!tile = memref<1x1x?x64xf16, strided<[25600, 6400, 64, 1], offset: ?>>
!keys = memref<1x1x100x64xf16, strided<[25600, 6400, 64, 1], offset: ?>>

// A block for each tile, in the reverse order of the tiles of a head.
// CHECK-LABEL: func.func @attend
// CHECK: gpu.launch blocks(%[[BLOCK:.*]], %{{.*}}, %{{.*}}) in
// CHECK-SAME: dynamic_shared_memory_size %c40960_i32
// CHECK: gpu.thread_id x
// CHECK: gpu.dynamic_shared_memory
// Queries, and the first tile of keys and values.
// CHECK-COUNT-8: nvgpu.device_async_copy {{.*}} {bypassL1}
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 0
// CHECK: gpu.barrier
// Queries stay in registers.
// CHECK-COUNT-4: nvgpu.ldmatrix
// CHECK: scf.for {{.*}} : i32
// The next tile is copied while this one is multiplied.
// CHECK: scf.if
// CHECK-COUNT-8: nvgpu.device_async_copy
// CHECK: nvvm.cp.async.commit.group
// CHECK: nvvm.cp.async.wait.group 1
// CHECK: gpu.barrier
// CHECK-COUNT-32: nvvm.mma.sync
// Masks only where a tile needs one.
// CHECK: scf.if
// CHECK: arith.cmpi ult
// CHECK: nvvm.shfl.sync
// CHECK: math.exp2
// CHECK: nvgpu.ldmatrix {{.*}} transpose = true
// CHECK-COUNT-32: nvvm.mma.sync
// CHECK: gpu.barrier
// CHECK: scf.yield
// CHECK: vector.store {{.*}} {alignment = 4 : i64} : {{.*}} vector<2xf16>
// CHECK-NOT: attn.stream
func.func @attend(%q: !rows, %k: !rows, %o: !rows) {
  %n = arith.constant 100 : index
  scf.forall (%b, %h, %first) = (0, 0, 0) to (2, 4, 100) step (1, 1, 64) {
    %size = affine.min affine_map<(d) -> (100 - d, 64)>(%first)
    %tile = memref.subview %q[%b, %h, %first, 0] [1, 1, %size, 64] [1, 1, 1, 1] : !rows to !tile
    %keys = memref.subview %k[%b, %h, 0, 0] [1, 1, 100, 64] [1, 1, 1, 1] : !rows to !keys
    %out = memref.subview %o[%b, %h, %first, 0] [1, 1, %size, 64] [1, 1, 1, 1] : !rows to !tile
    attn.stream query(%tile : !tile)
        source(%keys, %keys : !keys, !keys) ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
        tile(%first of %n) outs(%out : !tile)
        {scale = 0.125 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 8, columns = 8>}
  }
  return
}
