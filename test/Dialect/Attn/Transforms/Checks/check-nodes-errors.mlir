// RUN: fovea-opt %s --attn-check-nodes --verify-diagnostics

// The runtime is given pointers to rows.
func.func @strided(%t: memref<1x7x4xf32, strided<[56, 8, 2]>>, %l: memref<1x3xi32>, %o: memref<1x3x4xf32>) {
  // expected-error @below {{'attn.tree_fetch' op expects memrefs with unit stride along the last dimension, but got 'memref<1x7x4xf32, strided<[56, 8, 2]>>'}}
  attn.tree_fetch ins(%t : memref<1x7x4xf32, strided<[56, 8, 2]>>) nodes(%l, %l : memref<1x3xi32>, memref<1x3xi32>)
      outs(%o : memref<1x3x4xf32>) {shape = #attn.tree<ratio = 2, levels = 2>}
  return
}
