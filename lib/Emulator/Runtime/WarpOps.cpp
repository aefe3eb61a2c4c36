//===- WarpOps.cpp - Shuffles, votes and reductions -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"
#include "Numbers.h"

using namespace fovea::simt;

/// Calls body(lane) for the lanes of `mask`.
template <typename Body> static void forLanes(uint32_t mask, Body body) {
  for (; mask; mask &= mask - 1)
    body(unsigned(__builtin_ctz(mask)));
}

FOVEA_SIMT_WARP(fovea::simt::shuffle) {
  // An intrinsic has the mask first, an instruction last.
  unsigned at = op.mask == 0 ? 1 : 0;
  Slot values[32], valid[32];
  forLanes(mask, [&](unsigned lane) {
    const Slot *operands = in[lane] + at;
    unsigned by = operands[1] & 31, clamp = operands[2] & 31;
    unsigned segment = operands[2] >> 8 & 31;
    int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
    int from;
    bool ok;
    switch (op.param[0]) {
    case 0:
      from = lane ^ by;
      ok = from <= last;
      break;
    case 1:
      from = int(lane) - int(by);
      ok = from >= last;
      break;
    case 2:
      from = lane + by;
      ok = from <= last;
      break;
    default:
      from = first | (by & ~segment);
      ok = from <= last;
      break;
    }
    if (!ok)
      from = lane;
    if (!(mask >> from & 1))
      fail(&op, "lane %u reads from lane %d, which does not take part", lane,
           from);
    values[lane] = in[from][at];
    valid[lane] = ok;
  });
  forLanes(mask, [&](unsigned lane) {
    out[lane][0] = values[lane];
    if (op.numOut > 1)
      out[lane][1] = valid[lane];
  });
}

FOVEA_SIMT_WARP(fovea::simt::vote) {
  unsigned at = op.mask == 0 ? 1 : 0;
  uint32_t votes = 0;
  forLanes(mask,
           [&](unsigned lane) { votes |= uint32_t(in[lane][at] & 1) << lane; });
  Slot result = votes;
  if (op.param[0] == 0)
    result = votes != 0;
  else if (op.param[0] == 1)
    result = votes == mask;
  else if (op.param[0] == 3)
    result = votes == mask || votes == 0;
  forLanes(mask, [&](unsigned lane) { out[lane][0] = result; });
}

template <typename T, typename Combine>
static Slot fold(uint32_t mask, const Slot *const *in, Combine combine) {
  bool first = true;
  T total = 0;
  forLanes(mask, [&](unsigned lane) {
    T value = T(uint32_t(in[lane][0]));
    total = first ? value : combine(total, value);
    first = false;
  });
  return uint32_t(total);
}

FOVEA_SIMT_WARP(fovea::simt::reduce) {
  Slot result = 0;
  switch (op.param[0]) {
  case ReduceAdd:
    result = fold<uint32_t>(mask, in, [](auto a, auto b) { return a + b; });
    break;
  case ReduceAnd:
    result = fold<uint32_t>(mask, in, [](auto a, auto b) { return a & b; });
    break;
  case ReduceOr:
    result = fold<uint32_t>(mask, in, [](auto a, auto b) { return a | b; });
    break;
  case ReduceXor:
    result = fold<uint32_t>(mask, in, [](auto a, auto b) { return a ^ b; });
    break;
  case ReduceMin:
    result =
        fold<int32_t>(mask, in, [](auto a, auto b) { return a < b ? a : b; });
    break;
  case ReduceMax:
    result =
        fold<int32_t>(mask, in, [](auto a, auto b) { return a > b ? a : b; });
    break;
  case ReduceUMin:
    result =
        fold<uint32_t>(mask, in, [](auto a, auto b) { return a < b ? a : b; });
    break;
  case ReduceUMax:
    result =
        fold<uint32_t>(mask, in, [](auto a, auto b) { return a > b ? a : b; });
    break;
  default: {
    // Of floats. param[1]: of absolute values; param[2]: NaN wins.
    bool first = true, anyNaN = false;
    float total = NAN;
    forLanes(mask, [&](unsigned lane) {
      float value = toFloat(in[lane][0]);
      if (op.param[1])
        value = std::fabs(value);
      anyNaN |= std::isnan(value);
      total = first                       ? value
              : op.param[0] == ReduceFMin ? std::fmin(total, value)
                                          : std::fmax(total, value);
      first = false;
    });
    if (op.param[2] && anyNaN)
      total = toFloat(0x7fffffff);
    result = toBits(total);
    break;
  }
  }
  forLanes(mask, [&](unsigned lane) { out[lane][0] = result; });
}

FOVEA_SIMT_WARP(fovea::simt::match) {
  unsigned at = op.mask == 0 ? 1 : 0;
  forLanes(mask, [&](unsigned lane) {
    uint32_t equal = 0;
    forLanes(mask, [&](unsigned other) {
      equal |= uint32_t(in[other][at] == in[lane][at]) << other;
    });
    if (!op.param[0]) {
      out[lane][0] = equal;
      return;
    }
    out[lane][0] = equal == mask ? mask : 0;
    if (op.numOut > 1)
      out[lane][1] = equal == mask;
  });
}

FOVEA_SIMT_WARP(fovea::simt::elect) {
  unsigned leader = __builtin_ctz(mask);
  forLanes(mask, [&](unsigned lane) {
    out[lane][0] = leader;
    if (op.numOut > 1)
      out[lane][1] = lane == leader;
  });
}

FOVEA_SIMT_LANE(fovea::simt::activeMask) {
  // Lanes never run together here; a lane only knows of itself.
  out[0] = 1u << thread.lane;
}
