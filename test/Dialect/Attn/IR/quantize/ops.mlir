// RUN: fovea-opt %s | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --mlir-print-op-generic | fovea-opt | FileCheck %s
// RUN: fovea-opt %s --emit-bytecode | fovea-opt | FileCheck %s

//===----------------------------------------------------------------------===//
// attn.quantize
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @quantize(
// CHECK-SAME: %[[K:.*]]: tensor<2x4x100x8xf32>, %[[C:.*]]: tensor<4x16x8xf32>, %[[Z:.*]]: tensor<2x4x100xi32>, %[[O:.*]]: tensor<2x4x100x8xf32>
// CHECK: attn.quantize ins(%[[K]], %[[C]] : tensor<2x4x100x8xf32>, tensor<4x16x8xf32>) outs(%[[Z]], %[[O]] : tensor<2x4x100xi32>, tensor<2x4x100x8xf32>) -> tensor<2x4x100xi32>, tensor<2x4x100x8xf32>
func.func @quantize(%k: tensor<2x4x100x8xf32>, %c: tensor<4x16x8xf32>, %z: tensor<2x4x100xi32>, %o: tensor<2x4x100x8xf32>) -> (tensor<2x4x100xi32>, tensor<2x4x100x8xf32>) {
  %0:2 = attn.quantize ins(%k, %c : tensor<2x4x100x8xf32>, tensor<4x16x8xf32>) outs(%z, %o : tensor<2x4x100xi32>, tensor<2x4x100x8xf32>)
      -> tensor<2x4x100xi32>, tensor<2x4x100x8xf32>
  return %0#0, %0#1 : tensor<2x4x100xi32>, tensor<2x4x100x8xf32>
}

// Codes alone, one codebook for all heads, extents known at run time only.
// CHECK-LABEL: func @quantize_codes(
// CHECK: attn.quantize ins(%{{.*}}, %{{.*}} : tensor<?x?x?x8xbf16>, tensor<1x16x8xbf16>) outs(%{{.*}} : tensor<?x?x?xi32>) -> tensor<?x?x?xi32>
func.func @quantize_codes(%k: tensor<?x?x?x8xbf16>, %c: tensor<1x16x8xbf16>, %z: tensor<?x?x?xi32>) -> tensor<?x?x?xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<?x?x?x8xbf16>, tensor<1x16x8xbf16>) outs(%z : tensor<?x?x?xi32>) -> tensor<?x?x?xi32>
  return %0 : tensor<?x?x?xi32>
}

// CHECK-LABEL: func @quantize_memref(
// CHECK: attn.quantize ins(%{{.*}}, %{{.*}} : memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>, memref<?x1x8xf16>) outs(%{{.*}} : memref<1x?x64xi32>){{$}}
func.func @quantize_memref(%k: memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>, %c: memref<?x1x8xf16>, %z: memref<1x?x64xi32>) {
  attn.quantize ins(%k, %c : memref<1x?x64x8xf16, strided<[?, ?, 8, 1], offset: ?>>, memref<?x1x8xf16>) outs(%z : memref<1x?x64xi32>)
  return
}

// A mask of tokens, and a codebook in the type of sums.
// CHECK-LABEL: func @quantize_masked(
// CHECK: attn.quantize ins(%{{.*}}, %{{.*}} : tensor<2x4x?x8xbf16>, tensor<1x16x8xf32>) mask(%{{.*}} : tensor<2x?xi1>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<2x4x?xi32>, tensor<2x4x?x8xbf16>) -> tensor<2x4x?xi32>, tensor<2x4x?x8xbf16>
func.func @quantize_masked(%k: tensor<2x4x?x8xbf16>, %m: tensor<2x?xi1>, %c: tensor<1x16x8xf32>, %z: tensor<2x4x?xi32>) -> tensor<2x4x?x8xbf16> {
  %0:2 = attn.quantize ins(%k, %c : tensor<2x4x?x8xbf16>, tensor<1x16x8xf32>) mask(%m : tensor<2x?xi1>)
      outs(%z, %k : tensor<2x4x?xi32>, tensor<2x4x?x8xbf16>) -> tensor<2x4x?xi32>, tensor<2x4x?x8xbf16>
  return %0#1 : tensor<2x4x?x8xbf16>
}

// CHECK-LABEL: func @quantize_empty(
// CHECK: outs(%{{.*}} : tensor<0x0x0xi32>)
func.func @quantize_empty(%k: tensor<0x0x0x8xf64>, %c: tensor<0x4x8xf64>, %z: tensor<0x0x0xi32>) -> tensor<0x0x0xi32> {
  %0 = attn.quantize ins(%k, %c : tensor<0x0x0x8xf64>, tensor<0x4x8xf64>) outs(%z : tensor<0x0x0xi32>) -> tensor<0x0x0xi32>
  return %0 : tensor<0x0x0xi32>
}

//===----------------------------------------------------------------------===//
// attn.codebook_accumulate
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @accumulate(
// CHECK: attn.codebook_accumulate ins(%{{.*}}, %{{.*}} : tensor<?x2x?xi32>, tensor<?x2x?x8xf16>) outs(%{{.*}}, %{{.*}} : tensor<?x2x?x8xf32>, tensor<?x2x?xi32>) -> tensor<?x2x?x8xf32>, tensor<?x2x?xi32>
func.func @accumulate(%z: tensor<?x2x?xi32>, %v: tensor<?x2x?x8xf16>, %m: tensor<?x2x?x8xf32>, %n: tensor<?x2x?xi32>) -> (tensor<?x2x?x8xf32>, tensor<?x2x?xi32>) {
  %0:2 = attn.codebook_accumulate ins(%z, %v : tensor<?x2x?xi32>, tensor<?x2x?x8xf16>) outs(%m, %n : tensor<?x2x?x8xf32>, tensor<?x2x?xi32>)
      -> tensor<?x2x?x8xf32>, tensor<?x2x?xi32>
  return %0#0, %0#1 : tensor<?x2x?x8xf32>, tensor<?x2x?xi32>
}

// CHECK-LABEL: func @accumulate_memref(
// CHECK: attn.codebook_accumulate ins(%{{.*}}, %{{.*}} : memref<1x1x5xi32>, memref<1x1x5x3xf64>) outs(%{{.*}}, %{{.*}} : memref<1x1x7x3xf64>, memref<1x1x7xi32>){{$}}
func.func @accumulate_memref(%z: memref<1x1x5xi32>, %v: memref<1x1x5x3xf64>, %m: memref<1x1x7x3xf64>, %n: memref<1x1x7xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<1x1x5xi32>, memref<1x1x5x3xf64>) outs(%m, %n : memref<1x1x7x3xf64>, memref<1x1x7xi32>)
  return
}

//===----------------------------------------------------------------------===//
// attn.codebook_scan
//===----------------------------------------------------------------------===//

// Nine tokens in blocks of four: three blocks, four entries. The reduction is
// chosen by the compiler unless it is given.
// CHECK-LABEL: func @scan(
// CHECK: attn.codebook_scan ins(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : tensor<1x2x9xi32>, tensor<1x2x9x8xbf16>, tensor<1x2x5x8xf32>, tensor<1x2x5xi32>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}} : tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>) {block = 4 : i64} -> tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>
func.func @scan(%z: tensor<1x2x9xi32>, %v: tensor<1x2x9x8xbf16>, %m0: tensor<1x2x5x8xf32>, %n0: tensor<1x2x5xi32>, %m: tensor<1x2x4x5x8xf32>, %n: tensor<1x2x4x5xi32>) -> (tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>) {
  %0:2 = attn.codebook_scan ins(%z, %v, %m0, %n0 : tensor<1x2x9xi32>, tensor<1x2x9x8xbf16>, tensor<1x2x5x8xf32>, tensor<1x2x5xi32>)
      outs(%m, %n : tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>) {block = 4 : i64} -> tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>
  return %0#0, %0#1 : tensor<1x2x4x5x8xf32>, tensor<1x2x4x5xi32>
}

// CHECK-LABEL: func @scan_memref(
// CHECK: {block = 4 : i64, reduction = #attn.reduction<matmul>}
// CHECK: {block = 4 : i64, reduction = #attn.reduction<associative>}
// CHECK: {block = 4 : i64, reduction = #attn.reduction<serial>}
func.func @scan_memref(%z: memref<?x?x?xi32>, %v: memref<?x?x?x8xf64>, %m0: memref<?x?x?x8xf64>, %n0: memref<?x?x?xi32>, %m: memref<?x?x?x?x8xf64>, %n: memref<?x?x?x?xi32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<?x?x?xi32>, memref<?x?x?x8xf64>, memref<?x?x?x8xf64>, memref<?x?x?xi32>)
      outs(%m, %n : memref<?x?x?x?x8xf64>, memref<?x?x?x?xi32>) {block = 4 : i64, reduction = #attn.reduction<matmul>}
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<?x?x?xi32>, memref<?x?x?x8xf64>, memref<?x?x?x8xf64>, memref<?x?x?xi32>)
      outs(%m, %n : memref<?x?x?x?x8xf64>, memref<?x?x?x?xi32>) {block = 4 : i64, reduction = #attn.reduction<associative>}
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<?x?x?xi32>, memref<?x?x?x8xf64>, memref<?x?x?x8xf64>, memref<?x?x?xi32>)
      outs(%m, %n : memref<?x?x?x?x8xf64>, memref<?x?x?x?xi32>) {block = 4 : i64, reduction = #attn.reduction<serial>}
  return
}

//===----------------------------------------------------------------------===//
// attn.log_count, attn.codebook_update, attn.check_codes
//===----------------------------------------------------------------------===//

// CHECK-LABEL: func @log_count(
// CHECK: attn.log_count ins(%{{.*}} : tensor<1x?x3x4xi32>) outs(%{{.*}} : tensor<1x?x3x4xf64>) -> tensor<1x?x3x4xf64>
// CHECK: attn.log_count ins(%{{.*}} : memref<7xi32>) outs(%{{.*}} : memref<7xf32>){{$}}
func.func @log_count(%n: tensor<1x?x3x4xi32>, %w: tensor<1x?x3x4xf64>, %n1: memref<7xi32>, %w1: memref<7xf32>) -> tensor<1x?x3x4xf64> {
  %0 = attn.log_count ins(%n : tensor<1x?x3x4xi32>) outs(%w : tensor<1x?x3x4xf64>) -> tensor<1x?x3x4xf64>
  attn.log_count ins(%n1 : memref<7xi32>) outs(%w1 : memref<7xf32>)
  return %0 : tensor<1x?x3x4xf64>
}

// The rate is 0.99 unless it is given.
// CHECK-LABEL: func @update(
// CHECK: attn.codebook_update ins(%{{.*}}, %{{.*}} : tensor<2x4x100x8xbf16>, tensor<2x4x100xi32>) outs(%{{.*}}, %{{.*}}, %{{.*}} : tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>) -> tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>
func.func @update(%k: tensor<2x4x100x8xbf16>, %z: tensor<2x4x100xi32>, %c: tensor<1x16x8xbf16>, %s: tensor<1x16x8xf32>, %n: tensor<1x16xf32>) -> (tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>) {
  %0:3 = attn.codebook_update ins(%k, %z : tensor<2x4x100x8xbf16>, tensor<2x4x100xi32>) outs(%c, %s, %n : tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>)
      -> tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>
  return %0#0, %0#1, %0#2 : tensor<1x16x8xbf16>, tensor<1x16x8xf32>, tensor<1x16xf32>
}

// CHECK-LABEL: func @update_memref(
// CHECK: outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<?x16x8xf64>, memref<?x16x8xf64>, memref<?x16xf64>) {min_count = 1.000000e-02 : f64, rate = 5.000000e-01 : f64}{{$}}
func.func @update_memref(%k: memref<?x?x?x8xf64>, %z: memref<?x?x?xi32>, %c: memref<?x16x8xf64>, %s: memref<?x16x8xf64>, %n: memref<?x16xf64>) {
  attn.codebook_update ins(%k, %z : memref<?x?x?x8xf64>, memref<?x?x?xi32>) outs(%c, %s, %n : memref<?x16x8xf64>, memref<?x16x8xf64>, memref<?x16xf64>) {min_count = 1.0e-02 : f64, rate = 5.0e-01 : f64}
  return
}

// CHECK-LABEL: func @check(
// CHECK-SAME: %[[Z:.*]]: tensor<1x?x8xi32>, %[[M:.*]]: memref<1x1x8xi32>, %[[S:.*]]: index
// CHECK: attn.check_codes %[[Z]] below %[[S]] {name = "codes"} : tensor<1x?x8xi32>
// CHECK: attn.check_codes %[[M]] below %[[S]] {name = "codes"} : memref<1x1x8xi32>
func.func @check(%z: tensor<1x?x8xi32>, %m: memref<1x1x8xi32>, %s: index) {
  attn.check_codes %z below %s {name = "codes"} : tensor<1x?x8xi32>
  attn.check_codes %m below %s {name = "codes"} : memref<1x1x8xi32>
  return
}

// Dead codewords are replaced, of a codebook in the type of sums.
// CHECK-LABEL: func @replace(
// CHECK: attn.codebook_update ins(%{{.*}}, %{{.*}} : memref<2x4x9x8xbf16>, memref<2x4x9xi32>) seed(%{{.*}} : memref<i64>)
// CHECK-SAME: outs(%{{.*}}, %{{.*}}, %{{.*}} : memref<4x5x8xf32>, memref<4x5x8xf32>, memref<4x5xf32>) {replace_below = 1.000000e+00 : f64}
func.func @replace(%k: memref<2x4x9x8xbf16>, %z: memref<2x4x9xi32>, %d: memref<i64>, %c: memref<4x5x8xf32>, %s: memref<4x5x8xf32>, %n: memref<4x5xf32>) {
  attn.codebook_update ins(%k, %z : memref<2x4x9x8xbf16>, memref<2x4x9xi32>) seed(%d : memref<i64>)
      outs(%c, %s, %n : memref<4x5x8xf32>, memref<4x5x8xf32>, memref<4x5xf32>) {replace_below = 1.0 : f64}
  return
}
