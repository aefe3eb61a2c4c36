// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --canonicalize --cse | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=256 num-registers=16" --convert-attn-to-vector | FileCheck %s --check-prefix=NONE
// NONE-NOT: llvm.inline_asm

// 24 rows are three vectors of two columns of eight rows: six keys at a time,
// whose even and odd columns are added behind the last one, and outputs of
// eight pairs of columns. Weights of even and of odd rows are loaded twice.
// The last eight rows have two slots each.
// CHECK-LABEL: func.func @half(
// CHECK: scf.for %{{.+}} step %c6 {
// CHECK: :18 = scf.for
// CHECK-COUNT-3: vector.load {{.+}} vector<16xf32>
// CHECK: %[[PAIR:.+]] = vector.load {{.+}} vector<2xf32>
// CHECK-NEXT: vector.shuffle %[[PAIR]], %[[PAIR]] [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1]
// CHECK: scf.yield
// CHECK: vector.shuffle %[[SUM:.+]]#0, %[[SUM]]#1 [0, 16, 2, 18,
// CHECK-NEXT: vector.shuffle %[[SUM]]#0, %[[SUM]]#1 [1, 17, 3, 19,
// CHECK: vector.shuffle %[[SUM]]#2, %[[SUM]]#2 [0, 16, 2, 18,
// CHECK: scf.for %{{.+}} = %c0 to %c64 step %c8 {
// CHECK: :24 = scf.for
// CHECK: vector.shuffle {{.+}} [0, 0, 2, 2,
// CHECK: llvm.inline_asm
// CHECK: vector.shuffle {{.+}} [1, 1, 3, 3,
// CHECK: return
func.func @half(%q: memref<1x4x6x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x6x128xf32>) {
  attn.stream query(%q : memref<1x4x6x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x6x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// 16 rows are two such vectors: eight keys, and eleven pairs of columns, the
// last of which are nine. Of 64 pairs of columns each eighth finds a row of keys
// to ask for, and all ask for one of its lines. Values of two keys in six panels
// ask for three lines of one row.
// CHECK-LABEL: func.func @one(
// CHECK: scf.for %{{.+}} step %c8 {
// CHECK: :16 = scf.for %[[FIRST:.+]] = %c0 to %c64 step %c8
// CHECK: %[[NEXT:.+]] = arith.select
// CHECK: :16 = scf.for %{{.+}} = %[[FIRST]] to %{{.+}} step %c1
// CHECK: memref.prefetch %{{.+}}[%[[NEXT]], %{{.+}}]
// CHECK-NOT: memref.prefetch
// CHECK: scf.for %{{.+}} = %c0 to %c55 step %c11 {
// CHECK: :22 = scf.for
// CHECK: memref.prefetch %{{.+}}[%[[ROW:.+]], %{{.+}}]
// CHECK-COUNT-2: memref.prefetch %{{.+}}[%[[ROW]], %{{.+}}]
// CHECK-NOT: memref.prefetch
// CHECK: :18 = scf.for
// CHECK: return
func.func @one(%q: memref<1x4x4x128xf32>, %k: memref<1x1x512x128xf32>, %o: memref<1x4x4x128xf32>) {
  attn.stream query(%q : memref<1x4x4x128xf32>)
      source(%k, %k : memref<1x1x512x128xf32>, memref<1x1x512x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x4x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}

// Where only the call knows the rows, no sum leaves its register, and loads
// double the weights by themselves.
// RUN: fovea-compile %s --entry=open --cpu=sapphirerapids --emit=asm | FileCheck %s --check-prefix=ASM
// ASM-LABEL: open_parallel_0:
// ASM-NOT: {{vmovup[sd].+\(%rsp\).*zmm|vmovup[sd].+zmm.+\(%rsp\)}}
// ASM: vmovsldup {{.*}}(%r{{.+}}), %zmm
// ASM: vmovshdup {{.*}}(%r{{.+}}), %zmm
func.func @open(%q: memref<1x4x?x128xf32>, %k: memref<1x2x?x128xf32>, %o: memref<1x4x?x128xf32>) {
  attn.stream query(%q : memref<1x4x?x128xf32>)
      source(%k, %k : memref<1x2x?x128xf32>, memref<1x2x?x128xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x4x?x128xf32>)
      {scale = 1.0, tiles = #attn.tiles<query = 64, key = 128, lanes = 16, vectors = 4, keys = 4, columns = 4>}
  return
}
