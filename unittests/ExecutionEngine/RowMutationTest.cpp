//===- RowMutationTest.cpp - Mistakes in kernels of rows ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

namespace {

/// Sums of rows of 256, which 32 lanes share, and of 64, which 8 lanes do. Not
/// all lanes of the last warps have a row.
constexpr Example kSums = {12, 37, 1, false, R"(
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @sums(%q: !q, %k: !k, %v: !k) -> (tensor<3xf16>, tensor<37xf16>) {
  %zero = arith.constant 0.0 : f16
  %line = tensor.collapse_shape %q [[0, 1, 2, 3]] : !q into tensor<768xf16>
  %x = tensor.expand_shape %line [[0, 1]] output_shape [3, 256]
      : tensor<768xf16> into tensor<3x256xf16>
  %e0 = tensor.empty() : tensor<3xf16>
  %z0 = linalg.fill ins(%zero : f16) outs(%e0 : tensor<3xf16>) -> tensor<3xf16>
  %s0 = linalg.reduce {arith.addf} ins(%x : tensor<3x256xf16>)
      outs(%z0 : tensor<3xf16>) dimensions = [1]
  %y = tensor.collapse_shape %k [[0, 1, 2], [3]] : !k into tensor<37x64xf16>
  %e1 = tensor.empty() : tensor<37xf16>
  %z1 = linalg.fill ins(%zero : f16) outs(%e1 : tensor<37xf16>)
      -> tensor<37xf16>
  %s1 = linalg.reduce {arith.addf} ins(%y : tensor<37x64xf16>)
      outs(%z1 : tensor<37xf16>) dimensions = [1]
  return %s0, %s1 : tensor<3xf16>, tensor<37xf16>
})"};

/// Gradients whose kernels look for numbers that a bias may remove: products of
/// rows of the output and of its gradient, squares of rows, and of tiles.
constexpr Example kGradients = {70, 130, 1, true, R"(
!b = tensor<1x1x1x130xf16>
func.func @gradients(%q: !q, %k: !k, %v: !k, %o: !q, %l: !l, %d: !q) -> !q {
  %bias = arith.constant dense<0.25> : !b
  %iq = tensor.empty() : !q
  %ik = tensor.empty() : !k
  %r:3 = attn.dense_backward ins(%q, %k, %v : !q, !k, !k) bias(%bias : !b)
      forward(%o, %l : !q, !l) gradient(%d : !q)
      outs(%iq, %ik, %ik : !q, !k, !k) -> !q, !k, !k
  return %r#0 : !q
})"};

class Rows : public KernelMutation {};

TEST_P(Rows, EveryExchangeOfLanesIsMissed) {
  example = kSums;
  expectMissed("shfl");
  expectMissed("ctaid");
}

TEST_P(Rows, EveryExchangeOfGradientsIsMissed) {
  example = kGradients;
  kernelName = "_kernel";
  expectMissed("shfl");
}

INSTANTIATE_TEST_SUITE_P(Chips, Rows, testing::Values("sm_80"));

} // namespace
