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
// two, spectra are multiplied, which needs no order.
//
// A stage takes its rows for the coefficients of polynomials and evaluates
// them, so its factors come before the additions and are one with them. Those
// of the forward transform are the same for all rows of a sub-transform.
//
// Stages are grouped in *sweeps*, each of which brings every row to the caches
// once: tiles of a sweep are transformed depth first, in place or in a buffer.
// Transforms that fit the second cache have one sweep; longer ones have two,
// the first of which takes rows far apart.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_ATTNTOVECTOR_FFT_FFTKERNEL_H
#define FOVEA_CONVERSION_ATTNTOVECTOR_FFT_FFTKERNEL_H

#include "fovea/Kernels/KernelBuilder.h"

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

  /// Where rows come from and go to.
  struct Steps {
    /// Rows between two sweeps, which the stages of the last one work on.
    LoadRow load = nullptr;
    StoreRow store = nullptr;
    /// For a forward transform: its input. Rows from L / 2 on are zero and not
    /// loaded if `isHalfZero`.
    LoadRow source = nullptr;
    bool isHalfZero = false;
    /// Called before the first stage reads `prepared` rows from one on, and
    /// those that are combined with them. For transforms of a single sweep.
    llvm::function_ref<void(Value row)> prepare = nullptr;
    int64_t prepared = 0;
    /// For an inverse transform, not scaled: its output, or rows from L / 2 on.
    StoreRow sink = nullptr;
    bool wantsSecondHalf = false;
  };

  struct Direction {
    bool forward, inverse;
  };
  static constexpr Direction kForward = {true, false}, kInverse = {false, true},
                             kConvolve = {true, true};

  /// `twiddles` is what fovea_rt_fft_twiddles gives for the radices.
  /// `separateAdds` says that additions have ports of their own, beside those
  /// of multiply-adds.
  FFTKernel(KernelBuilder &builder, llvm::ArrayRef<int64_t> radices,
            Value twiddles, bool separateAdds);

  /// Emits a transform, or a forward one and its inverse with the spectrum in
  /// registers in between. Needs scratch memory: the insertion point is in the
  /// body of a task.
  void emit(Direction direction, const Steps &steps, VisitSpectrum visit);

  /// Whether rows do not fit the caches between two sweeps.
  bool isLong() const { return sweeps.size() > 1; }

  /// Where the negative of the frequency at `position` is.
  Value mirror(Value position);
  /// Visits every pair of such positions once, those that are their own, too.
  void forEachMirrored(llvm::function_ref<void(Value one, Value other)> body);

  /// `a * b`.
  ComplexRow multiply(ComplexRow a, ComplexRow b);

private:
  /// Stages `[begin, end)`: transforms of `rows` rows, `stride` apart, of which
  /// there are `blocks` times `stride`, `neighbours` of these in a tile.
  struct Sweep {
    unsigned begin, end;
    int64_t blocks, rows, stride, neighbours;
  };
  /// What the stages of a tile know.
  struct Tile {
    const Sweep &sweep;
    Value block, firstRow, neighbour, buffer;
    Direction direction;
    LoadRow load;
    StoreRow store;
    const Steps &steps;
    VisitSpectrum visit;
  };
  /// Those of a butterfly in the order of the table; without any, it is at the
  /// roots of unity themselves.
  using Factors = llvm::SmallVector<ComplexRow, 4>;

  void planSweeps();
  /// Of each stage, first to last: the number of positions that its first
  /// output has, and the sum of one of the others and of its mirror image.
  llvm::SmallVector<std::pair<int64_t, int64_t>> listMirrors() const;
  Value makeBuffer(const Sweep &sweep);
  void emitTile(const Sweep &sweep, Value tile, Value buffer,
                Direction direction, const Steps &steps, VisitSpectrum visit);
  void emitStages(const Tile &tile, unsigned stage, Value base, int64_t rows);
  void emitForwardStage(const Tile &tile, unsigned stage, Value base,
                        int64_t rows);
  void emitInverseStage(const Tile &tile, unsigned stage, Value base,
                        int64_t rows);
  void emitSpectrumStage(const Tile &tile, unsigned stage, Value base);
  /// Visits butterflies of a stage of a sub-transform of a tile.
  void forEachButterfly(
      const Tile &tile, int64_t count,
      llvm::function_ref<void(Value butterfly, Value neighbour)> body);
  /// Access to a row of a tile.
  ComplexRow loadRow(const Tile &tile, Value row, Value neighbour,
                     bool fromBuffer);
  void storeRow(const Tile &tile, Value row, Value neighbour,
                ComplexRow numbers, bool toBuffer);
  Factors loadFactors(int64_t first, int64_t radix, Value butterfly);

  /// `sum_t rows[t] (w r^k)^t` for every k, r being the root of unity of as
  /// many rows, and w what `factors` are of; its conjugate for an inverse.
  Rows evaluate(const Rows &rows, const Factors &factors, bool inverse,
                bool isHalfZero = false, bool wantsSecondHalf = false);
  Rows evaluate(const Rows &rows, int64_t radix, int64_t power,
                const Factors &factors, bool inverse, bool isHalfZero,
                bool wantsSecondHalf);
  std::pair<ComplexRow, ComplexRow> combine(ComplexRow a, ComplexRow c,
                                            ComplexRow factor, int64_t eighths,
                                            bool inverse, bool onlyDifference);
  Value negate(Value vector);

  KernelBuilder &b;
  llvm::SmallVector<int64_t> radices;
  int64_t length = 1;
  Value twiddles;
  bool separateAdds;
  llvm::SmallVector<Sweep, 3> sweeps;
  /// Where the factors of each stage begin.
  llvm::SmallVector<int64_t> firstFactor, firstInverseFactor;
};

/// Calls the runtime for the factors of a transform.
mlir::Value emitTwiddles(KernelBuilder &builder, mlir::Operation *op,
                         llvm::ArrayRef<int64_t> radices);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_ATTNTOVECTOR_FFT_FFTKERNEL_H
