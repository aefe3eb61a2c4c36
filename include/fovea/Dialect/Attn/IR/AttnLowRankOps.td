//===- AttnLowRankOps.td - Low-rank products under masks -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_RowMask : I32Enum<"RowMask", "which columns every row of a low-rank product keeps", [
    I32EnumCase<"Causal", 0, "causal">,
    I32EnumCase<"RowChange", 1, "row_change">,
    I32EnumCase<"RowInterval", 2, "row_interval">,
    I32EnumCase<"DistinctRows", 3, "distinct_rows">,
    I32EnumCase<"DistinctColumns", 4, "distinct_columns">]> {
  let cppNamespace = "::fovea::attn";
}

def Attn_RowMaskAttr : EnumAttr<Attn_Dialect, Attn_RowMask, "row_mask"> {
  let summary = "which columns every row of a low-rank product keeps";
  let description = [{
    Structures of a mask `W` of zeros and ones with `N` rows and `M` columns under
    which a low-rank product takes no quadratic time (Conv-Basis, section 6).

    | mask | `W[i, j] = 1` | time for rank `r` and values of width `E` |
    |---|---|---|
    | `causal` | `j <= i + M - N` | `(N + M) r E` |
    | `row_change` | an odd number of the changes up to row `i` name column `j` | `(N + changes) r E` |
    | `row_interval` | `first[i] <= j <= last[i]` | `(M + N log M) r E` |
    | `distinct_rows` | `rows[group[i], j]` | `(N + entries of rows) r E` |
    | `distinct_columns` | `columns[group[j], i]` | `(M + entries of columns) r E` |

    Example:

    ```mlir
    #intervals = #attn.row_mask<row_interval>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

def Attn_RopeStyle : I32Enum<"RopeStyle", "which columns turn together", [
    I32EnumCase<"Interleaved", 0, "interleaved">,
    I32EnumCase<"Half", 1, "half">]> {
  let cppNamespace = "::fovea::attn";
}

def Attn_RopeStyleAttr : EnumAttr<Attn_Dialect, Attn_RopeStyle, "rope_style"> {
  let summary = "which columns turn together";
  let description = [{
    | style | columns of pair `i` where `w` columns turn | models |
    |---|---|---|
    | `interleaved` | `2 i` and `2 i + 1` | RoFormer, GPT-J |
    | `half` | `i` and `i + w / 2` | GPT-NeoX, Llama as Transformers has it |

    Example:

    ```mlir
    #style = #attn.rope_style<half>
    ```
  }];
  let assemblyFormat = "`<` $value `>`";
}

/// What says how rows turn: the same for attn.rope and its gradient.
def Attn_RopeTurns {
  dag attributes = (ins
    DefaultValuedAttr<F64Attr, "10000.0">:$base,
    DefaultValuedAttr<Attn_RopeStyleAttr,
                      "::fovea::attn::RopeStyle::Interleaved">:$style,
    OptionalAttr<I64Attr>:$width,
    OptionalAttr<DenseF64ArrayAttr>:$frequencies,
    DefaultValuedAttr<F64Attr, "1.0">:$magnitude
  );
  string declaration = [{
    /// How many columns turn; those behind them are copied.
    int64_t getTurnedWidth();
    /// The angle in radians by which a pair turns for each position.
    long double getFrequency(int64_t pair);
  }];
}

/// What a row mask is made of: row numbers and groups, or entries.
def Attn_Bool4 : AnyTypeOf<[4DTensorOf<[I1]>, MemRefRankOf<[I1], [4]>],
    "rank-4 tensor or memref of i1">;
def Attn_MaskPart : AnyTypeOf<[Attn_Int3, Attn_Bool4],
    "rank-3 tensor or memref of i32, or rank-4 tensor or memref of i1">;

def Attn_RopeOp : Attn_TiledOp<"rope", 3, "getInput()"> {
  let summary = "rotary position embedding";
  let details = [{
    Turns pairs of columns by an angle that grows with the position of the row
    (RoFormer, equation 34). For pair `i`, of columns `x` and `y`, with
    `a = positions[b, h, n] frequencies[i]` and the magnitude `m`:

    ```
    output[b, h, n, x] = m (input[b, h, n, x] cos a - input[b, h, n, y] sin a)
    output[b, h, n, y] = m (input[b, h, n, x] sin a + input[b, h, n, y] cos a)
    ```

    Scores of two rows then depend on the difference of their positions alone.

    $shapes

    | attribute | what it says | by default |
    |---|---|---|
    | `base` | `frequencies[i] = base^(-2 i / w)`, with a finite base above 0 | 10000 |
    | `style` | `interleaved`: columns `2 i` and `2 i + 1`; `half`: `i` and `i + w / 2` | `interleaved` |
    | `width` | `w`, even: so many columns turn, and those behind them are copied | `D` |
    | `frequencies` | `w / 2` finite numbers of at least 0, in place of a base | from `base` |
    | `magnitude` | `m`, finite and above 0 | 1 |

    Frequencies that are scaled to longer contexts, by a factor, NTK, YaRN or as in
    Llama 3, are tables that `rope_frequencies` makes, in C++ and Python. A table is
    an attribute, not an operand, for accuracy: kernels have it in units of 2^-64
    turns, where one of f32 can be wrong by 1/16 radian at position 2^21.
    It is a constant, so it has no gradient.

    Angles are reduced to one turn exactly, so the result is as good at position
    `2^31 - 1` as at position 1.

    Example:

    ```mlir
    %r = attn.rope ins(%q, %positions : tensor<1x8x1024x64xf32>, tensor<1x1x1024xi32>)
        outs(%init : tensor<1x8x1024x64xf32>) {base = 1.0e+04 : f64} -> tensor<1x8x1024x64xf32>
    %s = attn.rope ins(%q, %positions : tensor<1x8x1024x64xf32>, tensor<1x1x1024xi32>)
        outs(%init : tensor<1x8x1024x64xf32>)
        {style = #attn.rope_style<half>, width = 4 : i64, frequencies = array<f64: 1.0, 1.25e-02>,
         magnitude = 1.1 : f64} -> tensor<1x8x1024x64xf32>
    ```
  }];
  let conditions = ["D % 2 == 0"];
  let arguments = !con((ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$input,
    Attn_Arg<Attn_Int3, "i32[B~, H~, N~]">:$positions,
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$output
  ), Attn_RopeTurns.attributes);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $input `,` $positions `:` type($input) `,` type($positions) `)`
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = Attn_RopeTurns.declaration # [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getOutputMutable();
    }
  }];
}

def Attn_PolynomialFeaturesOp : Attn_TiledOp<"polynomial_features", 3, "getInput()"> {
  let summary = "features whose products are a truncated exponential";
  let details = [{
    Maps every row `x` to `phi(x)`, such that products of features are the Taylor
    series of an exponential up to `degree` (Conv-Basis, section 6):

    ```
    phi(q) . phi(k) = sum_(g = 0 .. degree) (scale q.k)^g / g!
    ```

    The features are the monomials of the columns, one for every multiset
    `alpha` of at most `degree` columns: `sqrt(scale^|alpha| / alpha!) x^alpha`,
    where `alpha!` is the product of the factorials of the multiplicities. They
    come by degree, and within a degree in lexicographic order: `1`, then `x[0]`,
    `x[1]`, ..., then `x[0] x[0]`, `x[0] x[1]`, ... `scale` is finite and not
    negative.

    $shapes

    Example:

    ```mlir
    %phi = attn.polynomial_features ins(%q : tensor<1x8x1024x16xf32>)
        outs(%init : tensor<1x8x1024x153xf32>) {degree = 2 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x8x1024x153xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$input,
    Attn_Arg<Attn_Rank4, "T[B, H, N, F!]", "`F = binomial(D + degree, degree)`">:$output,
    I64Attr:$degree,
    F64Attr:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getOutputMutable();
    }
  }];
}

def Attn_LowRankOp : Attn_TiledOp<"low_rank", 2, "getU1()", [AttrSizedOperandSegments]> {
  let summary = "attention whose unmasked weights are a low-rank product";
  let details = [{
    Attention with the weights `W o (U1 U2^T)`, which are never formed
    (Conv-Basis, section 6). `W` is 0 or 1:

    ```
    weight[i, j] = W[i, j] u1[b, h, i, :] . u2[b, g, j, :]
    output[b, h, i, :] = sum_j weight[i, j] value[b, g, j, :] / sum_j weight[i, j]
    ```

    where `g = h / (H / G)`. A row whose sum of weights is 0 gives zeros. Entries
    that are not kept have no influence, whatever they hold: a NaN or an infinity
    makes NaN the rows that keep it, and no other.

    $shapes

    | `mask` | parts; leading extents of 1 broadcast | entry `(i, j)` is kept when |
    |---|---|---|
    | `causal` | none | `j <= i + M - N` |
    | `row_change` | `ends [B, H, N]`, `columns [B, H, K]` of `i32` | `j` occurs an odd number of times in `columns[.., 0 .. ends[.., i] - 1]` |
    | `row_interval` | `first`, `last [B, H, N]` of `i32` | `first[.., i] <= j <= last[.., i]` |
    | `distinct_rows` | `group [B, H, N]` of `i32`, `rows [B, H, R, M]` of `i1` | `rows[.., group[.., i], j]` |
    | `distinct_columns` | `group [B, H, M]` of `i32`, `columns [B, H, R, N]` of `i1` | `columns[.., group[.., j], i]` |

    The changes of row `i` are `columns[.., ends[.., i - 1] .. ends[.., i] - 1]`, from
    0 for row 0: a column that is there leaves, one that is not enters. Ends do not
    decrease. See `#attn.row_mask` for the time that masks take.

    `query_mask` and `key_mask` are true for the rows of `u1`, and of `u2` and `value`,
    that are present. `W[i, j]` is 0 where either is not: rows of absent queries are
    zeros, and absent rows have no influence, whatever they hold.

    Weights of any sign are summed as they are. Sums are kept in `f32` (`f64` for
    `f64`), and made of partial sums that are short or compensated. No sum is the
    difference of two others, except under `row_change`, whose running sums are in
    `f64`, compensated, and start anew where a row has no column.

    Example:

    ```mlir
    %out = attn.low_rank
        ins(%u1, %u2, %v : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        mask(%first, %last : tensor<1x1x256xi32>, tensor<1x1x256xi32>)
        outs(%init : tensor<1x8x256x64xf32>)
        {mask = #attn.row_mask<row_interval>} -> tensor<1x8x256x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, R!]">:$u1,
    Attn_Arg<Attn_Rank4, "T[B, G, M, R!]">:$u2,
    Attn_Arg<Attn_Rank4, "T[B, G, M, E!]">:$value,
    Attn_Arg<Variadic<Attn_MaskPart>, "", "by `mask`, below">:$mask_parts,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "all without it">:$query_mask,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, M]", "all without it">:$key_mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_RowMaskAttr:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let assemblyFormat = [{
    `ins` `(` $u1 `,` $u2 `,` $value `:` type($u1) `,` type($u2) `,` type($value) `)`
    (`mask` `(` $mask_parts^ `:` type($mask_parts) `)`)?
    (`query_mask` `(` $query_mask^ `:` type($query_mask) `)`)?
    (`key_mask` `(` $key_mask^ `:` type($key_mask) `)`)?
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getOutputMutable();
    }
    /// What diagnostics call the parts of a mask.
    static ::llvm::SmallVector<::llvm::StringRef> getPartNames(RowMask mask);
    void addOpenOperands(::fovea::attn::ContractOperands &operands);
  }];
}

def Attn_CheckIntervalsOp : Op<Attn_Dialect, "check_intervals",
    [AllShapesMatch<["first", "last"]>,
     DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "fail unless intervals are in order and in range";
  let description = [{
    Checks at run time that `0 <= first[b, h, i] <= last[b, h, i] < bound`.
    Otherwise the invocation fails with a text that begins with `name` and tells
    the first interval for which that does not hold:

    ```
    attn.low_rank: interval[0, 0, 17] must have 0 <= first <= last < 256, but got 5 and 3
    ```

    Inserted by `--attn-check-codes` before operations that take intervals, or ends
    of parts of a list: what lies between two of them is an interval, too.

    Example:

    ```mlir
    attn.check_intervals %first, %last below %bound
        {name = "attn.low_rank: interval"} : tensor<1x1x256xi32>, tensor<1x1x256xi32>
    ```
  }];
  let arguments = (ins Attn_Int3:$first, Attn_Int3:$last, Index:$bound,
                       StrAttr:$name);
  let assemblyFormat = [{
    $first `,` $last `below` $bound attr-dict `:` type($first) `,` type($last)
  }];
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

def Attn_RopeBackwardOp : Attn_Op<"rope_backward", [Attn_SeparateInits]> {
  let summary = "the gradient of attn.rope";
  let details = [{
    For the `attn.rope` with the same positions and attributes, and a scalar whose
    gradient for its output is `d_output`: turns pairs of columns back, and copies
    the columns that do not turn. For pair `i`, of columns `x` and `y`, with
    `a = positions[b, h, n] frequencies[i]` and the magnitude `m`:

    ```
    d_input[b, h, n, x] = m (d_output[b, h, n, y] sin a + d_output[b, h, n, x] cos a)
    d_input[b, h, n, y] = m (d_output[b, h, n, y] cos a - d_output[b, h, n, x] sin a)
    ```

    $shapes

    Example:

    ```mlir
    %dx = attn.rope_backward ins(%positions : tensor<1x1x1024xi32>)
        gradient(%dout : tensor<1x8x1024x64xf32>)
        outs(%init : tensor<1x8x1024x64xf32>) {base = 1.0e+04 : f64} -> tensor<1x8x1024x64xf32>
    ```
  }];
  let conditions = ["D % 2 == 0"];
  let arguments = !con((ins
    Attn_Arg<Attn_Int3, "i32[B~, H~, N~]">:$positions,
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$d_output,
    Attn_Arg<Attn_Rank4, "~T[B, H, N, D!]">:$d_input
  ), Attn_RopeTurns.attributes);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $positions `:` type($positions) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_input `:` type($d_input) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = Attn_RopeTurns.declaration # [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getDInputMutable();
    }
  }];
}

def Attn_PolynomialFeaturesBackwardOp : Attn_TiledOp<"polynomial_features_backward", 3, "getInput()",
                                                     [Attn_SeparateInits]> {
  let summary = "the gradient of attn.polynomial_features";
  let details = [{
    With the features `phi` of `attn.polynomial_features` and a scalar whose gradient
    for them is `d_output`:

    ```
    d_input[b, h, n, i] = sum_alpha d_output[b, h, n, alpha] d phi(x)[alpha] / d x[i]    at x = input[b, h, n, :]
    ```

    The products of the features are made again, in the same nest of loops, so time
    is that of the features. Sums are kept in `f32` (`f64` for `f64`).

    $shapes

    Example:

    ```mlir
    %dx = attn.polynomial_features_backward ins(%x : tensor<1x8x1024x16xf32>)
        gradient(%dphi : tensor<1x8x1024x153xf32>)
        outs(%init : tensor<1x8x1024x16xf32>) {degree = 2 : i64, scale = 2.5e-01 : f64}
        -> tensor<1x8x1024x16xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$input,
    Attn_Arg<Attn_Rank4, "T[B, H, N, F!]", "`F = binomial(D + degree, degree)`">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of input">:$d_input,
    I64Attr:$degree,
    F64Attr:$scale
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_input `:` type($d_input) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getDInputMutable();
    }
  }];
}

def Attn_LowRankBackwardOp
    : Attn_Op<"low_rank_backward", [AttrSizedOperandSegments, Attn_SeparateInits]> {
  let summary = "the gradient of attn.low_rank";
  let details = [{
    For the `attn.low_rank` with the same operands and mask, its result `output`, and
    a scalar whose gradient for the result is `d_output`. With `W` the mask, and
    `total[i] = sum_j W[i, j] u1[i] . u2[j]`, made again as the forward operation
    makes it:

    ```
    dP[i, j]   = W[i, j] (d_output[i] . value[j] - d_output[i] . output[i]) / total[i]
    d_u1[i]    = sum_j dP[i, j] u2[j]
    d_u2[j]    = sum_i dP[i, j] u1[i]
    d_value[j] = sum_i W[i, j] (u1[i] . u2[j]) / total[i] d_output[i]
    ```

    A row whose total is 0 gives and gets nothing, and neither does an absent one.

    $shapes

    All three are sums of the form of `attn.low_rank` itself, the last two under the
    transposed mask: a causal mask runs backwards, distinct rows are distinct
    columns, the intervals in which a changing column is there are row intervals,
    and rows that enter at the first and leave after the last of their columns are
    changes. So time is that of the forward operation, up to a factor and, under
    `row_change`, the logarithm of the number of rows; memory holds no pairs of
    tokens.

    Gradients have the element type of their operand, or the type that sums are kept
    in, `f32` (`f64` for `f64` data); they are summed in the latter, over the query
    heads that share a key head as well, in an order that does not depend on the
    number of threads.

    Example:

    ```mlir
    %du1, %du2, %dv = attn.low_rank_backward
        ins(%u1, %u2, %v : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        mask(%first, %last : tensor<1x1x256xi32>, tensor<1x1x256xi32>)
        forward(%out : tensor<1x8x256x64xf32>) gradient(%dout : tensor<1x8x256x64xf32>)
        outs(%iu1, %iu2, %iv : tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>)
        {mask = #attn.row_mask<row_interval>}
        -> tensor<1x8x256x16xf32>, tensor<1x2x256x16xf32>, tensor<1x2x256x64xf32>
    ```
  }];
  let conditions = ["H % G == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, R!]">:$u1,
    Attn_Arg<Attn_Rank4, "T[B, G, M, R!]">:$u2,
    Attn_Arg<Attn_Rank4, "T[B, G, M, E!]">:$value,
    Attn_Arg<Variadic<Attn_MaskPart>, "", "as in `attn.low_rank`">:$mask_parts,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "all without it">:$query_mask,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, M]", "all without it">:$key_mask,
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of u1">:$d_u1,
    Attn_Arg<Attn_Rank4, "gradient of u2">:$d_u2,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_RowMaskAttr:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
  let assemblyFormat = [{
    `ins` `(` $u1 `,` $u2 `,` $value `:` type($u1) `,` type($u2) `,` type($value) `)`
    (`mask` `(` $mask_parts^ `:` type($mask_parts) `)`)?
    (`query_mask` `(` $query_mask^ `:` type($query_mask) `)`)?
    (`key_mask` `(` $key_mask^ `:` type($key_mask) `)`)?
    `forward` `(` $output `:` type($output) `)`
    `gradient` `(` $d_output `:` type($d_output) `)`
    `outs` `(` $d_u1 `,` $d_u2 `,` $d_value `:`
        type($d_u1) `,` type($d_u2) `,` type($d_value) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
    void addOpenOperands(::fovea::attn::ContractOperands &operands);
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKOPS_TD
