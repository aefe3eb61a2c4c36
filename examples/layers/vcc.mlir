// An encoder layer of VCC (arXiv:2305.04241): 6 VIP tokens read one another and a
// tree over 64 tokens, of whose 8 segments of 8 the 3 that the layer's own heads
// choose are split. Attention and an MLP, each with a residual and a norm behind it;
// the rows of the tree's nodes are updated as those of tokens are.
//
// vip [B,n,F], tokens [B,N,F], wq, wk, wv [F,H,D], wo [H,D,F].
#x = affine_map<(b, i, f) -> (b, i, f)>
#row = affine_map<(b, i, f) -> (b, i)>
#column = affine_map<(b, i, f) -> (f)>
// A projection to heads and one from heads, and those of the MLP.
#in = affine_map<(b, h, i, d, f) -> (b, i, f)>
#to_heads = affine_map<(b, h, i, d, f) -> (f, h, d)>
#heads = affine_map<(b, h, i, d, f) -> (b, h, i, d)>
#mixed = affine_map<(b, i, f, h, d) -> (b, h, i, d)>
#from_heads = affine_map<(b, i, f, h, d) -> (h, d, f)>
#out = affine_map<(b, i, f, h, d) -> (b, i, f)>
#left = affine_map<(b, i, o, f) -> (b, i, f)>
#right = affine_map<(b, i, o, f) -> (f, o)>
#product = affine_map<(b, i, o, f) -> (b, i, o)>
#every = affine_map<(b)[rows, n] -> (0, rows)>
#tree = #attn.tree<ratio = 8, levels = 1>

!vip = tensor<2x6x24xf32>
!tokens = tensor<2x64x24xf32>
!tree = tensor<2x72x24xf32>
// 5 segments as means, and 3 as 8 tokens each.
!rows = tensor<2x29x24xf32>
!nodes = tensor<2x29xi32>
!weight = tensor<2x29xf32>
!log_weight = tensor<2x1x29xf32>
!x = tensor<2x35x24xf32>
!row = tensor<2x35xf32>
!gain = tensor<24xf32>
!in = tensor<24x4x6xf32>
!from = tensor<4x6x24xf32>
!heads = tensor<2x4x35x6xf32>
!vip_heads = tensor<2x4x6x6xf32>
!row_heads = tensor<2x4x29x6xf32>
!segments = tensor<2x8x24xf32>
!segment_heads = tensor<2x4x8x6xf32>
!scores = tensor<2x8xf32>
!up = tensor<24x40xf32>
!down = tensor<40x24xf32>
!hidden = tensor<2x35x40xf32>

func.func @layer(%vip: !vip, %tokens: !tokens, %wq: !in, %wk: !in, %wv: !in, %wo: !from, %g1: !gain, %up: !up,
                 %down: !down, %g2: !gain) -> (!vip, !tokens) {
  %zero = arith.constant 0.0 : f32
  %no_row = tensor.empty() : !row
  %no_heads = tensor.empty() : !heads
  %no_vip_heads = tensor.empty() : !vip_heads
  %no_hidden = tensor.empty() : !hidden
  %no_nodes = tensor.empty() : !nodes
  %no_tree = tensor.empty() : !tree
  %sums = linalg.fill ins(%zero : f32) outs(%no_row : !row) -> !row
  %zero_heads = linalg.fill ins(%zero : f32) outs(%no_heads : !heads) -> !heads
  %zero_vip_heads = linalg.fill ins(%zero : f32) outs(%no_vip_heads : !vip_heads) -> !vip_heads
  %zero_hidden = linalg.fill ins(%zero : f32) outs(%no_hidden : !hidden) -> !hidden

  // The nodes to split: those that VIP tokens' heads would read most.
  %tree = attn.tree_build ins(%tokens : !tokens) outs(%no_tree : !tree) {shape = #tree} -> !tree
  %vip_q = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%vip, %wq : !vip, !in)
      outs(%zero_vip_heads : !vip_heads) -> !vip_heads
  %level, %index = attn.tree_select ins(%tree : !tree) outs(%no_nodes, %no_nodes : !nodes, !nodes)
      {shape = #tree, budgets = array<i64: 3>} -> !nodes, !nodes score {
  ^bb0(%segments: !segments):
    %nothing = arith.constant 0.0 : f32
    %no_keys = tensor.empty() : !segment_heads
    %zero_keys = linalg.fill ins(%nothing : f32) outs(%no_keys : !segment_heads) -> !segment_heads
    %keys = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%segments, %wk : !segments, !in)
        outs(%zero_keys : !segment_heads) -> !segment_heads
    %no_scores = tensor.empty() : !scores
    %scores = attn.tree_score ins(%vip_q, %keys : !vip_heads, !segment_heads) outs(%no_scores : !scores) -> !scores
    attn.yield %scores : !scores
  }
  %no_rows = tensor.empty() : !rows
  %no_weight = tensor.empty() : !weight
  %rows, %weight = attn.tree_fetch ins(%tree : !tree) nodes(%level, %index : !nodes, !nodes)
      outs(%no_rows, %no_weight : !rows, !weight) {shape = #tree} -> !rows, !weight

  // Attention of VIP tokens and rows over both.
  %x = tensor.concat dim(1) %vip, %rows : (!vip, !rows) -> !x
  %q = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%x, %wq : !x, !in) outs(%zero_heads : !heads) -> !heads
  %k = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%x, %wk : !x, !in) outs(%zero_heads : !heads) -> !heads
  %v = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%x, %wv : !x, !in) outs(%zero_heads : !heads) -> !heads
  %k0 = tensor.extract_slice %k[0, 0, 0, 0] [2, 4, 6, 6] [1, 1, 1, 1] : !heads to !vip_heads
  %v0 = tensor.extract_slice %v[0, 0, 0, 0] [2, 4, 6, 6] [1, 1, 1, 1] : !heads to !vip_heads
  %k1 = tensor.extract_slice %k[0, 0, 6, 0] [2, 4, 29, 6] [1, 1, 1, 1] : !heads to !row_heads
  %v1 = tensor.extract_slice %v[0, 0, 6, 0] [2, 4, 29, 6] [1, 1, 1, 1] : !heads to !row_heads
  %log_weight = tensor.expand_shape %weight [[0, 1], [2]] output_shape [2, 1, 29] : !weight into !log_weight
  %a = attn.stream query(%q : !heads)
      source(%k0, %v0 : !vip_heads, !vip_heads) ranges [#every]
      source(%k1, %v1 : !row_heads, !row_heads) log_weight(%log_weight : !log_weight) ranges [#every]
      outs(%no_heads : !heads) {scale = 0.40824829046386302 : f64} -> !heads
  %y = linalg.contract indexing_maps = [#mixed, #from_heads, #out] ins(%a, %wo : !heads, !from)
      outs(%x : !x) -> !x
  %n1_squares = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y : !x) outs(%sums : !row) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !row
  %n1 = linalg.generic {indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y, %n1_squares, %g1 : !x, !row, !gain) outs(%y : !x) {
  ^bb0(%e: f32, %sum: f32, %gain: f32, %o: f32):
    %share = arith.constant 4.1666666666666664e-02 : f32
    %tiny = arith.constant 1.0e-06 : f32
    %mean = arith.mulf %sum, %share : f32
    %more = arith.addf %mean, %tiny : f32
    %factor = math.rsqrt %more : f32
    %unit = arith.mulf %e, %factor : f32
    %scaled = arith.mulf %unit, %gain : f32
    linalg.yield %scaled : f32
  } -> !x
  %h = linalg.contract indexing_maps = [#left, #right, #product] ins(%n1, %up : !x, !up) outs(%zero_hidden : !hidden) -> !hidden
  %relu = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%h : !hidden) outs(%no_hidden : !hidden) {
  ^bb0(%e: f32, %o: f32):
    %nothing = arith.constant 0.0 : f32
    %s = arith.maximumf %e, %nothing : f32
    linalg.yield %s : f32
  } -> !hidden
  %z = linalg.contract indexing_maps = [#left, #right, #product] ins(%relu, %down : !hidden, !down)
      outs(%n1 : !x) -> !x
  %n2_squares = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%z : !x) outs(%sums : !row) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !row
  %n2 = linalg.generic {indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%z, %n2_squares, %g2 : !x, !row, !gain) outs(%z : !x) {
  ^bb0(%e: f32, %sum: f32, %gain: f32, %o: f32):
    %share = arith.constant 4.1666666666666664e-02 : f32
    %tiny = arith.constant 1.0e-06 : f32
    %mean = arith.mulf %sum, %share : f32
    %more = arith.addf %mean, %tiny : f32
    %factor = math.rsqrt %more : f32
    %unit = arith.mulf %e, %factor : f32
    %scaled = arith.mulf %unit, %gain : f32
    linalg.yield %scaled : f32
  } -> !x  // What rows became is what their tokens became.
  %vip_out = tensor.extract_slice %n2[0, 0, 0] [2, 6, 24] [1, 1, 1] : !x to !vip
  %rows_out = tensor.extract_slice %n2[0, 6, 0] [2, 29, 24] [1, 1, 1] : !x to !rows
  %after = attn.tree_update ins(%rows_out : !rows) nodes(%level, %index : !nodes, !nodes) outs(%tree : !tree) {shape = #tree} -> !tree
  %tokens_out = attn.tree_materialize ins(%after : !tree) outs(%tokens : !tokens) {shape = #tree} -> !tokens
  return %vip_out, %tokens_out : !vip, !tokens
}
