// RUN: fovea-opt %s --convert-attn-to-vector --verify-diagnostics
// RUN: fovea-opt %s --convert-attn-to-gpu --verify-diagnostics

func.func @masked(%x: memref<1x1x16x4xf32>, %m: memref<1x16xi1>) {
  // expected-error @below {{'attn.low_rank' op expects masks of tokens to be expanded: run --attn-expand-patterns before bufferization}}
  attn.low_rank ins(%x, %x, %x : memref<1x1x16x4xf32>, memref<1x1x16x4xf32>, memref<1x1x16x4xf32>) query_mask(%m : memref<1x16xi1>)
      outs(%x : memref<1x1x16x4xf32>) {mask = #attn.row_mask<causal>}
  return
}
