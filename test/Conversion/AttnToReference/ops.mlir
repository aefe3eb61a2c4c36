// RUN: fovea-opt %s -attn-lower-to-reference -canonicalize -cse | FileCheck %s

// One soft-max for each query row: the maximum, then weights and weighted values,
// then the division.

// CHECK-LABEL: func.func @dense(
// CHECK-SAME:    %[[Q:[a-z0-9]+]]: memref<2x4x7x5xf32>, %[[K:[a-z0-9]+]]: memref<2x2x9x5xf32>,
// CHECK-SAME:    %[[V:[a-z0-9]+]]: memref<2x2x9x3xf32>, %[[O:[a-z0-9]+]]: memref<2x4x7x3xf32>, %[[L:[a-z0-9]+]]: memref<2x4x7xf32>
//   CHECK-DAG:   %[[ROW:.*]] = memref.alloc() : memref<3xf64>
//   CHECK-DAG:   %[[C2:.*]] = arith.constant 2 : index
//   CHECK-DAG:   %[[LOWEST:.*]] = arith.constant 0xFFF0000000000000 : f64
//       CHECK:   scf.for %[[B:[a-z0-9_]+]] =
//       CHECK:     scf.for %[[H:[a-z0-9_]+]] =
//       CHECK:       %[[G:.*]] = arith.divui %[[H]], %{{.*}}
//       CHECK:       scf.for %[[I:[a-z0-9_]+]] =
// Mask by position: causal with two more keys than queries.
//       CHECK:         %[[POSITION:.*]] = arith.addi %[[I]], %[[C2]]
//       CHECK:         %[[TOP:.*]] = scf.for %[[J:[a-z0-9_]+]] = {{.*}} iter_args(%[[OLD:[a-z0-9_]+]] = %[[LOWEST]]) -> (f64)
//       CHECK:           %[[ADMITTED:.*]] = arith.cmpi sle, %[[J]], %[[POSITION]]
//       CHECK:           scf.if %[[ADMITTED]] -> (f64)
//       CHECK:             %[[DOT:.*]] = scf.for %[[D:[a-z0-9_]+]] =
//       CHECK:               %[[QD:.*]] = memref.load %[[Q]][%[[B]], %[[H]], %[[I]], %[[D]]]
//       CHECK:               arith.extf %[[QD]] : f32 to f64
//       CHECK:               %[[KD:.*]] = memref.load %[[K]][%[[B]], %[[G]], %[[J]], %[[D]]]
//       CHECK:               arith.extf %[[KD]] : f32 to f64
//       CHECK:             arith.mulf
//       CHECK:             arith.maximumf %[[OLD]]
// A row without entries has the maximum -inf.
//       CHECK:         %[[EMPTY:.*]] = arith.cmpf oeq, %[[TOP]]
//       CHECK:         %[[SUM:.*]] = scf.for
//       CHECK:           math.exp
//       CHECK:           memref.load %[[V]]
//       CHECK:           memref.store %{{.*}}, %[[ROW]]
//       CHECK:         %[[DIVISOR:.*]] = arith.select %[[EMPTY]], %{{.*}}, %[[SUM]]
//       CHECK:         arith.divf %{{.*}}, %[[DIVISOR]]
//       CHECK:         math.log %[[DIVISOR]]
//       CHECK:         arith.truncf %{{.*}} : f64 to f32
//       CHECK:         memref.store %{{.*}}, %[[O]]
//       CHECK:         memref.store %{{.*}}, %[[L]]
//   CHECK-NOT:   attn.dense
func.func @dense(%q: memref<2x4x7x5xf32>, %k: memref<2x2x9x5xf32>, %v: memref<2x2x9x3xf32>,
                 %o: memref<2x4x7x3xf32>, %l: memref<2x4x7xf32>) {
  attn.dense ins(%q, %k, %v : memref<2x4x7x5xf32>, memref<2x2x9x5xf32>, memref<2x2x9x3xf32>)
      outs(%o, %l : memref<2x4x7x3xf32>, memref<2x4x7xf32>)
      {mask = #attn.mask<causal>}
  return
}
