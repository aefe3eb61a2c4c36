//===- AttnBackwardOps.td - Gradients of attention operations -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNBACKWARDOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNBACKWARDOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_StreamBackwardOp : Attn_TiledOp<"stream_backward", 1, "getQuery()",
                                         [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.stream";
  let details = [{
    The shared core of the gradients of all soft-max patterns. For the
    `attn.stream` with the same query, sources, `block` and `scale`, its results
    `output` and `lse`, and a scalar `L` with `d_output = dL / d output` and, if
    given, `d_lse = dL / d lse`:

    ```
    P[i, (u, j)]  = exp(s[i, (u, j)] - lse[i])                  scores s as in attn.stream
    delta[i]      = sum_e d_output[i, e] output[i, e] - d_lse[i]
    dS[i, (u, j)] = P[i, (u, j)] (sum_e d_output[i, e] values_u[j, e] - delta[i])
    d_query[i]    = scale sum_(u,j) dS[i, (u, j)] keys_u[j]
    d_keys_u[j]   = scale sum_i dS[i, (u, j)] query[i]
    d_values_u[j] = sum_i P[i, (u, j)] d_output[i]
    d_log_weight_u[j] = sum_i dS[i, (u, j)]    d_bias_u[i, j] = dS[i, (u, j)]
    ```

    Scores are computed again, and nothing of size `N x M` is stored. Sums run
    over the query heads that share a key head, and over the axes along which a
    log weight or a bias was broadcast. A row whose `lse` is `-inf` read nothing
    and passes nothing on.

    $shapes

    Every gradient has the element type of its operand, or the type that sums are
    kept in, `f32` (`f64` for `f64` data). Gradients are summed in that type, in
    an order that does not depend on the number of threads, and rounded once.

    Sources have keys of their own: no codes, no axis of query blocks, no
    `local_bias`. The iteration domain is the batch: all query heads and rows add
    to the same gradients of keys and values. `tiles` is as in `attn.stream`.

    Example:

    ```mlir
    %dq, %dk, %dks, %dv, %dvs = attn.stream_backward query(%q : tensor<1x1x64x16xf32>)
        source(%k, %v : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>)
            ranges [affine_map<(b)[rows, n] -> (b * 16 - 16, b * 16 + 16)>] mask <causal>
        source(%ks, %vs : tensor<1x1x4x16xf32>, tensor<1x1x4x16xf32>)
            log_weight(%w : tensor<1x1x4xf32>)
            ranges [affine_map<(b)[rows, n] -> (0, b - 1)>]
        forward(%out, %lse : tensor<1x1x64x16xf32>, tensor<1x1x64xf32>)
        gradient(%dout : tensor<1x1x64x16xf32>)
        outs(%iq, %ik, %iks, %iv, %ivs : tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>,
             tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>)
        {block = 16 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x1x64x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>, tensor<1x1x64x16xf32>, tensor<1x1x4x16xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Variadic<Attn_Rank4>,
        "~T[B, G, m, D!]", "element `u` of each list is that of source `u`">:$keys,
    Attn_Arg<Variadic<Attn_Rank4>, "~T[B, G, m, E!]">:$values,
    Attn_Arg<Variadic<Attn_Rank3>, "", "as in `attn.stream`">:$log_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "", "as in `attn.stream`">:$biases,
    Attn_Arg<Attn_Rank4, "~T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of keys">:$d_keys,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of values">:$d_values,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of log_weights, or none">:$d_log_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of biases, or none">:$d_biases,
    Attn_SourceArrayAttr:$sources,
    DefaultValuedAttr<I64Attr, "0">:$block,
    Attn_FiniteAttr:$scale,
    OptionalAttr<Attn_TilesAttr>:$tiles
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCustomAssemblyFormat = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    ::llvm::LogicalResult verifyOperandCounts();
    void addOpenOperands(::fovea::attn::ContractOperands &operands);

    ::llvm::SmallVector<StreamSourceGradient> getSourceList();
  }];
}

def Attn_DenseBackwardOp : Attn_TiledOp<"dense_backward", 1, "getQuery()",
                                        [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.dense";
  let details = [{
    For the `attn.dense` with the same query, key, value, log weight, bias, scale
    and mask, and its results `output` and `lse`: the gradients of a scalar whose
    gradients for these results are `d_output` and `d_lse`, the latter zero if
    absent. `causal` is short for a mask, as in `attn.dense`. With scores `s` as
    there:

    ```
    P       = exp(s - lse)
    delta   = rowsum(d_output * output) - d_lse
    dS      = P * (d_output value^T - delta)
    d_query = scale dS key     d_key = scale dS^T query     d_value = P^T d_output
    d_log_weight = colsum(dS)  d_bias = dS
    ```

    $shapes

    Gradients of keys and values are summed over the query heads that share
    them, those of `log_weight` and `bias` over the axes along which these were
    broadcast. Element types and the order of sums are as in
    `attn.stream_backward`. Time is `O(N M (D + E))`; nothing of size `N x M` is
    stored, except `d_bias` where it has that size.

    Example:

    ```mlir
    %dq, %dk, %dv = attn.dense_backward
        ins(%q, %k, %v : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        forward(%out, %lse : tensor<1x8x512x64xf32>, tensor<1x8x512xf32>)
        gradient(%dout : tensor<1x8x512x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>)
        {mask = #attn.mask<causal>}
        -> tensor<1x8x512x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, M, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, M, E!]">:$value,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[B~, G~, M~]">:$log_weight,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, N~, M~]">:$bias,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Optional<Attn_Rank3>, "gradient of log_weight">:$d_log_weight,
    Attn_Arg<Optional<Attn_Rank4>, "gradient of bias">:$d_bias,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    OptionalAttr<Attn_MaskAttr>:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`log_weight` `(` $log_weight^ `:` type($log_weight) `)`)?
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    `forward` `(` $output `,` $lse `:` type($output) `,` type($lse) `)`
    `gradient` `(` $d_output (`,` $d_lse^)? `:`
        type($d_output) (`,` type($d_lse)^)? `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_log_weight` `(` $d_log_weight^ `:` type($d_log_weight) `)`)?
    (`d_bias` `(` $d_bias^ `:` type($d_bias) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    MaskAttr getMaskOrNone();
  }];
}

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

    with `I`, `p` and `w` as there: sums over heads that share a set of weights,
    over batch entries and over intervals. So the gradients of several levels of
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
    Attn_Arg<Attn_Rank4, "T[W!, P!, I!, D!]">:$weights,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, K, D!]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of input">:$d_input,
    Attn_Arg<Attn_Rank4, "gradient of weights">:$d_weights,
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

    $shapes

    Element types and the order of sums are as in `attn.stream_backward`. Time is
    that of the forward pass, 2.5 times; memory `O(N (D + E))`.

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
    Attn_Arg<Variadic<Attn_Rank4>,
        "T[w!, P!, i!, D!]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4>,
        "T[v!, P!, i!, E!]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank3, "sum[B, H, N]">:$lse,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[= lse]">:$d_lse,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of key_weights">:$d_key_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of value_weights">:$d_value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of key_biases">:$d_key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of value_biases">:$d_value_biases,
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
    `forward` `(` $output `,` $lse `:` type($output) `,` type($lse) `)`
    `gradient` `(` $d_output (`,` $d_lse^)? `:`
        type($d_output) (`,` type($d_lse)^)? `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_key_weights` `(` $d_key_weights^ `:` type($d_key_weights) `)`)?
    (`d_value_weights` `(` $d_value_weights^ `:` type($d_value_weights) `)`)?
    (`d_key_biases` `(` $d_key_biases^ `:` type($d_key_biases) `)`)?
    (`d_value_biases` `(` $d_value_biases^ `:` type($d_value_biases) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() { return getKeyWeights().size(); }
    /// Sums kept of an interval; 0 when there are no levels.
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
    `attn.fast_multipole_backward`, for queries as for keys and values.

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
    Attn_Arg<Variadic<Attn_Rank4>,
        "T[u!, P!, i!, D!]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens">:$query_weights,
    Attn_Arg<Variadic<Attn_Rank4>,
        "T[w!, P!, i!, D!]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens">:$key_weights,
    Attn_Arg<Variadic<Attn_Rank4>,
        "T[v!, P!, i!, E!]",
        "one per level, level 1 first; level `l` covers `group 2^(l-1)` tokens">:$value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "T[u!, P!, D!]", "none, or one per level">:$query_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[w!, P!, D!]", "none, or one per level">:$key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "T[v!, P!, E!]", "none, or one per level">:$value_biases,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of query_weights">:$d_query_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of key_weights">:$d_key_weights,
    Attn_Arg<Variadic<Attn_Rank4>, "gradient of value_weights">:$d_value_weights,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of query_biases">:$d_query_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of key_biases">:$d_key_biases,
    Attn_Arg<Variadic<Attn_Rank3>, "gradient of value_biases">:$d_value_biases,
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
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_query_weights` `(` $d_query_weights^ `:` type($d_query_weights) `)`)?
    (`d_key_weights` `(` $d_key_weights^ `:` type($d_key_weights) `)`)?
    (`d_value_weights` `(` $d_value_weights^ `:` type($d_value_weights) `)`)?
    (`d_query_biases` `(` $d_query_biases^ `:` type($d_query_biases) `)`)?
    (`d_key_biases` `(` $d_key_biases^ `:` type($d_key_biases) `)`)?
    (`d_value_biases` `(` $d_value_biases^ `:` type($d_value_biases) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    int64_t getNumLevels() { return getKeyWeights().size(); }
    int64_t getRank();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNBACKWARDOPS_TD
