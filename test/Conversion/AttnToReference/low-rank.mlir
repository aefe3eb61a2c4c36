// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse | FileCheck %s

// Entry by entry, in f64; a mask is a condition.

// CHECK-LABEL: func.func @interval(
//  CHECK-SAME:   %[[U1:[a-z0-9]+]]: memref<1x4x9x3xbf16>, %[[U2:[a-z0-9]+]]: memref<1x2x7x3xbf16>, %[[V:[a-z0-9]+]]: memref<1x2x7x5xbf16>, %[[F:[a-z0-9]+]]: memref<1x1x9xi32>, %[[L:[a-z0-9]+]]: memref<1x4x9xi32>, %[[O:[a-z0-9]+]]: memref<1x4x9x5xbf16>
//       CHECK:   %[[SUMS:.*]] = memref.alloc() : memref<5xf64>
//       CHECK:   scf.for %[[H:[a-z0-9_]+]] = %c0 to %c4
//       CHECK:     %[[G:.*]] = arith.divui %[[H]], %c2
//       CHECK:     scf.for %[[I:[a-z0-9_]+]] = %c0 to %c9
//       CHECK:       %[[TOTAL:.*]] = scf.for %[[J:[a-z0-9_]+]] = %c0 to %c7
//       CHECK:         memref.load %[[F]][%c0, %c0, %[[I]]]
//       CHECK:         memref.load %[[L]][%{{.*}}, %[[H]], %[[I]]]
//       CHECK:         scf.if
//       CHECK:           memref.load %[[U1]][%{{.*}}, %[[H]], %[[I]], %{{.*}}]
//       CHECK:           memref.load %[[U2]][%{{.*}}, %[[G]], %[[J]], %{{.*}}]
//       CHECK:           memref.load %[[V]][%{{.*}}, %[[G]], %[[J]], %{{.*}}]
//       CHECK:       %[[ZERO:.*]] = arith.cmpf oeq, %[[TOTAL]]
//       CHECK:       arith.divf
//       CHECK:       arith.select %[[ZERO]]
//       CHECK:       memref.store %{{.*}}, %[[O]]
func.func @interval(%u1: memref<1x4x9x3xbf16>, %u2: memref<1x2x7x3xbf16>, %v: memref<1x2x7x5xbf16>, %f: memref<1x1x9xi32>, %l: memref<1x4x9xi32>, %o: memref<1x4x9x5xbf16>) {
  attn.low_rank ins(%u1, %u2, %v : memref<1x4x9x3xbf16>, memref<1x2x7x3xbf16>, memref<1x2x7x5xbf16>)
      mask(%f, %l : memref<1x1x9xi32>, memref<1x4x9xi32>) outs(%o : memref<1x4x9x5xbf16>) {mask = #attn.row_mask<row_interval>}
  return
}

// Changes of rows are followed one by one.

// CHECK-LABEL: func.func @change(
//       CHECK:   %[[PRESENT:.*]] = memref.alloc(%{{.*}}) : memref<?xf64>
//       CHECK:   memref.store %{{.*}}, %[[PRESENT]]
//       CHECK:   scf.for %[[I:[a-z0-9_]+]] = %c0 to
//       CHECK:     %[[OLD:.*]] = memref.load %[[PRESENT]]
//       CHECK:     %[[NEW:.*]] = arith.subf %{{.*}}, %[[OLD]]
//       CHECK:     memref.store %[[NEW]], %[[PRESENT]]
func.func @change(%u: memref<1x1x?x3xf32>, %e: memref<1x1x?xi32>, %c: memref<1x1x?xi32>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x?x3xf32>, memref<1x1x?x3xf32>, memref<1x1x?x3xf32>)
      mask(%e, %c : memref<1x1x?xi32>, memref<1x1x?xi32>) outs(%u : memref<1x1x?x3xf32>) {mask = #attn.row_mask<row_change>}
  return
}

// CHECK-LABEL: func.func @groups(
//       CHECK:   %[[G:.*]] = memref.load %{{.*}} : memref<1x1x9xi32>
//       CHECK:   memref.load %{{.*}} : memref<1x1x2x9xi1>
//       CHECK:   memref.load %{{.*}} : memref<1x1x2x9xi1>
func.func @groups(%u: memref<1x1x9x3xf32>, %g: memref<1x1x9xi32>, %r: memref<1x1x2x9xi1>) {
  attn.low_rank ins(%u, %u, %u : memref<1x1x9x3xf32>, memref<1x1x9x3xf32>, memref<1x1x9x3xf32>)
      mask(%g, %r : memref<1x1x9xi32>, memref<1x1x2x9xi1>) outs(%u : memref<1x1x9x3xf32>) {mask = #attn.row_mask<distinct_rows>}
  attn.low_rank ins(%u, %u, %u : memref<1x1x9x3xf32>, memref<1x1x9x3xf32>, memref<1x1x9x3xf32>)
      mask(%g, %r : memref<1x1x9xi32>, memref<1x1x2x9xi1>) outs(%u : memref<1x1x9x3xf32>) {mask = #attn.row_mask<distinct_columns>}
  return
}

// CHECK-LABEL: func.func @rope(
//       CHECK:   math.cos
//       CHECK:   math.sin
func.func @rope(%x: memref<1x1x9x4xf16>, %p: memref<1x1x9xi32>) {
  attn.rope ins(%x, %p : memref<1x1x9x4xf16>, memref<1x1x9xi32>) outs(%x : memref<1x1x9x4xf16>)
  return
}

// CHECK-LABEL: func.func @features(
//       CHECK:   memref.store %{{.*}}, %{{.*}} : memref<1x1x9x10xf32>
//       CHECK:   scf.for %{{.*}} = %c0 to %c3
//       CHECK:   math.sqrt
//       CHECK:   memref.store %{{.*}}, %{{.*}} : memref<1x1x9x10xf32>
func.func @features(%x: memref<1x1x9x3xf32>, %o: memref<1x1x9x10xf32>) {
  attn.polynomial_features ins(%x : memref<1x1x9x3xf32>) outs(%o : memref<1x1x9x10xf32>) {degree = 2 : i64, scale = 0.25 : f64}
  return
}

// Every row twice: its total, then what it passes on.

// CHECK-LABEL: func.func @backward(
//       CHECK:   scf.for
//       CHECK:     arith.divf
//       CHECK:     memref.load
//       CHECK:   return
func.func @backward(%u: memref<1x1x9x3xf32>, %a: memref<1x1x9x3xf32>, %b: memref<1x1x9x3xf32>, %c: memref<1x1x9x3xf32>, %p: memref<1x1x9x10xf32>) {
  attn.low_rank_backward ins(%u, %u, %u : memref<1x1x9x3xf32>, memref<1x1x9x3xf32>, memref<1x1x9x3xf32>)
      forward(%u : memref<1x1x9x3xf32>) gradient(%u : memref<1x1x9x3xf32>)
      outs(%a, %b, %c : memref<1x1x9x3xf32>, memref<1x1x9x3xf32>, memref<1x1x9x3xf32>) {mask = #attn.row_mask<causal>}
  attn.polynomial_features_backward ins(%u : memref<1x1x9x3xf32>) gradient(%p : memref<1x1x9x10xf32>) outs(%a : memref<1x1x9x3xf32>) {degree = 2 : i64, scale = 0.25 : f64}
  return
}
