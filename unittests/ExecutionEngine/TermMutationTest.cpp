//===- TermMutationTest.cpp - Mistakes in kernels of terms of scores ------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

namespace {

/// Relative keys: two to six tiles, each of which continues the one before.
/// Masks cut the first one, too, and places of boxes are taken again.
constexpr Example kRelative = {330, 330, 1, false, R"(
!r = tensor<1x330x64xf16>
!u = tensor<1x64xf16>
func.func @relative(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %keys = tensor.collapse_shape %k [[0, 1], [2], [3]] : !k into !r
  %bias = arith.constant dense<0.25> : !u
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) relative(%keys, %bias : !r, !u)
          ranges [affine_map<(b)[rows, n] -> (0, rows)>] mask <causal>
      outs(%init : !q) {scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Two segments, the second of which does not continue the first.
constexpr Example kRelativeSegments = {130, 450, 1, false, R"(
!r = tensor<1x450x64xf16>
!u = tensor<1x64xf16>
func.func @relative(%q: !q, %k: !k, %v: !k) -> !q {
  %init = tensor.empty() : !q
  %keys = tensor.collapse_shape %k [[0, 1], [2], [3]] : !k into !r
  %bias = arith.constant dense<0.25> : !u
  %r = attn.stream query(%q : !q)
      source(%k, %v : !k, !k) relative(%keys, %bias : !r, !u)
          ranges [affine_map<(b)[rows, n] -> (b * 128, b * 128 + 130)>,
                  affine_map<(b)[rows, n] -> (b * 128 + 200, b * 128 + 450)>]
          mask <causal>
      outs(%init : !q) {block = 128 : i64, scale = 0.125 : f64} -> !q
  return %r : !q
})"};

/// Gradients of quantized keys with a bias by distance, whose own gradient
/// nobody reads: tokens have functions of scores. They are read in six blocks,
/// so that the places of some tiles are taken again.
constexpr Example kQuantized = {330, 330, 1, true, R"(
!z = tensor<1x1x330xi32>
!s = tensor<1x1x64x64xf16>
!c = tensor<1x64x64xf16>
!t = tensor<1x384xf32>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q)
    -> (!q, !k, !k) {
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %it = tensor.empty() : !t
  %empty = tensor.empty() : !z
  %z = linalg.generic {
      indexing_maps = [affine_map<(b, g, i) -> (b, g, i)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%empty : !z) {
  ^bb0(%old: i32):
    %i = linalg.index 2 : index
    %six = arith.constant 6 : index
    %row = arith.divui %i, %six : index
    %code = arith.index_cast %row : index to i32
    linalg.yield %code : i32
  } -> !z
  %t = arith.constant dense<0.25> : !t
  %some = tensor.extract_slice %k[0, 0, 0, 0] [1, 1, 64, 64] [1, 1, 1, 1]
      : !k to !s
  %c = tensor.collapse_shape %some [[0, 1], [2], [3]] : !s into !c
  %r:4 = attn.vq_backward ins(%q, %z, %v, %c : !q, !z, !k, !c)
      distance_bias(%t : !t) forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) d_distance_bias(%it : !t)
      {block = 64 : i64, memory = 5 : i64, causal, scale = 0.125 : f64} -> !q, !k, !k, !t
  return %r#0, %r#1, %r#2 : !q, !k, !k
})"};

/// Through a soft-cap, with rows so wide that keys and values have a kernel
/// each.
constexpr const char *kCapped = R"(
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
})";
constexpr Example kApart = {130, 200, 1, true, kCapped, /*width=*/128};

/// So many tiles that the places of some are taken again.
constexpr Example kManyApart = {130, 330, 2, true, kCapped, /*width=*/128};

class TermsSM90a : public KernelMutation {};

TEST_P(TermsSM90a, EveryInstructionOfRelativeKeysIsMissed) {
  example = kRelative;
  // In the first tile of the first block, in one of the loop, in the last one.
  spoiledValues = {60, 230, 320};
  // Turns are for speed.
  expectMissed("barrier.cta", {5});
  expectMissed("mbarrier.init.shared");
  // What takes NaN out of the last tile, which is cut, has waited for it.
  expectMissed("mbarrier.try_wait", {6});
  expectMissed("mbarrier.arrive");
  // Tiles, boxes of relative keys, and what stores results.
  expectMissed("cp.async.bulk");
  // That mbarriers are there another fence says, too.
  expectMissed("fence.proxy", {0});
  // Behind what a warp leaves of relative keys. Others stand beside another
  // one, or beside products, which bring lanes together as well.
  expectMissed("bar.warp.sync", {0, 1, 2, 4, 5, 7});
  expectMissed("wgmma.commit");
  // Nothing writes registers between two of them; ptxas wants both.
  expectMissed("wgmma.fence", {3});
  expectMissed("wgmma.wait");
}

TEST_P(TermsSM90a, EveryInstructionOfRelativeSegmentsIsMissed) {
  example = kRelativeSegments;
  // No NaN is taken out.
  expectMissed("mbarrier.try_wait", {2, 6});
  // Boxes of a tile and, where it does not continue the one before, of both.
  expectMissed("cp.async.bulk");
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence", {6});
  expectMissed("wgmma.wait");
}

TEST_P(TermsSM90a, EveryInstructionOfQuantizedGradientsIsMissed) {
  example = kQuantized;
  // The codeword of tokens that the first queries do not read, and a query that
  // does not read the last tokens.
  spoiledKeys = {50};
  spoiledGradients = {70};
  for (const char *kernel : {"_kernel_16", "_kernel_17"}) {
    kernelName = kernel;
    expectMissed("barrier.cta");
    expectMissed("mbarrier.try_wait");
    expectMissed("mbarrier.arrive");
    expectMissed("wgmma.commit");
    expectMissed("wgmma.fence");
    expectMissed("wgmma.wait");
  }
}

TEST_P(TermsSM90a, EveryInstructionOfKeysApartFromValuesIsMissed) {
  example = kApart;
  spoiledKeys = {190};
  spoiledQueries = spoiledGradients = {70};
  // Turns are for speed.
  expectMissed("barrier.cta", {2, 9});
  expectMissed("wgmma.commit");
  expectMissed("wgmma.fence");
  expectMissed("wgmma.wait");
}

TEST_P(TermsSM90a, EveryBarrierOfKeysApartFromValuesIsMissed) {
  example = kManyApart;
  // The tiles of the first head find all places free.
  expectMissed("mbarrier.try_wait", {5, 9});
  expectMissed("mbarrier.arrive");
}

INSTANTIATE_TEST_SUITE_P(Chips, TermsSM90a, testing::Values("sm_90a"));

} // namespace
