func.func @window(%q: tensor<1x2x48x8xf32>, %k: tensor<1x1x48x8xf32>, %w: tensor<1x1x16x8xf32>) -> tensor<1x2x48x8xf32> {
  %empty = tensor.empty() : tensor<1x1x3x8xf32>
  %ks = attn.summarize ins(%k : tensor<1x1x48x8xf32>) weights(%w : tensor<1x1x16x8xf32>)
      outs(%empty : tensor<1x1x3x8xf32>) -> tensor<1x1x3x8xf32>
  %init = tensor.empty() : tensor<1x2x48x8xf32>
  %out = attn.stream query(%q : tensor<1x2x48x8xf32>)
      source(%k, %k : tensor<1x1x48x8xf32>, tensor<1x1x48x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
      source(%ks, %ks : tensor<1x1x3x8xf32>, tensor<1x1x3x8xf32>)
          ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
      outs(%init : tensor<1x2x48x8xf32>)
      {block = 16 : i64, scale = 1.0 : f64} -> tensor<1x2x48x8xf32>
  return %out : tensor<1x2x48x8xf32>
}

func.func @open(%q: tensor<1x2x?x8xf32>, %k: tensor<1x2x?x8xf32>, %init: tensor<1x2x?x8xf32>) -> tensor<1x2x?x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>)
      outs(%init : tensor<1x2x?x8xf32>) {causal} -> tensor<1x2x?x8xf32>
  return %out : tensor<1x2x?x8xf32>
}

func.func @quantized(%q: tensor<1x2x48x8xf32>, %z: tensor<1x1x48xi32>, %v: tensor<1x1x48x8xf32>,
                     %c: tensor<1x5x8xf32>) -> tensor<1x2x48x8xf32> {
  %init = tensor.empty() : tensor<1x2x48x8xf32>
  %out = attn.vq ins(%q, %z, %v, %c : tensor<1x2x48x8xf32>, tensor<1x1x48xi32>, tensor<1x1x48x8xf32>, tensor<1x5x8xf32>)
      outs(%init : tensor<1x2x48x8xf32>) {block = 8 : i64, causal} -> tensor<1x2x48x8xf32>
  return %out : tensor<1x2x48x8xf32>
}

func.func @nothing(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = arith.addf %x, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// Lists that are known, and one that is an argument; pages 2, 0 and 1 in this order.
func.func @lists(%q: tensor<1x1x6x4xf32>, %k: tensor<1x1x12x4xf32>, %chosen: tensor<1x1x3x1xi32>) -> tensor<1x1x6x4xf32> {
  %two = arith.constant dense<[[[[1, -1], [3, 0], [2, 2]]]]> : tensor<1x1x3x2xi32>
  %order = arith.constant dense<[[[[2, 0, 1]]]]> : tensor<1x1x1x3xi32>
  %init = tensor.empty() : tensor<1x1x6x4xf32>
  %out = attn.stream query(%q : tensor<1x1x6x4xf32>)
      source(%k, %k : tensor<1x1x12x4xf32>, tensor<1x1x12x4xf32>) rows(%two : tensor<1x1x3x2xi32>) unit = 3
          ranges [affine_map<(b)[rows, n] -> (0, rows - 1)>]
      source(%k, %k : tensor<1x1x12x4xf32>, tensor<1x1x12x4xf32>) rows(%order : tensor<1x1x1x3xi32>) unit = 4 positions = listed
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal, window = 2>
      source(%k, %k : tensor<1x1x12x4xf32>, tensor<1x1x12x4xf32>) rows(%chosen : tensor<1x1x3x1xi32>) unit = 2
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      outs(%init : tensor<1x1x6x4xf32>) {block = 2 : i64, scale = 1.0 : f64} -> tensor<1x1x6x4xf32>
  return %out : tensor<1x1x6x4xf32>
}

// Documents of batch entries that have lengths of their own.
func.func @documents(%q: tensor<2x2x?x8xf32>, %k: tensor<2x2x?x8xf32>, %init: tensor<2x2x?x8xf32>,
                     %ids: tensor<2x?xi32>, %lengths: tensor<2xi32>) -> tensor<2x2x?x8xf32> {
  %out = attn.dense ins(%q, %k, %k : tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>)
      lengths(%lengths : tensor<2xi32>) query_lengths(%lengths : tensor<2xi32>)
      score(%ids : tensor<2x?xi32>) {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %of: tensor<2x?xi32>):
      %own = tensor.extract %of[%b, %i] : tensor<2x?xi32>
      %other = tensor.extract %of[%b, %j] : tensor<2x?xi32>
      %same = arith.cmpi eq, %own, %other : i32
      %none = arith.constant 0xFF800000 : f32
      %score = arith.select %same, %s, %none : f32
      attn.yield %score : f32
  } outs(%init : tensor<2x2x?x8xf32>) {causal} -> tensor<2x2x?x8xf32>
  return %out : tensor<2x2x?x8xf32>
}

func.func @masked(%x: tensor<1x1x32x8xf32>, %w1: tensor<1x2x4x8xf32>, %w2: tensor<1x2x8x8xf32>, %mask: tensor<1x32xi1>)
    -> tensor<1x1x32x8xf32> {
  %init = tensor.empty() : tensor<1x1x32x8xf32>
  %out = attn.fast_multipole ins(%x, %x, %x : tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>, tensor<1x1x32x8xf32>)
      key_weights(%w1, %w2 : tensor<1x2x4x8xf32>, tensor<1x2x8x8xf32>)
      value_weights(%w1, %w2 : tensor<1x2x4x8xf32>, tensor<1x2x8x8xf32>)
      mask(%mask : tensor<1x32xi1>)
      outs(%init : tensor<1x1x32x8xf32>) {group = 4 : i64, causal} -> tensor<1x1x32x8xf32>
  return %out : tensor<1x1x32x8xf32>
}

// Lists that the function makes: two blocks of 4 tokens for each query and head, by products with what stands for them.
func.func @chosen(%q: tensor<2x4x?x8xf32>, %k: tensor<2x2x?x8xf32>, %means: tensor<2x4x?x8xf32>) -> tensor<2x4x?x8xf32> {
  %two = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %q, %two : tensor<2x4x?x8xf32>
  %m = tensor.dim %means, %two : tensor<2x4x?x8xf32>
  %none = tensor.empty(%n, %m) : tensor<2x4x?x?xf32>
  %zeros = linalg.fill ins(%zero : f32) outs(%none : tensor<2x4x?x?xf32>) -> tensor<2x4x?x?xf32>
  %scores = linalg.generic {indexing_maps = [affine_map<(b, h, i, j, d) -> (b, h, i, d)>, affine_map<(b, h, i, j, d) -> (b, h, j, d)>,
                                             affine_map<(b, h, i, j, d) -> (b, h, i, j)>],
                            iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %means : tensor<2x4x?x8xf32>, tensor<2x4x?x8xf32>) outs(%zeros : tensor<2x4x?x?xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %p = arith.mulf %x, %y : f32
    %s = arith.addf %sum, %p : f32
    linalg.yield %s : f32
  } -> tensor<2x4x?x?xf32>
  %lists = tensor.empty(%n) : tensor<2x4x?x2xi32>
  %chosen = attn.top_k ins(%scores : tensor<2x4x?x?xf32>) outs(%lists : tensor<2x4x?x2xi32>) -> tensor<2x4x?x2xi32>
  %init = tensor.empty(%n) : tensor<2x4x?x8xf32>
  %out = attn.stream query(%q : tensor<2x4x?x8xf32>)
      source(%k, %k : tensor<2x2x?x8xf32>, tensor<2x2x?x8xf32>) rows(%chosen : tensor<2x4x?x2xi32>) unit = 4
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : tensor<2x4x?x8xf32>) {block = 1 : i64, scale = 1.0 : f64} -> tensor<2x4x?x8xf32>
  return %out : tensor<2x4x?x8xf32>
}

// Codes that the function makes.
func.func @coded(%q: tensor<2x4x48x8xf32>, %k: tensor<2x2x48x8xf32>, %v: tensor<2x2x48x8xf32>, %c: tensor<2x5x8xf32>)
    -> tensor<2x4x48x8xf32> {
  %zi = tensor.empty() : tensor<2x2x48xi32>
  %z = attn.quantize ins(%k, %c : tensor<2x2x48x8xf32>, tensor<2x5x8xf32>) outs(%zi : tensor<2x2x48xi32>) -> tensor<2x2x48xi32>
  %init = tensor.empty() : tensor<2x4x48x8xf32>
  %out = attn.vq ins(%q, %z, %v, %c : tensor<2x4x48x8xf32>, tensor<2x2x48xi32>, tensor<2x2x48x8xf32>, tensor<2x5x8xf32>)
      outs(%init : tensor<2x4x48x8xf32>) {block = 8 : i64, causal} -> tensor<2x4x48x8xf32>
  return %out : tensor<2x4x48x8xf32>
}

// A loop over sequences.
func.func @sequences(%q: tensor<3x2x16x8xf32>, %k: tensor<3x2x16x8xf32>) -> tensor<3x2x16x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %all = tensor.empty() : tensor<3x2x16x8xf32>
  %found = scf.for %b = %c0 to %c3 step %c1 iter_args(%acc = %all) -> tensor<3x2x16x8xf32> {
    %own = tensor.extract_slice %q[%b, 0, 0, 0] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<3x2x16x8xf32> to tensor<1x2x16x8xf32>
    %keys = tensor.extract_slice %k[%b, 0, 0, 0] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<3x2x16x8xf32> to tensor<1x2x16x8xf32>
    %init = tensor.empty() : tensor<1x2x16x8xf32>
    %out = attn.dense ins(%own, %keys, %keys : tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>, tensor<1x2x16x8xf32>)
        outs(%init : tensor<1x2x16x8xf32>) {causal} -> tensor<1x2x16x8xf32>
    %next = tensor.insert_slice %out into %acc[%b, 0, 0, 0] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<1x2x16x8xf32> into tensor<3x2x16x8xf32>
    scf.yield %next : tensor<3x2x16x8xf32>
  }
  return %found : tensor<3x2x16x8xf32>
}

// Blocks of queries, one after the other, with the keys up to their end.
func.func @blocks(%q: tensor<2x2x64x8xf32>, %k: tensor<2x2x64x8xf32>, %last: index) -> tensor<2x2x64x8xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c16 = arith.constant 16 : index
  %end = arith.constant 64 : index
  %all = tensor.empty() : tensor<2x2x64x8xf32>
  %found = scf.for %b = %c0 to %c2 step %c1 iter_args(%outer = %all) -> tensor<2x2x64x8xf32> {
    %blocks = scf.for %i = %c16 to %end step %c16 iter_args(%acc = %outer) -> tensor<2x2x64x8xf32> {
      %own = tensor.extract_slice %q[%b, 0, %i, 0] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<2x2x64x8xf32> to tensor<1x2x16x8xf32>
      %stop = arith.addi %i, %c16 : index
      %keys = tensor.extract_slice %k[%b, 0, 0, 0] [1, 2, %stop, 8] [1, 1, 1, 1] : tensor<2x2x64x8xf32> to tensor<1x2x?x8xf32>
      %init = tensor.empty() : tensor<1x2x16x8xf32>
      %out = attn.dense ins(%own, %keys, %keys : tensor<1x2x16x8xf32>, tensor<1x2x?x8xf32>, tensor<1x2x?x8xf32>)
          outs(%init : tensor<1x2x16x8xf32>) {causal} -> tensor<1x2x16x8xf32>
      %next = tensor.insert_slice %out into %acc[%b, 0, %i, 0] [1, 2, 16, 8] [1, 1, 1, 1] : tensor<1x2x16x8xf32> into tensor<2x2x64x8xf32>
      scf.yield %next : tensor<2x2x64x8xf32>
    }
    scf.yield %blocks : tensor<2x2x64x8xf32>
  }
  return %found : tensor<2x2x64x8xf32>
}

func.func @copies(%q: tensor<1x2x1024x64xbf16>, %k: tensor<1x2x2048x64xbf16>, %init: tensor<1x2x1024x64xbf16>) -> tensor<1x2x1024x64xbf16> {
  %0 = attn.dense ins(%q, %k, %k : tensor<1x2x1024x64xbf16>, tensor<1x2x2048x64xbf16>, tensor<1x2x2048x64xbf16>)
      outs(%init : tensor<1x2x1024x64xbf16>) {scale = 0.125} -> tensor<1x2x1024x64xbf16>
  return %0 : tensor<1x2x1024x64xbf16>
}
