//===- CPUTest.cpp - What this machine can execute ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RuntimeTestUtils.h"

#include <cstdlib>

using namespace fovea::rt::test;

namespace {

class CPUTest : public RuntimeTest {
protected:
  void TearDown() override {
    unsetenv("FOVEA_HIDE_CPU_FEATURES");
    RuntimeTest::TearDown();
  }

  /// The text of the failure, empty for a success.
  static std::string check(const std::string &features) {
    int32_t state = 0;
    const char *names = features.c_str();
    fovea_rt_status status =
        invoke([&] { fovea_rt_check_cpu(&state, "abacus", names); });
    EXPECT_EQ(state, status == FOVEA_RT_OK);
    EXPECT_TRUE(status == FOVEA_RT_OK || status == FOVEA_RT_UNAVAILABLE);
    return fovea_rt_last_error();
  }
};

constexpr const char *kRefusal =
    "cannot run code for CPU 'abacus' on this machine, which lacks ";

TEST_F(CPUTest, namesAllThatIsMissing) {
  EXPECT_EQ(check(""), "");
  EXPECT_EQ(check("beads"), std::string(kRefusal) + "beads");
  EXPECT_EQ(check("beads,wires"), std::string(kRefusal) + "beads, wires");
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many += "bead" + std::to_string(i) + ",";
  EXPECT_EQ(check(many).substr(0, 70),
            (std::string(kRefusal) + "bead0, bead1, bead2").substr(0, 70));
}

TEST_F(CPUTest, asksOnce) {
  int32_t state = 1;
  EXPECT_EQ(invoke([&] { fovea_rt_check_cpu(&state, "abacus", "beads"); }),
            FOVEA_RT_OK);
}

#if defined(__x86_64__)
TEST_F(CPUTest, hidesWhatTheEnvironmentSays) {
  EXPECT_EQ(check("sse,sse2"), "");
  setenv("FOVEA_HIDE_CPU_FEATURES", "avx,sse2,avx2", 1);
  EXPECT_EQ(check("sse"), "");
  EXPECT_EQ(check("sse,sse2"), std::string(kRefusal) + "sse2");
}
#endif

} // namespace
