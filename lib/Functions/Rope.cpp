//===- Rope.cpp - Rotary position embedding of arrays ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Rope.h"
#include "Call.h"
#include "RowArguments.h"
#include <algorithm>
#include <cmath>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Frequencies
//===----------------------------------------------------------------------===//

static constexpr double kTurn = 2 * 3.14159265358979323846;

namespace {
/// The forms of RopeScaling, of what has been checked.
struct Scaling {
  int64_t width;
  const RopeScaling &options;

  double getFrequency(int64_t pair, double base) const {
    return std::pow(base, -2.0 * pair / width);
  }
  /// The base by which the longest wavelength grows by `factor`, and the
  /// shortest stays as it is.
  double getNTKBase(double factor) const {
    return options.base * std::pow(factor, double(width) / (width - 2));
  }
  double getDynamicFactor() const {
    double original = *options.originalLength,
           length = std::max(double(*options.length), original);
    return options.factor * length / original - (options.factor - 1);
  }
  double getYaRN(int64_t pair) const;
  double getLlama3(int64_t pair) const;
  double get(int64_t pair) const;
};
} // namespace

double Scaling::getYaRN(int64_t pair) const {
  // The pair that makes so many turns in the original length.
  auto getPair = [&](double turns) {
    return width * std::log(*options.originalLength / (turns * kTurn)) /
           (2 * std::log(options.base));
  };
  double low = std::max(std::floor(getPair(options.betaFast)), 0.0);
  double high = std::min(std::ceil(getPair(options.betaSlow)), width - 1.0);
  if (low == high)
    high += 0.001;
  double interpolated = std::clamp((pair - low) / (high - low), 0.0, 1.0);
  double frequency = getFrequency(pair, options.base);
  return interpolated * frequency / options.factor +
         (1 - interpolated) * frequency;
}

double Scaling::getLlama3(int64_t pair) const {
  double frequency = getFrequency(pair, options.base),
         turns = *options.originalLength * frequency / kTurn;
  double kept = std::clamp((turns - options.lowFactor) /
                               (options.highFactor - options.lowFactor),
                           0.0, 1.0);
  return (1 - kept) * frequency / options.factor + kept * frequency;
}

double Scaling::get(int64_t pair) const {
  switch (options.kind) {
  case RopeScalingKind::None:
    return getFrequency(pair, options.base);
  case RopeScalingKind::Linear:
    return getFrequency(pair, options.base) / options.factor;
  case RopeScalingKind::NTK:
    return getFrequency(pair, getNTKBase(options.factor));
  case RopeScalingKind::DynamicNTK:
    return getFrequency(pair, getNTKBase(getDynamicFactor()));
  case RopeScalingKind::YaRN:
    return getYaRN(pair);
  case RopeScalingKind::Llama3:
    return getLlama3(pair);
  }
  llvm_unreachable("unknown scaling");
}

/// A length that the kind of scaling needs, at least 1.
static void checkLength(Checker &check, StringRef name,
                        const std::optional<int64_t> &length) {
  check.check(length.has_value(),
              name + ": found none, needed one for this scaling");
  if (length)
    check.integer(name, *length, 1);
}

static void checkScaling(Checker &check, int64_t width,
                         const RopeScaling &scaling) {
  using Kind = RopeScalingKind;
  Kind kind = scaling.kind;
  bool isNTK = kind == Kind::NTK || kind == Kind::DynamicNTK;
  int64_t least = isNTK ? 4 : 2;
  check.check(width >= least && width % 2 == 0,
              "width: found " + Twine(width) +
                  ", needed an even number of at least " + Twine(least));
  // More columns than any head has would take minutes.
  check.integer("width", width, least, 1 << 20);
  check.number("base", scaling.base, scaling.base > 1, "above 1");
  check.number("factor", scaling.factor, scaling.factor >= 1, "of at least 1");
  if (kind >= Kind::DynamicNTK)
    checkLength(check, "original_length", scaling.originalLength);
  if (kind == Kind::DynamicNTK)
    checkLength(check, "length", scaling.length);
  check.number("beta_slow", scaling.betaSlow, scaling.betaSlow > 0, "above 0");
  check.number("beta_fast", scaling.betaFast,
               scaling.betaFast > scaling.betaSlow, "above beta_slow");
  check.number("low_factor", scaling.lowFactor, scaling.lowFactor > 0,
               "above 0");
  check.number("high_factor", scaling.highFactor,
               scaling.highFactor > scaling.lowFactor, "above low_factor");
}

Expected<RopeFrequencies> fovea::rope_frequencies(int64_t width,
                                                  const RopeScaling &scaling) {
  Checker check;
  checkScaling(check, width, scaling);
  if (check.hasFailed())
    return check.takeError();
  RopeFrequencies result;
  for (int64_t pair = 0; pair < width / 2; ++pair)
    result.frequencies.push_back(Scaling{width, scaling}.get(pair));
  if (scaling.kind == RopeScalingKind::YaRN)
    result.magnitude = 0.1 * std::log(scaling.factor) + 1;
  return result;
}

//===----------------------------------------------------------------------===//
// Turns
//===----------------------------------------------------------------------===//

/// x or its gradient, and positions.
static std::pair<Argument, Argument>
checkRope(Checker &check, StringRef operand, StringRef name, const TensorRef &x,
          const TensorRef &positions) {
  Argument rows = checkRows(check, operand, name, x);
  check.check(rows.shape[3] % 2 == 0, name + ": found width " +
                                          Twine(rows.shape[3]) +
                                          ", needed an even width");
  // Kernels narrow those of 64 bits, and check them then.
  ElementType type = positions.elementType == ElementType::I64
                         ? ElementType::I64
                         : ElementType::I32;
  Argument part = checkPart(check, "positions", positions, type,
                            ArrayRef(rows.shape).drop_back(), /*numFree=*/3);
  return {rows, part};
}

/// How columns turn, checked for `columns` of them.
static void addTurns(Call &call, Checker &check, int64_t columns,
                     const RopeOptions &options) {
  int64_t width = options.width.value_or(columns);
  check.check(width >= 2 && width <= columns && width % 2 == 0,
              "width: found " + Twine(width) +
                  ", needed an even number from 2 to " + Twine(columns));
  if (options.width)
    call.attribute("width", width);
  double base = check.number("base", options.base, options.base > 0, "above 0");
  if (!options.frequencies) {
    call.attribute("base", base);
  } else {
    check.check(base == RopeOptions().base,
                "frequencies: found a base as well, needed one of the two");
    check.match("frequencies", "length", int64_t(options.frequencies->size()),
                width / 2);
    for (double frequency : *options.frequencies)
      check.number("frequencies", frequency, frequency >= 0, "of at least 0");
    call.attribute("frequencies", *options.frequencies);
  }
  if (options.style == RopeStyle::Half)
    call.attribute("style", attn::RopeStyle::Half);
  call.attribute("magnitude", check.number("magnitude", options.magnitude,
                                           options.magnitude > 0, "above 0"));
}

static Expected<OwnedTensor> runRope(Call &call, Checker &check,
                                     const Argument &rows,
                                     const RopeOptions &options) {
  addTurns(call, check, rows.shape[3], options);
  call.result(check, "output", rows.elementType, rows.shape);
  return call.runFor<OwnedTensor, 1>(check);
}

Expected<OwnedTensor> fovea::rope(const TensorRef &x,
                                  const TensorRef &positions,
                                  const RopeOptions &options) {
  Checker check("rope");
  const auto [rows, part] = checkRope(check, "input", "x", x, positions);
  Call call("rope", options.target, options.out);
  call.operands({rows, part});
  return runRope(call, check, rows, options);
}

Expected<OwnedTensor> fovea::rope_backward(const TensorRef &dOut,
                                           const TensorRef &positions,
                                           const RopeOptions &options) {
  Checker check("rope_backward");
  const auto [rows, part] =
      checkRope(check, "d_output", "d_out", dOut, positions);
  Call call("rope_backward", options.target, options.out);
  call.operand(part);
  call.operand(rows);
  return runRope(call, check, rows, options);
}
