//===- FakeCufft.h - A cuFFT that runs on the CPU ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_RUNTIME_FAKECUFFT_H
#define FOVEA_TEST_UNIT_RUNTIME_FAKECUFFT_H

/// What tests see of the library, and tell it.
struct FakeCufft {
  int numPlans = 0, numAlive = 0, numRuns = 0;
  void *lastStream = nullptr;
  /// What the next plan, or the next run, returns.
  int planResult = 0, runResult = 0;
};

/// extern "C" FakeCufft *fakeCufft().
using FakeCufftFunction = FakeCufft *(*)();

#endif // FOVEA_TEST_UNIT_RUNTIME_FAKECUFFT_H
