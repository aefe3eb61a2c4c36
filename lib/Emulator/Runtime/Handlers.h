//===- Handlers.h - What operations do --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Operands are given in the order of the PTX instruction unless said
// otherwise; Binding.cpp brings those of intrinsics into it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_RUNTIME_HANDLERS_H
#define FOVEA_LIB_EMULATOR_RUNTIME_HANDLERS_H

#include "State.h"

namespace fovea::simt {

#define FOVEA_SIMT_LANE(name)                                                  \
  void name(Thread &thread, const Op &op, const Slot *in, Slot *out)
#define FOVEA_SIMT_WARP(name)                                                  \
  void name(Warp &warp, const Op &op, const Slot *const *in, Slot *const *out, \
            uint32_t mask)
#define FOVEA_SIMT_GROUP(name)                                                 \
  void name(Warpgroup &group, const Op &op, const Slot *const *in,             \
            Slot *const *out)

// Barriers.cpp. Named barriers: number, threads (numIn < 2: all).
FOVEA_SIMT_LANE(nothing);
FOVEA_SIMT_LANE(barrierSync);
FOVEA_SIMT_LANE(barrierArrive);
/// With a result, the last operand is a predicate. param[0]: what of them.
enum BarrierReduction { CountVotes, AnyVote, AllVotes };
FOVEA_SIMT_WARP(barrierSyncAligned);
FOVEA_SIMT_WARP(barrierArriveAligned);
FOVEA_SIMT_WARP(warpNothing);
FOVEA_SIMT_LANE(clusterArrive);
FOVEA_SIMT_LANE(clusterWait);
/// Address in the block's shared memory, number of a block of the cluster: the
/// same place there.
FOVEA_SIMT_LANE(mapShared);
FOVEA_SIMT_LANE(proxyFence);
FOVEA_SIMT_WARP(setMaxRegisters);

// MBarriers.cpp: address first.
FOVEA_SIMT_LANE(mbarrierInit);
FOVEA_SIMT_LANE(mbarrierInvalidate);
/// Count second, if given. param[0]: drop.
FOVEA_SIMT_LANE(mbarrierArrive);
/// Bytes second.
FOVEA_SIMT_LANE(mbarrierArriveExpect);
FOVEA_SIMT_LANE(mbarrierExpect);
FOVEA_SIMT_LANE(mbarrierComplete);
/// param[0]: the second operand is a parity, else a token.
FOVEA_SIMT_LANE(mbarrierTest);
/// param[0]: noinc.
FOVEA_SIMT_LANE(mbarrierArriveAfterCopies);

// AsyncCopies.cpp. To, from, size if param[0] is 0, bytes to read.
FOVEA_SIMT_LANE(copyAsync);
FOVEA_SIMT_LANE(copyCommit);
FOVEA_SIMT_LANE(copyWaitGroup);
FOVEA_SIMT_LANE(copyWaitAll);

// BulkCopies.cpp. param[0]: number of coordinates, 0 for plain bytes.
// param[1]: number of the operand with the mbarrier; -1: after the rest.
// param[2]: number of the operand with the mask of blocks; 0 without multicast.
/// To, then map and coordinates or address and bytes.
FOVEA_SIMT_LANE(bulkLoad);
/// Intrinsic: from, map, coordinates; instruction (param[1] = 1): map,
/// coordinates, from. Plain: to, from, bytes.
FOVEA_SIMT_LANE(bulkStore);
FOVEA_SIMT_LANE(bulkCommit);
/// param[0]: only the reading must be over.
FOVEA_SIMT_LANE(bulkWait);

// WarpOps.cpp.
/// Mask, value, lane, clamp. param[0]: 0 bfly, 1 up, 2 down, 3 idx. param[1]:
/// the mask is the last operand and results are value, predicate.
FOVEA_SIMT_WARP(shuffle);
/// Mask, predicate. param[0]: 0 any, 1 all, 2 ballot, 3 uni.
FOVEA_SIMT_WARP(vote);
/// Value, mask. param[0]: the operation.
FOVEA_SIMT_WARP(reduce);
/// Mask, value. param[0]: all, with a predicate.
FOVEA_SIMT_WARP(match);
FOVEA_SIMT_WARP(elect);
FOVEA_SIMT_LANE(activeMask);

// Matrices.cpp.
/// Address. param[0]: matrices, param[1]: transposed.
FOVEA_SIMT_WARP(loadMatrix);
/// Address, then one register a matrix; the same parameters.
FOVEA_SIMT_WARP(storeMatrix);
/// param[0..2]: m, n, k; param[3]: Element; param[4]: accumulators are f16.
FOVEA_SIMT_WARP(multiplyMatrix);

// WarpgroupProducts.cpp.
/// param[0]: n, param[1]: k, param[2]: Element, param[3]: the accumulators are
/// f16, param[4]: the left factor is in registers. Operands: accumulators,
/// left, right, scale-d, and what the instruction has after it.
FOVEA_SIMT_GROUP(issueProduct);
FOVEA_SIMT_WARP(productFence);
FOVEA_SIMT_WARP(productCommit);
FOVEA_SIMT_WARP(productWait);

/// The parts of a name between its dots: "mma", "m16n8k16", "row", ...
using Words = std::vector<std::string>;

inline bool contains(const Words &words, const char *word) {
  for (const std::string &other : words)
    if (other == word)
      return true;
  return false;
}

/// The number of the first of `names` that is among `words`, else -1.
inline int findAny(const Words &words,
                   std::initializer_list<const char *> names) {
  int number = 0;
  for (const char *name : names) {
    if (contains(words, name))
      return number;
    ++number;
  }
  return -1;
}

// Scalars.cpp: arithmetic of one thread. False if it is not known.
bool bindScalar(Op &op, const Words &words);

/// Operations of redux.sync.
enum Reduction {
  ReduceAdd,
  ReduceAnd,
  ReduceOr,
  ReduceXor,
  ReduceMin,
  ReduceMax,
  ReduceUMin,
  ReduceUMax,
  ReduceFMin,
  ReduceFMax
};

/// Element types of matrix products.
enum Element { F16, BF16, TF32, F64 };

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_RUNTIME_HANDLERS_H
