// An attention layer of Llama with convolution bases (arXiv:2405.05219): norm,
// rotary positions, attention by at most 4 bases, and a residual.
//
// x [B,N,F]; positions [B,1,N]; wq [F,H,D], wk and wv [F,G,D], wo [H,D,F].

#x = affine_map<(b, i, f) -> (b, i, f)>
#row = affine_map<(b, i, f) -> (b, i)>
#column = affine_map<(b, i, f) -> (f)>
// A projection to heads and one from heads.
#in = affine_map<(b, h, i, d, f) -> (b, i, f)>
#to_heads = affine_map<(b, h, i, d, f) -> (f, h, d)>
#heads = affine_map<(b, h, i, d, f) -> (b, h, i, d)>
#mixed = affine_map<(b, i, f, h, d) -> (b, h, i, d)>
#from_heads = affine_map<(b, i, f, h, d) -> (h, d, f)>
#out = affine_map<(b, i, f, h, d) -> (b, i, f)>

!x = tensor<2x50x24xf32>
!row = tensor<2x50xf32>
!gain = tensor<24xf32>
!to_heads = tensor<24x4x6xf32>
!to_keys = tensor<24x2x6xf32>
!from_heads = tensor<4x6x24xf32>
!heads = tensor<2x4x50x6xf32>
!keys = tensor<2x2x50x6xf32>
!positions = tensor<2x1x50xi32>
!count = tensor<2x4xi32>

func.func @layer(%x: !x, %gain: !gain, %wq: !to_heads, %wk: !to_keys, %wv: !to_keys, %wo: !from_heads,
                 %positions: !positions) -> !x {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : !x
  %no_row = tensor.empty() : !row
  %no_heads = tensor.empty() : !heads
  %no_keys = tensor.empty() : !keys
  %no_count = tensor.empty() : !count
  %rows = linalg.fill ins(%zero : f32) outs(%no_row : !row) -> !row
  %zero_heads = linalg.fill ins(%zero : f32) outs(%no_heads : !heads) -> !heads
  %zero_keys = linalg.fill ins(%zero : f32) outs(%no_keys : !keys) -> !keys

  // RMS norm.
  %squares = linalg.generic {indexing_maps = [#x, #row], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : !x) outs(%rows : !row) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !row
  %n = linalg.generic {indexing_maps = [#x, #row, #column, #x], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %squares, %gain : !x, !row, !gain) outs(%none : !x) {
  ^bb0(%e: f32, %sum: f32, %g: f32, %o: f32):
    %share = arith.constant 4.1666666666666664e-02 : f32
    %tiny = arith.constant 1.0e-06 : f32
    %mean = arith.mulf %sum, %share : f32
    %more = arith.addf %mean, %tiny : f32
    %factor = math.rsqrt %more : f32
    %unit = arith.mulf %e, %factor : f32
    %scaled = arith.mulf %unit, %g : f32
    linalg.yield %scaled : f32
  } -> !x

  // Four heads of queries share two of keys.
  %q0 = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n, %wq : !x, !to_heads) outs(%zero_heads : !heads) -> !heads
  %k0 = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n, %wk : !x, !to_keys) outs(%zero_keys : !keys) -> !keys
  %v = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n, %wv : !x, !to_keys) outs(%zero_keys : !keys) -> !keys
  %q = attn.rope ins(%q0, %positions : !heads, !positions) outs(%no_heads : !heads) {base = 1.0e+04 : f64} -> !heads
  %k = attn.rope ins(%k0, %positions : !keys, !positions) outs(%no_keys : !keys) {base = 1.0e+04 : f64} -> !keys
  %a:3 = attn.conv ins(%q, %k, %v : !heads, !keys, !keys) outs(%no_heads, %no_count, %no_count : !heads, !count, !count)
      {num_basis = 4 : i64, window = 2 : i64, delta = 0.5 : f64, epsilon = 0.05 : f64} -> !heads, !count, !count
  %y = linalg.contract indexing_maps = [#mixed, #from_heads, #out] ins(%a#0, %wo : !heads, !from_heads)
      outs(%x : !x) -> !x
  return %y : !x
}
