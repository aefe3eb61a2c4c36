//===- Conv.cpp - Sums of convolutions in Python --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Conv.h"
#include "Functions.h"
#include "Reader.h"

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
  return options;
}

static nb::object callApply(nb::args given) {
  Reader in(given);
  TensorRef b = in.array("b"), sizes = in.array("sizes"), v = in.array("v");
  auto options = in.makeOptions<ConvApplyOptions>();
  options.algorithm = readAlgorithm(in);
  options.block = in.optionalInteger("block", 8);
  ConvApplyResult result =
      in.run([&] { return conv_apply(b, sizes, v, options); });
  return in.giveAll(result.output, result.recomputed);
}

static nb::object callApplyBackward(nb::args given) {
  Reader in(given);
  TensorRef dOut = in.array("d_out"), b = in.array("b"),
            sizes = in.array("sizes"), v = in.array("v"), out = in.array("out");
  auto options = in.makeOptions<ConvApplyBackwardOptions>();
  options.algorithm = readAlgorithm(in);
  options.block = in.optionalInteger("block", 8);
  ConvApplyGradients gradients = in.run(
      [&] { return conv_apply_backward(dOut, b, sizes, v, out, options); });
  return in.giveAll(gradients.b, gradients.v);
}

static nb::object callRecover(nb::args given) {
  Reader in(given);
  TensorRef q = in.array("q"), k = in.array("k");
  ConvSearch search = readSearch(in);
  auto options = in.makeOptions<ConvRecoverOptions>();
  ConvBases bases = in.run([&] { return conv_recover(q, k, search, options); });
  return in.giveAll(bases.b, bases.sizes, bases.found);
}

static nb::object callRecoverBackward(nb::args given) {
  Reader in(given);
  TensorRef dB = in.array("d_b"), q = in.array("q"), k = in.array("k"),
            sizes = in.array("sizes");
  auto options = in.makeOptions<ConvRecoverBackwardOptions>();
  options.scale = in.optionalNumber("scale");
  ConvGradients gradients =
      in.run([&] { return conv_recover_backward(dB, q, k, sizes, options); });
  return in.giveAll(gradients.q, gradients.k);
}

static nb::object callConv(nb::args given) {
  Reader in(given);
  TensorRef q = in.array("q"), k = in.array("k"), v = in.array("v");
  ConvSearch search = readSearch(in);
  auto options = readOptions<ConvOptions>(in);
  ConvResult result = in.run([&] { return conv(q, k, v, search, options); });
  return in.giveAll(result.output, result.found, result.recomputed);
}

static nb::object callConvBackward(nb::args given) {
  Reader in(given);
  TensorRef dOut = in.array("d_out"), q = in.array("q"), k = in.array("k"),
            v = in.array("v"), out = in.array("out");
  ConvSearch search = readSearch(in);
  auto options = readOptions<ConvBackwardOptions>(in);
  ConvGradients gradients = in.run(
      [&] { return conv_backward(dOut, q, k, v, out, search, options); });
  return in.giveAll(gradients.q, gradients.k, gradients.v);
}

void python::defineConv(nb::module_ &m) {
  m.def("conv", &callConv);
  m.def("conv_apply", &callApply);
  m.def("conv_apply_backward", &callApplyBackward);
  m.def("conv_backward", &callConvBackward);
  m.def("conv_recover", &callRecover);
  m.def("conv_recover_backward", &callRecoverBackward);
}
