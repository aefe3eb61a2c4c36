// RUN: fovea-opt %s --attn-expand-conv --verify-diagnostics

func.func @buffers(%q: memref<1x1x22x6xf32>, %n: memref<1x1xi32>) {
  // expected-error @below {{'attn.conv' op expects tensors to be expanded, but got memrefs: expand before bufferization}}
  attn.conv ins(%q, %q, %q : memref<1x1x22x6xf32>, memref<1x1x22x6xf32>, memref<1x1x22x6xf32>)
      outs(%q, %n, %n : memref<1x1x22x6xf32>, memref<1x1xi32>, memref<1x1xi32>)
      {num_basis = 2 : i64, window = 1 : i64, delta = 0.0 : f64, epsilon = 0.0 : f64}
  return
}
