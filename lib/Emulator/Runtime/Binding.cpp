//===- Binding.cpp - What names mean --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

using namespace fovea::simt;

static Words split(const std::string &name) {
  Words words(1);
  for (char c : name)
    if (c == '.')
      words.emplace_back();
    else
      words.back() += c;
  return words;
}

static bool startsWith(const std::string &text, const char *prefix) {
  return text.compare(0, strlen(prefix), prefix) == 0;
}

static bool useLane(Op &op, LaneHandler handler) {
  op.kind = OpKind::Lane;
  op.lane = handler;
  return true;
}

static bool useWarp(Op &op, WarpHandler handler, int mask = AllLanes) {
  op.kind = OpKind::Warp;
  op.warp = handler;
  op.mask = mask;
  return true;
}

/// The number after `letter` in "m16n8k16".
static int getExtent(const std::string &shape, char letter) {
  size_t at = shape.find(letter);
  return at == std::string::npos ? 0 : atoi(shape.c_str() + at + 1);
}

//===----------------------------------------------------------------------===//
// Operations of a warp
//===----------------------------------------------------------------------===//

/// Member masks are the first operand of intrinsics, except of redux, and the
/// last of instructions.
static bool bindCollective(Op &op, const Words &words, bool isIntrinsic) {
  int last = int(op.numIn) - 1;
  int mask = isIntrinsic ? 0 : last;
  const std::string &base = words[0];
  if (base == "shfl" && words.size() > 2 && words[1] == "sync") {
    op.param[0] = findAny({words[2]}, {"bfly", "up", "down", "idx"});
    return op.param[0] >= 0 && useWarp(op, shuffle, mask);
  }
  if (base == "vote" && contains(words, "sync")) {
    op.param[0] = findAny(words, {"any", "all", "ballot", "uni"});
    return op.param[0] >= 0 && useWarp(op, vote, mask);
  }
  if (base == "match" && contains(words, "sync")) {
    op.param[0] = contains(words, "all");
    return useWarp(op, match, mask);
  }
  if (base == "redux" && words.size() > 2) {
    std::string name = words[2];
    // redux.sync.max.u32, redux.sync.max.abs.NaN.f32
    if (name == "min" || name == "max") {
      if (words.back() == "u32")
        name = "u" + name;
      else if (words.back() == "f32")
        name = "f" + name;
    }
    op.param[1] = contains(words, "abs");
    op.param[2] = contains(words, "NaN");
    // In the order of Reduction.
    op.param[0] = findAny({name}, {"add", "and", "or", "xor", "min", "max",
                                   "umin", "umax", "fmin", "fmax"});
    return op.param[0] >= 0 && useWarp(op, reduce, last);
  }
  if (base == "elect")
    return useWarp(op, elect, last);
  if (base == "bar" && words.size() > 1 && words[1] == "warp")
    return useWarp(op, warpNothing, 0);
  if ((base == "ldmatrix" || base == "stmatrix") && contains(words, "m8n8") &&
      contains(words, "b16")) {
    op.param[0] = contains(words, "x4") ? 4 : contains(words, "x2") ? 2 : 1;
    op.param[1] = contains(words, "trans");
    return useWarp(op, base == "ldmatrix" ? loadMatrix : storeMatrix);
  }
  return false;
}

static bool bindMma(Op &op, const Words &words) {
  if (words[0] != "mma" || !contains(words, "row") || !contains(words, "col"))
    return false;
  std::string shape;
  for (const std::string &word : words)
    if (word.size() > 3 && word[0] == 'm' && isdigit(word[1]))
      shape = word;
  int m = getExtent(shape, 'm'), n = getExtent(shape, 'n'),
      k = getExtent(shape, 'k');
  int element = contains(words, "bf16")   ? BF16
                : contains(words, "tf32") ? TF32
                : contains(words, "f64")  ? F64
                                          : F16;
  for (const std::string &word : words)
    if (word == "s8" || word == "u8" || word == "s4" || word == "u4" ||
        word == "b1" || startsWith(word, "e4m3") || startsWith(word, "e5m2") ||
        startsWith(word, "kind") || startsWith(word, "e2") ||
        startsWith(word, "e3") || word == "sp")
      return false;
  bool known = n == 8;
  if (element == F64)
    known &= (m == 8 && k == 4) || (m == 16 && (k == 4 || k == 8 || k == 16));
  else if (element == TF32)
    known &= m == 16 && (k == 4 || k == 8);
  else
    known &= m == 16 && (k == 8 || k == 16);
  op.param[0] = m;
  op.param[1] = n;
  op.param[2] = k;
  op.param[3] = element;
  // With accumulators of f16, two registers hold four of them.
  op.param[4] = element == F16 && op.numOut == 2;
  return known && useWarp(op, multiplyMatrix);
}

//===----------------------------------------------------------------------===//
// Barriers
//===----------------------------------------------------------------------===//

static bool bindBarrier(Op &op, const Words &words) {
  const std::string &base = words[0];
  // llvm.nvvm.barrier.cta.sync.aligned.all; bar.sync, barrier.sync.aligned.
  bool aligned = base == "bar" || contains(words, "aligned");
  bool named = base == "bar" || base == "barrier";
  if (named && contains(words, "cluster"))
    return useLane(op, contains(words, "arrive") ? clusterArrive : clusterWait);
  if (named && contains(words, "red")) {
    op.param[0] = contains(words, "or")    ? AnyVote
                  : contains(words, "and") ? AllVotes
                                           : CountVotes;
    return aligned && useWarp(op, barrierSyncAligned, LiveLanes);
  }
  if (named && contains(words, "sync"))
    return aligned ? useWarp(op, barrierSyncAligned, LiveLanes)
                   : useLane(op, barrierSync);
  if (named && contains(words, "arrive"))
    return aligned ? useWarp(op, barrierArriveAligned, LiveLanes)
                   : useLane(op, barrierArrive);
  return false;
}

static bool bindMBarrier(Op &op, const Words &words) {
  if (words[0] != "mbarrier" || words.size() < 2)
    return false;
  bool parity = contains(words, "parity");
  auto has = [&](const char *word) { return contains(words, word); };
  if (has("init"))
    return useLane(op, mbarrierInit);
  if (has("inval"))
    return useLane(op, mbarrierInvalidate);
  if (has("noComplete"))
    return useLane(op, mbarrierArrive);
  bool transaction = has("expect_tx") || (has("expect") && has("tx"));
  if (words[1] == "arrive" || words[1] == "arrive_drop") {
    op.param[0] = has("drop") || words[1] == "arrive_drop";
    if (transaction)
      return !op.param[0] && useLane(op, mbarrierArriveExpect);
    return useLane(op, mbarrierArrive);
  }
  if (transaction)
    return useLane(op, mbarrierExpect);
  if (has("complete_tx") || (has("complete") && has("tx")))
    return useLane(op, mbarrierComplete);
  if (has("test_wait") || has("try_wait") || has("test") || has("try")) {
    op.param[0] = parity;
    op.polls = true;
    return useLane(op, mbarrierTest);
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

/// cp.async.bulk.tensor.2d... and llvm.nvvm.cp.async.bulk.tensor.g2s.tile.2d.
static bool bindTensorCopy(Op &op, const Words &words, bool isIntrinsic) {
  auto has = [&](const char *word) { return contains(words, word); };
  if (has("prefetch"))
    return useLane(op, nothing);
  if (has("im2col") || has("gather4") || has("scatter4") || has("reduce") ||
      // A mask of another intrinsic.
      (isIntrinsic && has("multicast")))
    return false;
  for (const std::string &word : words)
    if (word.size() == 2 && isdigit(word[0]) && word[1] == 'd')
      op.param[0] = word[0] - '0';
  if (op.param[0] < 1)
    return false;
  if (has("g2s") || has("shared::cluster") ||
      (has("shared::cta") && words[5] == "shared::cta")) {
    op.param[1] = isIntrinsic ? 1 : -1;
    op.param[2] = has("multicast::cluster") ? 3 + op.param[0] : 0;
    return useLane(op, bulkLoad);
  }
  op.param[1] = !isIntrinsic;
  return (has("s2g") || has("bulk_group")) && useLane(op, bulkStore);
}

static bool bindCopy(Op &op, const Words &words, bool isIntrinsic) {
  auto has = [&](const char *word) { return contains(words, word); };
  if (words[0] != "cp" || words.size() < 3 || words[1] != "async")
    return false;
  if (words[2] == "bulk") {
    if (has("commit") || has("commit_group"))
      return useLane(op, bulkCommit);
    if (has("wait") || has("wait_group")) {
      op.param[0] = has("read");
      return useLane(op, bulkWait);
    }
    if (has("tensor"))
      return bindTensorCopy(op, words, isIntrinsic);
    if (has("prefetch"))
      return useLane(op, nothing);
    // llvm.nvvm.cp.async.bulk.global.to.shared.cluster: to, mbarrier, from,
    // bytes; the instruction has the mbarrier last.
    bool load = isIntrinsic ? words[3] == "global"
                            : words.size() > 4 && words[4] == "global";
    if (load) {
      op.param[1] = isIntrinsic ? 1 : -1;
      op.param[2] = has("multicast::cluster") ? 4 : 0;
      return useLane(op, bulkLoad);
    }
    bool store = isIntrinsic ? words.back() == "global"
                             : words.size() > 3 && words[3] == "global";
    return store && useLane(op, bulkStore);
  }
  if (words[2] == "commit" || words[2] == "commit_group")
    return useLane(op, copyCommit);
  if (has("wait_all") || (words[2] == "wait" && has("all")))
    return useLane(op, copyWaitAll);
  if (has("wait_group") || words[2] == "wait")
    return useLane(op, copyWaitGroup);
  if (words[2] == "mbarrier") {
    op.param[0] = has("noinc");
    return useLane(op, mbarrierArriveAfterCopies);
  }
  if (words[2] == "ca" || words[2] == "cg") {
    for (const char *size : {"4", "8", "16"})
      if (isIntrinsic && has(size))
        op.param[0] = atoi(size);
    return useLane(op, copyAsync);
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Warpgroups
//===----------------------------------------------------------------------===//

static bool bindWarpgroup(Op &op, const Words &words) {
  if (words[0] == "setmaxnreg")
    return useWarp(op, setMaxRegisters);
  if (words[0] != "wgmma" || words.size() < 2)
    return false;
  if (words[1] == "fence")
    return useWarp(op, productFence);
  if (words[1] == "commit_group")
    return useWarp(op, productCommit);
  if (words[1] == "wait_group")
    return useWarp(op, productWait);
  if (words[1] != "mma_async" || words.size() < 7)
    return false;
  // wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16
  const std::string &shape = words[4], &type = words[6];
  op.param[0] = getExtent(shape, 'n');
  op.param[1] = getExtent(shape, 'k');
  op.param[2] = type == "bf16" ? BF16 : type == "tf32" ? TF32 : F16;
  op.param[3] = words[5] == "f16";
  bool known = getExtent(shape, 'm') == 64 && op.param[0] % 8 == 0 &&
               op.param[0] >= 8 && op.param[0] <= 256 &&
               (type == "f16" || type == "bf16" || type == "tf32") &&
               op.param[1] == (type == "tf32" ? 8 : 16);
  op.kind = OpKind::Warpgroup;
  op.group = issueProduct;
  return known;
}

//===----------------------------------------------------------------------===//
// All
//===----------------------------------------------------------------------===//

static bool bindOther(Op &op, const Words &words) {
  const std::string &base = words[0];
  if (base == "fence" || base == "membar") {
    if (contains(words, "proxy") && contains(words, "async"))
      return useLane(op, proxyFence);
    for (const std::string &word : words)
      if (startsWith(word, "async"))
        return useLane(op, proxyFence);
    return useLane(op, nothing);
  }
  if (base == "prefetch" || base == "prefetchu" || base == "griddepcontrol" ||
      base == "applypriority" || base == "discard")
    return useLane(op, nothing);
  if (base == "nanosleep") {
    op.polls = true;
    return useLane(op, nothing);
  }
  if (base == "activemask")
    return useLane(op, activeMask);
  // Addresses of 32 bits have no place for the number of the block.
  if (base == "mapa" && words.back() != "u32")
    return useLane(op, mapShared);
  return false;
}

static bool bind(Op &op, const Words &words, bool isIntrinsic) {
  return bindCollective(op, words, isIntrinsic) || bindMma(op, words) ||
         bindBarrier(op, words) || bindMBarrier(op, words) ||
         bindCopy(op, words, isIntrinsic) || bindWarpgroup(op, words) ||
         bindOther(op, words) ||
         (op.kind == OpKind::Lane && bindScalar(op, words));
}

bool fovea::simt::bindIntrinsic(Op &op) {
  static const char prefix[] = "llvm.nvvm.";
  if (!startsWith(op.name, prefix))
    return false;
  return bind(op, split(op.name.substr(sizeof(prefix) - 1)), true);
}

/// How many of the operands of an instruction are results.
static unsigned countResults(const Words &words, unsigned numSlots) {
  const std::string &base = words[0];
  auto has = [&](const char *word) { return contains(words, word); };
  if (base == "wgmma") {
    if (words.size() < 7 || words[1] != "mma_async")
      return 0;
    int n = getExtent(words[4], 'n');
    return words[5] == "f16" ? n / 4 : n / 2;
  }
  if (base == "mma") {
    if (has("f64"))
      return numSlots >= 10 ? 4 : 2;
    return !has("f32") ? 2 : 4;
  }
  if (base == "ldmatrix")
    return has("x4") ? 4 : has("x2") ? 2 : 1;
  if (base == "mbarrier")
    return has("test_wait") || has("try_wait") || words[1] == "arrive" ||
           words[1] == "arrive_drop";
  if (base == "elect")
    return 2;
  // A second result, a predicate, may be left out.
  if (base == "shfl")
    return numSlots - 4;
  if (base == "match")
    return numSlots - 2;
  if (base == "bar" || base == "barrier")
    return has("red");
  if (base == "cp" || base == "stmatrix" || base == "fence" ||
      base == "membar" || base == "prefetch" || base == "setmaxnreg" ||
      base == "nanosleep" || base == "griddepcontrol")
    return 0;
  return 1;
}

bool fovea::simt::bindInstruction(Op &op, unsigned numSlots) {
  Words words = split(op.name);
  op.numOut = std::min(countResults(words, numSlots), numSlots);
  op.numIn = numSlots - op.numOut;
  return bind(op, words, false);
}
