//===- Rope.cpp - Rotary position embedding in Python ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Rope.h"
#include "Functions.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

/// A tuple of w / 2 numbers, or None.
static std::optional<SmallVector<double>> readFrequencies(Reader &in) {
  nb::handle table = in.object();
  if (table.is_none())
    return std::nullopt;
  SmallVector<double> numbers;
  for (nb::handle number : table)
    numbers.push_back(nb::cast<double>(number));
  return numbers;
}

static RopeOptions readRopeOptions(Reader &in) {
  auto options = in.makeOptions<RopeOptions>();
  options.base = in.number("base", "a finite number above 0");
  options.style = in.choice<RopeStyle>("style", {"interleaved", "half"});
  options.width = in.optionalInteger("width", 2);
  options.frequencies = readFrequencies(in);
  options.magnitude = in.number("magnitude", "a finite number above 0");
  return options;
}

static nb::object callRope(Reader &in) {
  TensorRef x = in.array("x"), positions = in.array("positions");
  RopeOptions options = readRopeOptions(in);
  return in.call([&] { return rope(x, positions, options); });
}

static nb::object callRopeBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), positions = in.array("positions");
  RopeOptions options = readRopeOptions(in);
  return in.call([&] { return rope_backward(dOut, positions, options); });
}

/// The table as a list, and the magnitude.
static nb::object callFrequencies(Reader &in) {
  int64_t width = in.integer("width", 2);
  RopeScaling scaling;
  scaling.kind = in.choice<RopeScalingKind>(
      "scaling", {"none", "linear", "ntk", "dynamic_ntk", "yarn", "llama3"});
  scaling.base = in.number("base", "a finite number above 1");
  scaling.factor = in.number("factor", "a finite number of at least 1");
  scaling.originalLength = in.optionalInteger("original_length", 1);
  scaling.length = in.optionalInteger("length", 1);
  scaling.betaFast = in.number("beta_fast");
  scaling.betaSlow = in.number("beta_slow");
  scaling.lowFactor = in.number("low_factor");
  scaling.highFactor = in.number("high_factor");
  RopeFrequencies found =
      in.run([&] { return rope_frequencies(width, scaling); });
  nb::list table;
  for (double frequency : found.frequencies)
    table.append(frequency);
  return nb::make_tuple(table, found.magnitude);
}

void python::defineRope(nb::module_ &m) {
  define<callRope>(m, "rope");
  define<callRopeBackward>(m, "rope_backward");
  define<callFrequencies>(m, "rope_frequencies");
}
