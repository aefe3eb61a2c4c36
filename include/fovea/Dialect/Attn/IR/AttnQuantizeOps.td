//===- AttnQuantizeOps.td - Codebooks and their summaries -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNQUANTIZEOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNQUANTIZEOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_QuantizeOp : Attn_TiledOp<"quantize", 3, "getKey()", [AttrSizedOperandSegments]> {
  let summary = "the nearest codeword of every key";
  let details = [{
    Finds for every key the codeword at the least distance, the first one of
    several, and optionally copies it:

    ```
    codes[b, g, n]        = argmin_s |key[b, g, n, :] - codebook[w, s, :]|^2
    quantized[b, g, n, :] = codebook[w, codes[b, g, n], :]
    ```

    where `w = g`, or 0 when one codebook is shared by all heads.

    $shapes

    Distances are compared in `f32` (`f64` for `f64`), as `k.C_s - |C_s|^2 / 2`, so
    the chosen codeword is the nearest one to rounding; equal codewords always tie.
    The order of operations does not depend on the position of a key, so neither
    does its code. A distance that is NaN or infinite never wins: a key with a NaN
    or an infinity has code 0, a codeword with one is never chosen, unless it is
    the first and there is no other. Time is `O(N S D)`; the `N x S` distances are
    never stored. A codebook in the type of sums beside narrower keys is not rounded
    for distances, but copies of its codewords are.

    With `mask`, only its tokens are present: the others have code -1 and a codeword
    of zeros, whatever their keys hold.

    Example:

    ```mlir
    %codes, %quantized = attn.quantize
        ins(%k, %codebook : tensor<1x2x1024x64xf32>, tensor<2x512x64xf32>)
        outs(%codes_init, %k_init : tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>)
        -> tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Rank3, "T|sum[G~, S!, D!]">:$codebook,
    Attn_Arg<Optional<Attn_TokenMask>, "[B, N]", "none, or the tokens that are present">:$mask,
    Attn_Arg<Attn_Int3, "i32[B, G, N]">:$codes,
    Attn_Arg<Optional<Attn_Rank4>, "T[B, G, N, D!]">:$quantized
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $key `,` $codebook `:` type($key) `,` type($codebook) `)`
    (`mask` `(` $mask^ `:` type($mask) `)`)?
    `outs` `(` $codes (`,` $quantized^)? `:`
        type($codes) (`,` type($quantized)^)? `)`
    attr-dict (`->` type($results)^)?
  }];
  let hasCanonicalizer = 1;
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_CodebookAccumulateOp : Attn_TiledOp<"codebook_accumulate", 2, "getValues()",
    [Attn_UpdatesInits]> {
  let summary = "running means and counts of the values with each code, in place";
  let details = [{
    Takes tokens into the mean value and the number of tokens of every code
    (Transformer-VQ, remark 3.9). In the order of the tokens `t`, with
    `s = codes[b, g, t]`:

    ```
    count[b, g, s]   += 1
    mean[b, g, s, :] += (values[b, g, t, :] - mean[b, g, s, :]) / count[b, g, s]
    ```

    $shapes

    `mean` and `count` are updated: in place after bufferization, where what they
    held before is not needed any more. A token with code -1 is absent: its values
    are not read. The mean of a code with count 0 is not read;
    it stays as it is until the first token replaces it. Counts are exact. Time is
    `O(T E)`, however many codes there are.

    Example:

    ```mlir
    %mean, %count = attn.codebook_accumulate
        ins(%codes, %values : tensor<1x2x128xi32>, tensor<1x2x128x64xbf16>)
        outs(%mean0, %count0 : tensor<1x2x512x64xf32>, tensor<1x2x512xi32>)
        -> tensor<1x2x512x64xf32>, tensor<1x2x512xi32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Int3, "i32[B, G, N]", "each in `0 .. S - 1`, or -1 for an absent token">:$codes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$values,
    Attn_Arg<Attn_Rank4, "sum[B, G, S, E!]">:$mean,
    Attn_Arg<Attn_Int3, "i32[B, G, S]">:$count
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $codes `,` $values `:` type($codes) `,` type($values) `)`
    `outs` `(` $mean `,` $count `:` type($mean) `,` type($count) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_CodebookScanOp : Attn_TiledOp<"codebook_scan", 2, "getValues()"> {
  let summary = "means and counts of the values with each code, as of every block";
  let details = [{
    What `attn.codebook_accumulate` leaves after each block of `block` tokens.
    Entry `t` is the initial state with the tokens of blocks `0 .. t - 1` taken in,
    that is tokens `0 .. min(t block, N) - 1`: entry 0 is the initial state, and
    entry `ceil(N / block)` the state after the last token.

    $shapes

    The mean of a code with count 0 is that of the initial state, which is not read
    otherwise. `mean` in `T` has means in the type of sums, rounded. `reduction` says
    how entries are made of blocks, which changes the rounding of means and nothing
    else; `input_scan` stores no entries and is not for this operation.

    Example:

    ```mlir
    %mean, %count = attn.codebook_scan
        ins(%codes, %values, %mean0, %count0 : tensor<1x2x1024xi32>, tensor<1x2x1024x64xf32>,
            tensor<1x2x16x64xf32>, tensor<1x2x16xi32>)
        outs(%mean_init, %count_init : tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>)
        {block = 128 : i64, reduction = #attn.reduction<serial>}
        -> tensor<1x2x8x16x64xf32>, tensor<1x2x8x16xi32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<Attn_Int3, "i32[B, G, N]", "each in `0 .. S - 1`, or -1 for an absent token">:$codes,
    Attn_Arg<Attn_Rank4, "T[B, G, N, E!]">:$values,
    Attn_Arg<Attn_Rank4, "sum[B, G, S, E!]">:$initial_mean,
    Attn_Arg<Attn_Int3, "i32[B, G, S]">:$initial_count,
    Attn_Arg<Attn_Rank5, "T|sum[B, G, K, S, E!]", "`1 <= K <= ceil(N / block) + 1`">:$mean,
    Attn_Arg<Attn_Int4, "i32[B, G, K, S]">:$count,
    I64Attr:$block,
    DefaultValuedAttr<Attn_ReductionAttr, "::fovea::attn::Reduction::Auto">:$reduction
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $codes `,` $values `,` $initial_mean `,` $initial_count `:`
        type($codes) `,` type($values) `,` type($initial_mean) `,`
        type($initial_count) `)`
    `outs` `(` $mean `,` $count `:` type($mean) `,` type($count) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_LogCountOp : Attn_Op<"log_count"> {
  let summary = "log weights of keys that stand for counted tokens";
  let details = [{
    The logarithm of every count, minus infinity for 0: the log weight of a
    codeword in `attn.stream`. A negative count is no count and gives NaN.

    ```
    log_weight = ln(count)
    ```

    $shapes

    Example:

    ```mlir
    %w = attn.log_count ins(%count : tensor<1x2x512xi32>)
        outs(%init : tensor<1x2x512xf32>) -> tensor<1x2x512xf32>
    ```
  }];
  let arguments = (ins
    Attn_Arg<AnyTypeOf<[RankedTensorOf<[I32]>, MemRefOf<[I32]>], "ranked tensor or memref of i32">,
        "[...]">:$count,
    Attn_Arg<AnyTypeOf<[RankedTensorOf<[F32, F64]>, MemRefOf<[F32, F64]>], "ranked tensor or memref of f32 or f64">,
        "[= count]">:$log_weight
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $count `:` type($count) `)`
    `outs` `(` $log_weight `:` type($log_weight) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_Seed : AnyTypeOf<[0DTensorOf<[I64]>, MemRefRankOf<[I64], [0]>],
    "rank-0 tensor or memref of i64">;

def Attn_CodebookUpdateOp : Attn_Op<"codebook_update", [Attn_UpdatesInits]> {
  let summary = "one step of exponentially smoothed k-means";
  let details = [{
    Moves every codeword towards the mean of the keys that have its code
    (Transformer-VQ, section 3.4.1), for every set `w` of codewords:

    ```
    counts[w, s]      = rate * counts[w, s] + (1 - rate) * #{b, g, n : codes[b, g, n] = s}
    sums[w, s, :]     = rate * sums[w, s, :] + (1 - rate) * sum_(codes[b, g, n] = s) key[b, g, n, :]
    codebook[w, s, :] = sums[w, s, :] / max(counts[w, s], min_count)
    ```

    where `g = w`, or any head when one set is shared by all.

    $shapes

    `sums` and `counts` are updated, `codebook` is overwritten. A codeword whose
    count is 0 is zero where `min_count` is 0. A key with code -1 is absent: it is
    not read. Tokens are summed in order, so the result does not depend on the
    number of threads. Time is `O(B N D)` for each head.

    With `seed`, a codeword whose count is below `replace_below` afterwards is dead,
    and replaced by a key of the batch, provided that one is present:

    ```
    codebook[w, s, :] = k       sums[w, s, :] = replace_below * k       counts[w, s] = replace_below
    k = the present key of the set with number random(seed, w * S + s) mod P, of P in the order of (b, g, n)
    ```

    where `random(seed, i)` is number `i` of the generator SplitMix64 that starts from
    `seed`, so that the choice is the same on every target. Another seed for each step
    makes for other keys.

    Example:

    ```mlir
    %codebook, %sums, %counts = attn.codebook_update
        ins(%k, %codes : tensor<1x2x1024x64xf32>, tensor<1x2x1024xi32>)
        outs(%codebook_init, %sums0, %counts0 :
             tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>)
        {rate = 9.9e-01 : f64}
        -> tensor<2x512x64xf32>, tensor<2x512x64xf32>, tensor<2x512xf32>
    ```
  }];
  let conditions = ["W in {1, G}"];
  let arguments = (ins
    Attn_Arg<Attn_Rank4, "T[B, G, N, D!]">:$key,
    Attn_Arg<Attn_Int3, "i32[B, G, N]", "each in `0 .. S - 1`, or -1 for an absent token">:$codes,
    Attn_Arg<Optional<Attn_Seed>, "i64[]", "with `replace_below` only">:$seed,
    Attn_Arg<Attn_Rank3, "T|sum[W, S!, D!]">:$codebook,
    Attn_Arg<Attn_Rank3, "sum[W, S, D!]">:$sums,
    Attn_Arg<Attn_Rank2, "sum[W, S]">:$counts,
    DefaultValuedAttr<F64Attr, "0.99">:$rate,
    DefaultValuedAttr<Attn_FiniteAttr, "0.0">:$min_count,
    DefaultValuedAttr<Attn_FiniteAttr, "0.0">:$replace_below
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
  let assemblyFormat = [{
    `ins` `(` $key `,` $codes `:` type($key) `,` type($codes) `)`
    (`seed` `(` $seed^ `:` type($seed) `)`)?
    `outs` `(` $codebook `,` $sums `,` $counts `:`
        type($codebook) `,` type($sums) `,` type($counts) `)`
    attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_CheckCodesOp : Op<Attn_Dialect, "check_codes",
    [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "fail unless every code is that of a codeword";
  let description = [{
    Checks at run time that every code lies in `0 .. num_codes - 1`. Otherwise the
    invocation fails with a text that begins with `name` and tells the first one
    that does not, in the order of the codes:

    ```
    attn.vq: codes[0, 1, 17] must be at least 0 and below 512, but got 512
    ```

    With `or_absent` a code may be -1 as well, which stands for an absent token.
    Lists of rows, as sources of `attn.stream` have them, are checked in the same way.

    Inserted by `--attn-check-codes` before operations that take codes, which may
    then read a codebook without looking.

    Example:

    ```mlir
    attn.check_codes %codes below %num_codes {name = "attn.vq: codes"} : tensor<1x2x1024xi32>
    ```
  }];
  let arguments = (ins Attn_Int3Or4:$codes, Index:$num_codes, StrAttr:$name,
                       UnitAttr:$or_absent);
  let assemblyFormat = "$codes `below` $num_codes attr-dict `:` type($codes)";
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNQUANTIZEOPS_TD
