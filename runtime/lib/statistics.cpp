//===- statistics.cpp - Process-wide memory figures -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "statistics.h"

#include "fovea_rt/fovea_rt.h"

using namespace fovea::rt;

Gauge fovea::rt::scratchGauge;
Gauge fovea::rt::allocationGauge;
Gauge fovea::rt::cacheGauge;

void fovea_rt_get_statistics(fovea_rt_statistics *statistics) {
  statistics->scratch_bytes = scratchGauge.current();
  statistics->peak_scratch_bytes = scratchGauge.peak();
  statistics->allocated_bytes = allocationGauge.current();
  statistics->peak_allocated_bytes = allocationGauge.peak();
  statistics->cached_bytes = cacheGauge.current();
}

void fovea_rt_reset_statistics(void) {
  scratchGauge.resetPeak();
  allocationGauge.resetPeak();
}
