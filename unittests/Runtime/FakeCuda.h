//===- FakeCuda.h - A CUDA driver that only pretends ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tests of the GPU runtime load this library in place of libcuda. Device
// memory is memory of the host; a kernel is a function in C, or, if its name
// contains what the variable FAKE_CUDA_KERNELS says, does nothing. Whatever
// events measure takes 1.5 ms.
// The library counts what is alive and fails where it is told to. While a
// stream captures, calls that a graph cannot hold are noted, and fail as the
// driver's do: fakeCudaCapture begins and ends that.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_RUNTIME_FAKECUDA_H
#define FOVEA_TEST_UNIT_RUNTIME_FAKECUDA_H

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <vector>

struct FakeCuda {
  /// Devices and their properties.
  int numDevices = 2;
  int capability = 90;
  bool hasPools = true;
  size_t totalBytes = 64 << 20;
  /// Function that fails, its result, and how many calls succeed before.
  std::string failing;
  int result = 0;
  int successes = 0;

  /// Names of the functions called, in order.
  std::vector<std::string> calls;
  /// Blocks of device memory: size and device.
  struct Block {
    size_t bytes;
    int device;
  };
  std::map<char *, Block> blocks;
  size_t usedBytes = 0;
  std::set<void *> pinned, modules, streams, events;
  int currentDepth = 0;
  int maxDynamicShared = 0;
  unsigned clusterSize = 1;
  void *lastStream = nullptr;
  /// Of the last block that was freed in a stream's order.
  void *lastFreeStream = nullptr;
  unsigned streamFlags = 0;
  /// The stream that captures; null if none does.
  void *capturing = nullptr;
  /// Calls meanwhile that no graph can hold.
  std::vector<std::string> notCapturable;

  size_t count(const std::string &name) const {
    size_t found = 0;
    for (const std::string &call : calls)
      found += call == name;
    return found;
  }
};

/// The library's state: extern "C" FakeCuda *fakeCuda().
using FakeCudaFunction = FakeCuda *(*)();

#endif // FOVEA_TEST_UNIT_RUNTIME_FAKECUDA_H
