//===- Rates.h - Rates and latencies of a multiprocessor --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Cycles, those of utils/fovea_cycles/model.py, which docs/GPUModel.md
// explains; test/Target/GPU/rates.test compares every line that begins as those
// here do.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_RATES_H
#define FOVEA_LIB_EMULATOR_RUNTIME_RATES_H

namespace fovea::simt::rates {

// Of a quarter, between two instructions of a pipe.
constexpr double kFma = 1;
constexpr double kAlu = 2;
constexpr double kMufu = 8;
constexpr double kLsu = 4;
constexpr double kProduct = 6.26;

constexpr double kTryWait = 36;
constexpr double kWake = 43;
constexpr double kArrive = 52;
constexpr double kArriveThere = 180;
constexpr double kBarrier = 30;
constexpr double kCopyStart = 33;
constexpr double kProductStart = 10;
constexpr double kProductsInFlight = 6;
constexpr double kSharedBytes = 128;

/// Where copies and loads come from: they take `latency` cycles and arrive at
/// `rate` bytes a cycle for each multiprocessor. `tail` is the time from the
/// end of products to that of a wait for them.
struct Level {
  const char *name;
  double latency, rate, tail;
};
constexpr unsigned kLevelsOfDevice = 4;

/// GPUs whose multiprocessors are alike. Products of warpgroups are Hopper's
/// alone; `product` is the time between two `mma.sync` of a quarter.
struct Device {
  const char *names;
  double multiprocessors, gigahertz, product;
  bool hasWarpgroups;
  Level levels[kLevelsOfDevice];
};
constexpr Device kDevices[] = {{"H100, H200",
                                132,
                                1.6,
                                kProduct,
                                true,
                                {{"L2", 460, 170, 36},
                                 {"middle", 600, 64, 36},
                                 {"HBM", 800, 48, 56},
                                 {"all", 600, 33, 36}}},
                               {"B200",
                                148,
                                1.85,
                                8.2,
                                false,
                                {{"L2", 460, 170, 0},
                                 {"middle", 600, 64, 0},
                                 {"HBM", 1000, 26, 0},
                                 {"all", 600, 64, 0}}}};

/// A warp alone issues an instruction in so many cycles: what ptxas has it
/// wait after one, in the mean of the loops that docs/GPUModel.md names. It is
/// no rate of the model in Python, which reads every wait.
constexpr double kIssueAlone = 1.9;

} // namespace fovea::simt::rates

#endif // FOVEA_LIB_EMULATOR_RUNTIME_RATES_H
