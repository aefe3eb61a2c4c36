// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --convert-attn-to-vector --remarks-filter='attn.*' --remark-policy=all 2>&1 | FileCheck %s --check-prefixes=CHECK,WHOLE
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 split-vectors" --convert-attn-to-vector --remarks-filter='attn.*' --remark-policy=all 2>&1 | FileCheck %s --check-prefix=SPLIT

// Columns that fill half a row, two pieces to a row; or two rows of half vectors
// side by side, if these get as much done.
// WHOLE: ConvPlanned {{.*}} Lanes=16, PiecesAbreast=1
// SPLIT: ConvPlanned {{.*}} Lanes=8, PiecesAbreast=2
// More bases than half of the columns: many windows are transformed together.
// WHOLE: ConvPlanned {{.*}} Lanes=16, PiecesAbreast=1
// SPLIT: ConvPlanned {{.*}} Lanes=16, PiecesAbreast=2
// Whole rows stay as they are.
// WHOLE: ConvPlanned {{.*}} Lanes=16, PiecesAbreast=1
// SPLIT: ConvPlanned {{.*}} Lanes=16, PiecesAbreast=1

// The weights of the next frequency, real and imaginary parts, and its pieces
// are asked for while a frequency is multiplied.
// CHECK-LABEL: func @few_bases(
// CHECK: memref.prefetch {{.*}} : memref<256x2x288xf32>
// CHECK: memref.prefetch {{.*}} : memref<256x2x288xf32>
// CHECK: memref.prefetch {{.*}} : memref<43x1x265x32xf32>
// CHECK: vector.fma
// Side by side, each of two pieces asks for half of the lines, of the next
// frequency and of its negative; products are those of half vectors.
// SPLIT-LABEL: func @few_bases(
// SPLIT: vector.shuffle {{.*}} : vector<8xf32>, vector<8xf32>
// SPLIT: memref.prefetch {{.*}} : memref<38x1x265x32xf32>
// SPLIT: memref.prefetch {{.*}} : memref<38x1x265x32xf32>
// SPLIT-COUNT-32: vector.fma {{.*}} : vector<8xf32>
func.func @few_bases(%b: memref<1x1x8x4096xf32>, %m: memref<1x1x8xi32>, %v: memref<1x1x4096x16xf32>, %o: memref<1x1x4096x16xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x8x4096xf32>, memref<1x1x8xi32>, memref<1x1x4096x16xf32>)
      outs(%o, %c : memref<1x1x4096x16xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 128 : i64}
  return
}

func.func @many_bases(%b: memref<1x1x9x4096xf32>, %m: memref<1x1x9xi32>, %v: memref<1x1x4096x16xf32>, %o: memref<1x1x4096x16xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x9x4096xf32>, memref<1x1x9xi32>, memref<1x1x4096x16xf32>)
      outs(%o, %c : memref<1x1x4096x16xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 128 : i64}
  return
}

func.func @whole_rows(%b: memref<1x1x8x4096xf32>, %m: memref<1x1x8xi32>, %v: memref<1x1x4096x48xf32>, %o: memref<1x1x4096x48xf32>, %c: memref<1x1xi32>) {
  attn.conv_apply ins(%b, %m, %v : memref<1x1x8x4096xf32>, memref<1x1x8xi32>, memref<1x1x4096x48xf32>)
      outs(%o, %c : memref<1x1x4096x48xf32>, memref<1x1xi32>) {algorithm = #attn.conv_algorithm<partitioned>, block = 128 : i64}
  return
}
