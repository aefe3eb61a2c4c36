// RUN: fovea-opt %s --attn-set-target="gpu warpgroups shared-bytes=232448" --attn-select-gpu-tiles --split-input-file --verify-diagnostics

// Clusters that are written down where blocks cannot share tiles.
#tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @odd(%q: tensor<1x6x?x64xf16>, %k: tensor<1x2x?x64xf16>) -> tensor<1x6x?x64xf16> {
  // expected-error@+1 {{cluster = 2> and 6 heads of queries for 2 of keys, but blocks of a cluster share tiles of keys and values alone, up to 128 columns, for an even number of heads of queries to each head of keys}}
  %r = attn.stream query(%q : tensor<1x6x?x64xf16>) source(%k, %k : tensor<1x2x?x64xf16>, tensor<1x2x?x64xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x6x?x64xf16>) {scale = 1.0 : f64, tiles = #tiles} -> tensor<1x6x?x64xf16>
  return %r : tensor<1x6x?x64xf16>
}

// -----

#tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @unknown(%q: tensor<1x?x?x64xf16>, %k: tensor<1x2x?x64xf16>) -> tensor<1x?x?x64xf16> {
  // expected-error@+1 {{cluster = 2> and a number of heads that is not known, but blocks of a cluster}}
  %r = attn.stream query(%q : tensor<1x?x?x64xf16>) source(%k, %k : tensor<1x2x?x64xf16>, tensor<1x2x?x64xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x?x?x64xf16>) {scale = 1.0 : f64, tiles = #tiles} -> tensor<1x?x?x64xf16>
  return %r : tensor<1x?x?x64xf16>
}

// -----

#tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @terms(%q: tensor<1x2x?x64xf16>, %k: tensor<1x1x?x64xf16>, %w: tensor<1x1x?xf32>) -> tensor<1x2x?x64xf16> {
  // expected-error@+1 {{cluster = 2> and terms or functions of scores, but blocks of a cluster}}
  %r = attn.stream query(%q : tensor<1x2x?x64xf16>) source(%k, %k : tensor<1x1x?x64xf16>, tensor<1x1x?x64xf16>) log_weight(%w : tensor<1x1x?xf32>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x2x?x64xf16>) {scale = 1.0 : f64, tiles = #tiles} -> tensor<1x2x?x64xf16>
  return %r : tensor<1x2x?x64xf16>
}

// -----

#tiles = #attn.tiles<query = 128, key = 128, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @table(%q: tensor<1x2x?x64xf16>, %k: tensor<1x1x?x64xf16>) -> tensor<1x2x?x64xf16> {
  // expected-error@+1 {{cluster = 2> and ranges of a few rows, which are listed, but blocks of a cluster}}
  %r = attn.stream query(%q : tensor<1x2x?x64xf16>) source(%k, %k : tensor<1x1x?x64xf16>, tensor<1x1x?x64xf16>)
      ranges [affine_map<(b)[rows, n] -> (b, b + 4)>, affine_map<(b)[rows, n] -> (b + 9, b + 12)>]
      outs(%q : tensor<1x2x?x64xf16>) {block = 128 : i64, scale = 1.0 : f64, tiles = #tiles} -> tensor<1x2x?x64xf16>
  return %r : tensor<1x2x?x64xf16>
}

// -----

#tiles = #attn.tiles<query = 64, key = 64, lanes = 16, vectors = 4, keys = 8, columns = 8, cluster = 2>
func.func @warps(%q: tensor<1x2x?x64xf16>, %k: tensor<1x1x?x64xf16>) -> tensor<1x2x?x64xf16> {
  // expected-error@+1 {{cluster = 2>, but clusters have tiles of lanes = 64}}
  %r = attn.stream query(%q : tensor<1x2x?x64xf16>) source(%k, %k : tensor<1x1x?x64xf16>, tensor<1x1x?x64xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x2x?x64xf16>) {scale = 1.0 : f64, tiles = #tiles} -> tensor<1x2x?x64xf16>
  return %r : tensor<1x2x?x64xf16>
}

// -----

#tiles = #attn.tiles<query = 128, key = 80, lanes = 64, vectors = 2, keys = 8, columns = 8, cluster = 2>
func.func @wide(%q: tensor<1x2x?x136xf16>, %k: tensor<1x1x?x136xf16>) -> tensor<1x2x?x136xf16> {
  // expected-error@+1 {{cluster = 2> and more than 128 columns, but blocks of a cluster}}
  %r = attn.stream query(%q : tensor<1x2x?x136xf16>) source(%k, %k : tensor<1x1x?x136xf16>, tensor<1x1x?x136xf16>)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] outs(%q : tensor<1x2x?x136xf16>) {scale = 1.0 : f64, tiles = #tiles} -> tensor<1x2x?x136xf16>
  return %r : tensor<1x2x?x136xf16>
}
