//===- Options.h - The command line of fovea-run ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_FOVEARUN_OPTIONS_H
#define FOVEA_TOOLS_FOVEARUN_OPTIONS_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Support/Clock.h"
#include <vector>

namespace fovea::run {

struct Options {
  std::string inputPath;
  CompileOptions compile;
  /// Files or numbers for the arguments, files for the results.
  std::vector<std::string> arguments, outputs, expected;
  /// Shapes of random arguments with dynamic extents.
  std::vector<std::string> shapes;
  /// Set where arguments without a file are to be random.
  std::optional<uint64_t> randomSeed;
  /// Zero for the default.
  int numThreads = 0;
  bool comparesReference = false;
  /// Options of the emulator under which results have to be the same.
  std::vector<std::string> schedules;
  /// Says what the emulator's clocks say of each kernel.
  bool readsClocks = false;
  std::optional<double> tolerance;
  std::optional<double> benchSeconds;
  Clock benchClock = Clock::Wall;
  bool printValues = false, printSignature = false, asJSON = false;
};

/// Reads the command line; `--help` prints it and ends the process.
llvm::Expected<Options> parseOptions(int argc, char **argv);

} // namespace fovea::run

#endif // FOVEA_TOOLS_FOVEARUN_OPTIONS_H
