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

/// What a row mask is made of: row numbers and groups, or entries.
def Attn_Bool4 : AnyTypeOf<[4DTensorOf<[I1]>, MemRefRankOf<[I1], [4]>],
    "rank-4 tensor or memref of i1">;
def Attn_MaskPart : AnyTypeOf<[Attn_Int3, Attn_Bool4],
    "rank-3 tensor or memref of i32, or rank-4 tensor or memref of i1">;

def Attn_RopeOp : Attn_TiledOp<"rope", 3, "getInput()"> {
  let summary = "rotary position embedding";
  let details = [{
    Turns every pair of neighbouring columns by an angle that grows with the
    position of the row (RoFormer, equation 34). With
    `a = positions[b, h, n] base^(-2 i / D)`:

    ```
    output[b, h, n, 2 i]     = input[b, h, n, 2 i] cos a - input[b, h, n, 2 i + 1] sin a
    output[b, h, n, 2 i + 1] = input[b, h, n, 2 i] sin a + input[b, h, n, 2 i + 1] cos a
    ```

    Scores of two rows then depend on the difference of their positions alone.

    $shapes

    Angles are reduced to one turn exactly, so the result is as good at position
    `2^31 - 1` as at position 1. `base` is a finite number above 0.

    Example:

    ```mlir
    %r = attn.rope ins(%q, %positions : tensor<1x8x1024x64xf32>, tensor<1x1x1024xi32>)
        outs(%init : tensor<1x8x1024x64xf32>) {base = 1.0e+04 : f64} -> tensor<1x8x1024x64xf32>
    ```
  }];
  let conditions = ["D % 2 == 0"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$input,
    Attn_Arg<Attn_Int3, "i32[B~, H~, N~]">:$positions,
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$output,
    DefaultValuedAttr<F64Attr, "10000.0">:$base
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $input `,` $positions `:` type($input) `,` type($positions) `)`
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
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

def Attn_LowRankOp : Attn_TiledOp<"low_rank", 2, "getU1()"> {
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
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_RowMaskAttr:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $u1 `,` $u2 `,` $value `:` type($u1) `,` type($u2) `,` type($value) `)`
    (`mask` `(` $mask_parts^ `:` type($mask_parts) `)`)?
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

#endif // FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKOPS_TD
