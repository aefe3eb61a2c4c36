// RUN: fovea-opt %s --convert-attn-to-vector --split-input-file --verify-diagnostics

func.func @tensors(%t: tensor<1x7x16xf32>, %o: tensor<1x4x16xf32>) -> tensor<1x4x16xf32> {
  // expected-error @below {{'attn.tree_materialize' op expects operands to be memrefs, but got tensors}}
  %0 = attn.tree_materialize ins(%t : tensor<1x7x16xf32>) outs(%o : tensor<1x4x16xf32>) {shape = #attn.tree<ratio = 2, levels = 2>} -> tensor<1x4x16xf32>
  return %0 : tensor<1x4x16xf32>
}

// -----

func.func @strided(%t: memref<1x7x16xf32, strided<[224, 32, 2]>>, %o: memref<1x4x16xf32>) {
  // expected-error @below {{'attn.tree_materialize' op expects unit stride along the width, but got 'memref<1x7x16xf32, strided<[224, 32, 2]>>'}}
  attn.tree_materialize ins(%t : memref<1x7x16xf32, strided<[224, 32, 2]>>) outs(%o : memref<1x4x16xf32>) {shape = #attn.tree<ratio = 2, levels = 2>}
  return
}
