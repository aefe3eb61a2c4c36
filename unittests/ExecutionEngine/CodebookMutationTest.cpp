//===- CodebookMutationTest.cpp - Mistakes in kernels of codebooks --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"

using namespace fovea::test;

namespace {

/// Tokens that are sorted, in two chunks, of 63 codes: neighbours in a vote
/// have one code or several, and some have none.
constexpr Example kSorted = {1, 1500, 1, false, R"(
func.func @sorted(%q: !q, %x: !k, %v: !k)
    -> (tensor<1x63x8xf16>, tensor<1x63xf16>) {
  %e = tensor.empty() : tensor<1x1x1500xi32>
  %z = linalg.map outs(%e : tensor<1x1x1500xi32>) (%old: i32) {
    %i = linalg.index 2 : index
    %c3 = arith.constant 3 : index
    %c64 = arith.constant 64 : index
    %third = arith.divui %i, %c3 : index
    %square = arith.muli %third, %i : index
    %rest = arith.remui %square, %c64 : index
    %code = arith.index_cast %rest : index to i32
    %one = arith.constant 1 : i32
    %shifted = arith.subi %code, %one : i32
    linalg.yield %shifted : i32
  }
  %zero = arith.constant 0.0 : f32
  %ec = tensor.empty() : tensor<1x63x8xf16>
  %es = tensor.empty() : tensor<1x63x8xf32>
  %s = linalg.fill ins(%zero : f32) outs(%es : tensor<1x63x8xf32>)
      -> tensor<1x63x8xf32>
  %en = tensor.empty() : tensor<1x63xf32>
  %m = linalg.fill ins(%zero : f32) outs(%en : tensor<1x63xf32>)
      -> tensor<1x63xf32>
  %r:3 = attn.codebook_update ins(%x, %z : !k, tensor<1x1x1500xi32>)
      outs(%ec, %s, %m : tensor<1x63x8xf16>, tensor<1x63x8xf32>,
           tensor<1x63xf32>) {rate = 0.5 : f64}
      -> tensor<1x63x8xf16>, tensor<1x63x8xf32>, tensor<1x63xf32>
  %count = arith.truncf %r#2 : tensor<1x63xf32> to tensor<1x63xf16>
  return %r#0, %count : tensor<1x63x8xf16>, tensor<1x63xf16>
})", 8};

/// 63 blocks and the initial state, rounded. A team has more than 16 rows.
constexpr Example kScan = {1, 5040, 1, false, R"(
func.func @scan(%q: !q, %x: !k, %v: !k)
    -> (tensor<1x1x64x64x8xf16>, tensor<1x1x64x64xf16>) {
  %e = tensor.empty() : tensor<1x1x5040xi32>
  %z = linalg.map outs(%e : tensor<1x1x5040xi32>) (%old: i32) {
    %i = linalg.index 2 : index
    %c3 = arith.constant 3 : index
    %third = arith.divui %i, %c3 : index
    %square = arith.muli %third, %i : index
    %c65 = arith.constant 65 : index
    %rest = arith.remui %square, %c65 : index
    %code = arith.index_cast %rest : index to i32
    %one = arith.constant 1 : i32
    %shifted = arith.subi %code, %one : i32
    linalg.yield %shifted : i32
  }
  %zero = arith.constant 0.0 : f32
  %none = arith.constant 0 : i32
  %em = tensor.empty() : tensor<1x1x64x8xf32>
  %m = linalg.fill ins(%zero : f32) outs(%em : tensor<1x1x64x8xf32>)
      -> tensor<1x1x64x8xf32>
  %en = tensor.empty() : tensor<1x1x64xi32>
  %n = linalg.fill ins(%none : i32) outs(%en : tensor<1x1x64xi32>)
      -> tensor<1x1x64xi32>
  %ems = tensor.empty() : tensor<1x1x64x64x8xf16>
  %ens = tensor.empty() : tensor<1x1x64x64xi32>
  %r:2 = attn.codebook_scan ins(%z, %x, %m, %n : tensor<1x1x5040xi32>, !k,
                                tensor<1x1x64x8xf32>, tensor<1x1x64xi32>)
      outs(%ems, %ens : tensor<1x1x64x64x8xf16>, tensor<1x1x64x64xi32>)
      {block = 80 : i64} -> tensor<1x1x64x64x8xf16>, tensor<1x1x64x64xi32>
  %count = arith.sitofp %r#1 : tensor<1x1x64x64xi32> to tensor<1x1x64x64xf16>
  return %r#0, %count : tensor<1x1x64x64x8xf16>, tensor<1x1x64x64xf16>
})", 8};

class Codebooks : public KernelMutation {};

TEST_P(Codebooks, EveryInstructionOfSortedTokensIsMissed) {
  example = kSorted;
  // Emulated lanes wait for each other at `match.any`, too. Where tokens are
  // only counted, a lane that stores is the one that has read. Nobody reads
  // what a team stores last.
  expectMissed("bar.warp.sync", {0, 1, 3, 6});
  expectMissed("match");
  expectMissed("ctpop");
  // The sum of all codes is not carried on.
  expectMissed("shfl", {17});
  // Zeros of one block of threads.
  expectMissed("ctaid", {1});
}

TEST_P(Codebooks, EveryInstructionOfScansIsMissed) {
  example = kScan;
  // As above: three times tokens are counted, and three times they are put
  // where they belong.
  expectMissed("bar.warp.sync", {0, 1, 2, 3, 4, 5, 6, 8, 10, 12});
  expectMissed("match");
  expectMissed("ctpop");
  // Sums of all codes and of all entries are not carried on.
  expectMissed("shfl", {11, 71});
  // Zeros of one block of threads.
  expectMissed("ctaid", {1});
}

INSTANTIATE_TEST_SUITE_P(Chips, Codebooks, testing::Values("sm_80"));

} // namespace
