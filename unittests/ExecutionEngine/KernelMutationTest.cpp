//===- KernelMutationTest.cpp - Mistakes in kernels of attention ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

namespace {

/// Several tiles of keys, of which masks cut two, and two of queries, the last
/// ones ragged.
constexpr Example kDense = {130, 530, 1, false, R"(
func.func @dense(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%init : !q)
      {mask = #attn.mask<causal>} -> !q
  return %r : !q
})"};

/// Boxes of rows near a block, listed rows with log weights far away.
constexpr Example kLists = {130, 450, 1, false, R"(
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %w = arith.constant dense<0.5> : tensor<1x1x450xf32>
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 128, b * 128 + 300)>]
      source(%v, %k : !k, !k) log_weight(%w : tensor<1x1x450xf32>)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Four blocks of queries, two for each of two blocks of threads: all rows of
/// three of them exist. Boxes, and then a table.
constexpr Example kStaying = {386, 450, 1, false, R"(
func.func @staying(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 64, b * 64 + 200)>]
      source(%v, %k : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (b * 60 + 100, b * 60 + 132)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Two tiles of boxes for each block of queries.
constexpr Example kStayingShortly = {386, 450, 1, false, R"(
func.func @staying(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 64, b * 64 + 100)>]
      source(%v, %k : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 60, b * 60 + 100)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// The same with rows of each tile that no query reads, the last 12 of 128 for
/// the first block of queries, 16 more for each block.
constexpr Example kStayingApart = {386, 512, 1, false, R"(
func.func @staying(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 128, b * 112 + 116)>]
      source(%v, %k : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b * 128, b * 112 + 116)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Boxes where listed rows were.
constexpr Example kListsFirst = {130, 450, 1, false, R"(
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 40, b + 70)>,
                  affine_map<(b)[rows, n] -> (b + 150, b + 180)>,
                  affine_map<(b)[rows, n] -> (b + 200, b + 230)>,
                  affine_map<(b)[rows, n] -> (b + 250, b + 278)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      source(%v, %k : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (0, 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// A function that removes some entries of the first 64 queries alone: one
/// warpgroup tells another.
constexpr Example kRemoving = {130, 530, 1, false, R"(
func.func @removing(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) score {
    ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
      %none = arith.constant 0xFF800000 : f32
      %end = arith.constant 464 : index
      %period = arith.constant 64 : index
      %which = arith.constant 44 : index
      %rest = arith.remsi %j, %period : index
      %isFirst = arith.cmpi slt, %i, %end : index
      %isKey = arith.cmpi eq, %rest, %which : index
      %isRemoved = arith.andi %isFirst, %isKey : i1
      %y = arith.select %isRemoved, %none, %s : f32
      attn.yield %y : f32
    } outs(%init : !q) -> !q
  return %r : !q
})"};

/// Listed rows alone, so that the first tile is one: a table of two tiles.
constexpr Example kListsAlone = {130, 450, 1, false, R"(
func.func @lists(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k)
          ranges [affine_map<(b)[rows, n] -> (b, b + 30)>,
                  affine_map<(b)[rows, n] -> (100, 132)>,
                  affine_map<(b)[rows, n] -> (b + 40, b + 70)>,
                  affine_map<(b)[rows, n] -> (b + 150, b + 180)>,
                  affine_map<(b)[rows, n] -> (b + 200, b + 230)>,
                  affine_map<(b)[rows, n] -> (b + 250, b + 278)>,
                  affine_map<(b)[rows, n] -> (b + 300, b + 320)>]
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Rows that lists name, alone: two tiles, the last one with an entry that
/// names nothing.
constexpr Example kNamed = {130, 450, 1, false, R"(
!l = tensor<1x1x3x6xi32>
func.func @named(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %chosen = arith.constant dense<[[[[0, 3, 7, 1, -1, 9],
      [12, 13, 2, 2, 5, 8], [6, 4, 11, 10, -1, 1]]]]> : !l
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !l) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>] mask <causal>
      outs(%init : !q) {block = 64 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Two heads that share keys: blocks of a cluster copy halves of tiles for each
/// other, of which masks cut some, and the last half has no row.
constexpr Example kClusters = {70, 200, 2, false, R"(
func.func @clusters(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.stream query(%q : !q) source(%k, %v : !k, !k)
      ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : !q) {scale = 0.125 : f64,
          tiles = #attn.tiles<query = 64, key = 32, lanes = 64, vectors = 1,
              keys = 8, columns = 8, cluster = 2>} -> !q
  return %r : !q
})"};

/// So many listed rows that the places of their numbers are taken again.
constexpr Example kManyNamed = {130, 450, 1, false, R"(
!l = tensor<1x1x1x24xi32>
func.func @named(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %chosen = arith.constant dense<[[[[0, 3, 7, 1, -1, 9, 12, 13, 2, 2, 5, 8,
      6, 4, 11, 10, -1, 1, 13, 0, 8, 3, 12, 5]]]]> : !l
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) rows(%chosen : !l) unit = 32
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>]
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// One query whose tiles are read in two parts, a key of the last one having no
/// weight.
constexpr Example kSingle = {1, 450, 34, false, R"(
!w = tensor<1x1x450xf32>
func.func @single(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %all = arith.constant dense<0.5> : !w
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : index
  %last = arith.constant 440 : index
  %w = tensor.insert %none into %all[%zero, %zero, %last] : !w
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) log_weight(%w : !w)
      outs(%init : !q) -> !q
  return %r : !q
})"};

/// One query whose tiles are read in nine parts.
constexpr Example kParts = {1, 2200, 18, false, R"(
func.func @parts(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%init : !q) -> !q
  return %r : !q
})"};

/// Heads of nine queries in three tiles of rows, two of which begin between the
/// heads of a query. Each has two parts.
constexpr Example kPacked = {9, 300, 18, false, R"(
func.func @packed(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %r = attn.dense ins(%q, %k, %v : !q, !k, !k) outs(%init : !q)
      {mask = #attn.mask<causal>} -> !q
  return %r : !q
})"};

/// One query whose keys codes name.
constexpr Example kCoded = {1, 450, 34, false, R"(
!z = tensor<1x1x450xi32>
func.func @coded(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %empty = tensor.empty() : !z
  %codes = linalg.generic {
      indexing_maps = [affine_map<(b, g, i) -> (b, g, i)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%empty : !z) {
  ^bb0(%old: i32):
    %i = linalg.index 2 : index
    %factor = arith.constant 7 : index
    %count = arith.constant 450 : index
    %far = arith.muli %i, %factor : index
    %row = arith.remui %far, %count : index
    %code = arith.index_cast %row : index to i32
    linalg.yield %code : i32
  } -> !z
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) codes(%codes : !z)
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>]
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// One query whose tiles have values of f32, which are rounded in shared
/// memory, in two parts, and weights. The last key has none.
constexpr Example kWide = {1, 450, 34, false, R"(
!w = tensor<1x1x450xf32>
!m = tensor<1x1x450x64xf32>
func.func @wide(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %wide = arith.extf %v : !k to !m
  %all = arith.constant dense<0.5> : !w
  %none = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0 : index
  %last = arith.constant 440 : index
  %w = tensor.insert %none into %all[%zero, %zero, %last] : !w
  %r = attn.stream query(%q : !q)
      source(%k, %wide : !k, !m) log_weight(%w : !w)
          ranges [affine_map<(b)[rows, n] -> (0, rows - 9)>]
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Of dense attention, if a test does not say otherwise.
class Forward : public KernelMutation {
protected:
  Forward() {
    example = kDense;
    // In the tiles before the last one and in the last one.
    spoiledValues = {420, 500};
  }
};
class SM80 : public Forward {};
class SM90a : public Forward {};

TEST_P(SM80, EveryInstructionIsMissed) {
  expectMissed("barrier.cta");
  expectMissed("cp.async.commit");
  // The last one is behind all reads.
  expectMissed("cp.async.wait", {2});
  // Swizzles; the first one is none.
  expectMissed("xor", {0});
}

TEST_P(SM90a, EveryInstructionIsMissed) {
  // Turns are for speed.
  expectMissed("barrier.cta", {2});
  expectMissed("mbarrier.init.shared");
  // What takes NaN out of the last tile, which is cut, has waited for it.
  expectMissed("mbarrier.try_wait", {4});
  expectMissed("mbarrier.arrive");
  // Copies, and what stores results.
  expectMissed("cp.async.bulk");
  expectMissed("fence.proxy", {0});
  expectMissed("wgmma.commit");
  // Nothing writes registers between two of them; ptxas wants both.
  expectMissed("wgmma.fence", {2});
  expectMissed("wgmma.wait");
}

TEST_P(SM90a, EveryInstructionOfClustersIsMissed) {
  example = kClusters;
  spoiledValues = {};
  expectMissed("mbarrier.init.shared");
  // Of halves, and what stores results.
  expectMissed("cp.async.bulk");
  // To the own block and to the other one.
  expectMissed("mbarrier.arrive");
  // Before barriers of the other block are used, and after.
  expectMissed("barrier.cluster");
}

TEST_P(SM90a, EveryVoteIsMissed) {
  example = kRemoving;
  // In the first tile, a later one, and the last one.
  spoiledValues = {44, 236, 492};
  expectMissed("mbarrier.init.shared");
  expectMissed("mbarrier.arrive");
  // What takes NaN out of the last tile has waited for it.
  expectMissed("mbarrier.try_wait", {7});
  expectMissed("vote");
}

TEST_P(SM90a, EveryInstructionOfListsIsMissed) {
  example = kLists;
  // Behind the rows near the first block, and one of the listed ones.
  spoiledValues = {330};
  spoiledKeys = {310};
  expectMissed("mbarrier.expect");
  expectMissed("cp.async.mbarrier.arrive");
  // That mbarriers are there another fence says, too. Only the last tile is not
  // a box; kListsFirst has others.
  expectMissed("fence.proxy", {0, 1, 3, 6, 7, 8});
  expectMissed("wgmma.fence", {2});
}

TEST_P(SM90a, EveryFenceOfListsFirstIsMissed) {
  example = kListsFirst;
  spoiledValues = {};
  // The last tile is a box; the first one is none, and values have boxes after
  // a fence for keys.
  expectMissed("fence.proxy", {0, 4, 7, 8});
}

TEST_P(SM90a, EveryInstructionOfListsAloneIsMissed) {
  example = kListsAlone;
  spoiledValues = {};
  expectMissed("cp.async.mbarrier.arrive");
  // That of results, the sixth one, is missed in
  // EveryInstructionIsMissed: the emulator takes what a warp writes behind a
  // fence for fenced until the warp meets others.
  expectMissed("fence.proxy", {0, 5});
}

TEST_P(SM90a, EveryInstructionOfBlocksThatStayIsMissed) {
  example = kStaying;
  spoiledValues = {};
  // The first tile is not cut, so nobody waits for what the producer finds.
  // For values of the last one, which is, it has waited. With three tiles, who
  // waits for the place of the last values knows that keys of the tile before
  // are free; the next test has two.
  expectMissed("mbarrier.try_wait", {1, 5, 6});
  expectMissed("mbarrier.arrive");
  expectMissed("cp.async.bulk");
  // There is no NaN to find, which EverySearchOfBlocksThatStayIsMissed has, or
  // to take out, which EveryInstructionIsMissed has. Turns are for speed. All
  // have filled the table when the place of the third tile, the first one of
  // it, is free, and by then know what the tiles before it are.
  expectMissed("barrier.cta", {2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 15});
}

TEST_P(SM90a, EveryWaitOfBlocksThatStayShortlyIsMissed) {
  example = kStayingShortly;
  spoiledValues = {};
  // Both tiles are cut, so the producer has waited for their values. Queries
  // have waited for the place of the second keys.
  expectMissed("mbarrier.try_wait", {3, 5, 9});
}

TEST_P(SM90a, EverySearchOfBlocksThatStayIsMissed) {
  example = kStayingApart;
  // Of 24 products, 8 are for the second tile of a block, when the next block
  // has begun, 8 for first tiles, and 8 for the last tile: of four registers of
  // a row, and of the sixteenth row behind it. An odd row has NaN in one
  // register, and only one product finds that of a tile.
  const std::vector<int64_t> values[] = {
      {121, 233, 363, 493}, {123, 239, 373, 503}, {}, {}};
  const std::vector<size_t> ofValues[] = {
      {8, 9, 10, 12}, {11, 13, 14, 15}, {}, {}};
  for (size_t word = 0; word < 4; ++word) {
    int64_t column = 2 * word;
    spoiledValues = values[word];
    spoiledKeys = {121 + column, 233 + column, 361 + column, 505 + column};
    std::vector<size_t> missed = ofValues[word];
    missed.insert(missed.end(), {word, 4 + word, 16 + word, 20 + word});
    std::vector<size_t> others;
    for (size_t i = 0; i < 24; ++i)
      if (!llvm::is_contained(missed, i))
        others.push_back(i);
    expectMissed("fma.v2f16", others);
  }
  spoiledValues = values[0];
  expectMissed("barrier.cta.red");
}

TEST_P(SM80, EveryInstructionOfNamedRowsIsMissed) {
  example = kNamed;
  spoiledValues = {440, 445};
  spoiledKeys = {442};
  expectMissed("barrier.cta");
  expectMissed("cp.async.wait", {2});
  expectMissed("vote.ballot");
}

TEST_P(SM90a, EveryInstructionOfNamedRowsIsMissed) {
  example = kNamed;
  spoiledValues = {440, 445};
  spoiledKeys = {442};
  expectMissed("cp.async.mbarrier.arrive");
  expectMissed("fence.proxy", {0, 5});
  expectMissed("vote.ballot");
}

TEST_P(SM90a, EveryBarrierOfNamedRowsIsMissed) {
  example = kManyNamed;
  spoiledValues = {};
  // Turns are for speed, and no NaN is taken out: those of the producer are
  // left.
  expectMissed("barrier.cta", {2, 3, 4, 5, 7, 8, 9});
}

TEST_P(SM80, EveryInstructionOfSingleQueriesIsMissed) {
  example = kSingle;
  spoiledValues = {440};
  expectMissed("barrier.cta");
  // The last one is behind all reads, and keys of first tiles have weights.
  expectMissed("cp.async.wait", {2});
  expectMissed("vote.ballot", {0});
}

TEST_P(SM80, EveryInstructionOfPartsIsMissed) {
  example = kParts;
  spoiledValues = {};
  // What adds up the parts, eight and then one.
  kernelName = "_kernel_0";
  expectMissed("ex2");
}

TEST_P(SM80, EveryInstructionOfPackedQueriesIsMissed) {
  example = kPacked;
  // Some of the queries read them.
  spoiledValues = {295, 298};
  expectMissed("barrier.cta");
  // The last one is behind all reads.
  expectMissed("cp.async.wait", {2});
  // Which query and head a row is, and where it stands. Behind where the last
  // one does, masks remove what a tile has.
  expectMissed("udiv", {1});
  expectMissed("urem");
}

TEST_P(SM80, EveryInstructionOfCodedKeysIsMissed) {
  example = kCoded;
  spoiledValues = {};
  kernelName = "_kernel_0";
  // No key is hidden, so no NaN is taken out.
  expectMissed("barrier.cta", {2, 3, 4});
  // The last one is behind all reads.
  expectMissed("cp.async.wait", {2});
}

TEST_P(SM80, EveryInstructionOfWideValuesIsMissed) {
  example = kWide;
  spoiledValues = {440};
  expectMissed("barrier.cta");
  // The last one in the loop has nothing left to wait for.
  expectMissed("cp.async.wait", {2});
  expectMissed("vote.ballot", {0});
}

INSTANTIATE_TEST_SUITE_P(Chips, SM80, testing::Values("sm_80"));
INSTANTIATE_TEST_SUITE_P(Chips, SM90a, testing::Values("sm_90a"));

} // namespace
