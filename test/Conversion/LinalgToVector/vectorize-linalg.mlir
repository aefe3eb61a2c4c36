// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-vectorize-linalg --canonicalize --cse | FileCheck %s

// 384 rows in 4 chunks of 96, 1536 columns in 6 of 4 panels of 64. A panel of
// the right operand is packed once for 16 register tiles of 6 rows by 4 vectors,
// which ask for lines of the next one.

// CHECK-LABEL: func.func @matmul(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<384x384xf32>, %[[B:[a-z0-9]+]]: memref<384x1536xf32>, %[[C:[a-z0-9]+]]: memref<384x1536xf32>)
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (4, 6)
//       CHECK:     %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<96x256xf32>
//       CHECK:     vector.load %[[C]]
//       CHECK:     vector.store %{{.*}}, %[[SUMS]]
//       CHECK:     %[[PANEL:.*]] = memref.alloc() {alignment = 64 : i64} : memref<128x64xf32>
//       CHECK:     vector.load %[[B]]
//       CHECK:     vector.store %{{.*}}, %[[PANEL]]
//       CHECK:     %[[TILE:.*]]:24 = scf.for
//       CHECK:       memref.prefetch %[[B]]
// CHECK-COUNT-4:     vector.load %[[PANEL]]
//       CHECK:       memref.load %[[A]]
// CHECK-COUNT-4:     vector.fma
//       CHECK:     arith.addf %{{.*}}, %{{.*}} : vector<16xf32>
//       CHECK:     vector.store %{{.*}}, %[[C]]
//   CHECK-NOT:   linalg.matmul
func.func @matmul(%a: memref<384x384xf32>, %b: memref<384x1536xf32>, %c: memref<384x1536xf32>) {
  linalg.matmul ins(%a, %b : memref<384x384xf32>, memref<384x1536xf32>) outs(%c : memref<384x1536xf32>)
  return
}

// The right operand lies with its columns apart: packed by transposing. Narrow
// rows of the left one are converted once, sums are f32.

// CHECK-LABEL: func.func @transposed(
//       CHECK:   scf.forall (%{{.*}}) in (2)
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<36x128xf32>
//       CHECK:     arith.extf %{{.*}} : vector<16xbf16> to vector<16xf32>
//       CHECK:     vector.shuffle
//       CHECK:     vector.fma {{.*}} : vector<16xf32>
//       CHECK:     arith.truncf %{{.*}} : vector<16xf32> to vector<16xbf16>
//   CHECK-NOT:   linalg.contract
func.func @transposed(%a: memref<2x36x64xbf16>, %b: memref<2x64x64xbf16>, %c: memref<2x36x64xbf16>) {
  linalg.contract
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %b : memref<2x36x64xbf16>, memref<2x64x64xbf16>) outs(%c : memref<2x36x64xbf16>)
  return
}

// A single row of a product with transposed weights: eight dot products at once,
// of the weights where they are, in tasks of 32 columns.

// CHECK-LABEL: func.func @row(
// CHECK-SAME:    %[[A:[a-z0-9]+]]: memref<1x768xf32>, %[[W:[a-z0-9]+]]: memref<256x768xf32>
//       CHECK:   scf.forall (%{{.*}}) in (8)
//       CHECK:     %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<1x32xf32>
//   CHECK-NOT:     memref.alloc
//       CHECK:     scf.for {{.*}} -> (vector<16xf32>, {{.*}})
// CHECK-COUNT-8:     vector.load %[[W]]
//       CHECK:       vector.load %[[A]]
// CHECK-COUNT-8:     vector.fma
//   CHECK-NOT:     scf.for
//       CHECK:     vector.shuffle
//       CHECK:     vector.extract_strided_slice %{{.*}} {offsets = [0], sizes = [8], strides = [1]}
//       CHECK:     vector.store %{{.*}}, %[[SUMS]]{{.*}} vector<8xf32>
func.func @row(%a: memref<1x768xf32>, %w: memref<256x768xf32>, %c: memref<1x256xf32>) {
  linalg.contract
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %w : memref<1x768xf32>, memref<256x768xf32>) outs(%c : memref<1x256xf32>)
  return
}

// Rows of weights with contiguous columns are added eight at a time. The batch
// is what shares them: a dimension of 1 is no rows.

// CHECK-LABEL: func.func @rows(
// CHECK-SAME:    %{{.*}}: memref<2x1x64xbf16>, %[[W:[a-z0-9]+]]: memref<64x1024xbf16>
//       CHECK:   scf.forall (%{{.*}}) in (4)
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<2x256xf32>
//   CHECK-NOT:     memref.alloc
// CHECK-COUNT-8:   vector.load %[[W]]
// CHECK-COUNT-7:   vector.fma
//       CHECK:     arith.addf
// CHECK-COUNT-7:   vector.fma
//       CHECK:     arith.addf
func.func @rows(%a: memref<2x1x64xbf16>, %w: memref<64x1024xbf16>, %c: memref<2x1x1024xbf16>) {
  linalg.contract
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (k, n)>, affine_map<(b, m, n, k) -> (b, m, n)>]
      ins(%a, %w : memref<2x1x64xbf16>, memref<64x1024xbf16>) outs(%c : memref<2x1x1024xbf16>)
  return
}

// How many rows there are is seen by the call.

// CHECK-LABEL: func.func @some_rows(
//       CHECK:   %[[ROWS:.*]] = memref.dim
//       CHECK:   %[[FEW:.*]] = arith.cmpi {{slt|ult}}, %[[ROWS]], %c9
//       CHECK:   scf.if %[[FEW]] {
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<8x32xf32>
//       CHECK:   } else {
//       CHECK:     memref.alloc() {alignment = 64 : i64} : memref<128x64xf32>
func.func @some_rows(%a: memref<?x768xf32>, %w: memref<256x768xf32>, %c: memref<?x256xf32>) {
  linalg.contract
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>]
      ins(%a, %w : memref<?x768xf32>, memref<256x768xf32>) outs(%c : memref<?x256xf32>)
  return
}

// Vectors along the output's last dimension, then what is left one by one; an
// operand without that dimension is broadcast.

// CHECK-LABEL: func.func @elementwise(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<1024x33xf32>, %[[S:[a-z0-9]+]]: memref<512xf32>
//       CHECK:   scf.forall (%[[I:.*]]) in (3)
//       CHECK:     memref.load %[[S]]
//       CHECK:     vector.broadcast
//       CHECK:     arith.mulf %{{.*}}, %{{.*}} : vector<16xf32>
//       CHECK:     arith.mulf %{{.*}}, %{{.*}} : f32
//   CHECK-NOT:   linalg.generic
func.func @elementwise(%x: memref<1024x33xf32>, %s: memref<512xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i floordiv 2)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<512xf32>) outs(%x : memref<1024x33xf32>) {
  ^bb0(%factor: f32, %old: f32):
    %new = arith.mulf %factor, %old : f32
    linalg.yield %new : f32
  }
  return
}

// Rows that are no whole vectors have narrower ones, if these are fewer steps.

// CHECK-LABEL: func.func @short_rows(
//       CHECK:   arith.negf %{{.*}} : vector<8xf32>
//   CHECK-NOT:   arith.negf
//       CHECK:   return
func.func @short_rows(%x: memref<1024x24xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]} outs(%x : memref<1024x24xf32>) {
  ^bb0(%old: f32):
    %new = arith.negf %old : f32
    linalg.yield %new : f32
  }
  return
}

// Copies of parts of rows have vectors; without gaps they are calls, and those
// in loops are small.

// CHECK-LABEL: func.func @copies(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<1024x16xf32>, %[[Y:[a-z0-9]+]]: memref<1024x64xf32>
//   CHECK-NOT:   memref.copy
//       CHECK:   scf.for
//       CHECK:     vector.load %[[X]]{{.*}} vector<16xf32>
//       CHECK:     vector.store {{.*}} vector<16xf32>
//       CHECK:   memref.copy {{.*}} : memref<32x64xf32> to memref<32x64xf32, strided<[64, 1]>>
//       CHECK:   scf.for
//       CHECK:     memref.copy
func.func @copies(%x: memref<1024x16xf32>, %y: memref<1024x64xf32>, %z: memref<32x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %part = memref.subview %y[0, 0] [1024, 16] [1, 1] : memref<1024x64xf32> to memref<1024x16xf32, strided<[64, 1]>>
  memref.copy %x, %part : memref<1024x16xf32> to memref<1024x16xf32, strided<[64, 1]>>
  %rows = memref.subview %y[0, 0] [32, 64] [1, 1] : memref<1024x64xf32> to memref<32x64xf32, strided<[64, 1]>>
  memref.copy %z, %rows : memref<32x64xf32> to memref<32x64xf32, strided<[64, 1]>>
  scf.for %i = %c0 to %c8 step %c1 {
    memref.copy %x, %part : memref<1024x16xf32> to memref<1024x16xf32, strided<[64, 1]>>
  }
  return
}

// Functions are chains of steps: four vectors take them side by side, then
// vectors that are left one by one.

// CHECK-LABEL: func.func @functions(
//       CHECK:     scf.for
// CHECK-COUNT-4:     vector.load
// CHECK-COUNT-4:     arith.shli
//   CHECK-NOT:       vector.load
// CHECK-COUNT-4:     vector.store
//       CHECK:     scf.for
//       CHECK:       vector.load
//       CHECK:       arith.shli
//       CHECK:       vector.store
//       CHECK:     math.exp %{{.*}} : f32
func.func @functions(%x: memref<232xf32>, %y: memref<232xf32>) {
  linalg.exp ins(%x : memref<232xf32>) outs(%y : memref<232xf32>)
  return
}

// A product starts from the constant that its output was filled with, where
// nothing else sees it.

// CHECK-LABEL: func.func @filled(
//       CHECK:   memref.alloc() {{.*}}memref<12x16xf32>
//   CHECK-NOT:   scf.forall
//       CHECK:   vector.store %{{.*}}
//       CHECK:   vector.fma
//       CHECK:   return
func.func @filled(%a: memref<12x4xf32>, %b: memref<4x16xf32>) -> memref<12x16xf32> {
  %zero = arith.constant 0.0 : f32
  %o = memref.alloc() : memref<12x16xf32>
  linalg.fill ins(%zero : f32) outs(%o : memref<12x16xf32>)
  linalg.matmul ins(%a, %b : memref<12x4xf32>, memref<4x16xf32>) outs(%o : memref<12x16xf32>)
  return %o : memref<12x16xf32>
}

// Where that is zero, the first block of the reduction writes the sums, to which
// the second one adds. There must be a first block, and minus zero is no zero.

// CHECK-LABEL: func.func @from_zero(
//       CHECK:   %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<16x16xf32>
//   CHECK-NOT:   vector.store %{{.*}}, %[[SUMS]]
//       CHECK:   scf.for %[[LOW:.*]] = %[[ZERO:.*]] to %{{.*}} step
//       CHECK:     %[[IS_FIRST:.*]] = arith.cmpi eq, %[[LOW]], %[[ZERO]]
//       CHECK:     scf.if %[[IS_FIRST]] {
//   CHECK-NOT:       arith.addf
// CHECK-COUNT-8:     vector.store %{{.*}}, %[[SUMS]]
//       CHECK:     } else {
// CHECK-COUNT-8:     arith.addf
func.func @from_zero(%a: memref<12x300xf32>, %b: memref<300x16xf32>) -> memref<12x16xf32> {
  %zero = arith.constant 0.0 : f32
  %o = memref.alloc() : memref<12x16xf32>
  linalg.fill ins(%zero : f32) outs(%o : memref<12x16xf32>)
  linalg.matmul ins(%a, %b : memref<12x300xf32>, memref<300x16xf32>) outs(%o : memref<12x16xf32>)
  return %o : memref<12x16xf32>
}

// CHECK-LABEL: func.func @perhaps_empty(
//       CHECK:   %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<16x16xf32>
//       CHECK:   vector.store %{{.*}}, %[[SUMS]]
//       CHECK:   vector.fma
//   CHECK-NOT:   scf.if
//       CHECK:   return
func.func @perhaps_empty(%a: memref<12x?xf32>, %b: memref<?x16xf32>) -> memref<12x16xf32> {
  %zero = arith.constant 0.0 : f32
  %o = memref.alloc() : memref<12x16xf32>
  linalg.fill ins(%zero : f32) outs(%o : memref<12x16xf32>)
  linalg.matmul ins(%a, %b : memref<12x?xf32>, memref<?x16xf32>) outs(%o : memref<12x16xf32>)
  return %o : memref<12x16xf32>
}

// CHECK-LABEL: func.func @negative_zero(
//       CHECK:   %[[SUMS:.*]] = memref.alloc() {alignment = 64 : i64} : memref<16x16xf32>
//       CHECK:   vector.store %{{.*}}, %[[SUMS]]
//       CHECK:   vector.fma
//   CHECK-NOT:   scf.if
//       CHECK:   return
func.func @negative_zero(%a: memref<12x300xf32>, %b: memref<300x16xf32>) -> memref<12x16xf32> {
  %zero = arith.constant -0.0 : f32
  %o = memref.alloc() : memref<12x16xf32>
  linalg.fill ins(%zero : f32) outs(%o : memref<12x16xf32>)
  linalg.matmul ins(%a, %b : memref<12x300xf32>, memref<300x16xf32>) outs(%o : memref<12x16xf32>)
  return %o : memref<12x16xf32>
}

// CHECK-LABEL: func.func @read_between(
//       CHECK:   memref.load
//       CHECK:   vector.fma
func.func @read_between(%a: memref<12x4xf32>, %b: memref<4x16xf32>, %i: index) -> (memref<12x16xf32>, f32) {
  %zero = arith.constant 0.0 : f32
  %o = memref.alloc() : memref<12x16xf32>
  linalg.fill ins(%zero : f32) outs(%o : memref<12x16xf32>)
  %x = memref.load %o[%i, %i] : memref<12x16xf32>
  linalg.matmul ins(%a, %b : memref<12x4xf32>, memref<4x16xf32>) outs(%o : memref<12x16xf32>)
  return %o, %x : memref<12x16xf32>, f32
}

// The sum of a row: four times 16 partial sums, and one of what is left. So
// little work is one task, whose parallel loop is gone.

// CHECK-LABEL: func.func @sum(
//   CHECK-NOT:   scf.forall
//       CHECK:     %[[OLD:.*]] = memref.load
//       CHECK:     %[[REST:.*]] = scf.for {{.*}} iter_args(%{{.*}} = %[[OLD]]) -> (f32)
// CHECK-COUNT-4:   vector.load
//       CHECK:     %[[PARTS:.*]] = scf.for {{.*}} -> (vector<16xf32>)
//       CHECK:     vector.extract_strided_slice %[[PARTS]] {offsets = [8], sizes = [8], strides = [1]}
//       CHECK:     arith.addf %{{.*}} : vector<8xf32>
//       CHECK:     arith.addf %{{.*}} : vector<4xf32>
//       CHECK:     arith.addf %{{.*}} : vector<2xf32>
//       CHECK:     %[[SUM:.*]] = vector.extract %{{.*}}[0] : f32
//       CHECK:     arith.addf %[[SUM]], %[[REST]] : f32
func.func @sum(%x: memref<8x100xf32>, %s: memref<8xf32>) {
  linalg.reduce {arith.addf} ins(%x : memref<8x100xf32>) outs(%s : memref<8xf32>) dimensions = [1]
  return
}

// The largest element of a row: comparisons, and bits of what is NaN beside.

// CHECK-LABEL: func.func @largest(
//       CHECK:     scf.for {{.*}} -> (vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xf32>, vector<16xi32>, vector<16xi32>)
//   CHECK-NOT:       arith.maximumf
// CHECK-COUNT-4:     arith.cmpf ogt
// CHECK-COUNT-2:     arith.cmpf uno
//       CHECK:       scf.yield
//       CHECK:     arith.maximumf {{.*}} : vector<16xf32>
//       CHECK:     arith.ori {{.*}} : vector<16xi32>
//       CHECK:     arith.maximumf {{.*}} : vector<8xf32>
func.func @largest(%x: memref<8x200xf32>, %s: memref<8xf32>) {
  linalg.reduce {arith.maximumf} ins(%x : memref<8x200xf32>) outs(%s : memref<8xf32>) dimensions = [1]
  return
}

// Quotients by a number of the row are products with its inverse, but for those
// by constants and those that become whole numbers.

// CHECK-LABEL: func.func @divided(
//       CHECK:     memref.load
//       CHECK:     arith.divf %{{.*}} : f32
//       CHECK:     scf.for
//   CHECK-NOT:       arith.divf
//       CHECK:       vector.store
func.func @divided(%x: memref<8x64xf32>, %s: memref<8xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<8xf32>) outs(%x : memref<8x64xf32>) {
  ^bb0(%divisor: f32, %old: f32):
    %new = arith.divf %old, %divisor : f32
    linalg.yield %new : f32
  }
  return
}

// CHECK-LABEL: func.func @divided_exactly(
// CHECK-COUNT-2: arith.divf {{.*}} : vector<16xf32>
func.func @divided_exactly(%x: memref<8x64xf32>, %s: memref<8xf32>) {
  %three = arith.constant 3.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      outs(%x : memref<8x64xf32>) {
  ^bb0(%old: f32):
    %new = arith.divf %old, %three : f32
    linalg.yield %new : f32
  }
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%s : memref<8xf32>) outs(%x : memref<8x64xf32>) {
  ^bb0(%divisor: f32, %old: f32):
    %quotient = arith.divf %old, %divisor : f32
    %new = math.floor %quotient : f32
    linalg.yield %new : f32
  }
  return
}

// Functions of vectors are polynomials.

// CHECK-LABEL: func.func @function(
//   CHECK-NOT:   math.tanh %{{.*}} : vector
//       CHECK:   vector.fma {{.*}} : vector<16xf32>
func.func @function(%x: memref<64xf32>) {
  linalg.map { math.tanh } ins(%x : memref<64xf32>) outs(%x : memref<64xf32>)
  return
}

// So are powers, where they are known.

// CHECK-LABEL: func.func @power(
//   CHECK-NOT:   math.fpowi
//       CHECK:   arith.mulf {{.*}} : vector<16xf32>
func.func @power(%x: memref<64xf32>) {
  %c3 = arith.constant 3 : i64
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<64xf32>) {
  ^bb0(%old: f32):
    %cube = math.fpowi %old, %c3 : f32, i64
    linalg.yield %cube : f32
  }
  return
}

// To a negative one they are the inverse of one, which of zero has its sign.

// CHECK-LABEL: func.func @inverse_power(
//   CHECK-NOT:   math.fpowi
//       CHECK:   arith.mulf {{.*}} : vector<16xf32>
//       CHECK:   arith.divf {{.*}} : vector<16xf32>
func.func @inverse_power(%x: memref<64xf32>) {
  %c = arith.constant -2 : i64
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<64xf32>) {
  ^bb0(%old: f32):
    %power = math.fpowi %old, %c : f32, i64
    linalg.yield %power : f32
  }
  return
}

// Sines are those of the distance to a multiple of pi / 2, which is found in f64.

// CHECK-LABEL: func.func @sine(
//   CHECK-NOT:   math.sin
//       CHECK:   math.fma {{.*}} : vector<16xf64>
//       CHECK:   arith.truncf {{.*}} : vector<16xf64> to vector<16xf32>
func.func @sine(%x: memref<64xf32>) {
  linalg.map { math.sin } ins(%x : memref<64xf32>) outs(%x : memref<64xf32>)
  return
}

// Rows of a table: checked and read by numbers that are the same for a vector.

// CHECK-LABEL: func.func @rows_of_table(
// CHECK-SAME:    %{{.*}}: memref<4xi64>, %[[TABLE:[a-z0-9]+]]: memref<9x32xf32>
//   CHECK-NOT:   linalg.generic
//       CHECK:   scf.for
//       CHECK:     cf.assert
//       CHECK:     scf.for
//   CHECK-NOT:       cf.assert
//       CHECK:       vector.load %[[TABLE]]{{.*}} vector<16xf32>
//       CHECK:       vector.store
func.func @rows_of_table(%ids: memref<4xi64>, %table: memref<9x32xf32>, %out: memref<4x32xf32>) {
  %c9 = arith.constant 9 : index
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : memref<4xi64>) outs(%out : memref<4x32xf32>) {
  ^bb0(%id: i64, %old: f32):
    %row = arith.index_cast %id : i64 to index
    %column = linalg.index 1 : index
    %exists = arith.cmpi ult, %row, %c9 : index
    cf.assert %exists, "index must be smaller than dim size"
    %x = memref.load %table[%row, %column] : memref<9x32xf32>
    linalg.yield %x : f32
  }
  return
}

// Columns of a table lie apart: numbers.

// CHECK-LABEL: func.func @columns_of_table(
//   CHECK-NOT:   linalg.generic
//   CHECK-NOT:   vector
//       CHECK:   cf.assert
//       CHECK:   memref.load
//       CHECK:   return
func.func @columns_of_table(%ids: memref<32xi64>, %table: memref<9x32xf32>, %out: memref<4x32xf32>) {
  %c9 = arith.constant 9 : index
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%ids : memref<32xi64>) outs(%out : memref<4x32xf32>) {
  ^bb0(%id: i64, %old: f32):
    %row = arith.index_cast %id : i64 to index
    %column = linalg.index 1 : index
    %exists = arith.cmpi ult, %row, %c9 : index
    cf.assert %exists, "index must be smaller than dim size"
    %x = memref.load %table[%row, %column] : memref<9x32xf32>
    linalg.yield %x : f32
  }
  return
}

// Places of elements are vectors of them.

// CHECK-LABEL: func.func @places(
//       CHECK:   vector.step : vector<16xindex>
//       CHECK:   arith.index_cast {{.*}} : vector<16xindex> to vector<16xi32>
func.func @places(%x: memref<64xi32>) {
  linalg.generic {indexing_maps = [affine_map<(i) -> (i)>], iterator_types = ["parallel"]} outs(%x : memref<64xi32>) {
  ^bb0(%old: i32):
    %i = linalg.index 0 : index
    %number = arith.index_cast %i : index to i32
    linalg.yield %number : i32
  }
  return
}

// What is the same for a row is computed before its vectors.

// CHECK-LABEL: func.func @scaled_rows(
//       CHECK:   memref.load
//       CHECK:   math.rsqrt {{.*}} : vector<16xf32>
//       CHECK:   scf.for
//       CHECK:     vector.load
func.func @scaled_rows(%x: memref<8x64xf32>, %s: memref<8xf32>, %out: memref<8x64xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : memref<8x64xf32>, memref<8xf32>) outs(%out : memref<8x64xf32>) {
  ^bb0(%a: f32, %sum: f32, %old: f32):
    %root = math.rsqrt %sum : f32
    %r = arith.mulf %a, %root : f32
    linalg.yield %r : f32
  }
  return
}

// Elements narrower than a byte are read one by one: a mask of rows.

// CHECK-LABEL: func.func @masked_rows(
//       CHECK:   %[[IS:.*]] = memref.load %{{.*}} : memref<8xi1>
//       CHECK:   vector.broadcast %[[IS]] : i1 to vector<16xi1>
//       CHECK:   arith.select {{.*}} : vector<16xi1>, vector<16xf32>
func.func @masked_rows(%x: memref<8x64xf32>, %is: memref<8xi1>, %out: memref<8x64xf32>) {
  %zero = arith.constant 0.0 : f32
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
                  iterator_types = ["parallel", "parallel"]}
      ins(%x, %is : memref<8x64xf32>, memref<8xi1>) outs(%out : memref<8x64xf32>) {
  ^bb0(%a: f32, %c: i1, %old: f32):
    %r = arith.select %c, %a, %zero : f32
    linalg.yield %r : f32
  }
  return
}

// Elements that lie apart are gathered for functions of vectors.

// CHECK-LABEL: func.func @every_other(
//       CHECK:   vector.from_elements {{.*}} : vector<16xf32>
//       CHECK:   vector.fma {{.*}} : vector<16xf32>
//       CHECK:   vector.store
func.func @every_other(%x: memref<64xf32, strided<[2]>>, %out: memref<64xf32>) {
  linalg.map { math.tanh } ins(%x : memref<64xf32, strided<[2]>>) outs(%out : memref<64xf32>)
  return
}

// CHECK-LABEL: func.func @mask(
//   CHECK-NOT:   linalg.fill
//   CHECK-NOT:   vector
//       CHECK:   memref.store %{{.*}} : memref<64xi1>
func.func @mask(%b: memref<64xi1>, %true: i1) {
  linalg.fill ins(%true : i1) outs(%b : memref<64xi1>)
  return
}

// A comparison that swaps its operands where it is folded.

// CHECK-LABEL: func.func @later_rows(
//   CHECK-NOT:   linalg.generic
//       CHECK:   arith.cmpi sgt, %{{.*}}, %c3
//       CHECK:   return
func.func @later_rows(%x: memref<6x40xf32>, %out: memref<6x40xf32>) {
  linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x : memref<6x40xf32>) outs(%out : memref<6x40xf32>) {
  ^bb0(%a: f32, %old: f32):
    %c3 = arith.constant 3 : index
    %zero = arith.constant 0.0 : f32
    %row = linalg.index 0 : index
    %is_later = arith.cmpi slt, %c3, %row : index
    %y = arith.select %is_later, %a, %zero : f32
    linalg.yield %y : f32
  }
  return
}
