// RUN: fovea-opt %s --attn-check-codes --canonicalize | FileCheck %s

// Codes are checked before every operation that uses them as indices.

// CHECK-LABEL: func.func @accumulate(
//  CHECK-SAME:   %[[CODES:[a-z0-9]+]]: tensor<1x2x128xi32>, %{{.*}}: tensor<1x2x128x64xf32>, %[[MEAN:[a-z0-9]+]]: tensor<1x2x?x64xf32>
//       CHECK:   %[[S:.*]] = tensor.dim %[[MEAN]], %c2
//       CHECK:   attn.check_codes %[[CODES]] below %[[S]] {name = "attn.codebook_accumulate: codes"} : tensor<1x2x128xi32>
//  CHECK-NEXT:   attn.codebook_accumulate
func.func @accumulate(%codes: tensor<1x2x128xi32>, %v: tensor<1x2x128x64xf32>, %mean: tensor<1x2x?x64xf32>,
                      %count: tensor<1x2x?xi32>) -> (tensor<1x2x?x64xf32>, tensor<1x2x?xi32>) {
  %m, %n = attn.codebook_accumulate ins(%codes, %v : tensor<1x2x128xi32>, tensor<1x2x128x64xf32>)
      outs(%mean, %count : tensor<1x2x?x64xf32>, tensor<1x2x?xi32>) -> tensor<1x2x?x64xf32>, tensor<1x2x?xi32>
  return %m, %n : tensor<1x2x?x64xf32>, tensor<1x2x?xi32>
}

// CHECK-LABEL: func.func @others(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.codebook_scan: codes"}
//  CHECK-NEXT:   attn.codebook_scan
//       CHECK:   attn.check_codes %{{.*}} below %c7 {name = "attn.codebook_update: codes"}
//  CHECK-NEXT:   attn.codebook_update
func.func @others(%z: memref<1x1x9xi32>, %v: memref<1x1x9x4xf32>, %m0: memref<1x1x5x4xf32>, %n0: memref<1x1x5xi32>,
                  %m: memref<1x1x3x5x4xf32>, %n: memref<1x1x3x5xi32>, %c: memref<1x7x4xf32>, %f: memref<1x7xf32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x1x9xi32>, memref<1x1x9x4xf32>, memref<1x1x5x4xf32>, memref<1x1x5xi32>)
      outs(%m, %n : memref<1x1x3x5x4xf32>, memref<1x1x3x5xi32>) {block = 4 : i64}
  attn.codebook_update ins(%v, %z : memref<1x1x9x4xf32>, memref<1x1x9xi32>)
      outs(%c, %c, %f : memref<1x7x4xf32>, memref<1x7x4xf32>, memref<1x7xf32>)
  return
}

// Codes of attn.quantize are right by construction where the codebook has no
// more codewords than are summarised.

// CHECK-LABEL: func.func @quantized(
//   CHECK-NOT:   attn.check_codes
//       CHECK:   attn.codebook_accumulate
//       CHECK:   attn.check_codes %{{.*}} below %c4
//       CHECK:   attn.codebook_accumulate
func.func @quantized(%k: tensor<1x1x9x4xf32>, %c: tensor<1x5x4xf32>, %z: tensor<1x1x9xi32>, %m5: tensor<1x1x5x4xf32>, %n5: tensor<1x1x5xi32>,
                     %m4: tensor<1x1x4x4xf32>, %n4: tensor<1x1x4xi32>) -> (tensor<1x1x5xi32>, tensor<1x1x4xi32>) {
  %codes = attn.quantize ins(%k, %c : tensor<1x1x9x4xf32>, tensor<1x5x4xf32>) outs(%z : tensor<1x1x9xi32>) -> tensor<1x1x9xi32>
  %part = tensor.extract_slice %codes[0, 0, 3] [1, 1, 4] [1, 1, 1] : tensor<1x1x9xi32> to tensor<1x1x4xi32>
  %values = tensor.extract_slice %k[0, 0, 3, 0] [1, 1, 4, 4] [1, 1, 1, 1] : tensor<1x1x9x4xf32> to tensor<1x1x4x4xf32>
  %0:2 = attn.codebook_accumulate ins(%part, %values : tensor<1x1x4xi32>, tensor<1x1x4x4xf32>)
      outs(%m5, %n5 : tensor<1x1x5x4xf32>, tensor<1x1x5xi32>) -> tensor<1x1x5x4xf32>, tensor<1x1x5xi32>
  %1:2 = attn.codebook_accumulate ins(%part, %values : tensor<1x1x4xi32>, tensor<1x1x4x4xf32>)
      outs(%m4, %n4 : tensor<1x1x4x4xf32>, tensor<1x1x4xi32>) -> tensor<1x1x4x4xf32>, tensor<1x1x4xi32>
  return %0#1, %1#1 : tensor<1x1x5xi32>, tensor<1x1x4xi32>
}

// So are those that a state keeps.

// CHECK-LABEL: func.func @state(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq_decode: codes"} : memref<1x1x1xi32>
//  CHECK-NEXT:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq_decode: kept codes"} : memref<1x1x8xi32>
//  CHECK-NEXT:   attn.vq_decode
func.func @state(%q: memref<1x1x1x4xf32>, %z: memref<1x1x1xi32>, %c: memref<1x5x4xf32>, %mean: memref<1x1x5x4xf32>, %count: memref<1x1x5xi32>,
                 %codes: memref<1x1x8xi32>, %values: memref<1x1x8x4xf32>, %position: memref<i64>, %out: memref<1x1x1x4xf32>) {
  attn.vq_decode ins(%q, %z, %q, %c : memref<1x1x1x4xf32>, memref<1x1x1xi32>, memref<1x1x1x4xf32>, memref<1x5x4xf32>)
      outs(%out : memref<1x1x1x4xf32>)
      state(%mean, %count, %codes, %values, %position : memref<1x1x5x4xf32>, memref<1x1x5xi32>, memref<1x1x8xi32>, memref<1x1x8x4xf32>, memref<i64>)
      {block = 4 : i64}
  return
}
