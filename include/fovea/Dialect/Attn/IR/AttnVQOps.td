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
  let description = [{
    Dense attention whose keys are rows of a codebook (Transformer-VQ):

    ```
    out[i] = sum_j softmax_j(scale * q[i] . C[codes[j]] + bias[i, j]) value[j]    over j <= i with causal, all j without
    lse[i] = log(sum_j exp(scale * q[i] . C[codes[j]] + bias[i, j]))
    ```

    equal to `attn.dense` over these keys to rounding, in time
    `O(N (S + 2 L) (D + E))`. With `weighting = squared_relu` the weight of an entry
    is `max(scale * q[i] . C[codes[j]] + bias[i, j], 0)^2`, without normaliser.

    | operand | shape | |
    |---|---|---|
    | `query` | `[B, H, N, D]` | |
    | `codes` | `[B, G, N]`, `i32` | `H` is a multiple of `G`; a code outside `0 .. S - 1` fails the invocation |
    | `value` | `[B, G, N, E]` | |
    | `codebook` | `[G, S, D]` or `[1, S, D]` | |
    | `bias` | `[B, H, N, 2 L]`, static extents of 1 of the first three broadcast | with `causal` only |
    | `output` | `[B, H, N, E]` | |
    | `lse` | `[B, H, N]`, `f32` (`f64` for `f64` data) | not with `squared_relu` |

    `L` is `block`. Blocks of `L` tokens count from the start of the sequence; a
    query of block `n` reads the tokens of blocks `n - 1` and `n` one by one, and
    everything older as `S` codewords, each with the mean of the values and the
    logarithm of the number of the tokens that have its code. The bias is that of
    the tokens read one by one: column `c < L` belongs to token `c` of block `n - 1`,
    column `L + c` to token `c` of block `n`. Without `causal` there is one soft-max
    over all `S` codewords, and no block matters.

    *State.* A long sequence may come in windows of any length. `state` is what
    earlier windows left, `next_state` what this one leaves:

    | part | shape | after `p` tokens, with `n = p / L` |
    |---|---|---|
    | `mean` | `[B, G, S, E]`, `f32` (`f64` for `f64` data) | mean values of the tokens of blocks up to `n - 2`, by code |
    | `count` | `[B, G, S]`, `i32` | how many tokens these are |
    | `kept_codes`, `kept_values` | `[B, G, 2 L]`, `[B, G, 2 L, E]` | of the last tokens: token `t` is row `t mod 2 L` |
    | `position` | `i64` | `p` |

    All zeros is the state before the first token. Windows agree with the whole
    sequence to rounding; counts are exact, whatever the element type.
    A negative count, a kept code that is no codeword's, or a position that is
    negative or beyond `2^60` fails the invocation. The mean of a codeword of
    count 0 is not read, whatever it holds.

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
  let arguments = (ins
    Attn_Rank4:$query, Attn_Int3:$codes, Attn_Rank4:$value, Attn_Rank3:$codebook,
    Optional<Attn_Rank4>:$bias, Variadic<Attn_VQStateOperand>:$state,
    Attn_Rank4:$output, Optional<Attn_Rank3>:$lse,
    Variadic<Attn_VQStateOperand>:$next_state,
    I64Attr:$block, UnitAttr:$causal,
    DefaultValuedAttr<F64Attr, "1.0">:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting,
    DefaultValuedAttr<Attn_ReductionAttr,
                      "::fovea::attn::Reduction::Auto">:$reduction
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $query `,` $codes `,` $value `,` $codebook `:` type($query) `,`
        type($codes) `,` type($value) `,` type($codebook) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    (`state` `(` $state^ `:` type($state) `)`)?
    `outs` `(` $output (`,` $lse^)? `:` type($output) (`,` type($lse)^)? `)`
    (`next_state` `(` $next_state^ `:` type($next_state) `)`)?
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_VQDecodeOp : Attn_Op<"vq_decode",
    [AttrSizedOperandSegments, Attn_UpdatesInits]> {
  let summary = "one token of attention over quantized keys";
  let description = [{
    Takes one token into the state of `attn.vq` and computes its output row, in
    `O((S + 2 L) (D + E))` however many tokens came before: what `attn.vq` does with
    `N = 1`, `causal` and `state`, and in place on the state.

    | operand | shape |
    |---|---|
    | `query` | `[B, H, 1, D]` |
    | `codes` | `[B, G, 1]`, `i32` |
    | `value` | `[B, G, 1, E]` |
    | `codebook` | `[G, S, D]` or `[1, S, D]` |
    | `bias` | `[B, H, 1, 2 L]`, static extents of 1 of the first three broadcast |
    | `output` | `[B, H, 1, E]` |
    | `state` | `mean`, `count`, `kept_codes`, `kept_values`, `position`, as in `attn.vq` |

    The results are the output and the state after the token. The state is updated:
    in place after bufferization, where what it held before is not needed any more.
    Once in `L` tokens a block of values moves from the kept tokens to the means.
    `block` is `L`; it, `scale` and `weighting` are those of `attn.vq`.

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
  let arguments = (ins
    Attn_Rank4:$query, Attn_Int3:$codes, Attn_Rank4:$value, Attn_Rank3:$codebook,
    Optional<Attn_Rank4>:$bias,
    Attn_Rank4:$output, Variadic<Attn_VQStateOperand>:$state,
    I64Attr:$block,
    DefaultValuedAttr<F64Attr, "1.0">:$scale,
    DefaultValuedAttr<Attn_WeightingAttr,
                      "::fovea::attn::Weighting::Softmax">:$weighting
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $query `,` $codes `,` $value `,` $codebook `:` type($query) `,`
        type($codes) `,` type($value) `,` type($codebook) `)`
    (`bias` `(` $bias^ `:` type($bias) `)`)?
    `outs` `(` $output `:` type($output) `)`
    `state` `(` $state `:` type($state) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNVQOPS_TD
