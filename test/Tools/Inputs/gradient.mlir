func.func @gradient(%positions: memref<1x1x?xi32>, %d: memref<1x2x?x4xf32>, %dx: memref<1x2x?x4xf32>) {
  attn.rope_backward ins(%positions : memref<1x1x?xi32>) gradient(%d : memref<1x2x?x4xf32>)
      outs(%dx : memref<1x2x?x4xf32>)
  return
}
