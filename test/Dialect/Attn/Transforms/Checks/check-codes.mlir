// RUN: fovea-opt %s --attn-check-codes --canonicalize | FileCheck %s

// Codes are checked before every operation that uses them as indices.

// CHECK-LABEL: func.func @accumulate(
//  CHECK-SAME:   %[[CODES:[a-z0-9]+]]: tensor<1x2x128xi32>, %{{.*}}: tensor<1x2x128x64xf32>, %[[MEAN:[a-z0-9]+]]: tensor<1x2x?x64xf32>
//       CHECK:   %[[S:.*]] = tensor.dim %[[MEAN]], %c2
//       CHECK:   attn.check_codes %[[CODES]] below %[[S]] {name = "attn.codebook_accumulate: codes", or_absent} : tensor<1x2x128xi32>
//  CHECK-NEXT:   attn.codebook_accumulate
func.func @accumulate(%codes: tensor<1x2x128xi32>, %v: tensor<1x2x128x64xf32>, %mean: tensor<1x2x?x64xf32>,
                      %count: tensor<1x2x?xi32>) -> (tensor<1x2x?x64xf32>, tensor<1x2x?xi32>) {
  %m, %n = attn.codebook_accumulate ins(%codes, %v : tensor<1x2x128xi32>, tensor<1x2x128x64xf32>)
      outs(%mean, %count : tensor<1x2x?x64xf32>, tensor<1x2x?xi32>) -> tensor<1x2x?x64xf32>, tensor<1x2x?xi32>
  return %m, %n : tensor<1x2x?x64xf32>, tensor<1x2x?xi32>
}

// CHECK-LABEL: func.func @others(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.codebook_scan: codes", or_absent}
//  CHECK-NEXT:   attn.codebook_scan
//       CHECK:   attn.check_codes %{{.*}} below %c7 {name = "attn.codebook_update: codes", or_absent}
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

// A padded operation takes codes of absent tokens, and a state with them.

// CHECK-LABEL: func.func @padded(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq_decode: codes", or_absent} : memref<1x1x1xi32>
//  CHECK-NEXT:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq_decode: kept codes", or_absent} : memref<1x1x8xi32>
//  CHECK-NEXT:   attn.vq_decode
func.func @padded(%q: memref<1x1x1x4xf32>, %z: memref<1x1x1xi32>, %c: memref<1x5x4xf32>, %mean: memref<1x1x5x4xf32>, %count: memref<1x1x5xi32>,
                  %codes: memref<1x1x8xi32>, %values: memref<1x1x8x4xf32>, %position: memref<i64>, %out: memref<1x1x1x4xf32>) {
  attn.vq_decode ins(%q, %z, %q, %c : memref<1x1x1x4xf32>, memref<1x1x1xi32>, memref<1x1x1x4xf32>, memref<1x5x4xf32>)
      outs(%out : memref<1x1x1x4xf32>)
      state(%mean, %count, %codes, %values, %position : memref<1x1x5x4xf32>, memref<1x1x5xi32>, memref<1x1x8xi32>, memref<1x1x8x4xf32>, memref<i64>)
      {block = 4 : i64, padded}
  return
}

// CHECK-LABEL: func.func @padded_backward(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq_backward: codes", or_absent} : memref<1x1x1xi32>
//  CHECK-NEXT:   attn.vq_backward
func.func @padded_backward(%q: memref<1x1x1x4xf32>, %z: memref<1x1x1xi32>, %c: memref<1x5x4xf32>, %dq: memref<1x1x1x4xf32>, %dk: memref<1x1x1x4xf32>,
                           %dv: memref<1x1x1x4xf32>) {
  attn.vq_backward ins(%q, %z, %q, %c : memref<1x1x1x4xf32>, memref<1x1x1xi32>, memref<1x1x1x4xf32>, memref<1x5x4xf32>)
      gradient(%q : memref<1x1x1x4xf32>) outs(%dq, %dk, %dv : memref<1x1x1x4xf32>, memref<1x1x1x4xf32>, memref<1x1x1x4xf32>)
      {block = 4 : i64, padded, weighting = #attn.weighting<squared_relu>}
  return
}

// Codes of a mask may be -1, which only a padded operation takes.

// CHECK-LABEL: func.func @masked(
//       CHECK:   attn.check_codes %{{.*}} below %c5 {name = "attn.vq: codes"}
//  CHECK-NEXT:   attn.vq
//   CHECK-NOT:   attn.check_codes
//       CHECK:   return
func.func @masked(%q: tensor<1x1x9x4xf32>, %m: tensor<1x9xi1>, %zi: tensor<1x1x9xi32>, %c: tensor<1x5x4xf32>) -> (tensor<1x1x9x4xf32>, tensor<1x1x9x4xf32>) {
  %z = attn.quantize ins(%q, %c : tensor<1x1x9x4xf32>, tensor<1x5x4xf32>) mask(%m : tensor<1x9xi1>) outs(%zi : tensor<1x1x9xi32>) -> tensor<1x1x9xi32>
  %0 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x9x4xf32>, tensor<1x1x9xi32>, tensor<1x1x9x4xf32>, tensor<1x5x4xf32>)
      outs(%q : tensor<1x1x9x4xf32>) {block = 4 : i64} -> tensor<1x1x9x4xf32>
  %1 = attn.vq ins(%q, %z, %q, %c : tensor<1x1x9x4xf32>, tensor<1x1x9xi32>, tensor<1x1x9x4xf32>, tensor<1x5x4xf32>)
      outs(%q : tensor<1x1x9x4xf32>) {block = 4 : i64, padded} -> tensor<1x1x9x4xf32>
  return %0, %1 : tensor<1x1x9x4xf32>, tensor<1x1x9x4xf32>
}

// Intervals, groups, changes and their ends are checked before the operation.

// CHECK-LABEL: func.func @masks(
// CHECK-SAME: %[[I:[a-z0-9]+]]: tensor<1x1x9xi32>, %[[J:[a-z0-9]+]]: tensor<1x1x7xi32>, %[[C:[a-z0-9]+]]: tensor<1x4x20xi32>
// CHECK: attn.low_rank {{.*}} {mask = #attn.row_mask<causal>}
// CHECK-NEXT: attn.check_intervals %[[I]], %[[I]] below %c7 {name = "attn.low_rank: interval"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[I]] below %c3 {name = "attn.low_rank: group"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[J]] below %c3 {name = "attn.low_rank: group"}
// CHECK-NEXT: attn.low_rank
// CHECK-NEXT: attn.check_codes %[[I]] below %c21 {name = "attn.low_rank: ends"}
// CHECK-NEXT: attn.check_codes %[[C]] below %c7 {name = "attn.low_rank: columns"}
// CHECK-NEXT: %[[FIRST:.*]] = tensor.extract_slice %[[I]][0, 0, 0] [1, 1, 8] [1, 1, 1]
// CHECK-NEXT: %[[LAST:.*]] = tensor.extract_slice %[[I]][0, 0, 1] [1, 1, 8] [1, 1, 1]
// CHECK-NEXT: attn.check_intervals %[[FIRST]], %[[LAST]] below %c21 {name = "attn.low_rank: ends"}
// CHECK-NEXT: attn.low_rank
func.func @masks(%i: tensor<1x1x9xi32>, %j: tensor<1x1x7xi32>, %c: tensor<1x4x20xi32>, %r: tensor<1x4x3x7xi1>, %s: tensor<1x1x3x9xi1>,
                 %u1: tensor<1x4x9x5xf32>, %u2: tensor<1x2x7x5xf32>, %v: tensor<1x2x7x8xf32>, %o: tensor<1x4x9x8xf32>)
    -> (tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>) {
  %0 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<causal>} -> tensor<1x4x9x8xf32>
  %1 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %i : tensor<1x1x9xi32>, tensor<1x1x9xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_interval>} -> tensor<1x4x9x8xf32>
  %2 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %r : tensor<1x1x9xi32>, tensor<1x4x3x7xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_rows>} -> tensor<1x4x9x8xf32>
  %3 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%j, %s : tensor<1x1x7xi32>, tensor<1x1x3x9xi1>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<distinct_columns>} -> tensor<1x4x9x8xf32>
  %4 = attn.low_rank ins(%u1, %u2, %v : tensor<1x4x9x5xf32>, tensor<1x2x7x5xf32>, tensor<1x2x7x8xf32>)
      mask(%i, %c : tensor<1x1x9xi32>, tensor<1x4x20xi32>)
      outs(%o : tensor<1x4x9x8xf32>) {mask = #attn.row_mask<row_change>} -> tensor<1x4x9x8xf32>
  return %0, %1, %2, %3, %4 : tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>, tensor<1x4x9x8xf32>
}

// Buffers, and extents known at run time only.
// CHECK-LABEL: func.func @buffers(
// CHECK: %[[K:.*]] = memref.dim %{{.*}}, %c2 : memref<1x1x?xi32>
// CHECK: attn.check_codes
// CHECK: memref.subview %{{.*}}[0, 0, 0] [1, 1, %{{.*}}] [1, 1, 1]
// CHECK: memref.subview %{{.*}}[0, 0, 1] [1, 1, %{{.*}}] [1, 1, 1]
// CHECK: attn.check_intervals
func.func @buffers(%u: memref<1x1x?x5xf32>, %e: memref<1x1x?xi32>, %c: memref<1x1x?xi32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x?x5xf32>, memref<1x1x?x5xf32>, memref<1x1x?x5xf32>)
      mask(%e, %c : memref<1x1x?xi32>, memref<1x1x?xi32>) outs(%u : memref<1x1x?x5xf32>) {mask = #attn.row_mask<row_change>}
  return
}

// What a gradient uses as indices, likewise.

// CHECK-LABEL: func.func @backward(
// CHECK: attn.check_intervals %[[I:.*]], %[[I]] below %c7 {name = "attn.low_rank_backward: interval"}
// CHECK-NEXT: attn.low_rank_backward
func.func @backward(%u1: memref<1x1x9x5xf32>, %u2: memref<1x1x7x5xf32>, %i: memref<1x1x9xi32>, %a: memref<1x1x9x5xf32>, %b: memref<1x1x7x5xf32>, %c: memref<1x1x7x5xf32>) {
  attn.low_rank_backward ins(%u1, %u2, %u2 : memref<1x1x9x5xf32>, memref<1x1x7x5xf32>, memref<1x1x7x5xf32>) mask(%i, %i : memref<1x1x9xi32>, memref<1x1x9xi32>)
      forward(%u1 : memref<1x1x9x5xf32>) gradient(%u1 : memref<1x1x9x5xf32>)
      outs(%a, %b, %c : memref<1x1x9x5xf32>, memref<1x1x7x5xf32>, memref<1x1x7x5xf32>) {mask = #attn.row_mask<row_interval>}
  return
}

// Lengths are at most the rows that there are.
// CHECK-LABEL: func @lengths(
//       CHECK:   attn.check_codes %{{.*}} below %c7 {name = "attn.dense: lengths"} : tensor<1x1x2xi32>
//       CHECK:   attn.check_codes %{{.*}} below %c6 {name = "attn.dense: query_lengths"} : tensor<1x1x2xi32>
//       CHECK:   attn.dense
func.func @lengths(%q: tensor<2x4x5x8xf32>, %k: tensor<2x4x6x8xf32>, %n: tensor<2xi32>) -> tensor<2x4x5x8xf32> {
  %0 = attn.dense ins(%q, %k, %k : tensor<2x4x5x8xf32>, tensor<2x4x6x8xf32>, tensor<2x4x6x8xf32>)
      lengths(%n : tensor<2xi32>) query_lengths(%n : tensor<2xi32>) outs(%q : tensor<2x4x5x8xf32>) -> tensor<2x4x5x8xf32>
  return %0 : tensor<2x4x5x8xf32>
}

// Lists name units of rows that there are, the last one perhaps in part; lengths
// count rows that are listed.
// CHECK-LABEL: func.func @lists(
//  CHECK-SAME:   %[[PAGES:[a-z0-9]+]]: tensor<2x1x1x8xi32>
//       CHECK:   attn.check_codes %{{.*}} below %c33 {name = "attn.stream: lengths of source 0"}
//       CHECK:   attn.check_codes %[[PAGES]] below %c6 {name = "attn.stream: rows of source 0", or_absent} : tensor<2x1x1x8xi32>
//       CHECK:   attn.stream
func.func @lists(%pages: tensor<2x1x1x8xi32>, %q: tensor<2x4x1x16xf32>, %k: tensor<1x2x22x16xf32>, %n: tensor<2xi32>) -> tensor<2x4x1x16xf32> {
  %0 = attn.stream query(%q : tensor<2x4x1x16xf32>)
      source(%k, %k : tensor<1x2x22x16xf32>, tensor<1x2x22x16xf32>) lengths(%n : tensor<2xi32>)
          rows(%pages : tensor<2x1x1x8xi32>) unit = 4 positions = listed
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%q : tensor<2x4x1x16xf32>) {scale = 2.5e-01 : f64} -> tensor<2x4x1x16xf32>
  return %0 : tensor<2x4x1x16xf32>
}
