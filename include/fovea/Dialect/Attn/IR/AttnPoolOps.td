//===- AttnPoolOps.td - Pooled summaries, and their choice -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNPOOLOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNPOOLOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

/// Tokens of an interval.
def Attn_IntervalAttr : ConfinedAttr<I64Attr, [IntMinValue<1>, IntMaxValue<65536>]>;
/// Tokens before an interval that count as its own, too.
def Attn_OverlapAttr : ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<65536>]>;

def Attn_PoolOp : Attn_Op<"pool"> {
  let summary = "sums of consecutive intervals of rows, with weights that are data";
  let details = [{
    Row `e` is a mean of the tokens of interval `e`, the `interval` tokens from
    `e interval` on and the `overlap` tokens before these, with weights of
    their own in every column: a soft-max of `gate` over the tokens, to which
    `position_bias` adds a number for each place in an interval.

    ```
    tokens(e) = the t of 0 .. N - 1 with e interval - overlap <= t < (e + 1) interval
    s[t, d]   = gate[b, g, t, d] + position_bias[t mod interval, d]
    output[b, g, e, d] = sum_(t in tokens(e)) exp(s[t, d] - log(sum_(u in tokens(e)) exp(s[u, d]))) input[b, g, t, d]
    ```

    $shapes

    `M` is what the destination has. `N / interval` rows are those of whole intervals, as
    DeepSeek-V4 keeps them; one more is that of an interval that is still open,
    of the tokens that there are. A row without tokens is zero, as is a column whose
    weights are all `exp(-inf)`. Tokens behind the last row's have no
    influence, whatever they hold.

    A row stands for its tokens from the last of them on: as a source of
    `attn.stream`, summaries have the mask `<causal, stride = interval>`.

    Example:

    ```mlir
    %summaries = attn.pool ins(%x, %gate : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>)
        position_bias(%p : tensor<128x64xf32>)
        outs(%init : tensor<1x1x8x64xf32>) {interval = 128 : i64} -> tensor<1x1x8x64xf32>
    %overlapping = attn.pool ins(%x, %gate : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>)
        outs(%init4 : tensor<1x1x256x64xf32>) {interval = 4 : i64, overlap = 4 : i64}
        -> tensor<1x1x256x64xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$input,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$gate,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[1 * interval!, E!]">:$position_bias,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, M, E!]">:$output,
    Attn_IntervalAttr:$interval,
    DefaultValuedAttr<Attn_OverlapAttr, "0">:$overlap
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `,` $gate `:` type($input) `,` type($gate) `)`
    (`position_bias` `(` $position_bias^ `:` type($position_bias) `)`)?
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getOutputMutable();
    }
  }];
}

def Attn_PoolBackwardOp : Attn_Op<"pool_backward",
    [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "gradient of `attn.pool`";
  let details = [{
    With the weights `w[e, t, d]` of `attn.pool`, which are computed again:

    ```
    d_input[b, g, t, d] = sum_(e with t in tokens(e)) w[e, t, d] d_output[b, g, e, d]
    d_gate[b, g, t, d]  = sum_(e with t in tokens(e)) w[e, t, d] (input[b, g, t, d] - output[b, g, e, d]) d_output[b, g, e, d]
    d_position_bias[r, d] = sum_(b, g, t with t mod interval = r) d_gate[b, g, t, d]
    ```

    $shapes

    Tokens behind those of the last row have the gradient zero. The sum of
    `d_position_bias` takes `d_gate` as it is stored.

    Example:

    ```mlir
    %dx, %dg, %dp = attn.pool_backward
        ins(%x, %gate, %dout : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<1x1x8x64xf32>)
        position_bias(%p : tensor<128x64xf32>)
        outs(%ix, %ig, %ip : tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<128x64xf32>)
        {interval = 128 : i64}
        -> tensor<1x1x1024x64xf32>, tensor<1x1x1024x64xf32>, tensor<128x64xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$input,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$gate,
    Attn_Arg<Attn_Rank4, "T|sum[B, G, M, E!]">:$d_output,
    Attn_Arg<Optional<Attn_Rank2>, "T|sum[1 * interval!, E!]">:$position_bias,
    Attn_Arg<Attn_Rank4, "gradient of input">:$d_input,
    Attn_Arg<Attn_Rank4, "gradient of gate">:$d_gate,
    Attn_Arg<Optional<Attn_Rank2>, "gradient of position_bias">:$d_position_bias,
    Attn_IntervalAttr:$interval,
    DefaultValuedAttr<Attn_OverlapAttr, "0">:$overlap
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `,` $gate `,` $d_output `:`
        type($input) `,` type($gate) `,` type($d_output) `)`
    (`position_bias` `(` $position_bias^ `:` type($position_bias) `)`)?
    `outs` `(` $d_input `,` $d_gate (`,` $d_position_bias^)? `:`
        type($d_input) `,` type($d_gate) (`,` type($d_position_bias)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_TopKOp : Attn_Op<"top_k"> {
  let summary = "the keys of the largest scores of every query";
  let details = [{
    ```
    indices[b, h, i, :] = the K largest scores[b, h, i, j] of keys j that the mask admits, from the largest down
    ```

    Of equal scores that of the lower index comes first. Scores of minus infinity and NaN are
    not taken; where there are fewer than `K` others, -1 stands in the places that are left.

    $shapes

    Positions are those of `mask`, as in `attn.dense`: with `<causal, stride = r>` a
    query takes summaries of `r` tokens that are complete where it stands. There is no
    gradient. Time is `O(N M log K)` at most, and `O(N M)` on average.

    Example:

    ```mlir
    %blocks = attn.top_k ins(%scores : tensor<1x2x512x8xf32>)
        outs(%init : tensor<1x2x512x4xi32>) {mask = #attn.mask<causal, stride = 64>}
        -> tensor<1x2x512x4xi32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, M]">:$scores,
    Attn_Arg<Attn_Int4, "i32[B, H, N, K]">:$indices,
    OptionalAttr<Attn_MaskAttr>:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $scores `:` type($scores) `)`
    `outs` `(` $indices `:` type($indices) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getIndicesMutable();
    }
    /// The mask, trivial when absent.
    MaskAttr getMaskOrNone();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNPOOLOPS_TD
