// A layer of Transformer-VQ (arXiv:2309.16354): single-head gated attention over
// quantized keys. Queries and keys have 8 columns, values and gates 64; blocks have
// 16 tokens, and queries read two blocks one by one.
//
// x [B,N,F]; wqk [F,2,D] for queries and keys, wvg [F,2,E] for values and gates, wo
// [1,E,F]; the bias of what is read one by one [1,1,N,32]; the codebook [1,S,D]. The
// second result is the commitment loss. The temperature tau = sqrt(D) is inside
// queries and keys, whose rows have root mean square tau^-1/2.

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
#all = affine_map<(b, h, i, d) -> (b, h, i, d)>
#rows = affine_map<(b, h, i, d) -> (b, h, i)>
#one = affine_map<(b, h, i, d) -> ()>

!x = tensor<2x50x24xf32>
!row = tensor<2x50xf32>
!gain = tensor<24xf32>
!to_qk = tensor<24x2x8xf32>
!to_vg = tensor<24x2x64xf32>
!from_heads = tensor<1x64x24xf32>
!qk = tensor<2x2x50x8xf32>
!qk_rows = tensor<2x2x50xf32>
!vg = tensor<2x2x50x64xf32>
!keys = tensor<2x1x50x8xf32>
!values = tensor<2x1x50x64xf32>
!codes = tensor<2x1x50xi32>
!codebook = tensor<1x12x8xf32>
!bias = tensor<1x1x50x32xf32>
!number = tensor<f32>

func.func @layer(%x: !x, %gain: !gain, %wqk: !to_qk, %wvg: !to_vg, %wo: !from_heads, %bias: !bias, %codebook: !codebook)
    -> (!x, !number) {
  %zero = arith.constant 0.0 : f32
  %none = tensor.empty() : !x
  %no_row = tensor.empty() : !row
  %no_qk = tensor.empty() : !qk
  %no_qk_rows = tensor.empty() : !qk_rows
  %no_vg = tensor.empty() : !vg
  %no_number = tensor.empty() : !number
  %rows = linalg.fill ins(%zero : f32) outs(%no_row : !row) -> !row
  %zero_qk = linalg.fill ins(%zero : f32) outs(%no_qk : !qk) -> !qk
  %zero_qk_rows = linalg.fill ins(%zero : f32) outs(%no_qk_rows : !qk_rows) -> !qk_rows
  %zero_vg = linalg.fill ins(%zero : f32) outs(%no_vg : !vg) -> !vg
  %nothing = linalg.fill ins(%zero : f32) outs(%no_number : !number) -> !number

  // RMS norm, and projections.
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
  %qk0 = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n, %wqk : !x, !to_qk) outs(%zero_qk : !qk) -> !qk
  %vg0 = linalg.contract indexing_maps = [#in, #to_heads, #heads] ins(%n, %wvg : !x, !to_vg) outs(%zero_vg : !vg) -> !vg

  // Queries and keys.
  %qk_squares = linalg.generic {indexing_maps = [#all, #rows], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%qk0 : !qk) outs(%zero_qk_rows : !qk_rows) {
  ^bb0(%e: f32, %sum: f32):
    %square = arith.mulf %e, %e : f32
    %next = arith.addf %sum, %square : f32
    linalg.yield %next : f32
  } -> !qk_rows
  %qk = linalg.generic {indexing_maps = [#all, #rows, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%qk0, %qk_squares : !qk, !qk_rows) outs(%no_qk : !qk) {
  ^bb0(%e: f32, %sum: f32, %o: f32):
    %tau = arith.constant 2.8284271247461903 : f32
    %share = arith.constant 0.125 : f32
    %tiny = arith.constant 1.0e-06 : f32
    %mean = arith.mulf %sum, %share : f32
    %more = arith.addf %mean, %tiny : f32
    %hot = arith.mulf %more, %tau : f32
    %factor = math.rsqrt %hot : f32
    %unit = arith.mulf %e, %factor : f32
    linalg.yield %unit : f32
  } -> !qk
  %q = tensor.extract_slice %qk[0, 0, 0, 0] [2, 1, 50, 8] [1, 1, 1, 1] : !qk to !keys
  %k = tensor.extract_slice %qk[0, 1, 0, 0] [2, 1, 50, 8] [1, 1, 1, 1] : !qk to !keys

  // Values and gates pass through SiLU.
  %vg = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%vg0 : !vg) outs(%no_vg : !vg) {
  ^bb0(%e: f32, %o: f32):
    %one = arith.constant 1.0 : f32
    %minus = arith.negf %e : f32
    %exp = math.exp %minus : f32
    %more = arith.addf %exp, %one : f32
    %s = arith.divf %e, %more : f32
    linalg.yield %s : f32
  } -> !vg
  %v = tensor.extract_slice %vg[0, 0, 0, 0] [2, 1, 50, 64] [1, 1, 1, 1] : !vg to !values
  %gate = tensor.extract_slice %vg[0, 1, 0, 0] [2, 1, 50, 64] [1, 1, 1, 1] : !vg to !values

  // Gradients go straight through to the keys.
  %no_codes = tensor.empty() : !codes
  %no_keys = tensor.empty() : !keys
  %codes, %codewords = attn.quantize ins(%k, %codebook : !keys, !codebook) outs(%no_codes, %no_keys : !codes, !keys) -> !codes, !keys
  %no_values = tensor.empty() : !values
  %a = attn.vq ins(%q, %codes, %v, %codebook : !keys, !codes, !values, !codebook) bias(%bias : !bias)
      outs(%no_values : !values) {block = 16 : i64, causal} -> !values
  %gated = linalg.mul ins(%a, %gate : !values, !values) outs(%no_values : !values) -> !values
  %y = linalg.contract indexing_maps = [#mixed, #from_heads, #out] ins(%gated, %wo : !values, !from_heads)
      outs(%x : !x) -> !x

  // The mean over keys of |k - codeword|^2, whose codewords are constants.
  %constant = arith.negf %codewords {attn.stop_gradient} : !keys
  %loss = linalg.generic {indexing_maps = [#all, #all, #one], iterator_types = ["reduction", "reduction", "reduction", "reduction"]}
      ins(%k, %constant : !keys, !keys) outs(%nothing : !number) {
  ^bb0(%key: f32, %word: f32, %sum: f32):
    %share = arith.constant 0.01 : f32
    %d = arith.addf %key, %word : f32
    %square = arith.mulf %d, %d : f32
    %part = arith.mulf %square, %share : f32
    %next = arith.addf %sum, %part : f32
    linalg.yield %next : f32
  } -> !number
  return %y, %loss : !x, !number
}
