//===- AttnFFTOps.td - Fourier transforms over columns -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Transforms of every column of a matrix at once, for products of spectra: the
// order of the frequencies is whatever is fastest, and the same for all spectra
// of a form.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNFFTOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNFFTOPS_TD

include "fovea/Dialect/Attn/IR/AttnBase.td"

def Attn_SpectrumAttr : Attn_Attr<"Spectrum", "spectrum"> {
  let summary = "how the spectra of columns lie in a tensor";
  let description = [{
    Columns of real numbers are transformed in pairs, one as the real and one as
    the imaginary part of a complex column. In a tensor `[B, L, F]`, columns `2 c
    lanes .. 2 (c + 1) lanes` are group `c`: the first `lanes` of it are real
    parts, the others imaginary parts. Since that is how columns of real data lie
    beside each other, the transform of `[B, N, E]` has `F = E`, rounded up to whole
    groups; what is added is zero.

    Row `p` holds frequency `f`, the digits of `p` reversed:

    ```
    p = sum_k d_k r_(k+1) r_(k+2) ..,    f = sum_k d_k r_0 .. r_(k-1),    0 <= d_k < r_k
    ```

    `lanes` had better be the numbers of a vector register, or half of the columns
    where these are fewer than two of them.

    The radices `r_k` are 2, 4 or 8, those of the stages of the transform; their
    product is `L`.

    Example:

    ```mlir
    #short = #attn.spectrum<lanes = 16, radices = [8, 4]>
    ```
  }];
  let parameters = (ins "int64_t":$lanes, ArrayRefParameter<"int64_t">:$radices);
  let assemblyFormat = [{
    `<` `lanes` `=` $lanes `,` `radices` `=` `[` $radices `]` `>`
  }];
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Rows of a spectrum.
    int64_t getLength() const;
    /// Real columns of a group.
    int64_t getGroup() const { return 2 * getLanes(); }
    /// Columns of the spectra of `width` real columns.
    int64_t getWidth(int64_t width) const;
  }];
}

def Attn_SpectraOperand : AnyTypeOf<[3DTensorOf<[F32, F64]>, MemRefRankOf<[F32, F64], [3]>],
    "rank-3 tensor or memref of f32 or f64">;

def Attn_FFTForwardOp : Attn_Op<"fft_forward"> {
  let summary = "spectra of the columns of a matrix";
  let description = [{
    ```
    spectrum[b, p, c] = sum_(n < N) exp(-2 pi i f(p) n / L) z[b, n, c]
    ```

    for the complex columns `z` that `#attn.spectrum` makes of pairs of real ones,
    and the frequency `f(p)` of row `p`. Rows from `N` to `L` count as zero.

    | operand | shape |
    |---|---|
    | `input` | `[B, N, E]`, `N <= L` |
    | `spectrum` | `[B, L, F]`, `f32` (`f64` for `f64` data), `F` is `E` rounded up to whole groups |

    Time is `5/2 L log2(L)` operations for a real column, fewer if half of the rows
    are zero. A rounding error is small against the norm of both columns of a pair.

    Example:

    ```mlir
    %s = attn.fft_forward ins(%x : tensor<2x20x48xf32>)
        outs(%init : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
    ```
  }];
  let arguments = (ins
    Attn_Rank3:$input, Attn_SpectraOperand:$spectrum, Attn_SpectrumAttr:$form
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $input `:` type($input) `)`
    `outs` `(` $spectrum `:` type($spectrum) `)` attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_FFTInverseOp : Attn_Op<"fft_inverse"> {
  let summary = "columns that have given spectra";
  let description = [{
    The inverse of `attn.fft_forward`, divided by `L`: rows `first` to `first + N` of
    it.

    | operand | shape |
    |---|---|
    | `spectrum` | `[B, L, F]`, `f32` or `f64` |
    | `output` | `[B, N, E]`, `first + N <= L`, whose `E` rounded up is `F` |

    Example:

    ```mlir
    %y = attn.fft_inverse ins(%s : tensor<2x32x64xf32>)
        outs(%init : tensor<2x16x48xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>, first = 16 : i64}
        -> tensor<2x16x48xf32>
    ```
  }];
  let arguments = (ins
    Attn_SpectraOperand:$spectrum, Attn_Rank3:$output, Attn_SpectrumAttr:$form,
    DefaultValuedAttr<I64Attr, "0">:$first
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $spectrum `:` type($spectrum) `)`
    `outs` `(` $output `:` type($output) `)` attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

class Attn_FFTProductOp<string mnemonic, list<Trait> traits = []>
    : Attn_Op<mnemonic, traits> {
  let arguments = (ins
    Attn_SpectraOperand:$spectrum, Attn_SpectraOperand:$factor,
    Attn_SpectraOperand:$output, Attn_SpectrumAttr:$form
  );
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = [{
    `ins` `(` $spectrum `,` $factor `:` type($spectrum) `,` type($factor) `)`
    `outs` `(` $output `:` type($output) `)` attr-dict (`->` type($results)^)?
  }];
  let extraClassDeclaration = [{
    ::mlir::MutableOperandRange getDpsInitsMutable();
  }];
}

def Attn_FFTMultiplyOp : Attn_FFTProductOp<"fft_multiply"> {
  let summary = "spectra times the spectrum of one column";
  let description = [{
    ```
    output[b, p, c] = spectrum[b, p, c] factor[b, p, 0]
    ```

    in complex numbers: the spectrum of the circular convolution of every column
    with one, which is the first complex column of `factor`. Where that is real,
    its partner being zero, real columns stay real.

    | operand | shape |
    |---|---|
    | `spectrum`, `output` | `[B, L, F]`, `f32` or `f64` |
    | `factor` | `[B, L, F']` or `[1, L, F']`, of which one group is enough |

    Example:

    ```mlir
    %t = attn.fft_multiply ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf32>)
        outs(%init : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
    ```
  }];
}

def Attn_FFTAccumulateOp : Attn_FFTProductOp<"fft_accumulate", [Attn_UpdatesInits]> {
  let summary = "adds spectra times the spectrum of one column";
  let description = [{
    `attn.fft_multiply` added to what `output` holds, in place after bufferization:
    sums of convolutions are added as spectra, and one inverse transform is enough.

    ```
    output[b, p, c] += spectrum[b, p, c] factor[b, p, 0]
    ```

    | operand | shape |
    |---|---|
    | `spectrum`, `factor`, `output` | as in `attn.fft_multiply` |

    Example:

    ```mlir
    %u = attn.fft_accumulate ins(%s, %k : tensor<2x32x64xf32>, tensor<1x32x32xf32>)
        outs(%t : tensor<2x32x64xf32>)
        {form = #attn.spectrum<lanes = 16, radices = [8, 4]>} -> tensor<2x32x64xf32>
    ```
  }];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNFFTOPS_TD
