//===- FakeCufft.cpp - A cuFFT that runs on the CPU -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Device memory of the fake CUDA driver is memory of the host, in which sums
// are computed as they are defined.
//
//===----------------------------------------------------------------------===//

#include "FakeCufft.h"

#include <cmath>
#include <complex>
#include <map>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

static FakeCufft fake;

namespace {
struct Plan {
  int length, batch;
  void *stream, *area;
};
} // namespace

static std::map<int, Plan> plans;

EXPORT FakeCufft *fakeCufft() { return &fake; }

EXPORT int cufftCreate(int *plan) {
  *plan = ++fake.numPlans;
  ++fake.numAlive;
  plans[*plan] = {};
  return 0;
}

EXPORT int cufftSetAutoAllocation(int plan, int allocates) {
  auto it = plans.find(plan);
  return it == plans.end() || allocates ? 1 : 0;
}

EXPORT int cufftMakePlanMany(int plan, int rank, int *lengths, int *,
                             int stride, int distance, int *, int, int,
                             int type, int batch, size_t *workBytes) {
  auto it = plans.find(plan);
  if (it == plans.end())
    return 1;
  if (fake.planResult)
    return fake.planResult;
  if (rank != 1 || stride != 1 || distance != lengths[0] || type != 0x29)
    return 4;
  it->second = {lengths[0], batch, nullptr, nullptr};
  *workBytes = 256;
  return 0;
}

EXPORT int cufftSetWorkArea(int plan, void *area) {
  auto it = plans.find(plan);
  if (it == plans.end())
    return 1;
  it->second.area = area;
  return 0;
}

EXPORT int cufftDestroy(int plan) {
  fake.numAlive -= plans.erase(plan);
  return 0;
}

EXPORT int cufftSetStream(int plan, void *stream) {
  auto it = plans.find(plan);
  if (it == plans.end())
    return 1;
  it->second.stream = stream;
  return 0;
}

EXPORT int cufftExecC2C(int plan, std::complex<float> *input,
                        std::complex<float> *output, int direction) {
  ++fake.numRuns;
  if (fake.runResult)
    return fake.runResult;
  auto [length, batch, stream, area] = plans.at(plan);
  // CUFFT_NO_WORKSPACE: each run has a work area of its own.
  if (!area)
    return 11;
  plans.at(plan).area = nullptr;
  fake.lastStream = stream;
  for (int line = 0; line < batch; ++line) {
    std::vector<std::complex<double>> sums(length);
    for (int k = 0; k < length; ++k)
      for (int n = 0; n < length; ++n)
        sums[k] += std::complex<double>(input[line * length + n]) *
                   std::polar(1.0, direction * 2 * M_PI * k * n / length);
    for (int k = 0; k < length; ++k)
      output[line * length + k] = std::complex<float>(sums[k]);
  }
  return 0;
}
