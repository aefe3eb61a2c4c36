// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse | FileCheck %s

// The search by halves, entry by entry in f64; a basis is the difference to the
// sum of the rounded ones before it.

// CHECK-LABEL: func.func @recover(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: memref<1x4x20x3xbf16>, %[[K:[a-z0-9]+]]: memref<1x2x20x3xbf16>, %[[B:[a-z0-9]+]]: memref<1x4x5x20xf32>, %[[M:[a-z0-9]+]]: memref<1x4x5xi32>, %[[N:[a-z0-9]+]]: memref<1x4xi32>
//       CHECK:   %[[SUM:.*]] = memref.alloc() : memref<20xf64>
//       CHECK:   scf.for %[[H:[a-z0-9_]+]] = %c0 to %c4
//       CHECK:     memref.store %c20_i32, %[[M]][%c0, %[[H]], %c0]
//       CHECK:     scf.for %[[R:.*]] = %c1 to %c5
//       CHECK:       scf.for %{{.*}} = %c0 to %c6
//       CHECK:         scf.for %{{.*}} = %c0 to %c4
//       CHECK:           math.absf
//       CHECK:       memref.store %{{.*}}, %[[M]][%c0, %[[H]], %[[R]]]
//       CHECK:       memref.store %{{.*}}, %[[N]][%c0, %[[H]]]
//       CHECK:       arith.truncf %{{.*}} : f64 to f32
//       CHECK:       memref.store %{{.*}}, %[[B]][%c0, %[[H]], %[[R]], %{{.*}}]
func.func @recover(%q: memref<1x4x20x3xbf16>, %k: memref<1x2x20x3xbf16>, %b: memref<1x4x5x20xf32>, %m: memref<1x4x5xi32>, %n: memref<1x4xi32>) {
  attn.conv_recover ins(%q, %k : memref<1x4x20x3xbf16>, memref<1x2x20x3xbf16>)
      outs(%b, %m, %n : memref<1x4x5x20xf32>, memref<1x4x5xi32>, memref<1x4xi32>) {window = 4 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64}
  return
}
