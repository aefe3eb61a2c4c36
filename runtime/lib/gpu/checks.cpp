//===- checks.cpp - What checks on devices have found ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checks.h"
#include "../checks.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

using namespace fovea::rt;

namespace {
/// A rule lives until the process ends: a graph may check it at any time.
struct Rule {
  char *text;
  int32_t kind;
  int64_t number;
  std::atomic<int64_t *> reports[kNumKinds * kMaxDevices];
  Rule *next;
};
} // namespace

static std::mutex rulesLock;
/// The rules, the last one first.
static std::atomic<Rule *> rules;

static Rule *findRule(int64_t number) {
  Rule *rule = rules;
  while (rule && rule->number != number)
    rule = rule->next;
  return rule;
}

int64_t fovea::rt::numberRule(const char *text, int32_t kind) {
  std::lock_guard<std::mutex> guard(rulesLock);
  Rule *last = rules;
  for (Rule *rule = last; rule; rule = rule->next)
    if (rule->kind == kind && strcmp(rule->text, text) == 0)
      return rule->number;
  auto *rule = new (std::nothrow) Rule();
  if (rule)
    rule->text = strdup(text);
  if (!rule || !rule->text) {
    delete rule;
    return -1;
  }
  rule->kind = kind;
  rule->number = last ? last->number + 1 : 0;
  rule->next = last;
  rules = rule;
  return rule->number;
}

fovea_rt_status fovea::rt::getReport(GPUDevice &device, int64_t number,
                                     bool mayMake, void **report, char *text) {
  Rule *rule = findRule(number);
  if (!rule) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory for the GPU runtime");
    return FOVEA_RT_OUT_OF_MEMORY;
  }
  std::atomic<int64_t *> &words = rule->reports[device.slot()];
  if ((*report = words))
    return FOVEA_RT_OK;
  if (!mayMake) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "a check, %s, runs for the first time",
             rule->text);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  std::lock_guard<std::mutex> guard(rulesLock);
  if ((*report = words))
    return FOVEA_RT_OK;
  constexpr int64_t bytes = FOVEA_RT_GPU_FAILURE_WORDS * sizeof(int64_t);
  if (fovea_rt_status status =
          device.driver->share(device.handle, bytes, report, text))
    return status;
  memset(*report, 0, bytes);
  words = static_cast<int64_t *>(*report);
  return FOVEA_RT_OK;
}

bool fovea::rt::describeWords(const int64_t *words, char *text) {
  if (words[kRuleWord] == 0)
    return false;
  if (Rule *rule = findRule(words[kRuleWord] - 1))
    describeFailure(text, FOVEA_RT_GPU_TEXT, rule->text, rule->kind,
                    words + kFirstFact);
  return true;
}

bool fovea::rt::takeReport(GPUDevice &device, char *text) {
  for (Rule *rule = rules; rule; rule = rule->next) {
    int64_t *words = rule->reports[device.slot()];
    if (!words || !__atomic_load_n(&words[kRuleWord], __ATOMIC_ACQUIRE))
      continue;
    // The facts may be on their way.
    char ignored[FOVEA_RT_GPU_TEXT];
    device.driver->synchronize(device.handle, nullptr, /*all=*/1, ignored);
    std::lock_guard<std::mutex> guard(rulesLock);
    if (!describeWords(words, text))
      continue;
    words[kRuleWord] = 0;
    size_t used = strlen(text);
    snprintf(text + used, FOVEA_RT_GPU_TEXT - used,
             "; that was found in an earlier call on device %d, which has no "
             "results",
             device.number);
    return true;
  }
  return false;
}
