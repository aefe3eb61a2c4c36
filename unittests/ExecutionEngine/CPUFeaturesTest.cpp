//===- CPUFeaturesTest.cpp - What this machine can execute ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"
#include "gtest/gtest.h"

// The runtime has tables of its own, which know the same as LLVM.
TEST(CPUFeaturesTest, theRuntimeAgreesWithLLVM) {
#if defined(__x86_64__)
  int checked = 0;
  for (const auto &feature : llvm::sys::getHostCPUFeatures()) {
    std::string name = feature.getKey().str();
    if (llvm::none_of(
            std::initializer_list<llvm::StringRef>{
                "sse", "ssse", "avx", "fma", "f16c", "bmi", "lzcnt", "popcnt",
                "movbe", "xop", "tbm", "amx", "cx16", "gfni", "vaes", "vpclmul",
                "64bit"},
            [&](llvm::StringRef prefix) {
              return llvm::StringRef(name).starts_with(prefix);
            }))
      continue;
    int32_t state = 0;
    const void *args[] = {&state, name.c_str()};
    fovea_rt_status status = fovea_rt_invoke(
        [](void **args) {
          fovea_rt_check_cpu(static_cast<int32_t *>(args[0]), "abacus",
                             static_cast<const char *>(args[1]));
        },
        const_cast<void **>(args));
    EXPECT_EQ(status == FOVEA_RT_OK, feature.getValue()) << name;
    ++checked;
  }
  EXPECT_GT(checked, 40);
#endif
}
