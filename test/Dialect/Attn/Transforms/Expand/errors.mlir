// RUN: fovea-opt %s --attn-expand-patterns --split-input-file --verify-diagnostics

func.func @buffers(%x: memref<1x1x16x4xf32>, %w: memref<1x2x4x4xf32>, %o: memref<1x1x16x4xf32>) {
  // expected-error @below {{'attn.fast_multipole' op expects tensors to be expanded, but got memrefs: expand patterns before bufferization}}
  attn.fast_multipole
      ins(%x, %x, %x : memref<1x1x16x4xf32>, memref<1x1x16x4xf32>, memref<1x1x16x4xf32>)
      key_weights(%w : memref<1x2x4x4xf32>) value_weights(%w : memref<1x2x4x4xf32>)
      outs(%o : memref<1x1x16x4xf32>) {group = 4 : i64}
  return
}

// -----

func.func @linear_buffers(%x: memref<1x1x16x4xf32>, %w: memref<1x2x4x4xf32>, %o: memref<1x1x16x4xf32>) {
  // expected-error @below {{'attn.fast_multipole_linear' op expects tensors to be expanded, but got memrefs: expand patterns before bufferization}}
  attn.fast_multipole_linear
      ins(%x, %x, %x : memref<1x1x16x4xf32>, memref<1x1x16x4xf32>, memref<1x1x16x4xf32>)
      query_weights(%w : memref<1x2x4x4xf32>) key_weights(%w : memref<1x2x4x4xf32>)
      value_weights(%w : memref<1x2x4x4xf32>)
      outs(%o : memref<1x1x16x4xf32>) {group = 4 : i64}
  return
}

// -----

func.func @quantized_buffers(%q: memref<1x1x16x4xf32>, %z: memref<1x1x16xi32>, %c: memref<1x5x4xf32>, %o: memref<1x1x16x4xf32>) {
  // expected-error @below {{'attn.vq' op expects tensors to be expanded, but got memrefs: expand patterns before bufferization}}
  attn.vq ins(%q, %z, %q, %c : memref<1x1x16x4xf32>, memref<1x1x16xi32>, memref<1x1x16x4xf32>, memref<1x5x4xf32>)
      outs(%o : memref<1x1x16x4xf32>) {block = 4 : i64}
  return
}

// -----

func.func @masked_buffers(%x: memref<1x1x16x4xf32>, %m: memref<1x16xi1>) {
  // expected-error @below {{'attn.low_rank' op expects tensors to be expanded, but got memrefs: expand patterns before bufferization}}
  attn.low_rank ins(%x, %x, %x : memref<1x1x16x4xf32>, memref<1x1x16x4xf32>, memref<1x1x16x4xf32>) key_mask(%m : memref<1x16xi1>)
      outs(%x : memref<1x1x16x4xf32>) {mask = #attn.row_mask<causal>}
  return
}

// -----

func.func @mixing_buffers(%x: memref<1x1x16x4xf32>, %w: memref<1x2x4x4x4xf32>, %o: memref<1x1x8x4xf32>) {
  // expected-error @below {{'attn.summarize' op expects tensors to be expanded, but got memrefs: expand patterns before bufferization}}
  attn.summarize ins(%x : memref<1x1x16x4xf32>) weights(%w : memref<1x2x4x4x4xf32>) outs(%o : memref<1x1x8x4xf32>)
  return
}
