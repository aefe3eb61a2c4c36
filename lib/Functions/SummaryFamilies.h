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

/// Weights and biases of the summaries of q, k and v, checked.
class Families {
public:
  /// For sequences of up to `length` tokens.
  Families(Checker &check, int64_t length, int64_t group)
      : check(check), length(length), group(group) {}

  size_t size() const { return weights.size(); }
  int64_t getRank() const { return *rank; }
  /// Those of a family, level 1 first.
  llvm::ArrayRef<Argument> getWeights(size_t family) const {
    return weights[family].second;
  }
  /// The same, or nothing.
  llvm::ArrayRef<Argument> getBiases(size_t family) const {
    return biases[family].second;
  }
  /// `name` is "query", "key" or "value".
  void add(llvm::StringRef name, const SummaryWeights &family,
           const Argument &of);
  void addTo(Call &call) const;
  /// Makes a gradient of every weight and bias a result.
  void addGradientsTo(Call &call) const;
  /// Takes them from `results`, in order.
  void takeGradients(llvm::MutableArrayRef<OwnedTensor> results,
                     llvm::ArrayRef<SummaryGradients *> gradients) const;

private:
  void checkCount(llvm::StringRef name, size_t found);
  void checkWeight(const Argument &weight, const Argument &of, int64_t level);

  Checker &check;
  int64_t length, group;
  /// Those that the first weights are for; all others are for as many.
  std::optional<int64_t> levels;
  std::optional<int64_t> rank;
  llvm::SmallVector<std::pair<std::string, llvm::SmallVector<Argument>>>
      weights, biases;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_SUMMARYFAMILIES_H
