//===- Conv.cpp - Sums of convolutions in Python --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Conv.h"
#include "Functions.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static ConvAlgorithm readAlgorithm(Reader &in) {
  return in.choice<ConvAlgorithm>(
      "algorithm", {"auto", "toeplitz", "partitioned", "single"});
}

static ConvSearch readSearch(Reader &in) {
  constexpr StringLiteral kind = "a finite number of at least 0";
  ConvSearch search;
  search.numBasis = in.integer("num_basis", 1);
  search.window = in.integer("window", 1);
  search.delta = in.number("delta", kind);
  search.epsilon = in.number("epsilon", kind);
  search.scale = in.optionalNumber("scale");
  return search;
}

template <typename Options> static Options readOptions(Reader &in) {
  auto options = in.makeOptions<Options>();
  options.slidingGroup = in.optionalInteger("group", 1);
  options.algorithm = readAlgorithm(in);
  in.readTokens(options, "token_mask");
  return options;
}

static nb::object callApply(Reader &in) {
  TensorRef b = in.array("b"), sizes = in.array("sizes"), v = in.array("v");
  auto options = in.makeOptions<ConvApplyOptions>();
  options.algorithm = readAlgorithm(in);
  options.block = in.optionalInteger("block", 8);
  return in.call([&] { return conv_apply(b, sizes, v, options); },
                 &ConvApplyResult::output, &ConvApplyResult::recomputed);
}

static nb::object callApplyBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), b = in.array("b"),
            sizes = in.array("sizes"), v = in.array("v"), out = in.array("out");
  auto options = in.makeOptions<ConvApplyBackwardOptions>();
  options.algorithm = readAlgorithm(in);
  options.block = in.optionalInteger("block", 8);
  return in.call(
      [&] { return conv_apply_backward(dOut, b, sizes, v, out, options); },
      &ConvApplyGradients::b, &ConvApplyGradients::v);
}

static nb::object callRecover(Reader &in) {
  TensorRef q = in.array("q"), k = in.array("k");
  ConvSearch search = readSearch(in);
  auto options = in.makeOptions<ConvRecoverOptions>();
  return in.call([&] { return conv_recover(q, k, search, options); },
                 &ConvBases::b, &ConvBases::sizes, &ConvBases::found);
}

static nb::object callRecoverBackward(Reader &in) {
  TensorRef dB = in.array("d_b"), q = in.array("q"), k = in.array("k"),
            sizes = in.array("sizes");
  auto options = in.makeOptions<ConvRecoverBackwardOptions>();
  options.scale = in.optionalNumber("scale");
  return in.call(
      [&] { return conv_recover_backward(dB, q, k, sizes, options); },
      &ConvGradients::q, &ConvGradients::k);
}

static nb::object callConv(Reader &in) {
  TensorRef q = in.array("q"), k = in.array("k"), v = in.array("v");
  ConvSearch search = readSearch(in);
  auto options = readOptions<ConvOptions>(in);
  return in.call([&] { return conv(q, k, v, search, options); },
                 &ConvResult::output, &ConvResult::found,
                 &ConvResult::recomputed);
}

static nb::object callConvBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), q = in.array("q"), k = in.array("k"),
            v = in.array("v"), out = in.array("out");
  ConvSearch search = readSearch(in);
  auto options = readOptions<ConvBackwardOptions>(in);
  return in.call(
      [&] { return conv_backward(dOut, q, k, v, out, search, options); },
      &ConvGradients::q, &ConvGradients::k, &ConvGradients::v);
}

void python::defineConv(nb::module_ &m) {
  define<callConv>(m, "conv");
  define<callApply>(m, "conv_apply");
  define<callApplyBackward>(m, "conv_apply_backward");
  define<callConvBackward>(m, "conv_backward");
  define<callRecover>(m, "conv_recover");
  define<callRecoverBackward>(m, "conv_recover_backward");
}
