func.func @f(%q: memref<1x1x32x16xf32>, %o: memref<1x1x32x16xf32>) {
  attn.stream query(%q : memref<1x1x32x16xf32>)
      source(%q, %q : memref<1x1x32x16xf32>, memref<1x1x32x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o : memref<1x1x32x16xf32>) {scale = 0.25 : f64}
  return
}
