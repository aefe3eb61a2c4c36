// Tiles of keys that codes name, in a block of one warp: all lanes have copied the rows of one before those of the next are found.

// RUN: fovea-run %s --random --target=gpu-sim --compare=reference
// RUN: fovea-run %s --random --target=gpu-sim --compare=reference --entry=two

!query = tensor<1x2x3x12xf32>
!table = tensor<1x2x4x12xf32>
!tokens = tensor<1x2x100x12xf32>
!codes = tensor<1x2x100xi32>

// Five tokens in turn have each code, so that no tile has those of the one before.
func.func private @count(%init: !codes) -> !codes {
  %0 = linalg.generic {indexing_maps = [affine_map<(b, h, i) -> (b, h, i)>], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%init : !codes) {
  ^bb0(%unset: i32):
    %i = linalg.index 2 : index
    %five = arith.constant 5 : index
    %four = arith.constant 4 : index
    %turn = arith.divui %i, %five : index
    %code = arith.remui %turn, %four : index
    %narrow = arith.index_cast %code : index to i32
    linalg.yield %narrow : i32
  } -> !codes
  return %0 : !codes
}

func.func @one(%q: !query, %k: !table, %v: !tokens) -> !query {
  %none = tensor.empty() : !codes
  %codes = call @count(%none) : (!codes) -> !codes
  %init = tensor.empty() : !query
  %0 = attn.stream query(%q : !query)
    source(%k, %v : !table, !tokens) codes(%codes : !codes) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    outs(%init : !query) {block = 1 : i64, scale = 1.0 : f64} -> !query
  return %0 : !query
}

func.func @two(%q: !query, %k: !table, %v: !tokens, %far: !tokens) -> !query {
  %none = tensor.empty() : !codes
  %codes = call @count(%none) : (!codes) -> !codes
  %init = tensor.empty() : !query
  %0 = attn.stream query(%q : !query)
    source(%k, %v : !table, !tokens) codes(%codes : !codes) ranges [affine_map<(b)[rows, n] -> (b, b + 2)>]
    source(%far, %far : !tokens, !tokens) ranges [affine_map<(b)[rows, n] -> (0, rows)>]
    outs(%init : !query) {block = 1 : i64, scale = 1.0 : f64} -> !query
  return %0 : !query
}
