//===- GradientMutationTest.cpp - Mistakes in kernels of gradients --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

/// Single rows for queries, some of them twice: so many that the places of
/// tiles are taken again, a whole tile that nobody reads, and one whose first
/// entry names nothing.
static std::string makeSingleRows(int64_t block) {
  std::string lists[2];
  for (int64_t number : {0, 1})
    for (int64_t entry = 0; entry < 400; ++entry) {
      bool isNamed = entry < 64 || (entry >= 128 && entry != 256);
      int64_t row = isNamed ? (entry * (number ? 37 : 101) + 5) % 200 : -1;
      lists[number] += (entry ? ", " : "") + std::to_string(row);
    }
  return R"(
!n = tensor<1x1x2x400xi32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %chosen = arith.constant dense<[[[[)" +
         lists[0] + "], [" + lists[1] + R"(]]]]> : !n
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !n) unit = 1
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {block = )" +
         std::to_string(block) + R"( : i64, scale = 0.125 : f64}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})";
}

namespace {

constexpr const char *kDense = R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})";

/// Gradients of two tiles of queries and of rows, the last ones ragged.
constexpr Example kGradients = {130, 200, 1, true, kDense};

/// Two tiles of each, as few as show what one leaves for the next.
constexpr Example kSmallGradients = {66, 70, 1, true, kDense};

/// So many tiles that the places of some are taken again.
constexpr Example kManyGradients = {130, 330, 2, true, kDense};

/// Where nobody reads dK the kernel for rows sums dV alone. The first of them
/// have six tiles of either head, which take places again.
constexpr Example kValueGradients = {330, 330, 2, true, R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {mask = #attn.mask<causal>}
      -> !q, !k, !k
  return %r#0, %r#2 : !q, !k
})"};

/// Keys and values have kernels of their own, and one consumer has queries and
/// keys. The places of some tiles are taken again.
constexpr Example kWideGradients = {200, 200, 1, true, kDense, 256};

/// So few rows that three blocks share the queries of each.
constexpr Example kSharedGradients = {450, 70, 1, true, R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Gradients of a few rows each in far places, gathered in slots: three
/// stretches for queries, one for rows, whose queries take places again.
constexpr Example kGatheredGradients = {384, 600, 1, true, R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>,
                  affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>,
                  affine_map<(b)[rows, n] -> (400, 408)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 528)>]
      forward(%o, %l : !q, !l) gradient(%d : !q) outs(%iq, %ik, %ik : !q, !k, !k)
      {block = 128 : i64, scale = 0.125 : f64} -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// The same far rows behind near ones: queries have two and three tiles of
/// those and one of far ones, so that the places of some are taken again.
constexpr Example kJoinedGradients = {384, 600, 2, true, R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:5 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 128 - 150, b * 128 + 130)>]
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (0, 8)>,
                  affine_map<(b)[rows, n] -> (130, 138)>,
                  affine_map<(b)[rows, n] -> (b * 8 + 260, b * 8 + 268)>,
                  affine_map<(b)[rows, n] -> (400, 408)>,
                  affine_map<(b)[rows, n] -> (b + 520, b + 528)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik, %ik, %ik : !q, !k, !k, !k, !k)
      {block = 128 : i64, scale = 0.125 : f64} -> !q, !k, !k, !k, !k
  return %r#0, %r#1, %r#3 : !q, !k, !k
})"};

/// Gradients of rows that lists name: two tiles of each, an entry that names
/// nothing.
constexpr Example kListGradients = {130, 200, 1, true, R"(
!n = tensor<1x1x3x4xi32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %chosen = arith.constant dense<[[[[0, 3, 5, -1], [2, 2, 4, 1],
      [5, 1, 0, 3]]]]> : !n
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !n) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {block = 64 : i64, scale = 0.125 : f64}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Entries that name whole tiles of rows, some of them twice: so many that the
/// places of tiles are taken again.
constexpr Example kNamedTiles = {200, 330, 2, true, R"(
!n = tensor<1x1x2x7xi32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %chosen = arith.constant dense<[[[[0, 3, 5, 1, -1, 2, 2],
      [5, 4, 1, 0, 3, 2, -1]]]]> : !n
  %r:3 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !n) unit = 64
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) {block = 128 : i64, scale = 0.125 : f64}
      -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// The gradient of a log weight, which rows sum beside theirs.
constexpr Example kLogWeights = {130, 200, 1, true, R"(
!w = tensor<1x1x200xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k, !w) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %iw = tensor.empty() : !w
  %w = arith.constant dense<0.25> : !w
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) log_weight(%w : !w)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_log_weights(%iw : !w)
      {scale = 0.125 : f64} -> !q, !k, !k, !w
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !k, !w
})"};

/// A bias that hides the last rows from some queries of a tile, whose gradient
/// nobody reads. Tiles are cut by numbers that are not finite alone.
constexpr Example kBiases = {130, 330, 2, true, R"(
!b = tensor<1x1x130x330xf32>
!x = tensor<1x1x60x50xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %ib = tensor.empty() : !b
  %b = arith.constant dense<0.25> : !b
  %x = arith.constant dense<0xFF800000> : !x
  %c = tensor.insert_slice %x into %b[0, 0, 30, 280] [1, 1, 60, 50] [1, 1, 1, 1]
      : !x into !b
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) bias(%c : !b)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>]
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_biases(%ib : !b)
      {scale = 0.125 : f64} -> !q, !k, !k, !b
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Through a soft-cap, whose slopes take registers beside weights. The tiles of
/// the second head take places again.
constexpr Example kSoftCap = {130, 330, 2, true, R"(
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
        %cap = arith.constant 2.0 : f32
        %part = arith.divf %s, %cap : f32
        %bounded = math.tanh %part : f32
        %capped = arith.mulf %bounded, %cap : f32
        attn.yield %capped : f32
      } forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k)
      {mask = #attn.mask<causal>, scale = 0.125 : f64} -> !q, !k, !k
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Gradients of what a function of scores reads: a number of each distance.
constexpr Example kCaptures = {130, 200, 1, true, R"(
!t = tensor<40xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k, !t) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %it = tensor.empty() : !t
  %t = arith.constant dense<0.25> : !t
  %r:4 = attn.stream_backward query(%q : !q)
      source(%k, %v : !k, !k) score {
      ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index, %x: !t):
        %last = arith.constant 39 : index
        %zero = arith.constant 0 : index
        %distance = arith.subi %i, %j : index
        %above = arith.maxsi %distance, %zero : index
        %at = arith.minsi %above, %last : index
        %e = tensor.extract %x[%at] : !t
        %sum = arith.addf %s, %e : f32
        attn.yield %sum : f32
      } ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      captures(%t : !t) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_captures(%it : !t)
      {scale = 0.125 : f64} -> !q, !k, !k, !t
  return %r#0, %r#1, %r#2, %r#3 : !q, !k, !k, !t
})"};

class GradientsSM80 : public KernelMutation {};
class GradientsSM90a : public KernelMutation {
protected:
  /// The instructions of the kernels for queries and for rows through terms of
  /// scores, with keys that the first queries do not read, and queries that do
  /// not read the last keys.
  void expectTermsMissed(llvm::StringRef queries, llvm::StringRef rows) {
    spoiledKeys = {300};
    spoiledGradients = {70};
    for (llvm::StringRef kernel : {queries, rows}) {
      kernelName = kernel.str();
      expectMissed("barrier.cta");
      expectMissed("mbarrier.arrive");
      expectMissed("wgmma.commit");
      expectMissed("wgmma.fence");
      expectMissed("wgmma.wait");
    }
    kernelName = queries.str();
    expectMissed("mbarrier.try_wait");
    // The tiles of the first head find all places free.
    kernelName = rows.str();
    expectMissed("mbarrier.try_wait", {2});
  }
};

TEST_P(GradientsSM80, EveryInstructionOfGradientsIsMissed) {
  example = kSmallGradients;
  // Keys that the first queries do not read, and queries that do not read the
  // last keys.
  spoiledKeys = {69};
  kernelName = "_kernel_0";
  expectMissed("barrier.cta");
  spoiledQueries = spoiledGradients = {2};
  kernelName = "_kernel_1";
  expectMissed("barrier.cta");
}

// Products and their barriers are those of all gradients on this chip; each of
// the following looks at what is its own.

TEST_P(GradientsSM80, EveryInstructionOfListGradientsIsMissed) {
  example = kListGradients;
  // One that does not read all listed rows.
  spoiledQueries = spoiledGradients = {2};
  // Where the lists of each tile begin, and what has rows.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta");
  kernelName = "_kernel_7";
  expectMissed("barrier.cta.red");
}

TEST_P(GradientsSM80, EveryInstructionOfListQueriesIsMissed) {
  example = kListGradients;
  // Not all queries read it.
  spoiledKeys = {100};
  kernelName = "_kernel_6";
  expectMissed("barrier.cta");
}

TEST_P(GradientsSM80, EveryInstructionOfCaptureGradientsIsMissed) {
  example = kCaptures;
  // What adds up the entries of an element. The last one is behind all reads.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta", {7});
}

TEST_P(GradientsSM90a, EveryInstructionOfGradientsIsMissed) {
  example = kGradients;
  // Keys that the first queries do not read, and queries that do not read the
  // last keys.
  spoiledKeys = {190};
  spoiledGradients = {70};
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  // That mbarriers are there another fence says, too.
  expectMissed("fence.proxy", {0, 2});
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence");
  expectMissed("wgmma.wait");
}

/// Threads that have a row add up what they have of it.
TEST_P(GradientsSM90a, EveryShuffleOfLogWeightsIsMissed) {
  example = kLogWeights;
  kernelName = "_kernel_6";
  expectMissed("shfl");
}

/// Products with gradients of rows start behind weights. What finds numbers
/// that are not finite comes before.
TEST_P(GradientsSM90a, EveryInstructionOfBiasGradientsIsMissed) {
  example = kBiases;
  expectTermsMissed("_kernel_6", "_kernel_7");
}

/// Threads compute scores, and slopes beside weights.
TEST_P(GradientsSM90a, EveryInstructionOfScoreGradientsIsMissed) {
  example = kSoftCap;
  expectTermsMissed("_kernel_1", "_kernel_2");
}

TEST_P(GradientsSM90a, EveryBarrierOfGradientsIsMissed) {
  example = kManyGradients;
  expectMissed("mbarrier.init.shared");
  // The tiles of the first head find all places free.
  expectMissed("mbarrier.try_wait", {5});
  expectMissed("mbarrier.arrive");
}

TEST_P(GradientsSM90a, EveryInstructionOfValueGradientsIsMissed) {
  example = kValueGradients;
  // A query that does not read the last keys.
  spoiledGradients = {150};
  kernelName = "_kernel_2";
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence");
  expectMissed("wgmma.wait");
}

TEST_P(GradientsSM90a, EveryInstructionOfWideGradientsIsMissed) {
  example = kWideGradients;
  // The kernel for keys has products with queries, that for values with
  // gradients.
  spoiledKeys = {190};
  spoiledQueries = spoiledGradients = {70};
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence");
  expectMissed("wgmma.wait");
}

TEST_P(GradientsSM90a, EveryInstructionOfListGradientsIsMissed) {
  example = kNamedTiles;
  // Not all queries of a tile read them.
  spoiledKeys = {325};
  spoiledGradients = {70};
  // Where the lists of each tile begin, and what has queries or rows.
  kernelName = "_kernel_4";
  expectMissed("barrier.cta");
  for (const char *kernel : {"_kernel_7", "_kernel_8"}) {
    kernelName = kernel;
    expectMissed("barrier.cta");
    expectMissed("mbarrier.init.shared");
    expectMissed("mbarrier.try_wait");
    expectMissed("mbarrier.arrive");
    expectMissed("cp.async.bulk");
    // That mbarriers are there another fence says, too.
    expectMissed("fence.proxy", {0});
  }
}

TEST_P(GradientsSM90a, EveryInstructionOfListedRowsIsMissed) {
  std::string text = makeSingleRows(/*block=*/128);
  example = {130, 200, 1, true, text.c_str()};
  // Not all queries read it.
  spoiledKeys = {100};
  kernelName = "_kernel_7";
  expectMissed("barrier.cta");
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
  expectMissed("cp.async");
  expectMissed("fence.proxy", {0});
}

/// Parts of gradients of rows from the queries of each list, and their sums.
TEST_P(GradientsSM90a, EveryInstructionOfRowsOfListsIsMissed) {
  std::string text = makeSingleRows(/*block=*/128);
  example = {130, 200, 3, true, text.c_str()};
  // Not all queries read it, and one that does not read all rows.
  spoiledKeys = {100};
  spoiledGradients = {70};
  kernelName = "_kernel_8";
  expectMissed("barrier.cta");
  expectMissed("mbarrier.init.shared");
  // The tiles of the first two heads find all places free.
  expectMissed("mbarrier.try_wait", {1, 2});
  expectMissed("mbarrier.arrive");
  expectMissed("cp.async");
  // That mbarriers are there another fence says, too.
  expectMissed("fence.proxy", {0});
  for (const char *kernel : {"_kernel_9", "_kernel_10"}) {
    kernelName = kernel;
    expectMissed("barrier.cta");
  }
}

/// The same where the rows of tiles are heads of one query.
TEST_P(GradientsSM90a, EveryInstructionOfListsOfHeadsIsMissed) {
  std::string text = makeSingleRows(/*block=*/1);
  // So many heads that the places of tiles are taken again.
  example = {2, 200, 384, true, text.c_str()};
  // Nobody reads it, nor does the query read all rows of its list.
  spoiledKeys = {195};
  spoiledGradients = {0};
  kernelName = "_kernel_7";
  expectMissed("cp.async");
  // The last one is behind what takes out rows that some queries read: here a
  // row that its query does not read is not copied.
  expectMissed("fence.proxy", {0, 2});
  kernelName = "_kernel_8";
  expectMissed("barrier.cta");
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
  expectMissed("cp.async");
  // That mbarriers are there another fence says, too.
  expectMissed("fence.proxy", {0});
}

/// Which part of the queries a block has, and what adds the parts up. No place
/// of a tile is taken again: see EveryBarrierOfGradientsIsMissed.
TEST_P(GradientsSM90a, EveryNumberOfSharedGradientsIsMissed) {
  example = kSharedGradients;
  expectMissed("ctaid");
}

TEST_P(GradientsSM90a, EveryInstructionOfGatheredGradientsIsMissed) {
  example = kGatheredGradients;
  // Those of one block of queries, and queries that do not read some of them.
  spoiledKeys = {283};
  spoiledGradients = {70};
  // What has queries: one tile, so that no place is taken again.
  kernelName = "_kernel_8";
  expectMissed("cp.async.bulk");
  // What has rows.
  kernelName = "_kernel_9";
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  expectMissed("mbarrier.try_wait");
  expectMissed("mbarrier.arrive");
}

TEST_P(GradientsSM90a, EveryInstructionOfJoinedGradientsIsMissed) {
  example = kJoinedGradients;
  // Behind near rows of the last queries in their last tile, and a far row that
  // some of them read.
  spoiledKeys = {388, 525};
  spoiledGradients = {70};
  kernelName = "_kernel_8";
  expectMissed("barrier.cta");
  expectMissed("cp.async.bulk");
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.try_wait");
  // Nothing takes the place of the only far tile, which is the last one.
  expectMissed("mbarrier.arrive", {1});
}

INSTANTIATE_TEST_SUITE_P(Chips, GradientsSM80, testing::Values("sm_80"));
INSTANTIATE_TEST_SUITE_P(Chips, GradientsSM90a, testing::Values("sm_90a"));

} // namespace
