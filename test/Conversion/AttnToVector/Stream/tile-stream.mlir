// RUN: fovea-opt %s --attn-tile-stream --canonicalize | FileCheck %s

// One parallel loop over (batch, head, query tile). Two query heads share the
// keys of one head; a tile knows its place in the sequence.

// CHECK: #[[$HEAD:.+]] = affine_map<(d0) -> (d0 floordiv 2)>
// CHECK-LABEL: func @tile
// CHECK: scf.forall (%[[B:.+]], %[[H:.+]], %[[Q:.+]]) = (0, 0, 0) to (2, 4, 128) step (1, 1, 64) shared_outs(%[[OUT:.+]] = %{{.+}}, %[[LSE:.+]] = %{{.+}})
// CHECK: %[[KH:.+]] = affine.apply #[[$HEAD]](%[[H]])
// CHECK: tensor.extract_slice %{{.+}}[%[[B]], %[[KH]], 0, 0] [1, 1, 96, 16]
// CHECK: tensor.extract_slice %{{.+}}[%[[B]], %[[H]], %[[Q]], 0] [1, 1, 64, 16]
// CHECK: attn.stream
// CHECK: tile(%[[Q]] of %c128)
// CHECK: tensor.parallel_insert_slice %{{.+}} into %[[OUT]][%[[B]], %[[H]], %[[Q]], 0]
// CHECK: tensor.parallel_insert_slice %{{.+}} into %[[LSE]][%[[B]], %[[H]], %[[Q]]]
func.func @tile(%q: tensor<2x4x128x16xf32>, %k: tensor<2x2x96x16xf32>, %o: tensor<2x4x128x16xf32>, %l: tensor<2x4x128xf32>)
    -> (tensor<2x4x128x16xf32>, tensor<2x4x128xf32>) {
  %out:2 = attn.stream query(%q : tensor<2x4x128x16xf32>)
      source(%k, %k : tensor<2x2x96x16xf32>, tensor<2x2x96x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%o, %l : tensor<2x4x128x16xf32>, tensor<2x4x128xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>}
      -> tensor<2x4x128x16xf32>, tensor<2x4x128xf32>
  return %out#0, %out#1 : tensor<2x4x128x16xf32>, tensor<2x4x128xf32>
}

// Without tiles nothing happens.
// CHECK-LABEL: func @noTiles
// CHECK-NOT: scf.forall
func.func @noTiles(%q: tensor<1x1x64x16xf32>) -> tensor<1x1x64x16xf32> {
  %out = attn.stream query(%q : tensor<1x1x64x16xf32>)
      source(%q, %q : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x1x64x16xf32>) {scale = 1.0 : f64} -> tensor<1x1x64x16xf32>
  return %out : tensor<1x1x64x16xf32>
}

// Few queries stay whole, for all heads that share their keys.
// CHECK-LABEL: func @few
// CHECK-NOT: scf.forall
// CHECK: attn.stream query(%{{.+}} : tensor<1x4x48x16xf32>)
func.func @few(%q: tensor<1x4x48x16xf32>, %k: tensor<1x2x96x16xf32>) -> tensor<1x4x48x16xf32> {
  %out = attn.stream query(%q : tensor<1x4x48x16xf32>)
      source(%k, %k : tensor<1x2x96x16xf32>, tensor<1x2x96x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x4x48x16xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>} -> tensor<1x4x48x16xf32>
  return %out : tensor<1x4x48x16xf32>
}

// Of blocks, no more than one is: the others may read other keys.
// CHECK-LABEL: func @block
// CHECK: scf.forall
func.func @block(%q: tensor<1x4x48x16xf32>, %k: tensor<1x2x96x16xf32>) -> tensor<1x4x48x16xf32> {
  %out = attn.stream query(%q : tensor<1x4x48x16xf32>)
      source(%k, %k : tensor<1x2x96x16xf32>, tensor<1x2x96x16xf32>) ranges [affine_map<(b)[rows, n] -> (b * 32, rows)>]
      outs(%q : tensor<1x4x48x16xf32>)
      {block = 32 : i64, scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>} -> tensor<1x4x48x16xf32>
  return %out : tensor<1x4x48x16xf32>
}

// Where only the call knows how many there are, it asks.
// CHECK-LABEL: func @open
// CHECK: %[[N:.+]] = tensor.dim %{{.+}}, %c2
// CHECK: %[[ARE_FEW:.+]] = arith.cmpi sle, %[[N]], %c48
// CHECK: scf.if %[[ARE_FEW]]
// CHECK-NOT: scf.forall
// CHECK: attn.stream query(%{{.+}} : tensor<1x4x?x16xf32>)
// CHECK: } else {
// CHECK: scf.forall
func.func @open(%q: tensor<1x4x?x16xf32>, %k: tensor<1x2x?x16xf32>) -> tensor<1x4x?x16xf32> {
  %out = attn.stream query(%q : tensor<1x4x?x16xf32>)
      source(%k, %k : tensor<1x2x?x16xf32>, tensor<1x2x?x16xf32>) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%q : tensor<1x4x?x16xf32>)
      {scale = 1.0 : f64, tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 4, columns = 4>} -> tensor<1x4x?x16xf32>
  return %out : tensor<1x4x?x16xf32>
}
