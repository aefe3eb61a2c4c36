//===- AttnTokenOps.td - Operations on lists of tokens -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNTOKENOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNTOKENOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_ListTokensOp : Attn_Op<"list_tokens"> {
  let summary = "the tokens of each batch entry that are present, in order";
  let details = [{
    ```
    counts[b]    = how many n have mask[b, n]
    tokens[b, r] = the r-th n, from 0, that has mask[b, n], for r < counts[b], else -1
    places[b, n] = how many m < n have mask[b, m], if mask[b, n], else -1
    ```

    With `attn.take_rows`, `tokens` packs the rows of the tokens that are present, and
    `places` brings the rows of packed ones back.

    $shapes

    Example:

    ```mlir
    %tokens, %places, %counts = attn.list_tokens ins(%mask : tensor<2x1024xi1>)
        outs(%t, %p, %c : tensor<2x1024xi32>, tensor<2x1024xi32>, tensor<2xi32>)
        -> tensor<2x1024xi32>, tensor<2x1024xi32>, tensor<2xi32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_TokenMask, "[B, N]">:$mask,
    Attn_Arg<Attn_Int2, "i32[B, N]">:$tokens,
    Attn_Arg<Attn_Int2, "i32[B, N]">:$places,
    Attn_Arg<Attn_Int1, "i32[B]">:$counts
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $mask `:` type($mask) `)`
    `outs` `(` $tokens `,` $places `,` $counts `:`
        type($tokens) `,` type($places) `,` type($counts) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return ::mlir::MutableOperandRange(*this, 1, 3);
    }
  }];
}

def Attn_TakeRowsOp : Attn_Op<"take_rows"> {
  let summary = "the rows of listed tokens, in all heads";
  let details = [{
    ```
    output[b, h, r, :] = input[b, h, rows[b, r], :]     where 0 <= rows[b, r] < N, else 0
    ```

    Rows that are not listed have no influence, whatever they hold.

    $shapes

    Example:

    ```mlir
    %packed = attn.take_rows ins(%x, %tokens : tensor<2x8x1024x64xf32>, tensor<2x1024xi32>)
        outs(%init : tensor<2x8x1024x64xf32>) -> tensor<2x8x1024x64xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, H, N, D!]">:$input,
    Attn_Arg<Attn_Int2, "i32[B, M]">:$rows,
    Attn_Arg<Attn_Rank4, "T[B, H, M, D!]">:$output
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `,` $rows `:` type($input) `,` type($rows) `)`
    `outs` `(` $output `:` type($output) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable() {
      return getOutputMutable();
    }
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNTOKENOPS_TD
