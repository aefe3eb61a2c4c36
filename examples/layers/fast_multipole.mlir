// A layer of Fast Multipole Attention (arXiv:2310.11960): norm, attention with
// learned summaries of groups of 8 tokens, and an MLP, each of both with a residual.
//
// x [B,N,F]; wq, wk and wv [F,H,D]; wo [H,D,F]; summaries of level l for each head
// [H,p,8 2^(l-1),D], of keys (ks) and of values (vs).

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

!x = tensor<2x60x24xf32>
!row = tensor<2x60xf32>
!gain = tensor<24xf32>
!in = tensor<24x4x6xf32>
!out = tensor<4x6x24xf32>
!heads = tensor<2x4x60x6xf32>
!up = tensor<24x40xf32>
!down = tensor<40x24xf32>
!hidden = tensor<2x60x40xf32>
!level1 = tensor<4x2x8x6xf32>
!level2 = tensor<4x2x16x6xf32>

func.func @layer(%x: !x, %g1: !gain, %wq: !in, %wk: !in, %wv: !in, %wo: !out, %ks1: !level1, %ks2: !level2,
                 %vs1: !level1, %vs2: !level2, %g2: !gain, %up: !up, %down: !down) -> !x {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : !x
  %no_row = tensor.empty() : !row
  %no_heads = tensor.empty() : !heads
  %no_hidden = tensor.empty() : !hidden
  %rows = linalg.fill ins(%zero : f32) outs(%no_row : !row) -> !row
  %zero_heads = linalg.fill ins(%zero : f32) outs(%no_heads : !heads) -> !heads
  %zero_hidden = linalg.fill ins(%zero : f32) outs(%no_hidden : !hidden) -> !hidden

  // RMS norm.
  %s1 = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : !x) outs(%rows : !row) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !row
  %n1 = linalg.generic {indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s1, %g1 : !x, !row, !gain) outs(%none : !x) {
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

  // Causal attention of four heads.
  %q = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n1, %wq : !x, !in) outs(%zero_heads : !heads) -> !heads
  %k = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n1, %wk : !x, !in) outs(%zero_heads : !heads) -> !heads
  %v = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n1, %wv : !x, !in) outs(%zero_heads : !heads) -> !heads
  %a = attn.fast_multipole ins(%q, %k, %v : !heads, !heads, !heads)
      key_weights(%ks1, %ks2 : !level1, !level2) value_weights(%vs1, %vs2 : !level1, !level2)
      outs(%no_heads : !heads) {group = 8 : i64, causal} -> !heads
  %y = linalg.contract indexing_maps = [#mixed, #from_heads, #out] ins(%a, %wo : !heads, !out)
      outs(%x : !x) -> !x

  // MLP.
  %s2 = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%y : !x) outs(%rows : !row) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !row
  %n2 = linalg.generic {indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%y, %s2, %g2 : !x, !row, !gain) outs(%none : !x) {
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
  %h = linalg.contract indexing_maps = [#left, #right, #product] ins(%n2, %up : !x, !up) outs(%zero_hidden : !hidden) -> !hidden
  %silu = linalg.generic {indexing_maps = [#x, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%h : !hidden) outs(%no_hidden : !hidden) {
  ^bb0(%e: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %minus = arith.negf %e : f32
    %exp = math.exp %minus : f32
    %more = arith.addf %exp, %one : f32
    %s = arith.divf %e, %more : f32
    linalg.yield %s : f32
  } -> !hidden
  %z = linalg.contract indexing_maps = [#left, #right, #product] ins(%silu, %down : !hidden, !down)
      outs(%y : !x) -> !x
  return %z : !x
}
