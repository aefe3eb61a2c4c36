//===- LowRank.cpp - Low-rank attention of arrays under masks -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/LowRank.h"
#include "Call.h"
#include "RowArguments.h"
#include "TokenMask.h"
#include "fovea/Dialect/Attn/IR/RowMaskContract.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

/// binomial(width + degree, degree), or nothing where it is too large.
static std::optional<int64_t> countFeatures(int64_t width, int64_t degree) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  int64_t count = 1;
  for (int64_t i = 1; i <= degree; ++i) {
    if (width > kMost)
      return std::nullopt;
    // Divides: it is binomial(width + i, i).
    count = count * (width + i) / i;
    if (count > kMost)
      return std::nullopt;
  }
  return count;
}

/// x [B,H,N,D]; adds it and the attributes. Returns it and the shape of its
/// features.
static std::pair<Argument, Shape> addFeatures(Call &call, Checker &check,
                                              const TensorRef &x,
                                              int64_t degree, double scale) {
  Argument rows = checkRows(check, "input", "x", x);
  check.integer("degree", degree, 0);
  check.number("scale", scale, scale >= 0, "of at least 0");
  std::optional<int64_t> features;
  if (degree <= 16 && rows.shape[3] <= std::numeric_limits<int32_t>::max())
    features = countFeatures(rows.shape[3], degree);
  check.check(features.has_value(),
              "degree: found " + Twine(degree) +
                  ", needed at most 16 and at most 2**31 - 1 features");
  Shape shape = rows.shape;
  shape.back() = features.value_or(1);
  call.operand(rows);
  call.attribute("degree", degree);
  call.attribute("scale", scale);
  return {rows, shape};
}

Expected<OwnedTensor>
fovea::polynomial_features(const TensorRef &x, int64_t degree, double scale,
                           const PolynomialFeaturesOptions &options) {
  Checker check("polynomial_features");
  Call call("polynomial_features", options.target, options.out);
  const auto [rows, shape] = addFeatures(call, check, x, degree, scale);
  call.result(check, "output", rows.elementType, shape);
  return call.runFor<OwnedTensor, 1>(check);
}

Expected<OwnedTensor>
fovea::polynomial_features_backward(const TensorRef &dOut, const TensorRef &x,
                                    int64_t degree, double scale,
                                    const PolynomialFeaturesOptions &options) {
  Checker check("polynomial_features_backward");
  Call call("polynomial_features_backward", options.target, options.out);
  const auto [rows, shape] = addFeatures(call, check, x, degree, scale);
  call.operand(check.like("d_out", dOut, rows.elementType, shape));
  call.result(check, "output", rows.elementType, rows.shape);
  return call.runFor<OwnedTensor, 1>(check);
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// A part of a mask: its name, type, and extents behind [B,H].
struct MaskPart {
  StringRef name;
  ElementType type;
  SmallVector<int64_t, 2> extents;
};
} // namespace

static attn::RowMask convert(RowMask::Kind kind) {
  switch (kind) {
  case RowMask::Kind::Causal:
    return attn::RowMask::Causal;
  case RowMask::Kind::RowInterval:
    return attn::RowMask::RowInterval;
  case RowMask::Kind::RowChange:
    return attn::RowMask::RowChange;
  case RowMask::Kind::DistinctRows:
    return attn::RowMask::DistinctRows;
  case RowMask::Kind::DistinctColumns:
    return attn::RowMask::DistinctColumns;
  }
  llvm_unreachable("unknown mask");
}

static SmallVector<MaskPart, 2> getParts(RowMask::Kind kind, int64_t rows,
                                         int64_t columns) {
  constexpr ElementType index = ElementType::I32, entry = ElementType::I1;
  switch (kind) {
  case RowMask::Kind::Causal:
    return {};
  case RowMask::Kind::RowInterval:
    return {{"first", index, {rows}}, {"last", index, {rows}}};
  case RowMask::Kind::RowChange:
    return {{"ends", index, {rows}}, {"columns", index, {-1}}};
  case RowMask::Kind::DistinctRows:
    return {{"group", index, {rows}}, {"rows", entry, {-1, columns}}};
  case RowMask::Kind::DistinctColumns:
    return {{"group", index, {columns}}, {"columns", entry, {-1, rows}}};
  }
  llvm_unreachable("unknown mask");
}

namespace {
/// u1 [B,H,N,r], u2 [B,G,M,r] and v [B,G,M,E].
struct Factors {
  Argument u1, u2, v;
  Shape output() const {
    return {u1.shape[0], u1.shape[1], u1.shape[2], v.shape[3]};
  }
};
} // namespace

/// Checks them and the parts of a mask, and adds all to `call`.
static Factors addFactors(Call &call, Checker &check, const TensorRef &left,
                          const TensorRef &right, const TensorRef &values,
                          const RowMask &mask) {
  Factors factors{checkRows(check, "u1", "u1", left),
                  checkRows(check, "u2", "u2", right),
                  checkRows(check, "value", "v", values)};
  const auto &[u1, u2, v] = factors;
  attn::RowMask kind = convert(mask.getKind());
  SmallVector<Element> parts;
  for (const auto &[part, array, declared] : zip_equal(
           getParts(mask.getKind(), u1.shape[2], u2.shape[2]), mask.getParts(),
           attn::getRowMaskContract(kind).getOperands())) {
    Shape shape(ArrayRef(u1.shape).take_front(2));
    append_range(shape, part.extents);
    parts.push_back(
        {checkPart(check, part.name, array, part.type, shape, /*numFree=*/2),
         Declared{&declared}});
  }
  call.operands({u1, u2, v});
  call.operand(parts);
  call.attribute("mask", kind);
  return factors;
}

namespace {
/// The tokens that are present; lives as long as the call.
struct FactorMasks {
  template <typename Options>
  FactorMasks(Call &call, Checker &check, const Factors &factors,
              const Options &options)
      : queries(check, options.queries, factors.u1.shape[0],
                factors.u1.shape[2], options.target, "query_mask"),
        keys(check, options.keys, factors.u2.shape[0], factors.u2.shape[2],
             options.target, "key_mask") {
    call.operandIf(queries.get());
    call.operandIf(keys.get());
  }

  TokenMask queries, keys;
};
} // namespace

Expected<OwnedTensor> fovea::low_rank(const TensorRef &u1, const TensorRef &u2,
                                      const TensorRef &v, const RowMask &mask,
                                      const LowRankOptions &options) {
  Checker check("low_rank");
  Call call("low_rank", options.target, options.out);
  Factors factors = addFactors(call, check, u1, u2, v, mask);
  FactorMasks masks(call, check, factors, options);
  call.result(check, "output", factors.u1.elementType, factors.output());
  return call.runFor<OwnedTensor, 1>(check);
}

Expected<LowRankGradients>
fovea::low_rank_backward(const TensorRef &dOut, const TensorRef &left,
                         const TensorRef &right, const TensorRef &values,
                         const TensorRef &out, const RowMask &mask,
                         const LowRankBackwardOptions &options) {
  Checker check("low_rank_backward");
  Call call("low_rank_backward", options.target, options.gradients);
  Factors factors = addFactors(call, check, left, right, values, mask);
  const auto &[u1, u2, v] = factors;
  FactorMasks masks(call, check, factors, options);
  ElementType type = u1.elementType;
  call.operand(check.like("out", out, type, factors.output()));
  call.operand(check.like("d_out", dOut, type, factors.output()));
  call.result(check, "d_u1", type, u1.shape);
  call.result(check, "d_u2", type, u2.shape);
  call.result(check, "d_v", type, v.shape);
  return call.runFor<LowRankGradients, 3>(check);
}
