//===- KernelMutation.h - Kernels with one instruction less -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention as the compiler makes it, with one instruction less: whatever
// orders, copies or turns something must be missed by the emulator. Some values
// that not every query reads are NaN, so that what takes them out is run.
// FOVEA_EVERY=n removes one of n instructions of a name.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_UNITTESTS_EXECUTIONENGINE_KERNELMUTATION_H
#define FOVEA_UNITTESTS_EXECUTIONENGINE_KERNELMUTATION_H

#include "TestUtils.h"
#include "fovea/Emulator/GPUDriver.h"
#include <optional>
#include <tuple>

namespace fovea::test {

/// A function with the numbers that its arguments have.
struct Example {
  int64_t queries, rows, heads;
  bool areGradients;
  /// Of one function. Types of f16 are there: !q of the queries and !k of the
  /// rows, and with gradients !l of the lse.
  const char *text;
  int64_t width = 64;
};

/// Tests of kernels for the chip that is the parameter.
class KernelMutation : public testing::TestWithParam<const char *> {
protected:
  /// FOVEA_QUICK=1 leaves them out.
  void SetUp() override;
  void TearDown() override;

  /// Expects as many instructions with `part` in their names as there are to be
  /// missed, but for those in `spare`.
  void expectMissed(llvm::StringRef part, llvm::ArrayRef<size_t> spare = {});

  Example example = {};
  /// Of the kernels that are looked at: how their names end.
  std::string kernelName;
  /// Rows that have NaN.
  std::vector<int64_t> spoiledValues, spoiledKeys, spoiledQueries,
      spoiledGradients;

private:
  Kernel compile();
  /// The text of an error, or the output.
  std::string run(std::vector<uint16_t> &output);
  /// Finds out what is expected, unless the last example is still the same.
  void runWhole();
  /// Whether the kernels still give what they should, under a few schedules,
  /// without instruction `number` of those that have names.
  bool survives(size_t number);

  using Rows = std::vector<int64_t>;
  /// What decides on kernels, and on numbers.
  using Source = std::tuple<const char *, int64_t, int64_t, int64_t, int64_t>;
  using Spoiled = std::tuple<Rows, Rows, Rows, Rows>;
  /// An instruction that has a name, and its kernel.
  struct Site {
    std::string name, kernel;
  };

  simt::Options options = simt::getEmulatorOptions();
  std::optional<Source> source;
  Kernel kernel;
  std::vector<Site> named;
  std::optional<Spoiled> spoiled;
  std::vector<uint16_t> expected;
};

} // namespace fovea::test

#endif // FOVEA_UNITTESTS_EXECUTIONENGINE_KERNELMUTATION_H
