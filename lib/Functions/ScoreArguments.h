//===- ScoreArguments.h - Functions of scores and places --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_SCOREARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_SCOREARGUMENTS_H

#include "Call.h"
#include "TokenMask.h"
#include "fovea/Functions/ScoreFunction.h"
#include <deque>

namespace fovea::functions {

/// The parts of a score region and what they capture. Owns what it has to make:
/// lives as long as the call.
class ScoreArguments {
public:
  /// Of entries at fewer than `numPositions` positions.
  ScoreArguments(Checker &check, int64_t numPositions)
      : check(check), numPositions(numPositions) {}

  /// Makes what is added from now on that of a source, which errors name.
  void enterSource(unsigned number);
  /// Makes it that of all entries.
  void leaveSources();

  void add(const std::optional<ScoreFunction> &score);
  void add(const std::optional<AdmitFunction> &admit);
  /// Segments of a batch whose entries have `lengths` keys, or `numKeys`, and
  /// as many queries.
  void add(const std::optional<Segments> &segments, int64_t batch,
           int64_t numQueries, int64_t numKeys,
           const SequenceLengths &queryLengths, const SequenceLengths &lengths);

  /// Whether there is something of a source.
  bool hasOf(unsigned source) const;
  /// Adds the captures, as the next operand, and the regions.
  void addTo(Call &call) const;
  /// The captures that have a gradient, those of floating-point numbers, and
  /// which source each is of.
  struct Differentiable {
    llvm::SmallVector<Argument> captures;
    llvm::SmallVector<std::optional<unsigned>> sources;
  };
  Differentiable getDifferentiable() const;

private:
  template <typename Function>
  void addFunction(llvm::StringRef name, const Function &function);
  void addPart(llvm::StringRef name, llvm::StringRef body, bool isScore,
               llvm::ArrayRef<Argument> reads);

  Checker &check;
  int64_t numPositions;
  /// Of the present source, if any, and what errors say before its names.
  std::optional<unsigned> source;
  std::string prefix;
  llvm::SmallVector<RegionPart, 0> parts;
  llvm::SmallVector<Argument> captures;
  std::deque<OwnedTensor> lags;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_SCOREARGUMENTS_H
