//===- cpu.cpp - What this machine can execute ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code in a file may be for another machine. Features have the names that LLVM
// gives them; one that is not in the tables counts as missing.
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/abi.h"
#include "status.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

using namespace fovea::rt;

namespace {

/// Text that need not end in a null character.
struct Text {
  const char *data;
  size_t length;

  bool operator==(const char *other) const {
    return std::strlen(other) == length &&
           std::memcmp(data, other, length) == 0;
  }
  bool startsWith(const char *prefix) const {
    size_t bytes = std::strlen(prefix);
    return length >= bytes && std::memcmp(data, prefix, bytes) == 0;
  }
};

} // namespace

/// Calls `see` for each of some names separated by commas, as long as it
/// returns true; returns whether it always did.
template <typename See> static bool forEachName(const char *list, See see) {
  while (*list) {
    size_t length = std::strcspn(list, ",");
    if (!see(Text{list, length}))
      return false;
    list += length + (list[length] == ',');
  }
  return true;
}

#if defined(__x86_64__)

namespace {

enum Register { eax, ebx, ecx, edx };

/// Where CPUID says so: a leaf, its part, a register and a bit of it.
struct Feature {
  const char *name;
  unsigned leaf, part;
  Register where;
  unsigned bit;
};

} // namespace

static constexpr Feature features[] = {
    {"sse", 1, 0, edx, 25},
    {"sse2", 1, 0, edx, 26},
    {"sse3", 1, 0, ecx, 0},
    {"ssse3", 1, 0, ecx, 9},
    {"fma", 1, 0, ecx, 12},
    {"cx16", 1, 0, ecx, 13},
    {"sse4.1", 1, 0, ecx, 19},
    {"sse4.2", 1, 0, ecx, 20},
    {"movbe", 1, 0, ecx, 22},
    {"popcnt", 1, 0, ecx, 23},
    {"avx", 1, 0, ecx, 28},
    {"f16c", 1, 0, ecx, 29},
    {"bmi", 7, 0, ebx, 3},
    {"avx2", 7, 0, ebx, 5},
    {"bmi2", 7, 0, ebx, 8},
    {"avx512f", 7, 0, ebx, 16},
    {"avx512dq", 7, 0, ebx, 17},
    {"avx512ifma", 7, 0, ebx, 21},
    {"avx512cd", 7, 0, ebx, 28},
    {"avx512bw", 7, 0, ebx, 30},
    {"avx512vl", 7, 0, ebx, 31},
    {"avx512vbmi", 7, 0, ecx, 1},
    {"avx512vbmi2", 7, 0, ecx, 6},
    {"gfni", 7, 0, ecx, 8},
    {"vaes", 7, 0, ecx, 9},
    {"vpclmulqdq", 7, 0, ecx, 10},
    {"avx512vnni", 7, 0, ecx, 11},
    {"avx512bitalg", 7, 0, ecx, 12},
    {"avx512vpopcntdq", 7, 0, ecx, 14},
    {"avx512vp2intersect", 7, 0, edx, 8},
    {"amx-bf16", 7, 0, edx, 22},
    {"avx512fp16", 7, 0, edx, 23},
    {"amx-tile", 7, 0, edx, 24},
    {"amx-int8", 7, 0, edx, 25},
    {"avxvnni", 7, 1, eax, 4},
    {"avx512bf16", 7, 1, eax, 5},
    {"amx-fp16", 7, 1, eax, 21},
    {"avxifma", 7, 1, eax, 23},
    {"avxvnniint8", 7, 1, edx, 4},
    {"avxneconvert", 7, 1, edx, 5},
    {"amx-complex", 7, 1, edx, 8},
    {"avxvnniint16", 7, 1, edx, 10},
    {"amx-fp8", 0x1e, 1, eax, 4},
    {"amx-tf32", 0x1e, 1, eax, 6},
    {"amx-avx512", 0x1e, 1, eax, 7},
    {"amx-movrs", 0x1e, 1, eax, 8},
    {"lzcnt", 0x80000001, 0, ecx, 5},
    {"sse4a", 0x80000001, 0, ecx, 6},
    {"xop", 0x80000001, 0, ecx, 11},
    {"fma4", 0x80000001, 0, ecx, 16},
    {"tbm", 0x80000001, 0, ecx, 21},
    {"64bit", 0x80000001, 0, edx, 29},
};

/// Whether this process may use AMX, whose registers every thread has 8 KB of.
/// Linux wants to be asked, once for all threads.
static bool mayUseAMX() {
#if defined(__linux__)
  constexpr long requestPermission = 0x1023, tileData = 18;
  return syscall(SYS_arch_prctl, requestPermission, tileData) == 0;
#else
  return true;
#endif
}

/// Whether the system keeps the registers that a feature works on.
static bool hasRegisters(Text name) {
  uint64_t needed = 0;
  if (name.startsWith("avx512") || name.startsWith("avx10"))
    needed = 0xe6;
  else if (name.startsWith("amx"))
    needed = 0x60000;
  else if (name.startsWith("avx") || name.startsWith("fma") ||
           name.startsWith("xop") || name == "f16c" || name == "vaes" ||
           name == "vpclmulqdq")
    needed = 0x6;
  if (needed == 0)
    return true;
  unsigned a, b, c, d;
  constexpr unsigned osxsave = 1u << 27;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & osxsave))
    return false;
  asm volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a & needed) == needed && (!name.startsWith("amx") || mayUseAMX());
}

/// The version of AVX10; 0 without it.
static unsigned avx10Version() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(d & (1u << 19)) ||
      !__get_cpuid_count(0x24, 0, &a, &b, &c, &d))
    return 0;
  return b & 0xff;
}

static bool isPresent(Text name) {
  if (!hasRegisters(name))
    return false;
  if (name.startsWith("avx10.") && name.length > 6)
    return avx10Version() >= unsigned(name.data[6] - '0');
  for (const Feature &feature : features) {
    unsigned values[4];
    if (name == feature.name)
      return __get_cpuid_count(feature.leaf, feature.part, &values[eax],
                               &values[ebx], &values[ecx], &values[edx]) &&
             (values[feature.where] >> feature.bit & 1);
  }
  return false;
}

#elif defined(__aarch64__)

namespace {

/// A bit of what the kernel says in its first or second word.
struct Feature {
  const char *name;
  unsigned long word;
  unsigned bit;
};

} // namespace

static constexpr Feature features[] = {
    {"fp-armv8", AT_HWCAP, 0}, {"neon", AT_HWCAP, 1},
    {"lse", AT_HWCAP, 8},      {"fullfp16", AT_HWCAP, 10},
    {"rdm", AT_HWCAP, 12},     {"complxnum", AT_HWCAP, 14},
    {"dotprod", AT_HWCAP, 20}, {"sve", AT_HWCAP, 22},
    {"fp16fml", AT_HWCAP, 23}, {"sve2", AT_HWCAP2, 1},
    {"i8mm", AT_HWCAP2, 13},   {"bf16", AT_HWCAP2, 14},
};

static bool isPresent(Text name) {
  for (const Feature &feature : features)
    if (name == feature.name)
      return getauxval(feature.word) >> feature.bit & 1;
  return false;
}

#else

static bool isPresent(Text) { return true; }

#endif

/// Whether the environment says to do as if a feature were missing, which lets
/// tests see what another machine would.
static bool isHidden(Text name) {
  const char *hidden = std::getenv("FOVEA_HIDE_CPU_FEATURES");
  return hidden && !forEachName(hidden, [&](Text other) {
           return other.length != name.length ||
                  std::memcmp(other.data, name.data, name.length) != 0;
         });
}

void fovea_rt_check_cpu(int32_t *state, const char *cpu, const char *needed) {
  if (__atomic_load_n(state, __ATOMIC_RELAXED))
    return;
  char missing[messageBytes / 2] = "";
  size_t used = 0;
  forEachName(needed, [&](Text name) {
    if (isPresent(name) && !isHidden(name))
      return true;
    // As many names as there is room for.
    if (used + name.length + 3 < sizeof(missing)) {
      if (used > 0) {
        std::memcpy(missing + used, ", ", 2);
        used += 2;
      }
      std::memcpy(missing + used, name.data, name.length);
      used += name.length;
      missing[used] = '\0';
    }
    return true;
  });
  if (used > 0)
    fail(FOVEA_RT_UNAVAILABLE,
         "cannot run code for CPU '%s' on this machine, which lacks %s", cpu,
         missing);
  __atomic_store_n(state, 1, __ATOMIC_RELAXED);
}
