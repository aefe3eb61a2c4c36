//===- AttnConvBackwardOps.td - Gradients of sums of convolutions -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The columns where bases begin are constants ("Conv-Basis", section 5): what a
// search finds has no derivative. Everything else has one, in the time of the
// forward operation.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNCONVBACKWARDOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNCONVBACKWARDOPS_TD

include "fovea/Dialect/Attn/IR/AttnConvOps.td"

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
    Attn_Arg<Attn_Rank4, "T[B, H, N!, D!]">:$query,
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$value,
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
  let assemblyFormat = [{
    `ins` `(` $query `,` $key `,` $value `:`
        type($query) `,` type($key) `,` type($value) `)`
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

def Attn_RopeBackwardOp : Attn_Op<"rope_backward", [Attn_SeparateInits]> {
  let summary = "the gradient of attn.rope";
  let details = [{
    For the `attn.rope` with the same positions and base, and a scalar whose
    gradient for its output is `d_output`: turns pairs of columns back. With
    `a = positions[b, h, n] base^(-2 i / D)`:

    ```
    d_input[b, h, n, 2 i]     = d_output[b, h, n, 2 i + 1] sin a + d_output[b, h, n, 2 i] cos a
    d_input[b, h, n, 2 i + 1] = d_output[b, h, n, 2 i + 1] cos a - d_output[b, h, n, 2 i] sin a
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
  let arguments = (ins
    Attn_Arg<Attn_Int3, "i32[B~, H~, N~]">:$positions,
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$d_output,
    Attn_Arg<Attn_Rank4, "~T[B, H, N, D!]">:$d_input,
    DefaultValuedAttr<F64Attr, "10000.0">:$base
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $positions `:` type($positions) `)`
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

#endif // FOVEA_DIALECT_ATTN_IR_ATTNCONVBACKWARDOPS_TD
