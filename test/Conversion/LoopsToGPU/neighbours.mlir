// RUN: fovea-opt %s --attn-loops-to-gpu --canonicalize --split-input-file | FileCheck %s

// Eight neighbours of 16 bits, of all loops at once: no place is divided, and
// nothing is left.
// CHECK-LABEL: func.func @tokens
// CHECK-COUNT-2: memref.collapse_shape {{.*}} {{\[\[}}0, 1, 2]] : memref<?x?x2048xbf16> into memref<?xbf16>
// CHECK: gpu.launch
// CHECK-NOT: arith.divui
// CHECK-NOT: arith.remui
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK-COUNT-8: math.exp
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// CHECK-NOT: scf.for
// CHECK-LABEL: func.func @rest
// CHECK: gpu.launch
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<?xf32>, vector<4xf32>
// CHECK: scf.for
// CHECK: math.exp
// CHECK: memref.store
func.func @tokens(%x: memref<?x?x2048xbf16>, %y: memref<?x?x2048xbf16>) {
  linalg.exp ins(%x : memref<?x?x2048xbf16>) outs(%y : memref<?x?x2048xbf16>)
  return
}
// Of memory that starts at a multiple of 16 bytes, the last ones go one by one.
func.func @rest(%n: index) {
  %x = memref.alloc(%n) : memref<?x33xf32>
  linalg.exp ins(%x : memref<?x33xf32>) outs(%x : memref<?x33xf32>)
  return
}

// -----

// As many as 16 bytes of the widest type have. What a row shares is loaded
// once; elements of a bit are not, for they fill no bytes.
// CHECK-LABEL: func.func @scaled
// CHECK: gpu.launch
// CHECK-DAG: vector.load {{.*}} {alignment = 8 : i64} : memref<48x96xbf16>, vector<4xbf16>
// CHECK-DAG: vector.load {{.*}} {alignment = 16 : i64} : memref<96xf32>, vector<4xf32>
// CHECK-DAG: memref.load {{.*}} : memref<48xf32>
// CHECK-COUNT-4: memref.load {{.*}} : memref<48x96xi1>
// CHECK-COUNT-4: arith.select
// CHECK: vector.store {{.*}} {alignment = 16 : i64} : memref<48x96xf32>, vector<4xf32>
// CHECK-NOT: memref.load
func.func @scaled(%x: memref<6x8x96xbf16>, %rows: memref<6x8xf32>, %columns: memref<96xf32>, %mask: memref<6x8x96xi1>,
                  %y: memref<6x8x96xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j)>,
                                   affine_map<(i, j, k) -> (k)>, affine_map<(i, j, k) -> (i, j, k)>,
                                   affine_map<(i, j, k) -> (i, j, k)>],
                  iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %rows, %columns, %mask : memref<6x8x96xbf16>, memref<6x8xf32>, memref<96xf32>, memref<6x8x96xi1>)
      outs(%y : memref<6x8x96xf32>) {
  ^bb0(%a: bf16, %row: f32, %column: f32, %kept: i1, %old: f32):
    %wide = arith.extf %a : bf16 to f32
    %scaled = arith.mulf %wide, %row : f32
    %r = arith.select %kept, %scaled, %column : f32
    linalg.yield %r : f32
  }
  return
}

// -----

// Nothing is known of where rows of an odd length, or of views from anywhere,
// start; columns of another order have no neighbours.
// CHECK-LABEL: func.func @odd
// CHECK-NOT: vector.load
// CHECK-LABEL: func.func @anywhere
// CHECK-NOT: vector.load
// CHECK-LABEL: func.func @turned
// CHECK-NOT: vector.load
// CHECK: return
func.func @odd(%x: memref<8x33xf32>, %y: memref<8x33xf32>) {
  linalg.exp ins(%x : memref<8x33xf32>) outs(%y : memref<8x33xf32>)
  return
}
func.func @anywhere(%x: memref<8x64xf32>, %at: index, %y: memref<8x32xf32>) {
  %view = memref.subview %x[0, %at] [8, 32] [1, 1] : memref<8x64xf32> to memref<8x32xf32, strided<[64, 1], offset: ?>>
  linalg.exp ins(%view : memref<8x32xf32, strided<[64, 1], offset: ?>>) outs(%y : memref<8x32xf32>)
  return
}
func.func @turned(%x: memref<32x8xf32>, %y: memref<8x32xf32>) {
  linalg.transpose ins(%x : memref<32x8xf32>) outs(%y : memref<8x32xf32>) permutation = [1, 0]
  return
}

// -----

// Half of the columns of each row: rows have gaps, so loops are two.
// CHECK-LABEL: func.func @half
// CHECK-NOT: memref.collapse_shape
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<8x32xf32, strided<[64, 1], offset: 32>>, vector<4xf32>
func.func @half(%x: memref<8x64xf32>, %y: memref<8x32xf32>) {
  %view = memref.subview %x[0, 32] [8, 32] [1, 1] : memref<8x64xf32> to memref<8x32xf32, strided<[64, 1], offset: 32>>
  linalg.exp ins(%view : memref<8x32xf32, strided<[64, 1], offset: 32>>) outs(%y : memref<8x32xf32>)
  return
}

// -----

// A warp sums a row, 8 neighbours for a lane at a time; one lane adds the sum to
// what is there. Without this kernel a thread reads a row, 2 bytes at a time.
// CHECK-LABEL: func.func @squares
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c6,
// CHECK: %[[SUM:.*]] = scf.for {{.*}} to %c512 step %c256 iter_args
// CHECK: vector.load {{.*}} {alignment = 16 : i64} : memref<48x512xbf16>, vector<8xbf16>
// CHECK-COUNT-8: arith.addf
// CHECK: nvvm.shfl.sync bfly {{.*}}, %[[SUM]], %c16_i32
// CHECK-COUNT-4: nvvm.shfl.sync bfly
// CHECK: scf.if
// CHECK: %[[OLD:.*]] = memref.load {{.*}} : memref<48xf32>
// CHECK: arith.addf %[[OLD]]
// CHECK: memref.store
func.func @squares(%x: memref<6x8x512xbf16>, %sums: memref<6x8xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j)>],
                  iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : memref<6x8x512xbf16>) outs(%sums : memref<6x8xf32>) {
  ^bb0(%v: bf16, %sum: f32):
    %wide = arith.extf %v : bf16 to f32
    %square = arith.mulf %wide, %wide : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  }
  return
}

// -----

// Rows of 64 have 8 lanes each: 32 rows to a block. All lanes of the last warp
// take part in shuffles, whether they have a row or not.
// CHECK-LABEL: func.func @heads
// CHECK: gpu.launch blocks({{.*}}) in (%{{.*}} = %c4,
// CHECK: arith.minsi {{.*}}, %c99
// CHECK-COUNT-3: nvvm.shfl.sync bfly
// CHECK-NOT: nvvm.shfl.sync
// CHECK: arith.cmpi slt, %{{.*}}, %c100
// CHECK: return
func.func @heads(%x: memref<100x64xbf16>, %most: memref<100xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, k) -> (i, k)>, affine_map<(i, k) -> (i)>],
                  iterator_types = ["parallel", "reduction"]}
      ins(%x : memref<100x64xbf16>) outs(%most : memref<100xf32>) {
  ^bb0(%v: bf16, %old: f32):
    %wide = arith.extf %v : bf16 to f32
    %next = arith.maximumf %old, %wide : f32
    linalg.yield %next : f32
  }
  return
}

// -----

// Sums down columns have a thread for each column, whose neighbours read beside
// it; so have the rows of a kernel's iteration.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: nvvm.shfl
// CHECK-LABEL: func.func @inside
// CHECK-NOT: nvvm.shfl
// CHECK: return
func.func @columns(%x: memref<64x64xf32>, %sums: memref<64xf32>) {
  linalg.reduce {arith.addf} ins(%x : memref<64x64xf32>) outs(%sums : memref<64xf32>) dimensions = [0]
  return
}
func.func @inside(%x: memref<4x64x64xf32>, %sums: memref<4x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.parallel (%i) = (%c0) to (%c4) step (%c1) {
    %rows = memref.subview %x[%i, 0, 0] [1, 64, 64] [1, 1, 1] : memref<4x64x64xf32> to memref<64x64xf32, strided<[64, 1], offset: ?>>
    %sum = memref.subview %sums[%i, 0] [1, 64] [1, 1] : memref<4x64xf32> to memref<64xf32, strided<[1], offset: ?>>
    linalg.reduce {arith.addf} ins(%rows : memref<64x64xf32, strided<[64, 1], offset: ?>>)
        outs(%sum : memref<64xf32, strided<[1], offset: ?>>) dimensions = [1]
  }
  return
}
