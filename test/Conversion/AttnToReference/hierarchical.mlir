// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse -split-input-file | FileCheck %s

// 10 rows in intervals of 4: the last sum has two terms. Two sets of weights for
// four heads.

// CHECK-LABEL: func.func @summarize(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<1x4x10x3xf64>, %[[W:[a-z0-9]+]]: memref<2x2x4x3xf64>, %[[BIAS:[a-z0-9]+]]: memref<2x2x3xf64>
//   CHECK-DAG:   %[[C2:.*]] = arith.constant 2 : index
//   CHECK-DAG:   %[[C4:.*]] = arith.constant 4 : index
//   CHECK-DAG:   %[[C10:.*]] = arith.constant 10 : index
//       CHECK:   scf.for %[[G:[a-z0-9_]+]] =
//       CHECK:     %[[SET:.*]] = arith.divui %[[G]], %[[C2]]
//       CHECK:     scf.for %[[S:[a-z0-9_]+]] =
//       CHECK:       %[[U:.*]] = arith.divui %[[S]], %[[C2]]
//       CHECK:       %[[START:.*]] = arith.muli %[[U]], %[[C4]]
//       CHECK:       %[[LEFT:.*]] = arith.subi %[[C10]], %[[START]]
//       CHECK:       %[[PRESENT:.*]] = arith.minsi %[[LEFT]], %[[C4]]
//       CHECK:       scf.for %[[D:[a-z0-9_]+]] =
//       CHECK:         %[[INIT:.*]] = memref.load %[[BIAS]][%[[SET]]
//       CHECK:         scf.for %[[T:[a-z0-9_]+]] = %{{.*}} to %[[PRESENT]] step %{{.*}} iter_args(%{{.*}} = %[[INIT]])
//       CHECK:           memref.load %[[W]][%[[SET]], %{{.*}}, %[[T]], %[[D]]]
//       CHECK:           memref.load %[[X]]
func.func @summarize(%x: memref<1x4x10x3xf64>, %w: memref<2x2x4x3xf64>, %b: memref<2x2x3xf64>,
                     %o: memref<1x4x6x3xf64>) {
  attn.summarize ins(%x : memref<1x4x10x3xf64>) weights(%w : memref<2x2x4x3xf64>)
      bias(%b : memref<2x2x3xf64>) outs(%o : memref<1x4x6x3xf64>)
  return
}

// -----

// Groups of 4, two levels: intervals of 4 and 8. Summaries stay in f64 although the
// data is bf16. Ownership is tested entry by entry.

// CHECK-LABEL: func.func @fast_multipole(
//   CHECK-DAG:   %[[C0:.*]] = arith.constant 0 : index
//   CHECK-DAG:   %[[C1:.*]] = arith.constant 1 : index
//   CHECK-DAG:   %[[C2:.*]] = arith.constant 2 : index
//   CHECK-DAG:   %[[C4:.*]] = arith.constant 4 : index
//   CHECK-DAG:   %[[C8:.*]] = arith.constant 8 : index
//   CHECK-DAG:   %[[C16:.*]] = arith.constant 16 : index
// CHECK-COUNT-2: memref.alloc() : memref<1x1x{{16|8}}x4xf64>
// CHECK-COUNT-2: memref.alloc() : memref<1x1x{{16|8}}x3xf64>
// Level 0: equal or neighbouring groups.
//       CHECK:   scf.for %[[I:[a-z0-9_]+]] = %[[C0]] to %{{.*}} step %[[C1]] {
//       CHECK:     scf.for %[[J:[a-z0-9_]+]] =
//       CHECK:       arith.divui %[[J]], %[[C4]]
//       CHECK:       arith.divui %[[I]], %[[C4]]
//       CHECK:       %[[NEAR:.*]] = arith.cmpi sle, %{{.*}}, %[[C1]]
//       CHECK:       %[[PAST:.*]] = arith.cmpi sle, %[[J]], %[[I]]
//       CHECK:       arith.andi %[[NEAR]], %[[PAST]]
// Level 1: at least two intervals apart, parents neighbours, wholly past; tokens are
// left for the summary, and it counts as often as there are.
//       CHECK:     scf.for %[[S:[a-z0-9_]+]] = %[[C0]] to %[[C16]]
//       CHECK:       %[[U:.*]] = arith.divui %[[S]], %[[C2]]
//       CHECK:       %[[APART:.*]] = arith.cmpi sge, %{{.*}}, %[[C2]]
//       CHECK:       %[[PARENT:.*]] = arith.divui %[[U]], %[[C2]]
//       CHECK:       arith.divui %[[I]], %[[C8]]
//       CHECK:       %[[CLOSE:.*]] = arith.cmpi sle, %{{.*}}, %[[C1]]
//       CHECK:       arith.andi %[[APART]], %[[CLOSE]]
//       CHECK:       arith.cmpi slt, %[[U]]
//       CHECK:       arith.cmpi sgt, %{{.*}}, %[[C0]]
//       CHECK:       scf.if
//       CHECK:         %[[COUNT:.*]] = arith.minsi %{{.*}}, %[[C2]]
//       CHECK:         %[[INTEGER:.*]] = arith.index_cast %[[COUNT]]
//       CHECK:         %[[NUMBER:.*]] = arith.sitofp %[[INTEGER]]
//       CHECK:         math.log %[[NUMBER]]
func.func @fast_multipole(%q: memref<1x1x29x4xbf16>, %k: memref<1x1x29x4xbf16>,
                          %v: memref<1x1x29x3xbf16>, %kw1: memref<1x2x4x4xbf16>,
                          %kw2: memref<1x2x8x4xbf16>, %vw1: memref<1x2x4x3xbf16>,
                          %vw2: memref<1x2x8x3xbf16>, %o: memref<1x1x29x3xbf16>) {
  attn.fast_multipole
      ins(%q, %k, %v : memref<1x1x29x4xbf16>, memref<1x1x29x4xbf16>, memref<1x1x29x3xbf16>)
      key_weights(%kw1, %kw2 : memref<1x2x4x4xbf16>, memref<1x2x8x4xbf16>)
      value_weights(%vw1, %vw2 : memref<1x2x4x3xbf16>, memref<1x2x8x3xbf16>)
      outs(%o : memref<1x1x29x3xbf16>) {group = 4 : i64, causal}
  return
}

// -----

// The linear form: queries are summarised too, and every level divides by its own
// sum before the levels are added.

// CHECK-LABEL: func.func @linear(
//   CHECK-DAG:   %[[ROW:.*]] = memref.alloc() : memref<3xf64>
//   CHECK-DAG:   %[[TOTAL:.*]] = memref.alloc() : memref<3xf64>
//       CHECK:   arith.divf
//       CHECK:   memref.load %[[TOTAL]]
//       CHECK:   memref.store %{{.*}}, %[[TOTAL]]
//       CHECK:   arith.divf
//       CHECK:   memref.load %[[TOTAL]]
//       CHECK:   memref.store %{{.*}}, %[[TOTAL]]
//   CHECK-NOT:   arith.divf
//       CHECK:   return
func.func @linear(%q: memref<1x1x16x4xf64>, %v: memref<1x1x16x3xf64>, %w: memref<1x2x4x4xf64>,
                  %vw: memref<1x2x4x3xf64>, %o: memref<1x1x16x3xf64>) {
  attn.fast_multipole_linear
      ins(%q, %q, %v : memref<1x1x16x4xf64>, memref<1x1x16x4xf64>, memref<1x1x16x3xf64>)
      query_weights(%w : memref<1x2x4x4xf64>) key_weights(%w : memref<1x2x4x4xf64>)
      value_weights(%vw : memref<1x2x4x3xf64>)
      outs(%o : memref<1x1x16x3xf64>) {group = 4 : i64}
  return
}
