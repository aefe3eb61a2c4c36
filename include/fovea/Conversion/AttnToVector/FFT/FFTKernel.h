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
  /// `group` counts the groups of columns that are transformed together.
  using LoadRow = llvm::function_ref<ComplexRow(Value row, Value group)>;
  using StoreRow = llvm::function_ref<void(Value row, Value group, ComplexRow)>;
  /// Takes the rows of the spectrum from `position` on, and may change them;
  /// without a forward transform, it fills them.
  using VisitSpectrum =
      llvm::function_ref<void(Value position, Value group, Rows &)>;

  /// Half of the rows of a transform.
  enum class Half { None, First, Second };

  /// Where rows come from and go to.
  struct Steps {
    /// Rows between two sweeps.
    LoadRow load = nullptr;
    StoreRow store = nullptr;
    /// Whether these lie close enough to each other for the stages of the last
    /// sweep to work on them, instead of on a buffer.
    bool isDense = false;
    /// For the last of several sweeps, each a parallel loop: asks for a row of
    /// the next tile, if there is one.
    llvm::function_ref<void(Value row)> prefetch = nullptr;
    /// For a forward transform: its input. Rows from L / 2 on are zero and not
    /// loaded if `isHalfZero`.
    LoadRow source = nullptr;
    bool isHalfZero = false;
    /// Called before the first stage reads `prepared` rows from one on, and
    /// those that are combined with them. For transforms of a single sweep.
    llvm::function_ref<void(Value row)> prepare = nullptr;
    int64_t prepared = 0;
    /// For an inverse transform, not scaled: its output, or one half of it.
    StoreRow sink = nullptr;
    Half wanted = Half::None;
  };

  struct Direction {
    bool forward, inverse;
  };
  static constexpr Direction kForward = {true, false}, kInverse = {false, true},
                             kConvolve = {true, true};

  /// `twiddles` is what fovea_rt_fft_twiddles gives for the radices.
  /// `separateAdds` says that additions have ports of their own, beside those
  /// of multiply-adds. `numGroups` groups of columns are transformed together.
  FFTKernel(KernelBuilder &builder, llvm::ArrayRef<int64_t> radices,
            Value twiddles, bool separateAdds, int64_t numGroups = 1);

  /// The largest divisor of `available` that are worth transforming together:
  /// these lie next to each other and share factors.
  static int64_t chooseNumGroups(KernelBuilder &builder, int64_t length,
                                 int64_t available);

  int64_t getLength() const { return length; }

  /// Emits a transform, or a forward one and its inverse with the spectrum in
  /// registers in between. Needs scratch memory: the insertion point is in the
  /// body of a task.
  void emit(Direction direction, const Steps &steps, VisitSpectrum visit);

  /// Whether rows do not fit the caches between two sweeps, so that each sweep
  /// should be shared by all threads.
  bool isLong() const { return sweeps.size() > 1; }
  int64_t getNumSweeps() const { return sweeps.size(); }
  /// Tiles of a sweep, which are independent of each other.
  int64_t getNumTiles(unsigned sweep) const;
  /// Emits one tile of a sweep; a sweep with both directions is the last.
  void emitTile(unsigned sweep, Value tile, Direction direction,
                const Steps &steps, VisitSpectrum visit);

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
  Value makeBuffer(const Sweep &sweep, const Steps &steps);
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
  /// Where the real (0) or imaginary (1) part of a group lies in a buffer.
  Value columnOf(Value group, int64_t part);
  /// Access to a row of a tile.
  ComplexRow loadRow(const Tile &tile, Value row, Value neighbour, Value group,
                     bool fromBuffer);
  void storeRow(const Tile &tile, Value row, Value neighbour, Value group,
                ComplexRow numbers, bool toBuffer);
  static bool isWanted(Half wanted, int64_t row, int64_t radix);
  Factors loadFactors(int64_t first, int64_t radix, Value butterfly);

  /// `sum_t rows[t] (w r^k)^t` for every k, r being the root of unity of as
  /// many rows, and w what `factors` are of; its conjugate for an inverse.
  Rows evaluate(const Rows &rows, const Factors &factors, bool inverse,
                bool isHalfZero = false, Half wanted = Half::None);
  Rows evaluate(const Rows &rows, int64_t radix, int64_t power,
                const Factors &factors, bool inverse, bool isHalfZero,
                Half wanted);
  std::pair<ComplexRow, ComplexRow> combine(ComplexRow a, ComplexRow c,
                                            ComplexRow factor, int64_t eighths,
                                            bool inverse, Half wanted);
  Value negate(Value vector);

  KernelBuilder &b;
  llvm::SmallVector<int64_t> radices;
  int64_t length = 1;
  Value twiddles;
  bool separateAdds;
  int64_t numGroups;
  llvm::SmallVector<Sweep, 3> sweeps;
  /// Where the factors of each stage begin.
  llvm::SmallVector<int64_t> firstFactor, firstInverseFactor;
};

/// Calls the runtime for the factors of a transform.
mlir::Value emitTwiddles(KernelBuilder &builder, mlir::Operation *op,
                         llvm::ArrayRef<int64_t> radices);

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_ATTNTOVECTOR_FFT_FFTKERNEL_H
