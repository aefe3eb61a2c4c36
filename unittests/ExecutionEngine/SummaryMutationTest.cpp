//===- SummaryMutationTest.cpp - Mistakes in kernels of summaries ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

namespace {

/// Five levels, the last one with intervals longer than the rows of a block.
/// The last intervals are ragged; rows of queries are weights.
constexpr Example kSummaries = {512, 300, 1, false, R"(
!w0 = tensor<1x1x16x64xf16>
!s0 = tensor<1x1x19x64xf16>
!w1 = tensor<1x1x32x64xf16>
!s1 = tensor<1x1x10x64xf16>
!w2 = tensor<1x1x64x64xf16>
!s2 = tensor<1x1x5x64xf16>
!w3 = tensor<1x1x128x64xf16>
!s3 = tensor<1x1x3x64xf16>
!w4 = tensor<1x1x256x64xf16>
!s4 = tensor<1x1x2x64xf16>
func.func @summaries(%q: !q, %x: !k, %v: !k) -> (!s0, !s1, !s2, !s3, !s4) {
  %w0 = tensor.extract_slice %q[0, 0, 0, 0] [1, 1, 16, 64] [1, 1, 1, 1]
      : !q to !w0
  %w1 = tensor.extract_slice %q[0, 0, 16, 0] [1, 1, 32, 64] [1, 1, 1, 1]
      : !q to !w1
  %w2 = tensor.extract_slice %q[0, 0, 48, 0] [1, 1, 64, 64] [1, 1, 1, 1]
      : !q to !w2
  %w3 = tensor.extract_slice %q[0, 0, 112, 0] [1, 1, 128, 64] [1, 1, 1, 1]
      : !q to !w3
  %w4 = tensor.extract_slice %q[0, 0, 240, 0] [1, 1, 256, 64] [1, 1, 1, 1]
      : !q to !w4
  %i0 = tensor.empty() : !s0
  %r0 = attn.summarize ins(%x : !k) weights(%w0 : !w0)
      outs(%i0 : !s0) -> !s0
  %i1 = tensor.empty() : !s1
  %r1 = attn.summarize ins(%x : !k) weights(%w1 : !w1)
      outs(%i1 : !s1) -> !s1
  %i2 = tensor.empty() : !s2
  %r2 = attn.summarize ins(%x : !k) weights(%w2 : !w2)
      outs(%i2 : !s2) -> !s2
  %i3 = tensor.empty() : !s3
  %r3 = attn.summarize ins(%x : !k) weights(%w3 : !w3)
      outs(%i3 : !s3) -> !s3
  %i4 = tensor.empty() : !s4
  %r4 = attn.summarize ins(%x : !k) weights(%w4 : !w4)
      outs(%i4 : !s4) -> !s4
  return %r0, %r1, %r2, %r3, %r4 : !s0, !s1, !s2, !s3, !s4
})"};

/// Their gradients: warps have one place of the fourth level, two of the fifth.
constexpr Example kGradients = {512, 300, 1, false, R"(
!w0 = tensor<1x1x16x64xf16>
!s0 = tensor<1x1x19x64xf16>
!w1 = tensor<1x1x32x64xf16>
!s1 = tensor<1x1x10x64xf16>
!w2 = tensor<1x1x64x64xf16>
!s2 = tensor<1x1x5x64xf16>
!w3 = tensor<1x1x128x64xf16>
!s3 = tensor<1x1x3x64xf16>
!w4 = tensor<1x1x256x64xf16>
!s4 = tensor<1x1x2x64xf16>
!fx = tensor<1x1x300x64xf32>
!f0 = tensor<1x1x16x64xf32>
!f1 = tensor<1x1x32x64xf32>
!f2 = tensor<1x1x64x64xf32>
!f3 = tensor<1x1x128x64xf32>
!f4 = tensor<1x1x256x64xf32>
func.func @gradients(%q: !q, %x: !k, %v: !k)
    -> (!k, !w0, !w1, !w2, !w3, !w4) {
  %w0 = tensor.extract_slice %q[0, 0, 0, 0] [1, 1, 16, 64] [1, 1, 1, 1]
      : !q to !w0
  %s0 = tensor.extract_slice %v[0, 0, 0, 0] [1, 1, 19, 64] [1, 1, 1, 1]
      : !k to !s0
  %w1 = tensor.extract_slice %q[0, 0, 16, 0] [1, 1, 32, 64] [1, 1, 1, 1]
      : !q to !w1
  %s1 = tensor.extract_slice %v[0, 0, 19, 0] [1, 1, 10, 64] [1, 1, 1, 1]
      : !k to !s1
  %w2 = tensor.extract_slice %q[0, 0, 48, 0] [1, 1, 64, 64] [1, 1, 1, 1]
      : !q to !w2
  %s2 = tensor.extract_slice %v[0, 0, 29, 0] [1, 1, 5, 64] [1, 1, 1, 1]
      : !k to !s2
  %w3 = tensor.extract_slice %q[0, 0, 112, 0] [1, 1, 128, 64] [1, 1, 1, 1]
      : !q to !w3
  %s3 = tensor.extract_slice %v[0, 0, 34, 0] [1, 1, 3, 64] [1, 1, 1, 1]
      : !k to !s3
  %w4 = tensor.extract_slice %q[0, 0, 240, 0] [1, 1, 256, 64] [1, 1, 1, 1]
      : !q to !w4
  %s4 = tensor.extract_slice %v[0, 0, 37, 0] [1, 1, 2, 64] [1, 1, 1, 1]
      : !k to !s4
  %zero = arith.constant 0.0 : f32
  %sum = arith.extf %v : !k to !fx
  %e0 = tensor.empty() : !f0
  %z0 = linalg.fill ins(%zero : f32) outs(%e0 : !f0) -> !f0
  %r0:2 = attn.summarize_backward ins(%x : !k) weights(%w0 : !w0)
      gradient(%s0 : !s0) outs(%sum, %z0 : !fx, !f0) -> !fx, !f0
  %e1 = tensor.empty() : !f1
  %z1 = linalg.fill ins(%zero : f32) outs(%e1 : !f1) -> !f1
  %r1:2 = attn.summarize_backward ins(%x : !k) weights(%w1 : !w1)
      gradient(%s1 : !s1) outs(%r0#0, %z1 : !fx, !f1) -> !fx, !f1
  %e2 = tensor.empty() : !f2
  %z2 = linalg.fill ins(%zero : f32) outs(%e2 : !f2) -> !f2
  %r2:2 = attn.summarize_backward ins(%x : !k) weights(%w2 : !w2)
      gradient(%s2 : !s2) outs(%r1#0, %z2 : !fx, !f2) -> !fx, !f2
  %e3 = tensor.empty() : !f3
  %z3 = linalg.fill ins(%zero : f32) outs(%e3 : !f3) -> !f3
  %r3:2 = attn.summarize_backward ins(%x : !k) weights(%w3 : !w3)
      gradient(%s3 : !s3) outs(%r2#0, %z3 : !fx, !f3) -> !fx, !f3
  %e4 = tensor.empty() : !f4
  %z4 = linalg.fill ins(%zero : f32) outs(%e4 : !f4) -> !f4
  %r4:2 = attn.summarize_backward ins(%x : !k) weights(%w4 : !w4)
      gradient(%s4 : !s4) outs(%r3#0, %z4 : !fx, !f4) -> !fx, !f4
  %dx = arith.truncf %r4#0 : !fx to !k
  %d0 = arith.truncf %r0#1 : !f0 to !w0
  %d1 = arith.truncf %r1#1 : !f1 to !w1
  %d2 = arith.truncf %r2#1 : !f2 to !w2
  %d3 = arith.truncf %r3#1 : !f3 to !w3
  %d4 = arith.truncf %r4#1 : !f4 to !w4
  return %dx, %d0, %d1, %d2, %d3, %d4 : !k, !w0, !w1, !w2, !w3, !w4
})"};

class Summaries : public KernelMutation {};

TEST_P(Summaries, EveryInstructionOfLevelsIsMissed) {
  example = kSummaries;
  expectMissed("barrier.cta");
  expectMissed("ctaid");
  expectMissed("fma");
}

TEST_P(Summaries, EveryInstructionOfGradientsOfLevelsIsMissed) {
  example = kGradients;
  expectMissed("barrier.cta");
  expectMissed("ctaid");
  expectMissed("fma");
}

INSTANTIATE_TEST_SUITE_P(Chips, Summaries, testing::Values("sm_80"));

} // namespace
