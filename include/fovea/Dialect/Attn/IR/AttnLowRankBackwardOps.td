//===- AttnLowRankBackwardOps.td - Gradients of low-rank ops -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKBACKWARDOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKBACKWARDOPS_TD

include "fovea/Dialect/Attn/IR/AttnLowRankOps.td"

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

def Attn_LowRankBackwardOp : Attn_Op<"low_rank_backward", [Attn_SeparateInits]> {
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

    A row whose total is 0 gives and gets nothing.

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
    Attn_Arg<Attn_Rank4, "T[B, H, N, E!]">:$output,
    Attn_Arg<Attn_Rank4, "~T[= output]">:$d_output,
    Attn_Arg<Attn_Rank4, "gradient of u1">:$d_u1,
    Attn_Arg<Attn_Rank4, "gradient of u2">:$d_u2,
    Attn_Arg<Attn_Rank4, "gradient of value">:$d_value,
    Attn_RowMaskAttr:$mask
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $u1 `,` $u2 `,` $value `:` type($u1) `,` type($u2) `,` type($value) `)`
    (`mask` `(` $mask_parts^ `:` type($mask_parts) `)`)?
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

#endif // FOVEA_DIALECT_ATTN_IR_ATTNLOWRANKBACKWARDOPS_TD
