//===- FFTKernel.h - Fourier transforms over columns ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Vector code for transforms of many columns at once. A complex row is two
// vectors of columns: those of real data are its real and its imaginary part,
// as they lie in memory, so nothing is packed and no half of a spectrum is
// reconstructed.
//
// The forward transform takes rows in natural order and leaves frequencies in
// the order of their reversed digits; the inverse takes them so. Between the
// two, spectra are multiplied, which needs no order. Both are depth first: a
// stage over all rows, then the sub-transforms one after the other, each of
// which soon fits a cache, whatever its size.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_FFT_FFTKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_FFT_FFTKERNEL_H

#include "KernelBuilder.h"

namespace fovea::attn {

/// Radices of the stages of a transform of `length` rows, a power of two of at
/// least 2: as large as their operands fit the registers.
llvm::SmallVector<int64_t> chooseRadices(int64_t length, int64_t numRegisters);

/// The radices as the runtime takes them: 4 bits of the logarithm of each,
/// first stage lowest.
int64_t encodeRadices(llvm::ArrayRef<int64_t> radices);

/// One row of complex numbers.
struct ComplexRow {
  mlir::Value re, im;
};

class FFTKernel {
public:
  using Value = mlir::Value;
  using Rows = llvm::SmallVector<ComplexRow>;
  using LoadRow = llvm::function_ref<ComplexRow(Value row)>;
  using StoreRow = llvm::function_ref<void(Value row, ComplexRow)>;
  /// Takes the rows of the spectrum from `position` on, and may change them;
  /// without a forward transform, it fills them.
  using VisitSpectrum = llvm::function_ref<void(Value position, Rows &)>;

  /// Half of the rows of a transform.
  enum class Half { None, First, Second };

  /// Where rows come from and go to. Only the buffer must be given; it holds
  /// what lies between two stages.
  struct Steps {
    LoadRow load;
    StoreRow store;
    /// For a forward transform: its input. Rows from L / 2 on are zero and not
    /// loaded if `isHalfZero`.
    LoadRow source = nullptr;
    bool isHalfZero = false;
    /// For an inverse transform, not scaled: its output, or one half of it.
    StoreRow sink = nullptr;
    Half wanted = Half::None;
  };

  /// `twiddles` is what fovea_rt_fft_twiddles gives for the radices.
  FFTKernel(KernelBuilder &builder, llvm::ArrayRef<int64_t> radices,
            Value twiddles);

  int64_t getLength() const { return length; }

  void forward(const Steps &steps, VisitSpectrum visit);
  void inverse(const Steps &steps, VisitSpectrum fill);
  /// Both, with the spectrum in registers in between.
  void convolve(const Steps &steps, VisitSpectrum change);

  /// `a * b`, or `a * conj(b)`.
  ComplexRow multiply(ComplexRow a, ComplexRow b, bool conjugate = false);

private:
  struct Direction {
    bool forward, inverse;
  };
  void emit(unsigned stage, Value base, int64_t rows, Direction direction,
            const Steps &steps, VisitSpectrum visit);
  void emitForwardStage(unsigned stage, Value base, int64_t rows,
                        const Steps &steps);
  void emitInverseStage(unsigned stage, Value base, int64_t rows,
                        const Steps &steps);
  /// The factors of a butterfly, one for every row but the first.
  Rows loadTwiddles(unsigned stage, Value butterfly);
  Rows transform(Rows rows, bool isHalfZero);
  Rows invert(Rows rows);
  ComplexRow add(ComplexRow a, ComplexRow b);
  ComplexRow sub(ComplexRow a, ComplexRow b);
  ComplexRow rotate(ComplexRow row, int64_t sixteenths, bool inverse);
  Value negate(Value vector);

  KernelBuilder &b;
  llvm::SmallVector<int64_t> radices;
  int64_t length = 1;
  Value twiddles;
  /// Where the factors of each stage begin.
  llvm::SmallVector<int64_t> firstTwiddle;
};

/// Calls the runtime for the factors of a transform.
mlir::Value emitTwiddles(KernelBuilder &builder, mlir::Operation *op,
                         llvm::ArrayRef<int64_t> radices);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_FFT_FFTKERNEL_H
