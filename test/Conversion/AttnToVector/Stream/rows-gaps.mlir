// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s

// Behind the 96 rows of a head lie others, as in a cache that has more room: in
// place of these, lines of the next head are asked for.
// CHECK-LABEL: func.func @gaps(
// CHECK: %[[STRIDES:[a-z]+]]:4 = memref.extract_strided_metadata %arg1
// CHECK: %[[NEXT:.+]] = arith.subi %[[STRIDES]]#1, %c6144
// CHECK: %[[IS_OWN:.+]] = arith.cmpi slt, %[[ROW:.+]], %c96
// CHECK: %[[FURTHER:.+]] = arith.select %[[IS_OWN]], %c0, %[[NEXT]]
// CHECK: memref.prefetch %{{.+}}[%[[ROW]], %[[FURTHER]]], read
// CHECK: :4 = scf.for
// CHECK: %[[IS_OWN_VALUE:.+]] = arith.cmpi slt, %[[VALUE:.+]], %c96
// CHECK: %[[FURTHER:.+]] = arith.select %[[IS_OWN_VALUE]], %c0, %{{.+}}
// CHECK: memref.prefetch %{{.+}}[%[[VALUE]], %[[FURTHER]]], read
// CHECK: return
!gaps = memref<1x2x96x64xf32, strided<[?, ?, 64, 1]>>
func.func @gaps(%q: memref<1x2x1x64xf32>, %k: !gaps, %o: memref<1x2x1x64xf32>) {
  attn.stream query(%q : memref<1x2x1x64xf32>)
      source(%k, %k : !gaps, !gaps) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x2x1x64xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Of a single head none is the next one.
// CHECK-LABEL: func.func @single(
// CHECK: memref.prefetch
// CHECK-NOT: memref.extract_strided_metadata
// CHECK: return
!single = memref<1x1x96x64xf32, strided<[?, ?, 64, 1]>>
func.func @single(%q: memref<1x1x1x64xf32>, %k: !single, %o: memref<1x1x1x64xf32>) {
  attn.stream query(%q : memref<1x1x1x64xf32>)
      source(%k, %k : !single, !single) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x1x64xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}
