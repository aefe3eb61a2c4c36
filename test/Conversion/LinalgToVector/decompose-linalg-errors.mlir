// RUN: fovea-opt %s --split-input-file --attn-decompose-linalg --verify-diagnostics

func.func @buffers(%x: memref<4x8xf32>, %o: memref<4x8xf32>) {
  // expected-error @below {{'linalg.softmax' op is taken apart on tensors only, but found memrefs}}
  linalg.softmax dimension(1) ins(%x : memref<4x8xf32>) outs(%o : memref<4x8xf32>)
  return
}

// -----

func.func @tiles(%x: tensor<8x8xf32>, %n: index, %p: tensor<?x8x?xf32>) -> tensor<?x8x?xf32> {
  // expected-error @below {{'linalg.pack' op of these shapes cannot be taken apart into loops}}
  %0 = linalg.pack %x inner_dims_pos = [0] inner_tiles = [%n] into %p : tensor<8x8xf32> -> tensor<?x8x?xf32>
  return %0 : tensor<?x8x?xf32>
}
