//===- WarpOps.cpp - Shuffles, votes and reductions -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"
#include "Numbers.h"

#include <algorithm>
#include <functional>

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
    int from = op.param[0] == 0   ? int(lane ^ by)
               : op.param[0] == 1 ? int(lane) - int(by)
               : op.param[0] == 2 ? int(lane + by)
                                  : int(first | (by & ~segment));
    bool ok = op.param[0] == 1 ? from >= last : from <= last;
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
  T total = T(uint32_t(in[__builtin_ctz(mask)][0]));
  forLanes(mask & (mask - 1), [&](unsigned lane) {
    total = combine(total, T(uint32_t(in[lane][0])));
  });
  return uint32_t(total);
}

/// param[1]: of absolute values; param[2]: NaN wins.
static Slot foldFloats(const Op &op, uint32_t mask, const Slot *const *in) {
  bool anyNaN = false;
  // As fmin and fmax have it, the other number wins.
  float total = NAN;
  forLanes(mask, [&](unsigned lane) {
    float value = toFloat(in[lane][0]);
    if (op.param[1])
      value = std::fabs(value);
    anyNaN |= std::isnan(value);
    total = op.param[0] == ReduceFMin ? std::fmin(total, value)
                                      : std::fmax(total, value);
  });
  return op.param[2] && anyNaN ? 0x7fffffff : toBits(total);
}

static Slot fold(const Op &op, uint32_t mask, const Slot *const *in) {
  auto least = [](auto a, auto b) { return std::min(a, b); };
  auto most = [](auto a, auto b) { return std::max(a, b); };
  switch (op.param[0]) {
  case ReduceAdd:
    return fold<uint32_t>(mask, in, std::plus<>());
  case ReduceAnd:
    return fold<uint32_t>(mask, in, std::bit_and<>());
  case ReduceOr:
    return fold<uint32_t>(mask, in, std::bit_or<>());
  case ReduceXor:
    return fold<uint32_t>(mask, in, std::bit_xor<>());
  case ReduceMin:
    return fold<int32_t>(mask, in, least);
  case ReduceMax:
    return fold<int32_t>(mask, in, most);
  case ReduceUMin:
    return fold<uint32_t>(mask, in, least);
  case ReduceUMax:
    return fold<uint32_t>(mask, in, most);
  default:
    return foldFloats(op, mask, in);
  }
}

FOVEA_SIMT_WARP(fovea::simt::reduce) {
  Slot result = fold(op, mask, in);
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
