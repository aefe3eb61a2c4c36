// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32 amx" --attn-select-tiles --convert-attn-to-vector | FileCheck %s
// RUN: fovea-opt %s --attn-set-target="vector-bits=512 num-registers=32" --attn-select-tiles --convert-attn-to-vector \
// RUN:     | FileCheck %s --check-prefix=NONE
// RUN: %if host-x86_64 %{ fovea-opt %s --attn-cpu-pipeline=cpu=sapphirerapids | FileCheck %s --check-prefix=LLVM %}
// RUN: %if host-x86_64 %{ fovea-opt %s --attn-cpu-pipeline=cpu=cooperlake | FileCheck %s --check-prefix=NONE %}

// All five products are AMX's where rows, queries and outputs are bf16, in
// blocks of 128 queries; each has four sums at a time.

// NONE-NOT: tile_mulf
// NONE-NOT: x86.t

// CHECK-LABEL: func @gradients
// Scores, and gradients of weights.
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<128x128xf32>
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<128x128xf32>
// Pairs of rows, of the gradients of scores.
// CHECK: arith.truncf {{.+}} : vector<16xf32> to vector<16xbf16>
// CHECK: vector.interleave
// Gradients of queries are added to; those of values and keys are not.
// CHECK-COUNT-4: amx.tile_load {{.+}} : memref<64x128xf32>
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<64x128xf32>
// CHECK-COUNT-4: amx.tile_zero
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<128x64xf32>
// CHECK-COUNT-4: amx.tile_zero
// CHECK-COUNT-4: amx.tile_mulf
// CHECK-COUNT-4: amx.tile_store {{.+}} : memref<128x64xf32>
// LLVM-LABEL: llvm.func @gradients
// LLVM: "llvm.x86.tdpbf16ps.internal"
!rows = memref<1x2x256x64xbf16>
!sums = memref<1x2x256x64xf32>
func.func @gradients(%q: !rows, %k: !rows, %v: !rows, %o: !rows, %l: memref<1x2x256xf32>, %d: !rows, %dq: !sums, %dk: !sums, %dv: !sums) {
  attn.stream_backward query(%q : !rows)
      source(%k, %v : !rows, !rows) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !rows, memref<1x2x256xf32>) gradient(%d : !rows)
      outs(%dq, %dk, %dv : !sums, !sums, !sums) {scale = 1.0 : f64}
  return
}
