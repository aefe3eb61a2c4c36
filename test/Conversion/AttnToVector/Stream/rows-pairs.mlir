// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 bf16-pairs" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector | FileCheck %s --check-prefix=NONE
// NONE-NOT: dot

// Eight rows: scores have vectors of columns, four rows and two keys at a time,
// and weights are rounded for outputs of four rows and 64 columns.
// CHECK-LABEL: func.func @eight(
// CHECK: :8 = scf.for
// CHECK-COUNT-16: x86vector.avx512.dot
// CHECK: arith.truncf %{{.+}} : vector<16xf32> to vector<16xbf16>
// CHECK: :16 = scf.for %{{.+}} step %c2
// CHECK-COUNT-16: x86vector.avx512.dot
// CHECK: return
func.func @eight(%q: memref<1x8x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x8x1x64xbf16>) {
  attn.stream query(%q : memref<1x8x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x64xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Weights of four rows are not rounded.
// CHECK-LABEL: func.func @four(
// CHECK-COUNT-16: x86vector.avx512.dot
// CHECK-NOT: x86vector.avx512.dot
// CHECK: return
func.func @four(%q: memref<1x4x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x4x1x64xbf16>) {
  attn.stream query(%q : memref<1x4x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x1x64xbf16>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}

// Outputs in f32 want weights that are not rounded.
// CHECK-LABEL: func.func @unrounded(
// CHECK-NOT: x86vector.avx512.dot
// CHECK: return
func.func @unrounded(%q: memref<1x8x1x64xbf16>, %k: memref<1x1x512x64xbf16>, %o: memref<1x8x1x64xf32>) {
  attn.stream query(%q : memref<1x8x1x64xbf16>)
      source(%k, %k : memref<1x1x512x64xbf16>, memref<1x1x512x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x8x1x64xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 16, key = 128, lanes = 16, vectors = 1, keys = 8, columns = 8>}
  return
}
