//===- GPUConvNormalisers.cpp - Sums of windows of weights on a GPU -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUConvNormalisers.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Sums that are added up to one of the next level, and levels.
static constexpr int64_t kRadix = 16, kMaxLevels = 5;

GPUWindowSums::GPUWindowSums(GPUConvBuilder &b, Value numbers)
    : b(b), pyramid({numbers}) {
  Value lines = b.extent(numbers, 2), count = b.extent(numbers, 3);
  std::optional<int64_t> known = getConstantIntValue(count);
  while (pyramid.size() < kMaxLevels && !(known && *known <= kRadix)) {
    if (known)
      known = llvm::divideCeil(*known, kRadix);
    Value numSums = b.ceilDiv(count, kRadix);
    Value grid[] = {b.batches, b.heads, lines, numSums};
    auto sum = [&](ValueRange at) {
      Value first = b.mul(at[3], kRadix);
      Value end = b.min(b.add(first, kRadix), count);
      return sumNumbers(pyramid.back(), at, first, end, b.wide(0.0));
    };
    pyramid.push_back(b.tabulate(grid, b.getF64Type(), sum));
    count = numSums;
  }
}

/// `sum` and `numbers[line, low .. high - 1]`.
Value GPUWindowSums::sumNumbers(Value numbers, ValueRange line, Value low,
                                Value high, Value sum) {
  return b.loop(low, high, 1, {sum}, [&](Value i, ValueRange sum) -> Values {
    Value at[] = {line[0], line[1], line[2], i};
    return {b.fadd(sum[0], b.loadWide(numbers, at))};
  })[0];
}

Value GPUWindowSums::sum(ValueRange line, Value low, Value high) {
  Value sum = b.wide(0.0), zero = b.index(0);
  for (Value numbers : ArrayRef(pyramid).drop_back()) {
    // What does not fill a sum of the level above, at both ends.
    Value nextLow = b.ceilDiv(low, kRadix), nextHigh = b.div(high, kRadix);
    Value isOpen = b.less(nextLow, nextHigh);
    Value left = b.select(isOpen, b.mul(nextLow, kRadix), high);
    sum = sumNumbers(numbers, line, low, left, sum);
    Value right = b.select(isOpen, b.mul(nextHigh, kRadix), high);
    sum = sumNumbers(numbers, line, right, high, sum);
    low = b.select(isOpen, nextLow, zero);
    high = b.select(isOpen, nextHigh, zero);
  }
  return sumNumbers(pyramid.back(), line, low, high, sum);
}

GPUConvNormalisers::GPUConvNormalisers(GPUConvBuilder &b,
                                       GPUConvSegments &segments,
                                       GPUConvProfiles &profiles)
    : b(b), segments(segments), weights(b, profiles.weights) {
  normalisers = b.tabulate(b.rows(), b.getF64Type(),
                           [&](ValueRange row) { return sumRow(row); });
}

/// The weights of the lags that a row reads, of every segment.
Value GPUConvNormalisers::sumRow(ValueRange at) {
  auto addWindow = [&](Value segment, ValueRange total) -> Values {
    Value first = segments.first(b, at, segment);
    Value end = segments.end(b, at, segment);
    conv::Lags lags = conv::getLags(b, at[2], first, end);
    Value window = weights.sum({at[0], at[1], segment}, lags.low, lags.high);
    return {b.fadd(total[0], window)};
  };
  Value end = b.add(segments.of(b, at, at[2]), 1);
  return b.loop(b.index(0), end, 1, {b.wide(0.0)}, addWindow)[0];
}
