//===- LowRank.cpp - Low-rank attention and its operands in Python --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/LowRank.h"
#include "Functions.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static nb::object callFeatures(Reader &in) {
  TensorRef x = in.array("x");
  int64_t degree = in.integer("degree", 0);
  double scale = in.number("scale", "a finite number of at least 0");
  auto options = in.makeOptions<PolynomialFeaturesOptions>();
  return in.call(
      [&] { return polynomial_features(x, degree, scale, options); });
}

static nb::object callFeaturesBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), x = in.array("x");
  int64_t degree = in.integer("degree", 0);
  double scale = in.number("scale", "a finite number of at least 0");
  auto options = in.makeOptions<PolynomialFeaturesOptions>();
  return in.call([&] {
    return polynomial_features_backward(dOut, x, degree, scale, options);
  });
}

/// The kind of a mask, and then the arrays that are its parts.
static RowMask readMask(Reader &in) {
  using Kind = RowMask::Kind;
  Kind kind = in.choice<Kind>("mask", {"causal", "row_interval", "row_change",
                                       "distinct_rows", "distinct_columns"});
  auto read = [&](auto make, StringRef first, StringRef second) {
    TensorRef part = in.array(first);
    return make(part, in.array(second));
  };
  switch (kind) {
  case Kind::Causal:
    // It has no parts.
    in.object(), in.object();
    return RowMask::causal();
  case Kind::RowInterval:
    return read(RowMask::rowInterval, "first", "last");
  case Kind::RowChange:
    return read(RowMask::rowChange, "ends", "columns");
  case Kind::DistinctRows:
    return read(RowMask::distinctRows, "group", "rows");
  case Kind::DistinctColumns:
    return read(RowMask::distinctColumns, "group", "columns");
  }
  llvm_unreachable("unknown mask");
}

/// Lengths are those of queries and of keys.
template <typename Options> static Options readLowRankOptions(Reader &in) {
  auto options = in.makeOptions<Options>();
  options.queries.mask = in.optionalArray("query_mask");
  options.keys.mask = in.optionalArray("key_mask");
  options.keys.lengths = options.queries.lengths = in.optionalArray("lengths");
  return options;
}

static nb::object callLowRank(Reader &in) {
  TensorRef u1 = in.array("u1"), u2 = in.array("u2"), v = in.array("v");
  RowMask mask = readMask(in);
  auto options = readLowRankOptions<LowRankOptions>(in);
  return in.call([&] { return low_rank(u1, u2, v, mask, options); });
}

static nb::object callLowRankBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), u1 = in.array("u1"), u2 = in.array("u2"),
            v = in.array("v"), out = in.array("out");
  RowMask mask = readMask(in);
  auto options = readLowRankOptions<LowRankBackwardOptions>(in);
  return in.call(
      [&] { return low_rank_backward(dOut, u1, u2, v, out, mask, options); },
      &LowRankGradients::u1, &LowRankGradients::u2, &LowRankGradients::v);
}

void python::defineLowRank(nb::module_ &m) {
  define<callLowRank>(m, "low_rank");
  define<callLowRankBackward>(m, "low_rank_backward");
  define<callFeatures>(m, "polynomial_features");
  define<callFeaturesBackward>(m, "polynomial_features_backward");
}
