// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector -canonicalize -cse | FileCheck %s

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

// Products of register tiles with the keys where bases begin, then with queries.
// CHECK-LABEL: func.func @recover_backward(
//  CHECK-SAME:   %[[Q:[a-z0-9]+]]: memref<1x4x200x64xbf16>, %[[K:[a-z0-9]+]]: memref<1x2x200x64xbf16>,
//       CHECK:   scf.forall {{.*}} in (4, 4) {
//       CHECK:     vector.load %[[K]]
//       CHECK:     vector.fma
//       CHECK:   scf.forall {{.*}} in (4, 5) {
//       CHECK:     vector.load %[[Q]]
//       CHECK:     vector.fma
// The heads that share a key head, one after the other.
//       CHECK:   scf.forall {{.*}} in (2, 4) {
//       CHECK:     scf.for %{{.*}} = %c0 to %c2 step %c1 {
//       CHECK:       arith.addf {{.*}} : vector<16xf32>
//   CHECK-NOT:   attn.
func.func @recover_backward(%q: memref<1x4x200x64xbf16>, %k: memref<1x2x200x64xbf16>, %m: memref<1x4x20xi32>, %d: memref<1x4x20x200xf32>,
                   %dq: memref<1x4x200x64xf32>, %dk: memref<1x2x200x64xf32>) {
  attn.conv_recover_backward ins(%q, %k, %m : memref<1x4x200x64xbf16>, memref<1x2x200x64xbf16>, memref<1x4x20xi32>)
      gradient(%d : memref<1x4x20x200xf32>) outs(%dq, %dk : memref<1x4x200x64xf32>, memref<1x2x200x64xf32>)
  return
}
