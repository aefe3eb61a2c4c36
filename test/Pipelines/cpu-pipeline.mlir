// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=PASSES
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v3 | FileCheck %s --check-prefixes=CHECK,AVX2
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64-v4 | FileCheck %s --check-prefixes=CHECK,AVX512
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=znver4 --dump-pass-pipeline -o /dev/null 2>&1 | FileCheck %s --check-prefix=ZEN
// RUN: fovea-opt %s --attn-cpu-pipeline=cpu=x86-64 | FileCheck %s --check-prefixes=CHECK,SSE

// The order in which a pattern becomes code; a change of it has to be made here.

// PASSES: attn-set-target{amx=false bf16-pairs=false gpu=false num-registers=16 separate-adds=false shared-bytes=166912 split-vectors=false vector-bits=256
// PASSES: attn-prepare-products
// PASSES: attn-find-masks
// PASSES: attn-expand-conv
// PASSES: attn-check-shapes
// PASSES: attn-check-codes
// PASSES: attn-expand-patterns
// PASSES: convert-elementwise-to-linalg
// PASSES: attn-fuse-elementwise
// PASSES: empty-tensor-to-alloc-tensor
// ZEN: attn-set-target{amx=false bf16-pairs=true gpu=false num-registers=32 separate-adds=true shared-bytes=166912 split-vectors=true vector-bits=512

// PASSES: attn-select-tiles
// PASSES: attn-tile-stream
// PASSES: attn-check-memory
// PASSES: attn-prepare-entry-points
// PASSES: one-shot-bufferize
// PASSES: optimize-allocation-liveness
// PASSES: attn-check-nodes
// PASSES: attn-check-sizes
// PASSES: attn-vectorize-linalg
// PASSES: convert-linalg-to-loops
// PASSES: convert-attn-to-vector{manage-cache=true min-tasks=2
// PASSES: attn-outline-parallel
// PASSES: duplicate-function-elimination
// PASSES: attn-convert-to-llvm
// PASSES: reconcile-unrealized-casts

// Everything becomes the LLVM dialect; vectors are as wide as the CPU's. Keys and
// values are summarised by one function.

// CHECK-NOT: unrealized_conversion_cast
// CHECK-DAG: llvm.func @fovea_rt_parallel_for(
// CHECK-DAG: llvm.func @_mlir_ciface_attend(
// AVX512: vector<16xf32>
// AVX2: vector<8xf32>
// AVX2-NOT: vector<16xf32>
// SSE: vector<4xf32>
// SSE-NOT: vector<8xf32>

func.func @attend(%q: tensor<1x2x256x16xf32>, %k: tensor<1x2x256x16xf32>, %v: tensor<1x2x256x16xf32>,
                  %kw: tensor<1x4x64x16xf32>, %vw: tensor<1x4x64x16xf32>) -> tensor<1x2x256x16xf32> {
  %init = tensor.empty() : tensor<1x2x256x16xf32>
  %out = attn.fast_multipole
      ins(%q, %k, %v : tensor<1x2x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x16xf32>)
      key_weights(%kw : tensor<1x4x64x16xf32>) value_weights(%vw : tensor<1x4x64x16xf32>)
      outs(%init : tensor<1x2x256x16xf32>) {group = 64 : i64, causal} -> tensor<1x2x256x16xf32>
  return %out : tensor<1x2x256x16xf32>
}
