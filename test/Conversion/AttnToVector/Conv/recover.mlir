// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize | FileCheck %s

// Searches, then scores, then differences in f64.

// CHECK-LABEL: func.func @recover(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: memref<2x4x3000x32xf32>, %[[K:[a-z0-9]+]]: memref<2x2x3000x32xf32>, %[[B:[a-z0-9]+]]: memref<2x4x8x3000xf32>, %[[M:[a-z0-9]+]]: memref<2x4x8xi32>, %[[N:[a-z0-9]+]]: memref<2x4xi32>
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}) in (2, 4)
//       CHECK:     memref.store %{{.*}}, %[[M]]
//       CHECK:     scf.for %{{.*}} = %c0 to %c13 step %c1
//       CHECK:       vector.reduction <add>
//       CHECK:       math.absf
//       CHECK:       arith.cmpf oge
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (2, 4, 6)
//       CHECK:     vector.shuffle
//       CHECK:     vector.fma {{.*}} : vector<16xf32>
//       CHECK:     vector.store %{{.*}}, %[[B]]
//       CHECK:   scf.forall (%{{.*}}, %{{.*}}, %{{.*}}) in (2, 4, 2)
//       CHECK:     arith.subf %{{.*}} : vector<16xf64>
//       CHECK:     arith.truncf %{{.*}} : vector<16xf64> to vector<16xf32>
//       CHECK:     vector.store %{{.*}}, %[[B]]
func.func @recover(%q: memref<2x4x3000x32xf32>, %k: memref<2x2x3000x32xf32>, %b: memref<2x4x8x3000xf32>, %m: memref<2x4x8xi32>, %n: memref<2x4xi32>) {
  attn.conv_recover ins(%q, %k : memref<2x4x3000x32xf32>, memref<2x2x3000x32xf32>)
      outs(%b, %m, %n : memref<2x4x8x3000xf32>, memref<2x4x8xi32>, memref<2x4xi32>) {window = 16 : i64, delta = 1.0 : f64, epsilon = 0.0 : f64}
  return
}
