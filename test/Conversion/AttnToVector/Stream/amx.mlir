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
// CHECK: vector.store {{.+}} memref<64x160xbf16>, vector<32xbf16>
// CHECK: scf.for
// CHECK-COUNT-4: amx.tile_mulf {{.+}} : !amx.tile<16x32xbf16>, !amx.tile<16x32xbf16>, !amx.tile<16x16xf32>
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<128x64xf32>
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

// CHECK-LABEL: func @unrounded
// CHECK-NOT: amx.
func.func @unrounded(%q: memref<1x2x256x64xbf16>, %k: memref<1x2x256x64xbf16>, %v: memref<1x2x256x64xbf16>, %out: memref<1x2x256x64xf32>) {
  attn.stream query(%q : memref<1x2x256x64xbf16>)
      source(%k, %v : memref<1x2x256x64xbf16>, memref<1x2x256x64xbf16>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%out : memref<1x2x256x64xf32>) {scale = 1.0 : f64}
  return
}
