!rows = memref<1x2x?x4xf32, strided<[?, ?, ?, 1]>>
func.func @turn(%x: !rows, %p: memref<1x2x?xi32>, %y: !rows) {
  attn.rope_backward ins(%p : memref<1x2x?xi32>) gradient(%x : !rows) outs(%y : !rows)
  return
}
