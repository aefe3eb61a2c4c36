//===- SummaryFamilies.h - Weights of summaries -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_SUMMARYFAMILIES_H
#define FOVEA_LIB_FUNCTIONS_SUMMARYFAMILIES_H

#include "Call.h"
#include "fovea/Functions/FastMultipole.h"

namespace fovea::functions {

/// Weights and biases of the summaries of q, k and v, or these ready-made,
/// checked.
class Families {
public:
  /// For sequences of up to `length` tokens.
  Families(Checker &check, int64_t length, int64_t group)
      : check(check), length(length), group(group) {}

  size_t size() const { return lists[Weights].size(); }
  int64_t getRank() const { return *rank; }
  /// Those of a family, level 1 first.
  llvm::ArrayRef<Argument> getWeights(size_t family) const {
    return lists[Weights][family];
  }
  /// The same, or nothing.
  llvm::ArrayRef<Argument> getBiases(size_t family) const {
    return lists[Biases][family];
  }
  /// `name` is "query", "key" or "value".
  void add(llvm::StringRef name, const SummaryWeights &family,
           const Argument &of);
  void addTo(Call &call) const;
  /// Makes gradients of all of them results.
  void addGradientsTo(Call &call) const;
  /// Takes them from `results`, in order.
  void takeGradients(llvm::MutableArrayRef<OwnedTensor> results,
                     llvm::ArrayRef<SummaryGradients *> gradients) const;

private:
  void checkCount(llvm::StringRef name, size_t found);
  void checkRank(const Argument &of, unsigned dim);
  void checkWeight(const Argument &weight, const Argument &of, int64_t level);
  void checkSummaries(const Argument &summaries, const Argument &of,
                      int64_t level);
  /// Tokens of an interval, or the greatest number.
  int64_t getInterval(int64_t level) const;

  Checker &check;
  int64_t length, group;
  /// Those that the first weights are for; all others are for as many.
  std::optional<int64_t> levels;
  std::optional<int64_t> rank;
  /// Of each kind one list for each of the tensors, empty where it has none.
  enum Kind { Weights, Biases, Summaries };
  llvm::SmallVector<llvm::SmallVector<Argument>, 3> lists[3];
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_SUMMARYFAMILIES_H
