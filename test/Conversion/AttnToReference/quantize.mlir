// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse | FileCheck %s

// All distances, one after the other, in f64; only a lesser one wins.

// CHECK-LABEL: func.func @quantize(
//  CHECK-SAME:   %[[K:[a-z0-9]+]]: memref<1x2x9x3xbf16>, %[[C:[a-z0-9]+]]: memref<2x5x3xbf16>, %[[Z:[a-z0-9]+]]: memref<1x2x9xi32>, %[[O:[a-z0-9]+]]: memref<1x2x9x3xbf16>
//   CHECK-DAG:   %[[C0:.*]] = arith.constant 0 : index
//   CHECK-DAG:   %[[INFINITY:.*]] = arith.constant 0x7FF0000000000000 : f64
//       CHECK:   %[[LEAST:.*]] = memref.alloc() : memref<1xf64>
//       CHECK:   scf.for %[[G:[a-z0-9_]+]] =
//       CHECK:     scf.for %[[N:[a-z0-9_]+]] =
//       CHECK:       memref.store %[[INFINITY]], %[[LEAST]]
//       CHECK:       %[[CODE:.*]] = scf.for %[[S:[a-z0-9_]+]] = {{.*}} iter_args(%[[OLD:[a-z0-9_]+]] = %[[C0]]) -> (index)
//       CHECK:         %[[DISTANCE:.*]] = scf.for
//       CHECK:           memref.load %[[K]][%{{.*}}, %[[G]], %[[N]], %{{.*}}]
//       CHECK:           memref.load %[[C]][%[[G]], %[[S]], %{{.*}}]
//       CHECK:           arith.subf
//       CHECK:         %[[IS_LESS:.*]] = arith.cmpf olt, %[[DISTANCE]]
//       CHECK:         arith.select %[[IS_LESS]], %[[S]], %[[OLD]] : index
//       CHECK:         scf.if %[[IS_LESS]] {
//       CHECK:           memref.store %[[DISTANCE]], %[[LEAST]]
//       CHECK:       %[[CODE32:.*]] = arith.index_cast %[[CODE]] : index to i32
//       CHECK:       memref.store %[[CODE32]], %[[Z]]
//       CHECK:       memref.load %[[C]][%[[G]], %[[CODE]], %{{.*}}]
//       CHECK:       memref.store %{{.*}}, %[[O]]
func.func @quantize(%k: memref<1x2x9x3xbf16>, %c: memref<2x5x3xbf16>, %z: memref<1x2x9xi32>, %o: memref<1x2x9x3xbf16>) {
  attn.quantize ins(%k, %c : memref<1x2x9x3xbf16>, memref<2x5x3xbf16>) outs(%z, %o : memref<1x2x9xi32>, memref<1x2x9x3xbf16>)
  return
}

// The state is copied to f64 and back, also when there are no tokens.

// CHECK-LABEL: func.func @accumulate(
//  CHECK-SAME:   %[[Z:[a-z0-9]+]]: memref<1x2x9xi32>, %[[V:[a-z0-9]+]]: memref<1x2x9x3xf32>, %[[M:[a-z0-9]+]]: memref<1x2x?x3xf32>, %[[N:[a-z0-9]+]]: memref<1x2x?xi32>
//   CHECK-DAG:   %[[MEANS:.*]] = memref.alloc(%{{.*}}) : memref<?x3xf64>
//   CHECK-DAG:   %[[COUNTS:.*]] = memref.alloc(%{{.*}}) : memref<?xf64>
//       CHECK:   memref.load %[[N]]
//       CHECK:   memref.store %{{.*}}, %[[COUNTS]]
//       CHECK:   memref.load %[[M]]
//       CHECK:   memref.store %{{.*}}, %[[MEANS]]
//       CHECK:   %[[S:.*]] = memref.load %[[Z]]
//       CHECK:   arith.addf
//       CHECK:   memref.load %[[V]]
//       CHECK:   arith.divf
//       CHECK:   memref.store %{{.*}}, %[[MEANS]]
//       CHECK:   arith.fptosi
//       CHECK:   memref.store %{{.*}}, %[[N]]
//       CHECK:   memref.store %{{.*}}, %[[M]]
func.func @accumulate(%z: memref<1x2x9xi32>, %v: memref<1x2x9x3xf32>, %m: memref<1x2x?x3xf32>, %n: memref<1x2x?xi32>) {
  attn.codebook_accumulate ins(%z, %v : memref<1x2x9xi32>, memref<1x2x9x3xf32>) outs(%m, %n : memref<1x2x?x3xf32>, memref<1x2x?xi32>)
  return
}

// The rest leaves nothing of the dialect.

// CHECK-LABEL: func.func @rest(
//   CHECK-NOT:   attn.
//       CHECK:   math.log
//   CHECK-NOT:   attn.
//       CHECK:   return
func.func @rest(%z: memref<1x1x9xi32>, %v: memref<1x1x9x4xf32>, %m0: memref<1x1x5x4xf32>, %n0: memref<1x1x5xi32>,
                %m: memref<1x1x3x5x4xf32>, %n: memref<1x1x3x5xi32>, %w: memref<1x1x5xf32>, %c: memref<1x7x4xf32>, %f: memref<1x7xf32>) {
  attn.codebook_scan ins(%z, %v, %m0, %n0 : memref<1x1x9xi32>, memref<1x1x9x4xf32>, memref<1x1x5x4xf32>, memref<1x1x5xi32>)
      outs(%m, %n : memref<1x1x3x5x4xf32>, memref<1x1x3x5xi32>) {block = 4 : i64}
  attn.log_count ins(%n0 : memref<1x1x5xi32>) outs(%w : memref<1x1x5xf32>)
  attn.codebook_update ins(%v, %z : memref<1x1x9x4xf32>, memref<1x1x9xi32>)
      outs(%c, %c, %f : memref<1x7x4xf32>, memref<1x7x4xf32>, memref<1x7xf32>)
  return
}
