//===- RuntimeTestUtils.h - Helpers of the runtime tests --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_RUNTIME_RUNTIMETESTUTILS_H
#define FOVEA_TEST_UNIT_RUNTIME_RUNTIMETESTUTILS_H

#include "fovea_rt/fovea_rt.h"

#include "gtest/gtest.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <type_traits>

namespace fovea::rt::test {

/// fovea_rt_parallel_for over a C++ callable. A failure abandons the frames
/// between it and the invocation, so callables hold references only and nothing
/// that needs destruction.
template <typename Body>
void parallelFor(int64_t count, int64_t scratchBytes, const Body &body) {
  static_assert(std::is_trivially_destructible_v<Body>);
  fovea_rt_parallel_for(
      count, scratchBytes,
      [](int64_t index, void *scratch, void *context) {
        (*static_cast<const Body *>(context))(index, scratch);
      },
      const_cast<Body *>(&body));
}

/// fovea_rt_invoke of a C++ callable.
template <typename Kernel> fovea_rt_status invoke(const Kernel &kernel) {
  static_assert(std::is_trivially_destructible_v<Kernel>);
  void *args[] = {const_cast<Kernel *>(&kernel)};
  return fovea_rt_invoke(
      [](void **args) { (*static_cast<const Kernel *>(args[0]))(); }, args);
}

inline fovea_rt_statistics statistics() {
  fovea_rt_statistics result;
  fovea_rt_get_statistics(&result);
  return result;
}

/// Waits until `ready()`, at most 20 seconds; returns the last `ready()`.
template <typename Ready> bool waitFor(Ready ready) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!ready()) {
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    std::this_thread::yield();
  }
  return true;
}

/// Starts each test with the default number of threads and nothing kept.
class RuntimeTest : public ::testing::Test {
protected:
  void SetUp() override { reset(); }
  void TearDown() override { reset(); }

  static void reset() {
    ASSERT_EQ(fovea_rt_set_num_threads(0), FOVEA_RT_OK);
    fovea_rt_release_scratch();
    fovea_rt_release_cache();
    fovea_rt_reset_statistics();
  }
};

} // namespace fovea::rt::test

#endif // FOVEA_TEST_UNIT_RUNTIME_RUNTIMETESTUTILS_H
