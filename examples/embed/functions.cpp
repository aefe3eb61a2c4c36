//===- functions.cpp - Attention of arrays, without IR --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Reads a sequence with quantized keys, first whole and then token by token,
// and compares both with dense attention over the quantized keys.
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Functions.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>
#include <vector>

using namespace fovea;

static constexpr int64_t kHeads = 4, kTokens = 48, kWidth = 16, kCodes = 32,
                         kBlock = 8;

namespace {
/// Rows [1,4,48,16] of numbers that look random.
struct Rows {
  Rows(int64_t numRows, unsigned seed)
      : shape{1, kHeads, numRows, kWidth}, values(kHeads * numRows * kWidth) {
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::sin(12.9898f * i + seed);
  }

  operator TensorRef() {
    return {values.data(), ElementType::F32, shape, {}, false};
  }
  /// One token of all heads: a view with strides.
  TensorRef getToken(int64_t token) {
    return {values.data() + token * kWidth, ElementType::F32, tokenShape,
            strides, /*isReadOnly=*/true};
  }

  int64_t shape[4], tokenShape[4] = {1, kHeads, 1, kWidth};
  int64_t strides[4] = {kHeads * kTokens * kWidth, kTokens *kWidth, kWidth, 1};
  std::vector<float> values;
};
} // namespace

static double getLargestDifference(const OwnedTensor &a, const OwnedTensor &b) {
  double largest = 0;
  for (int64_t i = 0; i < a.getNumElements(); ++i)
    largest = std::max<double>(
        largest, std::abs(a.getDataAs<float>()[i] - b.getDataAs<float>()[i]));
  return largest;
}

static llvm::Error run() {
  Rows q(kTokens, 1), k(kTokens, 2), v(kTokens, 3), words(kCodes, 4);
  // One set of codewords for each head.
  TensorRef codebook = words;
  codebook.shape = codebook.shape.drop_front();

  llvm::Expected<QuantizeResult> keys = quantize(k, codebook);
  if (!keys)
    return keys.takeError();
  DenseOptions denseOptions;
  denseOptions.causal = true;
  denseOptions.scale = 1;
  llvm::Expected<AttentionResult> exact =
      dense(q, keys->quantized.getRef(), v, denseOptions);
  if (!exact)
    return exact.takeError();

  llvm::Expected<VQResult> whole = vq(q, k, v, codebook, kBlock);
  if (!whole)
    return whole.takeError();
  llvm::outs() << "whole: "
               << (getLargestDifference(whole->output, exact->output) < 1e-5
                       ? "the same"
                       : "different")
               << '\n';

  VQState state;
  double difference = 0;
  for (int64_t token = 0; token < kTokens; ++token) {
    llvm::Expected<OwnedTensor> row =
        vq_decode(q.getToken(token), k.getToken(token), v.getToken(token),
                  codebook, state, kBlock);
    if (!row)
      return row.takeError();
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t e = 0; e < kWidth; ++e)
        difference = std::max<double>(
            difference,
            std::abs(
                row->getDataAs<float>()[h * kWidth + e] -
                exact->output
                    .getDataAs<float>()[(h * kTokens + token) * kWidth + e]));
  }
  llvm::outs() << "token by token: "
               << (difference < 1e-5 ? "the same" : "different") << ", after "
               << *state.position.getDataAs<int64_t>() << " tokens\n";

  // What a mistake looks like.
  llvm::Expected<VQResult> wrong = vq(q, k, v, codebook, /*block=*/0);
  if (!wrong)
    llvm::outs() << toString(wrong.takeError()) << '\n';
  return llvm::Error::success();
}

int main() {
  if (llvm::Error error = run()) {
    llvm::errs() << "functions: error: " << toString(std::move(error)) << '\n';
    return 1;
  }
  return 0;
}
