// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 amx" --attn-select-tiles --convert-attn-to-vector | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-select-tiles --convert-attn-to-vector \
// RUN:     | FileCheck %s --check-prefix=NONE
// RUN: %if host-x86_64 %{ fovea-opt %s --attn-cpu-pipeline=cpu=sapphirerapids | FileCheck %s --check-prefix=LLVM %}
// RUN: %if host-x86_64 %{ fovea-opt %s --attn-cpu-pipeline=cpu=sapphirerapids,-fast-bf16-dot | FileCheck %s --check-prefix=NONE %}
// RUN: %if host-x86_64 %{ fovea-opt %s --attn-cpu-pipeline=cpu=cooperlake | FileCheck %s --check-prefix=NONE %}

// Both products are AMX's where keys, values, queries and outputs are bf16.

// NONE-NOT: tile_mulf
// NONE-NOT: x86.t

// CHECK-LABEL: func @attend
// The values, 32 keys at a time, are transposed in pairs.
// CHECK: vector.interleave
// CHECK: vector.store {{.+}} memref<64x288xbf16>, vector<32xbf16>
// CHECK: scf.for
// CHECK-COUNT-4: amx.tile_mulf {{.+}} : !amx.tile<16x32xbf16>, !amx.tile<16x32xbf16>, !amx.tile<16x16xf32>
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<256x64xf32>
// CHECK: arith.truncf {{.+}} : vector<16xf32> to vector<16xbf16>
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<64x64xf32>
// LLVM-LABEL: llvm.func @attend
// LLVM: "llvm.x86.tdpbf16ps.internal"
func.func @attend(%q: memref<1x2x256x64xbf16>, %k: memref<1x2x256x64xbf16>, %v: memref<1x2x256x64xbf16>, %out: memref<1x2x256x64xbf16>) {
  attn.stream query(%q : memref<1x2x256x64xbf16>)
      source(%k, %v : memref<1x2x256x64xbf16>, memref<1x2x256x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x2x256x64xbf16>) {scale = 1.0 : f64}
  return
}

// Copies of 1024 keys at a time, or of up to 1536, and what 16 blocks of queries keep in between.
// CHECK-LABEL: func @windows
// CHECK-DAG: %[[PAIRS:.+]] = memref.alloc() {{.+}} : memref<16x64x128xbf16>
// CHECK-DAG: %[[OUTPUTS:.+]] = memref.alloc() {{.+}} : memref<16x128x64xf32>
// CHECK-DAG: memref.alloc() {{.+}} : memref<1632x128xbf16>
// CHECK-DAG: memref.alloc() {{.+}} : memref<128x1632xbf16>
// CHECK: memref.alloc() {{.+}} : memref<1xindex>
// CHECK-NOT: memref.alloc
// CHECK: scf.for %[[WINDOW:.+]] = %{{.+}} to %c4{{.*}} step
// CHECK: %[[BEGIN:.+]] = arith.muli %[[WINDOW]], %c1024
// CHECK: scf.for %[[QUERY:.+]] = %{{.+}} to %c1024{{.*}} step %c64
// CHECK: memref.subview %[[OUTPUTS]][
// CHECK: %[[RIGHT:.+]] = memref.subview %[[PAIRS]][
// CHECK: amx.tile_load %[[RIGHT]]
// CHECK: amx.tile_mulf
func.func @windows(%q: memref<1x2x1024x128xbf16>, %k: memref<1x2x4096x128xbf16>, %v: memref<1x2x4096x128xbf16>, %out: memref<1x2x1024x128xbf16>) {
  attn.stream query(%q : memref<1x2x1024x128xbf16>)
      source(%k, %v : memref<1x2x4096x128xbf16>, memref<1x2x4096x128xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x2x1024x128xbf16>) {scale = 1.0 : f64}
  return
}

// CHECK-LABEL: func @unrounded
// CHECK-NOT: amx.
func.func @unrounded(%q: memref<1x2x256x64xbf16>, %k: memref<1x2x256x64xbf16>, %v: memref<1x2x256x64xbf16>, %out: memref<1x2x256x64xf32>) {
  attn.stream query(%q : memref<1x2x256x64xbf16>)
      source(%k, %v : memref<1x2x256x64xbf16>, memref<1x2x256x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x2x256x64xf32>) {scale = 1.0 : f64}
  return
}

// More than four query rows on the same keys, here of one query of each head:
// whole tiles of keys are read in place, those of the end are copied, and tiles
// of 32 keys and 16 rows of scores are stored where rows begin. Values are copied
// in pairs, even columns and odd ones, weights are transposed.
// CHECK-LABEL: func @rows
// CHECK: memref.prefetch {{.+}} memref<?x64xbf16,
// CHECK: amx.tile_load {{.+}} : memref<?x64xbf16, {{.+}}> into !amx.tile<16x32xbf16>
// CHECK: amx.tile_mulf
// CHECK: amx.tile_store {{.+}} : memref<?x?xf32, strided<[?, 1]>>
// CHECK: amx.tile_load {{.+}} : memref<64x64xbf16> into !amx.tile<16x32xbf16>
// CHECK: arith.truncf {{.+}} : vector<16xf32> to vector<16xbf16>
// CHECK: arith.shrui {{.+}} : vector<16xi32>
// CHECK: vector.store {{.+}} : memref<32x128xbf16>, vector<32xbf16>
// CHECK: amx.tile_load {{.+}} : memref<16x64xf32> into !amx.tile<16x16xf32>
// CHECK: amx.tile_mulf
// CHECK: amx.tile_store {{.+}} : memref<16x64xf32>
// CHECK: return
func.func @rows(%q: memref<1x16x1x64xbf16>, %k: memref<1x1x?x64xbf16>, %out: memref<1x16x1x64xbf16>) {
  attn.stream query(%q : memref<1x16x1x64xbf16>)
      source(%k, %k : memref<1x1x?x64xbf16>, memref<1x1x?x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x16x1x64xbf16>) {scale = 1.0 : f64}
  return
}

// Four are multiplied along the columns.
// CHECK-LABEL: func @fourRows
// CHECK-NOT: amx.
func.func @fourRows(%q: memref<1x4x1x64xbf16>, %k: memref<1x1x?x64xbf16>, %out: memref<1x4x1x64xbf16>) {
  attn.stream query(%q : memref<1x4x1x64xbf16>)
      source(%k, %k : memref<1x1x?x64xbf16>, memref<1x1x?x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x4x1x64xbf16>) {scale = 1.0 : f64}
  return
}

// Key heads of pages are one task up to 16 rows: rows of all heads are packed,
// and each head multiplies its own in tiles of 32 keys. Listed rows are asked
// for whole, those of all heads before the next row.
// CHECK-LABEL: func @pages
// CHECK-DAG: memref.alloc() {{.+}} : memref<16384xbf16>
// CHECK-DAG: memref.alloc() {{.+}} : memref<128x128xf32>
// CHECK: scf.for %[[HEAD:.+]] = %{{.+}} to %[[HEADS:[^ ]+]] step
// CHECK: %[[PAIRS:.+]] = arith.muli %{{.+}}, %c64
// CHECK: arith.remui %{{.+}}, %[[HEADS]]
// CHECK: arith.divui %{{.+}}, %[[HEADS]]
// CHECK: memref.prefetch %[[KEYS:subview_[0-9]+]][%[[ROW:[0-9]+]], %c0{{.*}}], read, locality<2>, data : memref<?x128xbf16
// CHECK: memref.prefetch %[[KEYS]][%[[ROW]], %c32
// CHECK: memref.prefetch %[[KEYS]][%[[ROW]], %c64
// CHECK: memref.prefetch %[[KEYS]][%[[ROW]], %c96
// CHECK-NOT: memref.prefetch
// CHECK: amx.tile_mulf
// CHECK: return
func.func @pages(%q: memref<2x64x1x128xbf16>, %k: memref<1x8x?x128xbf16>, %l: memref<2x1x1x?xi32>, %n: memref<2xi32>, %out: memref<2x64x1x128xbf16>) {
  attn.stream query(%q : memref<2x64x1x128xbf16>)
      source(%k, %k : memref<1x8x?x128xbf16>, memref<1x8x?x128xbf16>) lengths(%n : memref<2xi32>)
      rows(%l : memref<2x1x1x?xi32>) unit = 16 positions = listed
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%out : memref<2x64x1x128xbf16>) {scale = 1.0 : f64}
  return
}
