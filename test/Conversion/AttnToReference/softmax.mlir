// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse -split-input-file | FileCheck %s

// A window without causality looks both ways.

// CHECK-LABEL: func.func @window(
//       CHECK:   %[[W:.*]] = arith.constant 3 : index
//       CHECK:   %[[AFTER:.*]] = arith.subi
//       CHECK:   %[[BEFORE:.*]] = arith.subi
//       CHECK:   %[[DISTANCE:.*]] = arith.maxsi %[[AFTER]], %[[BEFORE]]
//       CHECK:   arith.cmpi slt, %[[DISTANCE]], %[[W]]
func.func @window(%q: memref<1x1x8x4xf64>, %k: memref<1x1x8x4xf64>, %o: memref<1x1x8x4xf64>) {
  attn.dense ins(%q, %k, %k : memref<1x1x8x4xf64>, memref<1x1x8x4xf64>, memref<1x1x8x4xf64>)
      outs(%o : memref<1x1x8x4xf64>) {mask = #attn.mask<window = 3>}
  return
}

// -----

// Extents of 1 broadcast; an entry whose log weight or bias is -inf is absent, and
// so is not read.

// CHECK-LABEL: func.func @terms(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<1x1x6xf32>, %[[X:[a-z0-9]+]]: memref<2x1x?x6xf32>
//   CHECK-DAG:   %[[C0:.*]] = arith.constant 0 : index
//       CHECK:   scf.for %[[B:[a-z0-9_]+]] =
//       CHECK:     scf.for
//       CHECK:       scf.for %[[I:[a-z0-9_]+]] =
//       CHECK:         scf.for %[[J:[a-z0-9_]+]] =
//       CHECK:           memref.load %[[W]][%[[C0]], %[[C0]], %[[J]]]
//       CHECK:           memref.load %[[X]][%[[B]], %[[C0]], %[[I]], %[[J]]]
//       CHECK:           %[[HAS_WEIGHT:.*]] = arith.cmpf une
//       CHECK:           %[[HAS_BIAS:.*]] = arith.cmpf une
//       CHECK:           %[[PRESENT:.*]] = arith.andi %[[HAS_WEIGHT]], %[[HAS_BIAS]]
//       CHECK:           scf.if %[[PRESENT]]
func.func @terms(%q: memref<2x2x?x4xbf16>, %k: memref<2x1x6x4xbf16>, %w: memref<1x1x6xf32>,
                 %x: memref<2x1x?x6xf32>, %o: memref<2x2x?x4xbf16>) {
  attn.dense ins(%q, %k, %k : memref<2x2x?x4xbf16>, memref<2x1x6x4xbf16>, memref<2x1x6x4xbf16>)
      log_weight(%w : memref<1x1x6xf32>) bias(%x : memref<2x1x?x6xf32>)
      outs(%o : memref<2x2x?x4xbf16>)
  return
}

// -----

// Small types convert through f32.

// CHECK-LABEL: func.func @half(
//       CHECK:   arith.extf %{{.*}} : f16 to f32
//       CHECK:   arith.extf %{{.*}} : f32 to f64
//       CHECK:   arith.truncf %{{.*}} : f64 to f32
//       CHECK:   arith.truncf %{{.*}} : f32 to f16
func.func @half(%q: memref<1x1x8x4xf16>, %o: memref<1x1x8x4xf16>) {
  attn.dense ins(%q, %q, %q : memref<1x1x8x4xf16>, memref<1x1x8x4xf16>, memref<1x1x8x4xf16>)
      outs(%o : memref<1x1x8x4xf16>)
  return
}

// -----

// A tile: the block index counts from the start of the sequence. Ranges are cut to
// the rows there are, and a map of four results to its own limits.

// CHECK-LABEL: func.func @stream(
// CHECK-SAME:    %[[FIRST:[a-z0-9]+]]: index, %{{[a-z0-9]+}}: index)
//   CHECK-DAG:   %[[C0:.*]] = arith.constant 0 : index
//   CHECK-DAG:   %[[C16:.*]] = arith.constant 16 : index
//   CHECK-DAG:   %[[C4:.*]] = arith.constant 4 : index
//   CHECK-DAG:   %[[C32:.*]] = arith.constant 32 : index
//       CHECK:   scf.for %[[I:[a-z0-9_]+]] =
//       CHECK:     %[[POSITION:.*]] = arith.addi %[[FIRST]], %[[I]]
//       CHECK:     %[[BLOCK:.*]] = arith.divui %[[POSITION]], %[[C16]]
//       CHECK:     %[[BEGIN:.*]] = arith.maxsi %{{.*}}, %[[C0]]
//       CHECK:     %[[END:.*]] = arith.minsi %{{.*}}, %[[C32]]
//       CHECK:     %[[NEAR:.*]] = scf.for %{{.*}} = %[[BEGIN]] to %[[END]]
//       CHECK:     %[[CUT:.*]] = arith.maxsi %{{.*}}, %[[C0]]
//       CHECK:     %[[LOWER:.*]] = arith.maxsi %[[CUT]], %[[C4]]
//       CHECK:     scf.for %{{.*}} = %[[LOWER]] to %{{.*}} iter_args(%{{.*}} = %[[NEAR]])
func.func @stream(%q: memref<1x1x8x4xf64>, %k: memref<1x1x32x4xf64>, %s: memref<1x1x9x4xf64>,
                  %o: memref<1x1x8x4xf64>, %first: index, %num: index) {
  attn.stream query(%q : memref<1x1x8x4xf64>)
      source(%k, %k : memref<1x1x32x4xf64>, memref<1x1x32x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>]
      source(%s, %s : memref<1x1x9x4xf64>, memref<1x1x9x4xf64>)
          ranges [affine_map<(b)[rows, n] -> (b - 2, b + 4, 4, 8)>]
      tile(%first of %num) outs(%o : memref<1x1x8x4xf64>)
      {block = 16 : i64, scale = 1.0 : f64}
  return
}
