//===- AttnHierarchicalOps.td - Fast multipole operations -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNHIERARCHICALOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNHIERARCHICALOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_SummarizeOp : Attn_TiledOp<"summarize", 2, "getInput()"> {
  let summary = "weighted sums of consecutive intervals of rows";
  let details = [{
    Cuts the rows of `input` into intervals of `I` rows, where `I` is the third
    extent of `weights`, and replaces each interval by `p` weighted sums
    (Fast Multipole Attention, section 3.2):

    ```
    result[b, g, u p + a, :] = bias[w, a, :] + sum_(t < I) weights[w, a, t, :] * input[b, g, u I + t, :]
    ```

    where `w = g / (G / W)`: consecutive heads share a set of weights, all of them
    when `W = 1`. Rows past the end of `input` count as zero, and weights for them
    are not read, whatever they hold.

    $shapes

    Weights of five axes mix columns, as a strided convolution does:

    ```
    result[b, g, u p + a, e] = bias[w, a, e] + sum_(t < I, d) weights[w, a, t, d, e] * input[b, g, u I + t, d]
    ```

    Sums are accumulated in `f32` (`f64` for `f64`) and rounded once, to the
    element type of `output`: that of `input`, or `f32` for narrower data.

    Example:

    ```mlir
    %s = attn.summarize ins(%x : tensor<1x8x1024x64xf32>)
        weights(%w : tensor<1x4x64x64xf32>)
        outs(%init : tensor<1x8x64x64xf32>) -> tensor<1x8x64x64xf32>
    ```
  }];
  let conditions = ["G % W == 0", "I % P == 0", "K == ceil(N / I) * P"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$input,
    Attn_Arg<Attn_Rank4Or5, "T[W!, P!, I!, D!, D!?]", "one set for each `G / W` heads; five axes mix columns">:$weights,
    Attn_Arg<Optional<Attn_Rank3>, "T[W!, P!, D!]">:$bias,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, K, D!]">:$output
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    `weights` `(` $weights `:` type($weights) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Rows of one interval and sums kept of it.
    int64_t getInterval();
    int64_t getRank();
  }];
}

def Attn_FastMultipoleOp : Attn_TiledOp<"fast_multipole", 2, "getQuery()",
    [AttrSizedOperandSegments]> {
  let summary = "hierarchical attention: near tokens exactly, far ones by summaries";
  let details = [{
    Fast Multipole Attention (equations 5 to 7). Queries attend to the keys of
    their own and the neighbouring groups of `m = group` tokens one by one, and
    to everything farther through summaries that grow coarser with distance.
    Level `l = 1..L` has intervals of `m_l = 2^(l-1) m` tokens, each carried by
    `p` weighted sums of its keys and values (see `attn.summarize`).

    Entry `(i, j)` belongs to level 0 when `|i/m - j/m| <= 1`, otherwise to the
    one level `l` at which `|i/m_l - j/m_l| >= 2` while
    `|i/m_(l+1) - j/m_(l+1)| <= 1` (for `l = L` the second condition always
    holds). These sets tile the matrix exactly once. One soft-max runs over all
    of them; summary `a` of an interval stands for the present tokens
    `[a m_l/p, (a+1) m_l/p)` of it and, unless `multiplicity` is false, counts
    that often. A summary without a present token is masked. Scores are products
    with `scale`, which is `1 / sqrt(D)` unless given.

    $shapes

    Levels are used up to the least `L` with `m 2^(L+1) >= N`: weights of fewer
    are an error, those of more are not read; no levels mean dense attention.
    `key_summaries` and `value_summaries` are ready-made summaries, in place of
    weights and biases: row `a` of interval `u` of level `l`, whatever it was made
    of, stands for the same tokens as a weighted sum does.
    With `causal`, entries with `j > i` are absent; coarse levels only ever look
    at wholly past intervals. Time is `O(N (3m + 3pL) (D + E))`, extra memory
    `O(N p/m (D + E))`: summaries are kept in `f32` (`f64` for `f64`), whatever
    the element type.

    With `mask`, only its tokens are present: the others are no keys, count as
    zero in summaries, whose biases stay, and not at all in multiplicities. What
    their rows hold is never used. Output rows of absent tokens are zero, their
    `lse` is `-inf`. Copies of `key` and `value` are made.

    Example:

    ```mlir
    %out = attn.fast_multipole
        ins(%q, %k, %v : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        key_weights(%kw : tensor<1x4x64x64xf32>) value_weights(%vw : tensor<1x4x64x64xf32>)
        outs(%init : tensor<1x8x256x64xf32>)
        {group = 64 : i64, causal} -> tensor<1x8x256x64xf32>
    ```
  }];
  let conditions = ["H % G == 0", "G % w == 0", "G % v == 0", "i % P == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[w!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[v!, P!, i!, E!, E!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, D!]",
        "in place of `key_weights`, one per level: of `n` intervals">:$key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, E!]",
        "in place of `value_weights`, one per level: of `n` intervals">:$value_summaries,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "none, or the tokens that are present">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Optional<Attn_Rank3>, "sum[B, H, N]", "natural logarithm">:$lse,
    I64Attr:$group,
    UnitAttr:$causal,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    DefaultValuedAttr<BoolAttr, "true">:$multiplicity
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`key_weights` `(` $key_weights^ `:` type($key_weights) `)`)?
    (`value_weights` `(` $value_weights^ `:` type($value_weights) `)`)?
    (`key_biases` `(` $key_biases^ `:` type($key_biases) `)`)?
    (`value_biases` `(` $value_biases^ `:` type($value_biases) `)`)?
    (`key_summaries` `(` $key_summaries^ `:` type($key_summaries) `)`)?
    (`value_summaries` `(` $value_summaries^ `:` type($value_summaries) `)`)?
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $output (`,` $lse^)? `:` type($output) (`,` type($lse)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() {
      return std::max(getKeyWeights().size(), getKeySummaries().size());
    }
    /// Summaries of an interval; 0 when there are no levels.
    int64_t getRank();
  }];
}

def Attn_FastMultipoleLinearOp : Attn_TiledOp<"fast_multipole_linear", 2, "getQuery()",
    [AttrSizedOperandSegments]> {
  let summary = "hierarchical attention with summarised queries, linear in N";
  let details = [{
    The linear form of Fast Multipole Attention (appendix A.1, equations 11 and
    12). Queries are summarised like keys and values; level `l >= 1` scores are
    `Q^(l)[i p / m_l] . K^(l)[j p / m_l]`. Each of the three may have ready-made
    summaries in place of weights. Each level has its *own* soft-max over
    the entries that `attn.fast_multipole` gives to it, and the outputs of the
    levels, level 0 included, are summed. A level at which a row has no entry
    contributes zero. Scores are products with `scale`, which is `1 / sqrt(D)`
    unless given.

    Because `Q^(l)` mixes later queries of the same interval into a row, the
    causal form is *not* strictly causal, although no later key or value is read.
    `causal` is therefore accepted only together with `allow_query_lookahead`.

    Tokens that are not in `mask` are absent, as in `attn.fast_multipole`, and
    count as zero in summaries of queries as well.

    $shapes

    Example:

    ```mlir
    %out = attn.fast_multipole_linear
        ins(%q, %k, %v : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        query_weights(%qw : tensor<1x2x32x16xf32>) key_weights(%kw : tensor<1x2x32x16xf32>)
        value_weights(%vw : tensor<1x2x32x16xf32>)
        outs(%init : tensor<1x2x128x16xf32>)
        {group = 32 : i64} -> tensor<1x2x128x16xf32>
    ```
  }];
  let conditions = ["H % G == 0", "H % u == 0", "G % w == 0", "G % v == 0", "i % P == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[u!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$query_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[w!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[v!, P!, i!, E!, E!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[u!, P!, D!]", "none, or one per level">:$query_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, H, n, P!, D!]",
        "in place of `query_weights`, one per level: of `n` intervals">:$query_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, D!]",
        "in place of `key_weights`, one per level: of `n` intervals">:$key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, E!]",
        "in place of `value_weights`, one per level: of `n` intervals">:$value_summaries,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "none, or the tokens that are present">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    I64Attr:$group,
    UnitAttr:$causal,
    UnitAttr:$allow_query_lookahead,
    OptionalAttr<Attn_FiniteAttr>:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`query_weights` `(` $query_weights^ `:` type($query_weights) `)`)?
    (`key_weights` `(` $key_weights^ `:` type($key_weights) `)`)?
    (`value_weights` `(` $value_weights^ `:` type($value_weights) `)`)?
    (`query_biases` `(` $query_biases^ `:` type($query_biases) `)`)?
    (`key_biases` `(` $key_biases^ `:` type($key_biases) `)`)?
    (`value_biases` `(` $value_biases^ `:` type($value_biases) `)`)?
    (`query_summaries` `(` $query_summaries^ `:` type($query_summaries) `)`)?
    (`key_summaries` `(` $key_summaries^ `:` type($key_summaries) `)`)?
    (`value_summaries` `(` $value_summaries^ `:` type($value_summaries) `)`)?
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() {
      return std::max(getKeyWeights().size(), getKeySummaries().size());
    }
    int64_t getRank();
  }];
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

def Attn_SummarizeBackwardOp : Attn_Op<"summarize_backward",
                                        [Attn_UpdatesInits, Attn_SeparateInits]> {
  let summary = "adds the gradient of attn.summarize";
  let details = [{
    For the `attn.summarize` of `input` with `weights`, and a scalar whose
    gradient for the summaries is `d_output`, *adds* to its destinations

    ```
    d_input[b, g, u I + t, :]  += sum_(a < p) weights[w, a, t, :] * d_output[b, g, u p + a, :]
    d_weights[w, a, t, :]      += sum_(b, g of w, u) input[b, g, u I + t, :] * d_output[b, g, u p + a, :]
    d_bias[w, a, :]            += sum_(b, g of w, u) d_output[b, g, u p + a, :]
    ```

    with `I`, `p` and `w` as there, and with a sum over the columns that weights of
    five axes mix: sums over heads that share a set of weights, over batch entries
    and over intervals. So the gradients of several levels of
    one input add up in one destination. Rows past the end of `input` are neither
    read nor written.

    $shapes

    Destinations have the element type of their operand or, so that sums are
    rounded once, `f32` (`f64` for `f64` data).

    Example:

    ```mlir
    %dx, %dw = attn.summarize_backward ins(%x : tensor<1x8x1024x64xf32>)
        weights(%w : tensor<1x4x64x64xf32>)
        gradient(%ds : tensor<1x8x64x64xf32>)
        outs(%ix, %iw : tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>)
        -> tensor<1x8x1024x64xf32>, tensor<1x4x64x64xf32>
    ```
  }];
  let conditions = ["G % W == 0", "I % P == 0", "K == ceil(N / I) * P"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$input,
    Attn_Arg<Attn_Rank4Or5, "T[W!, P!, I!, D!, D!?]">:$weights,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, K, D!]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of input">:$d_input,
    Attn_Arg<Attn_Rank4Or5, "gradient of weights">:$d_weights,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[W, P, D]">:$d_bias
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    `weights` `(` $weights `:` type($weights) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_input `,` $d_weights (`,` $d_bias^)? `:`
        type($d_input) `,` type($d_weights) (`,` type($d_bias)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Rows of one interval and sums kept of it.
    int64_t getInterval();
    int64_t getRank();
  }];
}

def Attn_FastMultipoleBackwardOp
    : Attn_Op<"fast_multipole_backward", [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.fast_multipole";
  let details = [{
    For the `attn.fast_multipole` with the same operands and attributes, and its
    results `output` and `lse`: the gradients of a scalar whose gradients for
    these results are `d_output` and `d_lse`, the latter zero if absent.

    With `P`, `delta` and `dS` as in `attn.stream_backward`, over near tokens and
    far summaries, the gradients of summaries go on to tokens, weights and biases
    as in `attn.summarize_backward`:

    ```
    d_key = d_near_key + sum_l summarize_backward(key, key_weights_l, d_K^(l))      d_value likewise
    d_key_weights_l[w, a, t, :] = sum_(b, g of w, u) key[b, g, u m_l + t, :] * d_K^(l)[b, g, u p + a, :]
    d_key_biases_l[w, a, :]     = sum_(b, g of w, u) d_K^(l)[b, g, u p + a, :]
    ```

    Ready-made summaries get `d_K^(l)` and `d_V^(l)` themselves.

    $shapes

    Element types and the order of sums are as in `attn.stream_backward`. Time is
    that of the forward pass, 2.5 times; memory `O(N (D + E))`. Gradients of rows
    that are not in `mask` are zero, whatever gradients are given for them.

    Example:

    ```mlir
    %dq, %dk, %dv, %dkw, %dvw = attn.fast_multipole_backward
        ins(%q, %k, %v : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        key_weights(%kw : tensor<1x4x64x64xf32>) value_weights(%vw : tensor<1x4x64x64xf32>)
        forward(%out, %lse : tensor<1x8x256x64xf32>, tensor<1x8x256xf32>)
        gradient(%dout : tensor<1x8x256x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>)
        d_key_weights(%ikw : tensor<1x4x64x64xf32>) d_value_weights(%ivw : tensor<1x4x64x64xf32>)
        {group = 64 : i64, causal}
        -> tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x8x256x64xf32>, tensor<1x4x64x64xf32>, tensor<1x4x64x64xf32>
    ```
  }];
  let conditions = ["H % G == 0", "G % w == 0", "G % v == 0", "i % P == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[w!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[v!, P!, i!, E!, E!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, D!]",
        "in place of `key_weights`, one per level: of `n` intervals">:$key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, E!]",
        "in place of `value_weights`, one per level: of `n` intervals">:$value_summaries,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "none, or the tokens that are present">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "gradient of key_weights">:$d_key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "gradient of value_weights">:$d_value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of key_biases">:$d_key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of value_biases">:$d_value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "gradient of key_summaries">:$d_key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "gradient of value_summaries">:$d_value_summaries,
    I64Attr:$group,
    UnitAttr:$causal,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    DefaultValuedAttr<BoolAttr, "true">:$multiplicity
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`key_weights` `(` $key_weights^ `:` type($key_weights) `)`)?
    (`value_weights` `(` $value_weights^ `:` type($value_weights) `)`)?
    (`key_biases` `(` $key_biases^ `:` type($key_biases) `)`)?
    (`value_biases` `(` $value_biases^ `:` type($value_biases) `)`)?
    (`key_summaries` `(` $key_summaries^ `:` type($key_summaries) `)`)?
    (`value_summaries` `(` $value_summaries^ `:` type($value_summaries) `)`)?
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `forward` `(` $output `,` $lse `:` type($output) `,` type($lse) `)`
    `gradient` `(` $d_output (`,` $d_lse^)? `:`
        type($d_output) (`,` type($d_lse)^)? `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_key_weights` `(` $d_key_weights^ `:` type($d_key_weights) `)`)?
    (`d_value_weights` `(` $d_value_weights^ `:` type($d_value_weights) `)`)?
    (`d_key_biases` `(` $d_key_biases^ `:` type($d_key_biases) `)`)?
    (`d_value_biases` `(` $d_value_biases^ `:` type($d_value_biases) `)`)?
    (`d_key_summaries` `(` $d_key_summaries^ `:` type($d_key_summaries) `)`)?
    (`d_value_summaries` `(` $d_value_summaries^ `:` type($d_value_summaries) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() {
      return std::max(getKeyWeights().size(), getKeySummaries().size());
    }
    /// Summaries of an interval; 0 when there are no levels.
    int64_t getRank();
  }];
}

def Attn_FastMultipoleLinearBackwardOp
    : Attn_Op<"fast_multipole_linear_backward", [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.fast_multipole_linear";
  let details = [{
    For the `attn.fast_multipole_linear` with the same operands and attributes:
    the gradients of a scalar whose gradient for its output is `d_output`. The
    output is a sum of one soft-max per level, whose parts and normalisers are
    computed again. Level `l >= 1` gives a row of `Q^(l)` the sum of `d_output`
    over the tokens that it stands for; then everything is as in
    `attn.fast_multipole_backward`, for queries as for keys and values. Gradients
    of rows that are not in `mask` are zero, whatever gradients are given for them.

    $shapes

    Example:

    ```mlir
    %dq, %dk, %dv, %dqw, %dkw, %dvw = attn.fast_multipole_linear_backward
        ins(%q, %k, %v : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        query_weights(%qw : tensor<1x2x32x16xf32>) key_weights(%kw : tensor<1x2x32x16xf32>)
        value_weights(%vw : tensor<1x2x32x16xf32>)
        gradient(%dout : tensor<1x2x128x16xf32>)
        outs(%iq, %ik, %iv : tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>)
        d_query_weights(%iqw : tensor<1x2x32x16xf32>) d_key_weights(%ikw : tensor<1x2x32x16xf32>)
        d_value_weights(%ivw : tensor<1x2x32x16xf32>)
        {group = 32 : i64}
        -> tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>, tensor<1x2x128x16xf32>,
           tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>, tensor<1x2x32x16xf32>
    ```
  }];
  let conditions = ["H % G == 0", "H % u == 0", "G % w == 0", "G % v == 0", "i % P == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[u!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$query_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[w!, P!, i!, D!, D!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>,
        "T[v!, P!, i!, E!, E!?]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens; five axes mix columns">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[u!, P!, D!]", "none, or one per level">:$query_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, H, n, P!, D!]",
        "in place of `query_weights`, one per level: of `n` intervals">:$query_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, D!]",
        "in place of `key_weights`, one per level: of `n` intervals">:$key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "T|sum[B, G, n, P!, E!]",
        "in place of `value_weights`, one per level: of `n` intervals">:$value_summaries,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "none, or the tokens that are present">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "gradient of query_weights">:$d_query_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "gradient of key_weights">:$d_key_weights,
    Attn_Arg<Variadic<Attn_Rank4Or5>, "gradient of value_weights">:$d_value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of query_biases">:$d_query_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of key_biases">:$d_key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of value_biases">:$d_value_biases,
    Attn_Arg<Variadic<Attn_Rank5>, "gradient of query_summaries">:$d_query_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "gradient of key_summaries">:$d_key_summaries,
    Attn_Arg<Variadic<Attn_Rank5>, "gradient of value_summaries">:$d_value_summaries,
    I64Attr:$group,
    UnitAttr:$causal,
    UnitAttr:$allow_query_lookahead,
    OptionalAttr<Attn_FiniteAttr>:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`query_weights` `(` $query_weights^ `:` type($query_weights) `)`)?
    (`key_weights` `(` $key_weights^ `:` type($key_weights) `)`)?
    (`value_weights` `(` $value_weights^ `:` type($value_weights) `)`)?
    (`query_biases` `(` $query_biases^ `:` type($query_biases) `)`)?
    (`key_biases` `(` $key_biases^ `:` type($key_biases) `)`)?
    (`value_biases` `(` $value_biases^ `:` type($value_biases) `)`)?
    (`query_summaries` `(` $query_summaries^ `:` type($query_summaries) `)`)?
    (`key_summaries` `(` $key_summaries^ `:` type($key_summaries) `)`)?
    (`value_summaries` `(` $value_summaries^ `:` type($value_summaries) `)`)?
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_query_weights` `(` $d_query_weights^ `:` type($d_query_weights) `)`)?
    (`d_key_weights` `(` $d_key_weights^ `:` type($d_key_weights) `)`)?
    (`d_value_weights` `(` $d_value_weights^ `:` type($d_value_weights) `)`)?
    (`d_query_biases` `(` $d_query_biases^ `:` type($d_query_biases) `)`)?
    (`d_key_biases` `(` $d_key_biases^ `:` type($d_key_biases) `)`)?
    (`d_value_biases` `(` $d_value_biases^ `:` type($d_value_biases) `)`)?
    (`d_query_summaries` `(` $d_query_summaries^ `:` type($d_query_summaries) `)`)?
    (`d_key_summaries` `(` $d_key_summaries^ `:` type($d_key_summaries) `)`)?
    (`d_value_summaries` `(` $d_value_summaries^ `:` type($d_value_summaries) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() {
      return std::max(getKeyWeights().size(), getKeySummaries().size());
    }
    int64_t getRank();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNHIERARCHICALOPS_TD
