//===- AttnConvOps.td - Attention by sums of convolutions -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A causal score matrix that depends on little but the distance of query and
// key is a sum of a few convolutions ("Conv-Basis: A New Paradigm for Efficient
// Attention Inference and Gradient Computation"; definition, algorithm and lemma
// numbers are the paper's).
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNCONVOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNCONVOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_ConvAlgorithm : I32Enum<"ConvAlgorithm", "how a sum of convolutions is evaluated", [
    I32EnumCase<"Auto", 0, "auto">,
    I32EnumCase<"Toeplitz", 1, "toeplitz">,
    I32EnumCase<"Partitioned", 2, "partitioned">,
    I32EnumCase<"Single", 3, "single">]> {
  let cppNamespace = "::fovea::attn";
}

def Attn_ConvAlgorithmAttr
    : EnumAttr<Attn_Dialect, Attn_ConvAlgorithm, "conv_algorithm"> {
  let summary = "how a sum of convolutions is evaluated";
  let description = [{
    For one head of `N` tokens, `R` bases and values of width `E`:

    | algorithm | evaluation | time |
    |---|---|---|
    | `toeplitz` | every weight times every value, each weight computed once for each lag | `O(N^2 E + R N)` |
    | `partitioned` | blocks of values, cut where a basis begins, are transformed once, multiplied with the transforms of the weights, and summed before one inverse transform for each block | `O(N E log N + (N / block + R) N E)` |
    | `single` | one transform of the whole sequence; `R = 1` only | `O(N E log N)` |
    | `auto` | what a model of the target says is fastest | |

    The first has the rounding errors of a product of matrices. Those of the
    others are small against the largest values of a block, see
    `attn.conv_apply`.

    Example:

    ```mlir
    #direct = #attn.conv_algorithm<toeplitz>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Attn_ConvApplyOp : Attn_Op<"conv_apply"> {
  let summary = "causal attention whose scores are a sum of convolutions";
  let description = [{
    Basis `r` of a head gives the score `b[r, i - j]` to query `i` and key `j` in
    the trailing `m_r x m_r` corner, where `m_r = sizes[r]` (definition 3.9). The
    scores of the bases add up, and the output is their soft-max times the values:

    ```
    score[i, j]   = sum over r with m_r >= N - j of b[r, i - j],     N - m_0 <= j <= i
    output[i, :]  = sum_j softmax_j(score[i, :]) value[j, :]
    ```

    That is `D^-1 sum_r conv(bt_r, m_r) V` of algorithm 1, where `bt` is the
    exponential transform of lemma A.13.

    | operand | shape |
    |---|---|
    | `basis` | `[B, H, R, N]`, `R` at least 1; numbers from `m_r` on are not read |
    | `sizes` | `[B, H, R]` of `i32`: `N >= m_0 > m_1 > ...`, then zeros for bases that do not exist |
    | `value` | `[B, G, N, E]` |
    | `output` | `[B, H, N, E]`, the type of `value` |
    | `recomputed` | `[B, H]` of `i32` |

    Columns before `N - m_0` have no weight, and a row that has no other is zero.
    Sizes in another order, or out of range, fail the kernel.

    Keys `j` with `N - m_r <= j < N - m_(r+1)` share the scores `b[0] + ... +
    b[r]` by distance. These sums are taken in order in `f64`, and rounded to the
    state type of `value` with the greatest of the head subtracted; everything
    after that is in the state type. A normaliser is a sum of weights, never a
    difference.

    With a fast Fourier transform (`algorithm`), errors are small against the
    largest product of a block, not against the result. So for every row the
    transform's error is bounded, by

    ```
    1/2 u log2(L) sum over the transforms that the row adds up of |weights| |values|
    ```

    with the unit roundoff `u` of the state type, the length `L` of a transform and
    2-norms, that of the values over both of the columns that share a complex
    transform. A row where that may be more than `2^9 u` of the largest value the
    row reads, once divided by the normaliser, is computed again without transforms;
    so is, by any algorithm, a row whose weights are all but zero next to the greatest
    of the head. `recomputed` counts these rows. The plain loops in `f64` count none.

    `block` sets the tokens of a block of the partitioned algorithm, a power of two
    of at least 8; without it, a model chooses. Results do not depend on how a sequence is
    padded inside a transform, or on the number of threads.

    Example:

    ```mlir
    %out, %recomputed = attn.conv_apply
        ins(%b, %m, %v : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x2x2048x64xf32>)
        outs(%init, %count : tensor<1x4x2048x64xf32>, tensor<1x4xi32>)
        {algorithm = #attn.conv_algorithm<partitioned>, block = 256 : i64}
        -> tensor<1x4x2048x64xf32>, tensor<1x4xi32>
    ```
  }];
  let arguments = (ins
    Attn_Rank4:$basis, Attn_Int3:$sizes, Attn_Rank4:$value,
    Attn_Rank4:$output, Attn_Int2:$recomputed,
    DefaultValuedAttr<Attn_ConvAlgorithmAttr,
                      "::fovea::attn::ConvAlgorithm::Auto">:$algorithm,
    OptionalAttr<I64Attr>:$block
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $basis `,` $sizes `,` $value `:`
        type($basis) `,` type($sizes) `,` type($value) `)`
    `outs` `(` $output `,` $recomputed `:` type($output) `,` type($recomputed) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNCONVOPS_TD
