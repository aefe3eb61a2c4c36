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
    | `partitioned` | the values from where a basis begins to where the next does, in blocks, are transformed once, multiplied with the transforms of the weights, and summed before one inverse transform for each block | `O(N E log N + (N / block + R) N E)` |
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
  let details = [{
    Basis `r` of a head gives the score `b[r, i - j]` to query `i` and key `j` in
    the trailing `m_r x m_r` corner, where `m_r = sizes[r]` (definition 3.9). The
    scores of the bases add up, and the output is their soft-max times the values:

    ```
    score[i, j]   = sum over r with m_r >= N - j of b[r, i - j],     N - m_0 <= j <= i
    output[i, :]  = sum_j softmax_j(score[i, :]) value[j, :]
    ```

    That is `D^-1 sum_r conv(bt_r, m_r) V` of algorithm 1, where `bt` is the
    exponential transform of lemma A.13.

    $shapes

    Columns before `N - m_0` and entries with a score of minus infinity have no
    weight, and a row that has no other is zero. They have no influence, whatever
    they hold: a NaN or an infinity makes NaN the rows that read it, and no other.
    Sizes in another order, or out of range, fail the kernel.

    Keys `j` with `N - m_r <= j < N - m_(r+1)` share the scores `b[0] + ... +
    b[r]` by distance. These sums are taken in order in `f64`, and rounded to the
    state type of `value` with about the greatest of the head subtracted; everything
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
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "~T[B, H, R, N]", "numbers from `m_r` on are not read">:$basis,
    Attn_Arg<Attn_Int3,
        "i32[B, H, R]", "`N >= m_0 > m_1 > ...`, then zeros for bases that do not exist">:$sizes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E]">:$output,
    Attn_Arg<Attn_Int2, "i32[B, H]", "rows computed again without a transform">:$recomputed,
    DefaultValuedAttr<Attn_ConvAlgorithmAttr,
                      "::fovea::attn::ConvAlgorithm::Auto">:$algorithm,
    OptionalAttr<I64Attr>:$block
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
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

def Attn_ConvRecoverOp : Attn_TiledOp<"conv_recover", 2, "getQuery()"> {
  let summary = "the convolutions that a causal score matrix is made of";
  let details = [{
    Finds bases whose sum of convolutions is near the scores `scale q k^T` below
    the diagonal (algorithms 2 and 3), from `O(R)` of their columns and
    `O(R log N)` parts of columns of `window` entries. With
    `H[i, j] = scale query[i, :] . key[j, :]` and `u = 0`:

    ```
    column = 0
    for r = 0 .. R - 1:
      if r > 0: column = the first of column + 1 .. N - window that is new, by binary search;
                end where there is none
      sizes[r] = N - column
      basis[r, l] = H[column + l, column] - u[l]   for l < sizes[r], else 0
      u += basis[r, :]
    ```

    A column `j` is *new* when
    `sum_(t < window) |H[j + t, j] - u[t]| >= delta - 2 window epsilon`. The search
    halves the columns and takes it that all after a new one are new, too. Fewer
    bases than `R` are normal: `found` says how many there are, the sizes of the others
    are 0.

    $shapes

    `scale` is `1/sqrt(D)` unless given; `1 <= window <= N`; `delta` and `epsilon`
    are finite and not negative. If the scores are a sum of `R` convolutions and noise of
    at most `epsilon`, where the first `window` entries of every sum of consecutive
    bases add up to `delta >= 5 window epsilon` or more in magnitude, all `R` bases are
    found, and the attention that `attn.conv_apply` makes of them is off by at most
    `2 (e^(2 epsilon) - 1)` times the largest value (theorem 4.4). With `R = N`,
    `window = 1` and `delta = epsilon = 0`, every column is a basis and nothing is lost.

    A basis is rounded once, against the sum in `f64` of the rounded ones before it:
    errors do not add up. Numbers from `sizes[r]` on are 0. A column with a NaN is
    not new.

    With `lengths`, batch entry `b` has only its first `n = lengths[b]` tokens (none
    where that is negative, all where it is more than `N`). The others have no
    influence, whatever they hold: columns are searched up to `n - window`, numbers
    of `basis[r, :]` for rows from `n` on are 0, and there is no basis without tokens.
    Sizes are counted from `N` as ever, so `attn.conv_apply` finds the columns.

    Example:

    ```mlir
    %b, %m, %n = attn.conv_recover ins(%q, %k : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>)
        outs(%b_init, %m_init, %n_init : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>)
        {window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x4xi32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Optional<Attn_Int1>, "i32[B]", "all `N` tokens without it">:$lengths,
    Attn_Arg<Attn_Rank4, "sum[B, H, R!, N]">:$basis,
    Attn_Arg<Attn_Int3, "i32[B, H, R]">:$sizes,
    Attn_Arg<Attn_Int2, "i32[B, H]">:$found,
    I64Attr:$window,
    F64Attr:$delta,
    F64Attr:$epsilon,
    OptionalAttr<Attn_FiniteAttr>:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `:` type($query) `,` type($key) `)`
    (`lengths` `(` $lengths^ `:` type($lengths) `)`)?
    `outs` `(` $basis `,` $sizes `,` $found `:`
        type($basis) `,` type($sizes) `,` type($found) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
    /// The distance from which on a column is new.
    double getThreshold();
  }];
}

def Attn_ConvOp : Attn_TiledOp<"conv", 2, "getQuery()"> {
  let summary = "causal attention by a sum of convolutions";
  let details = [{
    Attention whose score matrix is replaced by the convolutions that
    `attn.conv_recover` finds in it, at most `num_basis` of them for a head:
    `attn.conv_apply` of `attn.conv_recover` (algorithm 1). Time is
    `O(num_basis N D log N)`.

    With `group = g`, a query sees less than all keys before it: those of its own
    group of `g` tokens and of the group before, the union of both of LongLoRA's
    groupings into `2 g` tokens (section 7):

    ```
    query i reads key j     when j <= i and i/g - j/g <= 1
    ```

    Scores are then recovered and applied for every pair of neighbouring groups by
    itself, at most `num_basis` for each; time is `O(num_basis N D log g)`.

    `mask` is true for the tokens that are present. Attention is then that of the
    sequence of these tokens alone, in their order: distances and groups do not count
    the others, which have no influence, whatever they hold. Their rows of the output
    are 0. `recomputed` may count rows that stand for them.

    $shapes

    The other attributes are those of `attn.conv_recover` and `attn.conv_apply`.
    `window` is at most `N`, and at most `group`.

    Example:

    ```mlir
    %out, %found, %recomputed = attn.conv
        ins(%q, %k, %v : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        outs(%init, %n_init, %c_init : tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>)
        {num_basis = 8 : i64, window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x2048x64xf32>, tensor<1x4xi32>, tensor<1x4xi32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "all tokens without it">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Int2, "i32[B, H]", "bases found; sums over pairs of groups">:$found,
    Attn_Arg<Attn_Int2,
        "i32[B, H]",
        "rows computed again without a transform; sums over pairs of groups">:$recomputed,
    I64Attr:$num_basis,
    I64Attr:$window,
    F64Attr:$delta,
    F64Attr:$epsilon,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    OptionalAttr<I64Attr>:$group,
    DefaultValuedAttr<Attn_ConvAlgorithmAttr,
                      "::fovea::attn::ConvAlgorithm::Auto">:$algorithm
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $output `,` $found `,` $recomputed `:`
        type($output) `,` type($found) `,` type($recomputed) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

//===----------------------------------------------------------------------===//
// Gradients
//
// The columns where bases begin are constants (section 5): what a search finds has
// no derivative. Everything else has one, in the time of the forward operation.
//
//===----------------------------------------------------------------------===//

def Attn_ConvApplyBackwardOp : Attn_Op<"conv_apply_backward", [Attn_SeparateInits]> {
  let summary = "the gradient of attn.conv_apply";
  let details = [{
    For the `attn.conv_apply` with the same operands, its result `output`, and a
    scalar whose gradient for it is `d_output`. With `P = softmax(score)`, as there,

    ```
    delta[i]      = d_output[i, :] . output[i, :]
    dS[i, j]      = P[i, j] (d_output[i, :] . value[j, :] - delta[i])
    d_value[j, :] = sum_i P[i, j] d_output[i, :]                   summed over heads that share values
    d_basis[r, l] = sum of dS[j + l, j] over the j >= N - m_r      for l < m_r, else 0
    ```

    Entries of one lag and one segment (the keys between the first column of a
    basis and that of the next) have one weight, `P[i, j] = w[l] / D[i]`. So with
    `g[i, :] = d_output[i, :] / D[i]` the gradient of values is the correlation of
    `w` and `g`, and that of a segment's scores is `w[l]` times the correlation of
    `g` and the segment's values, less a sum of `delta / D`: both are what the
    forward operation computes, in the other direction, and take its time.

    $shapes

    Gradients have the element type of their operand, or the type that sums are
    kept in, `f32` (`f64` for `f64` data); they are summed in the latter, in an order
    that does not depend on the number of threads. Time is that of the algorithm,
    `O(N E log N + (N / block + R) N E)` if partitioned, twice; memory is
    `O(N (E + R))`.

    A row that a transform is too coarse for, as `attn.conv_apply` finds them, passes
    its gradients on without one, entry by entry. Which rows these are does not
    depend on the values here: those where the bound there, for values that are all 1,
    is more than `2^9 u` of the normaliser.

    Example:

    ```mlir
    %db, %dv = attn.conv_apply_backward
        ins(%b, %m, %v : tensor<1x4x8x2048xf32>, tensor<1x4x8xi32>, tensor<1x2x2048x64xf32>)
        forward(%out : tensor<1x4x2048x64xf32>) gradient(%dout : tensor<1x4x2048x64xf32>)
        outs(%ib, %iv : tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>)
        {algorithm = #attn.conv_algorithm<partitioned>, block = 256 : i64}
        -> tensor<1x4x8x2048xf32>, tensor<1x2x2048x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "~T[B, H, R, N]", "numbers from `m_r` on are not read">:$basis,
    Attn_Arg<Attn_Int3,
        "i32[B, H, R]", "`N >= m_0 > m_1 > ...`, then zeros for bases that do not exist">:$sizes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E]">:$output,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of basis">:$d_basis,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    DefaultValuedAttr<Attn_ConvAlgorithmAttr,
                      "::fovea::attn::ConvAlgorithm::Auto">:$algorithm,
    OptionalAttr<I64Attr>:$block
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $basis `,` $sizes `,` $value `:`
        type($basis) `,` type($sizes) `,` type($value) `)`
    `forward` `(` $output `:` type($output) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_basis `,` $d_value `:` type($d_basis) `,` type($d_value) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_ConvRecoverBackwardOp : Attn_Op<"conv_recover_backward", [Attn_SeparateInits]> {
  let summary = "the gradient of attn.conv_recover";
  let details = [{
    For the `attn.conv_recover` of the same query and key, which found `sizes`, and
    a scalar whose gradient for its bases is `d_basis`. Sizes, and with them the
    columns `c_r = N - sizes[r]` where bases begin, are constants. Bases `0 .. r` add
    up to column `c_r` of the scores, so that basis `r` is column `c_r` less column
    `c_(r - 1)`:

    ```
    dH[r, l]          = d_basis[r, l] - d_basis[r + 1, l] (0 from sizes[r + 1] on)     for l < sizes[r]
    d_query[i, :]     = scale sum over r with c_r <= i of dH[r, i - c_r] key[c_r, :]
    d_key[c_r, :]     = scale sum_l dH[r, l] query[c_r + l, :]      summed over heads that share keys
    ```

    Other keys get 0. Gradients of a basis from its size on are not read.

    $shapes

    `scale` is `1/sqrt(D)` unless given. Element types and the order of sums are as in
    `attn.conv_apply_backward`. Time is `O(R N D)`.

    Example:

    ```mlir
    %dq, %dk = attn.conv_recover_backward
        ins(%q, %k, %m : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x4x8xi32>)
        gradient(%db : tensor<1x4x8x2048xf32>)
        outs(%iq, %ik : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>)
        -> tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Int3, "i32[B, H, R]">:$sizes,
    Attn_Arg<Attn_Rank4,
        "~T[B, H, R, N]", "of the shape of `basis` of `attn.conv_recover`">:$d_basis,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    OptionalAttr<Attn_FiniteAttr>:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $sizes `:`
        type($query) `,` type($key) `,` type($sizes) `)`
    `gradient` `(` $d_basis `:` type($d_basis) `)`
    `outs` `(` $d_query `,` $d_key `:` type($d_query) `,` type($d_key) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    double getScaleOrDefault();
  }];
}

def Attn_ConvBackwardOp : Attn_Op<"conv_backward", [Attn_SeparateInits]> {
  let summary = "the gradient of attn.conv";
  let details = [{
    For the `attn.conv` with the same operands and attributes, its result `output`,
    and a scalar whose gradient for it is `d_output`: `attn.conv_apply_backward` of
    what `attn.conv_recover` finds once more, whose gradient goes to queries and keys
    by `attn.conv_recover_backward`. The sizes that are found are constants, so only
    keys of columns where a basis begins have a gradient. With `group`, gradients of
    the pairs of neighbouring groups that a token belongs to add up.

    $shapes

    Element types and the order of sums are as in `attn.conv_apply_backward`. Time is
    that of the forward operation, twice, and `O(num_basis N D)`.

    Example:

    ```mlir
    %dq, %dk, %dv = attn.conv_backward
        ins(%q, %k, %v : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        forward(%out : tensor<1x4x2048x64xf32>) gradient(%dout : tensor<1x4x2048x64xf32>)
        outs(%iq, %ik, %iv : tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>)
        {num_basis = 8 : i64, window = 16 : i64, delta = 1.0 : f64, epsilon = 1.0e-02 : f64}
        -> tensor<1x4x2048x64xf32>, tensor<1x2x2048x64xf32>, tensor<1x2x2048x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "all tokens without it">:$mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of query">:$d_query,
    Attn_Arg<Attn_Rank4, "gradient of key">:$d_key,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    I64Attr:$num_basis,
    I64Attr:$window,
    F64Attr:$delta,
    F64Attr:$epsilon,
    OptionalAttr<Attn_FiniteAttr>:$scale,
    OptionalAttr<I64Attr>:$group,
    DefaultValuedAttr<Attn_ConvAlgorithmAttr,
                      "::fovea::attn::ConvAlgorithm::Auto">:$algorithm
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `forward` `(` $output `:` type($output) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_query `,` $d_key `,` $d_value `:`
        type($d_query) `,` type($d_key) `,` type($d_value) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNCONVOPS_TD
