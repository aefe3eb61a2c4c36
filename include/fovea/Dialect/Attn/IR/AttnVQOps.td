//===- AttnVQOps.td - Attention over quantized keys -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNVQOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNVQOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_Position : AnyTypeOf<[0DTensorOf<[I64]>, MemRefRankOf<[I64], [0]>],
    "rank-0 tensor or memref of i64">;
/// Mean, count, kept codes, kept values, position: in this order.
def Attn_VQStateOperand : AnyTypeOf<[Attn_Rank4, Attn_Int3, Attn_Position],
    "part of the state of attn.vq">;

def Attn_VQOp : Attn_Op<"vq", [AttrSizedOperandSegments]> {
  let summary = "attention over quantized keys, in linear time";
  let details = [{
    Dense attention whose keys are rows of a codebook (Transformer-VQ):

    ```
    out[i] = sum_j softmax_j(scale * q[i] . C[codes[j]] + bias[i, j]) value[j]    over j <= i with causal, all j without
    lse[i] = log(sum_j exp(scale * q[i] . C[codes[j]] + bias[i, j]))
    ```

    equal to `attn.dense` over these keys to rounding, in time
    `O(N (S + (M + 1) L) (D + E))`. A codebook in the type of sums is not rounded to that of
    the queries. With `weighting = squared_relu` the weight of an entry
    is `max(scale * q[i] . C[codes[j]] + bias[i, j], 0)^2`, without normaliser.

    $shapes

    `L` is `block`, and `M` is `memory`, 1 unless given. Blocks of `L` tokens count
    from the start of the sequence; a query of block `n` reads the tokens of blocks
    `n - M` to `n` one by one, and everything older as `S` codewords, each with the
    mean of the values and the logarithm of the number of the tokens that have its
    code. The bias is that of the tokens read one by one: column `m L + c` belongs to
    token `c` of block `n - M + m`. Without `causal` there is one soft-max over all
    `S` codewords, and no block matters.

    With `relative(r, v)` and `distance_bias(t)` the scores of these tokens have
    `scale * (q[i] + v) . r[i - j]` and `t[i - j]`, too, as in Transformer-XL (see
    `attn.stream`). Their distances are 0 to `(M + 1) L - 1`.

    *State.* A long sequence may come in windows of any length. `state` is what
    earlier windows left, `next_state` what this one leaves:

    | part | shape | after `p` tokens, with `n = p / L` |
    |---|---|---|
    | `mean` | `[B, G, S, E]`, `f32` (`f64` for `f64` data) | mean values of the tokens of blocks up to `n - M - 1`, by code |
    | `count` | `[B, G, S]`, `i32` | how many tokens these are |
    | `kept_codes`, `kept_values` | `[B, G, (M + 1) L]`, `[B, G, (M + 1) L, E]` | of the last tokens: token `t` is row `t mod (M + 1) L` |
    | `position` | `i64` | `p` |

    All zeros is the state before the first token. Windows agree with the whole
    sequence to rounding; counts are exact, whatever the element type.
    A negative count, a kept code that is no codeword's, or a position that is
    negative or beyond `2^60` fails the invocation. The mean of a codeword of
    count 0 is not read, whatever it holds.

    *Absent tokens.* With `padded` a code may be -1: the token is absent for the
    heads that share this code. No query reads it, no mean and no count has it, and
    its row of `value` may hold anything. As a query, its rows of `output` are zeros
    and those of `lse` minus infinity. So are those of a query that reads no token.

    `reduction` says how means and counts come from block to block; the result is
    the same to rounding. `serial`, `matmul` and `associative` compute them for all
    blocks at once (see `#attn.reduction`), which takes memory for `N / L` copies of
    the codewords' means; `input_scan` goes through the blocks in order, in constant
    memory, and takes shorter blocks where neither a bias nor a state asks for
    these: nothing but time depends on them then. `auto` is `input_scan`: nothing it needs grows with `N`, and tiles of a
    block's queries are work for several threads where batch and heads are not.

    Example:

    ```mlir
    %out = attn.vq
        ins(%q, %codes, %v, %codebook : tensor<1x8x1024x64xf32>, tensor<1x2x1024xi32>,
            tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        bias(%bias : tensor<1x8x1024x256xf32>)
        outs(%init : tensor<1x8x1024x64xf32>) {block = 128 : i64, causal}
        -> tensor<1x8x1024x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Int3, "i32[B, G, N]", "a code outside `0 .. S - 1` fails the invocation; -1 is one with `padded`">:$codes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Attn_Rank3, "T|sum[G~, S!, D!]">:$codebook,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, N~, (memory + 1) * block!]", "with `causal` only">:$bias,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[H~, R!, D!]", "with `causal` only; `R` is `(memory + 1) * block` at least">:$relative_keys,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, D!]", "with `relative_keys`">:$relative_bias,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, R!]", "with `causal` only">:$distance_bias,
    Attn_Arg<Variadic<Attn_VQStateOperand>,
        "{mean: sum[B, G, S, E]; count: i32[B, G, S]; kept codes: i32[B, G, (memory + 1) * block!]; kept values: T[B, G, (memory + 1) * block!, E]; position: i64[]}",
        "what earlier windows left">:$state,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Optional<Attn_Rank3>, "sum[B, H, N]", "not with `squared_relu`">:$lse,
    Attn_Arg<Variadic<Attn_VQStateOperand>,
        "{mean: sum[B, G, S, E]; count: i32[B, G, S]; kept codes: i32[B, G, (memory + 1) * block!]; kept values: T[B, G, (memory + 1) * block!, E]; position: i64[]}",
        "what this window leaves">:$next_state,
    I64Attr:$block,
    DefaultValuedAttr<I64Attr, "1">:$memory,
    UnitAttr:$causal,
    UnitAttr:$padded,
    DefaultValuedAttr<Attn_FiniteAttr, "1.0">:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting,
    DefaultValuedAttr<Attn_ReductionAttr,
                      "::fovea::attn::Reduction::Auto">:$reduction
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $codes `,` $value `,` $codebook `:` type($query) `,`
        type($codes) `,` type($value) `,` type($codebook) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`relative` `(` $relative_keys^ `,` $relative_bias `:`
        type($relative_keys) `,` type($relative_bias) `)`)?
    (`distance_bias` `(` $distance_bias^ `:` type($distance_bias) `)`)?
    (`state` `(` $state^ `:` type($state) `)`)?
    `outs` `(` $output (`,` $lse^)? `:` type($output) (`,` type($lse)^)? `)`
    (`next_state` `(` $next_state^ `:` type($next_state) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Whether scores have terms by distance.
    bool hasDistances() { return getRelativeKeys() || getDistanceBias(); }
    /// Whether scores of the tokens read one by one have terms of their own.
    bool hasLocalTerms() { return getBias() || hasDistances(); }
  }];
}

def Attn_VQDecodeOp : Attn_Op<"vq_decode",
    [AttrSizedOperandSegments, Attn_UpdatesInits]> {
  let summary = "one token of attention over quantized keys";
  let details = [{
    Takes one token into the state of `attn.vq` and computes its output row, in
    `O((S + (M + 1) L) (D + E))` however many tokens came before: what `attn.vq` does with
    `N = 1`, `causal` and `state`, and in place on the state.

    $shapes

    The results are the output and the state after the token. The state is updated:
    in place after bufferization, where what it held before is not needed any more.
    Once in `L` tokens a block of values moves from the kept tokens to the means.
    `block` is `L`; it, `memory`, `scale`, `weighting` and `padded` are those of `attn.vq`,
    and so are `bias`, `relative` and `distance_bias`.

    Example:

    ```mlir
    %out, %mean1, %count1, %codes1, %values1, %position1 = attn.vq_decode
        ins(%q, %code, %v, %codebook : tensor<1x8x1x64xf32>, tensor<1x2x1xi32>,
            tensor<1x2x1x64xf32>, tensor<2x512x64xf32>)
        outs(%init : tensor<1x8x1x64xf32>)
        state(%mean, %count, %codes, %values, %position : tensor<1x2x512x64xf32>,
            tensor<1x2x512xi32>, tensor<1x2x256xi32>, tensor<1x2x256x64xf32>, tensor<i64>)
        {block = 128 : i64}
        -> tensor<1x8x1x64xf32>, tensor<1x2x512x64xf32>, tensor<1x2x512xi32>,
           tensor<1x2x256xi32>, tensor<1x2x256x64xf32>, tensor<i64>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, 1!, D!]">:$query,
    Attn_Arg<Attn_Int3, "i32[B, G, 1!]">:$codes,
    Attn_Arg<Attn_Rank4, "T[B, G, 1!, E!]">:$value,
    Attn_Arg<Attn_Rank3, "T|sum[G~, S!, D!]">:$codebook,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, 1!, (memory + 1) * block!]">:$bias,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[H~, R!, D!]", "`R` is `(memory + 1) * block` at least">:$relative_keys,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, D!]", "with `relative_keys`">:$relative_bias,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, R!]">:$distance_bias,
    Attn_Arg<Attn_Rank4, "T[B, H, 1!, E!]">:$output,
    Attn_Arg<Variadic<Attn_VQStateOperand>,
        "{mean: sum[B, G, S, E]; count: i32[B, G, S]; kept codes: i32[B, G, (memory + 1) * block!]; kept values: T[B, G, (memory + 1) * block!, E]; position: i64[]}",
        "as in `attn.vq`">:$state,
    I64Attr:$block,
    DefaultValuedAttr<I64Attr, "1">:$memory,
    UnitAttr:$padded,
    DefaultValuedAttr<Attn_FiniteAttr, "1.0">:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $codes `,` $value `,` $codebook `:` type($query) `,`
        type($codes) `,` type($value) `,` type($codebook) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`relative` `(` $relative_keys^ `,` $relative_bias `:`
        type($relative_keys) `,` type($relative_bias) `)`)?
    (`distance_bias` `(` $distance_bias^ `:` type($distance_bias) `)`)?
    `outs` `(` $output `:` type($output) `)`
    `state` `(` $state `:` type($state) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// Whether scores of tokens read one by one have terms by distance.
    bool hasDistances() { return getRelativeKeys() || getDistanceBias(); }
  }];
}

def Attn_VQBackwardOp : Attn_Op<"vq_backward", [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.vq";
  let details = [{
    For the `attn.vq` with the same operands and attributes, its results `output`
    and `lse`, and a scalar whose gradients for these results are `d_output` and
    `d_lse`, the latter zero if absent. With
    `s[i, j] = scale * query[i] . C[codes[j]] + bias[i, j]` over the admitted `j`:

    ```
    P[i, j]    = exp(s[i, j] - lse[i])           delta[i] = d_output[i] . output[i] - d_lse[i]
    dS[i, j]   = P[i, j] (d_output[i] . value[j] - delta[i])
    d_query[i] = scale sum_j dS[i, j] C[codes[j]]
    d_value[j] = sum_i P[i, j] d_output[i]
    d_key[j]   = scale sum_i dS[i, j] query[i]   over the i that read j one by one
    d_bias[i, column of j] = dS[i, j]            likewise
    ```

    Terms by distance are added to the scores as in `attn.vq`. With
    `T[i, d] = dS[i, i - d]` for the tokens read one by one, `d_query[i]` has
    `scale sum_d T[i, d] r[d]`, too, and

    ```
    d_relative_keys[d] = scale sum_i T[i, d] (query[i] + v)
    d_relative_bias    = scale sum_(i,d) T[i, d] r[d]
    d_distance_bias[d] = sum_i T[i, d]           over all batch entries, and the heads that share a term
    ```

    With `weighting = squared_relu` there are no `lse` and `output`;
    `P = max(s, 0)^2` and `dS = 2 max(s, 0) (d_output . value)`.

    `d_key` is the gradient for the quantized keys, which the straight-through
    estimator gives to the keys themselves. A query reads the tokens of its own
    block and of `memory` blocks before it one by one; older ones it reads as codewords,
    which are constants here, as in the authors' code: the codebook moves by
    `attn.codebook_update`. So `d_query` and `d_value` equal those of dense
    attention over the quantized keys, and `d_key` does where scores of older
    tokens are left out. Without `causal` no token is read one by one, and `d_key`
    is zero.

    *State.* Tokens of earlier windows have gradients like any other: those that the
    `state` keeps through their codes and values, older ones through the mean of
    their code. With `P` and `dS` of a codeword's tokens counted as one entry:

    ```
    d_mean[s]      = sum_i P[i, s] d_output[i]         zero where count[s] is 0
    d_kept_keys    = d_key of the tokens kept
    d_kept_values  = d_value of the tokens kept
    ```

    `d_next_state` is the gradient for what `attn.vq` leaves as `next_state`, in the
    same three parts. A token that has gone to a mean of `n` tokens gets the `n`-th
    part of its gradient, and so does every one of the tokens of `mean`. So gradients
    of windows, each given the `d_state` of the next one as `d_next_state`, are those
    of the whole sequence; `count` and `position` are constants.

    *Absent tokens.* With `padded` a code may be -1, as in `attn.vq`. Gradients of
    absent tokens are zeros, whatever their rows of `query`, `value`, `d_output`, `d_lse`,
    `d_next_state` and the values that the state keeps hold.

    $shapes

    Gradients have the element type of their operand, or the type that sums are
    kept in, `f32` (`f64` for `f64` data); they are summed in the latter, over the
    query heads that share a key head and over the axes along which the bias was
    broadcast, in an order that does not depend on the number of threads. Time is
    `O(N (S + (M + 1) L) (D + E))`, memory for `N / L` copies of the codewords' means.

    Example:

    ```mlir
    %dq, %dk, %dv = attn.vq_backward
        ins(%q, %codes, %v, %codebook : tensor<1x8x1024x64xf32>, tensor<1x2x1024xi32>,
            tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        forward(%out, %lse : tensor<1x8x1024x64xf32>, tensor<1x8x1024xf32>)
        gradient(%dout : tensor<1x8x1024x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x8x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>)
        {block = 128 : i64, causal}
        -> tensor<1x8x1024x64xf32>, tensor<1x2x1024x64xf32>, tensor<1x2x1024x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Int3, "i32[B, G, N]", "a code outside `0 .. S - 1` fails the invocation; -1 is one with `padded`">:$codes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Attn_Rank3, "T|sum[G~, S!, D!]">:$codebook,
    Attn_Arg<Optional<Attn_Rank4>, "T|sum[B~, H~, N~, (memory + 1) * block!]", "with `causal` only">:$bias,
    Attn_Arg<Optional<Attn_Rank3>, "T|sum[H~, R!, D!]", "as in `attn.vq`">:$relative_keys,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, D!]", "as in `attn.vq`">:$relative_bias,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[H~, R!]", "as in `attn.vq`">:$distance_bias,
    Attn_Arg<Variadic<Attn_VQStateOperand>,
        "{mean: sum[B, G, S, E]; count: i32[B, G, S]; kept codes: i32[B, G, (memory + 1) * block!]; kept values: T[B, G, (memory + 1) * block!, E]; position: i64[]}",
        "as in `attn.vq`">:$state,
    Attn_Arg<Optional<Attn_Rank4>, "T[B, H, N, E]", "with `softmax` only">:$output,
    Attn_Arg<Optional<Attn_Rank3>, "sum[B, H, N]", "with `softmax` only">:$lse,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E]">:$d_output,
    Attn_Arg<Optional<Attn_Rank3>, "~T[B, H, N]">:$d_lse,
    Attn_Arg<Variadic<Attn_Rank4>,
        "{mean: T|sum[B, G, S, E]; kept keys: T|sum[B, G, (memory + 1) * block!, D]; kept values: T|sum[B, G, (memory + 1) * block!, E]}">:$d_next_state,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, N, D]">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_Arg<Optional<Attn_Rank4>, "gradient of bias">:$d_bias,
    Attn_Arg<Optional<Attn_Rank3>, "gradient of relative_keys">:$d_relative_keys,
    Attn_Arg<Optional<Attn_Rank2>, "gradient of relative_bias">:$d_relative_bias,
    Attn_Arg<Optional<Attn_Rank2>, "gradient of distance_bias">:$d_distance_bias,
    Attn_Arg<Variadic<Attn_Rank4>,
        "{mean: T|sum[B, G, S, E]; kept keys: T|sum[B, G, (memory + 1) * block!, D]; kept values: T|sum[B, G, (memory + 1) * block!, E]}">:$d_state,
    I64Attr:$block,
    DefaultValuedAttr<I64Attr, "1">:$memory,
    UnitAttr:$causal,
    UnitAttr:$padded,
    DefaultValuedAttr<Attn_FiniteAttr, "1.0">:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $codes `,` $value `,` $codebook `:` type($query) `,`
        type($codes) `,` type($value) `,` type($codebook) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`relative` `(` $relative_keys^ `,` $relative_bias `:`
        type($relative_keys) `,` type($relative_bias) `)`)?
    (`distance_bias` `(` $distance_bias^ `:` type($distance_bias) `)`)?
    (`state` `(` $state^ `:` type($state) `)`)?
    (`forward` `(` $output^ `,` $lse `:` type($output) `,` type($lse) `)`)?
    `gradient` `(` $d_output (`,` $d_lse^)? `:`
        type($d_output) (`,` type($d_lse)^)? `)`
    (`d_next_state` `(` $d_next_state^ `:` type($d_next_state) `)`)?
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    (`d_bias` `(` $d_bias^ `:` type($d_bias) `)`)?
    (`d_relative` `(` $d_relative_keys^ `,` $d_relative_bias `:`
        type($d_relative_keys) `,` type($d_relative_bias) `)`)?
    (`d_distance_bias` `(` $d_distance_bias^ `:` type($d_distance_bias) `)`)?
    (`d_state` `(` $d_state^ `:` type($d_state) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    /// As in attn.vq.
    bool hasDistances() { return getRelativeKeys() || getDistanceBias(); }
    bool hasLocalTerms() { return getBias() || hasDistances(); }
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNVQOPS_TD
