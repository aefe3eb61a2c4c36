//===- FakeCublasLt.h - A cuBLASLt that runs on the CPU ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_RUNTIME_FAKECUBLASLT_H
#define FOVEA_TEST_UNIT_RUNTIME_FAKECUBLASLT_H

#include <cstddef>

/// What tests see of the library, and tell it.
struct FakeCublasLt {
  int numHandles = 0, numChoices = 0, numProducts = 0;
  /// Descriptions, layouts and preferences that are there.
  int numAlive = 0;
  void *lastStream = nullptr;
  int lastBatch = 0, lastComputeType = 0;
  /// What the next choice, or the next product, returns.
  int choiceResult = 0, productResult = 0;
  bool knowsNothing = false;
};

/// extern "C" FakeCublasLt *fakeCublasLt().
using FakeCublasLtFunction = FakeCublasLt *(*)();

#endif // FOVEA_TEST_UNIT_RUNTIME_FAKECUBLASLT_H
