// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s --check-prefix=ONE

// A single row times each of eight keys, with 16 registers: eight products are
// written out, and a loop is left, so that each key is read to its end before
// the next one. With 32 registers a turn of the loop is one product.
// CHECK-LABEL: func.func @single(
// CHECK: scf.for %{{.+}} = %c0 to %c128 step %c64 {{.*}}-> (vector<8xf32>)
// CHECK-COUNT-8: vector.fma
// CHECK-NOT: vector.fma
// CHECK: scf.yield %{{[^,]+}} : vector<8xf32>
// CHECK: scf.for %{{.+}} = %c0 to %c128 step %c64 {{.*}}-> (vector<8xf32>)
// CHECK: return
// ONE-LABEL: func.func @single(
// ONE: scf.for %{{.+}} = %c0 to %c128 step %c8 {{.*}}-> (vector<8xf32>)
// ONE-COUNT-1: vector.fma
// ONE-NOT: vector.fma
// ONE: scf.yield %{{[^,]+}} : vector<8xf32>
func.func @single(%q: memref<1x1x1x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x1x1x128xf32>) {
  attn.stream query(%q : memref<1x1x1x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x1x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}

// Nine turns are not twice an even number of them.
// CHECK-LABEL: func.func @odd(
// CHECK: scf.for %{{.+}} = %c0 to %c72 step %c8 {{.*}}-> (vector<8xf32>)
// CHECK: return
func.func @odd(%q: memref<1x1x1x72xf32>, %k: memref<1x1x512x72xf32>, %o: memref<1x1x1x72xf32>) {
  attn.stream query(%q : memref<1x1x1x72xf32>)
      source(%k, %k : memref<1x1x512x72xf32>, memref<1x1x512x72xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x1x72xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 8, key = 128, lanes = 8, vectors = 1, keys = 8, columns = 8>}
  return
}
