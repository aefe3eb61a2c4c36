//===- Masks.cpp - Masks of attention by their elements -------------------
//===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessWriter.h"
#include "Attention.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

namespace {
/// Which keys which queries may read, as far as known when compiling.
struct Admitted {
  int64_t rows, columns;
  std::vector<bool> entries;

  bool operator()(int64_t row, int64_t column) const {
    return entries[row * columns + column];
  }
  bool hasEmptyRow() const {
    return llvm::any_of(llvm::seq(rows), [&](int64_t row) {
      return llvm::none_of(llvm::seq(columns), [&](int64_t column) {
        return (*this)(row, column);
      });
    });
  }
};

/// Sorts the terms of one attention.
class MaskFinder {
public:
  MaskFinder(const MatchContext &context, Attention &attention)
      : context(context), attention(attention),
        admitted{context.trace.getExtent(attention.rows),
                 context.trace.getExtent(attention.columns),
                 {}} {}

  bool find(FullyMasked fullyMasked);

private:
  void add(const ScoreTerm &term);
  void addMask(const ScoreTerm &term);
  bool addConstant(const ScoreTerm &term);
  std::optional<ScoreTerm> asMask(const ScoreTerm &term);
  std::optional<MaskAttr> classify();
  bool differsWithoutKeys(bool hasMask) const;
  FloatType getType(const ScoreTerm &term) {
    return cast<FloatType>(getElementTypeOrSelf(term.number.value));
  }

  const MatchContext &context;
  Attention &attention;
  Admitted admitted;
  /// Terms by when they are known.
  SmallVector<ScoreTerm> constant, open;
  bool allInfinite = true;
};
} // namespace

/// Takes numbers that only hide for a part of the mask.
bool MaskFinder::addConstant(const ScoreTerm &term) {
  std::optional<ConstantTensor> values = context.cones.evaluate(
      context.trace, term.number, {attention.rows, attention.columns});
  if (!values)
    return false;
  std::vector<bool> admits(values->elements.size());
  bool isInfinite = true;
  for (auto [k, value] : llvm::enumerate(values->elements)) {
    if (term.hidden) {
      admits[k] = (value.integer != 0) == term.admits;
      continue;
    }
    double number = value.real * term.factor;
    admits[k] = number == 0;
    if (!admits[k] && !isHidden(value.real, term.factor, getType(term)))
      return false;
    isInfinite &= admits[k] || std::isinf(number);
  }
  if (llvm::all_of(admits, [](bool admit) { return admit; }))
    return true;
  allInfinite &= term.hidden ? std::isinf(*term.hidden) : isInfinite;
  if (admitted.entries.empty())
    admitted.entries.assign(admits.size(), true);
  for (auto [k, admit] : llvm::enumerate(admits))
    if (!admit)
      admitted.entries[k] = false;
  constant.push_back(term);
  return true;
}

/// `select(c, 0, -inf)` to add is a mask.
std::optional<ScoreTerm> MaskFinder::asMask(const ScoreTerm &term) {
  Access number = stripCasts(context.trace, term.number);
  if (!isa_and_nonnull<arith::SelectOp>(number.getDefiningOp()))
    return std::nullopt;
  for (unsigned k : {1, 2}) {
    auto get = [&](unsigned operand) {
      return context.cones.evaluateReal(
          context.trace, AccessTrace::getOperand(number, operand));
    };
    std::optional<double> hidden = get(3 - k);
    if (get(k) != 0.0 || !hidden ||
        !isHidden(*hidden, term.factor, getType(term)))
      continue;
    return ScoreTerm{AccessTrace::getOperand(number, 0), term.op, 1,
                     *hidden * term.factor, k == 1};
  }
  return std::nullopt;
}

/// A mask as the conjunction of others, where it is one.
void MaskFinder::addMask(const ScoreTerm &term) {
  if (addConstant(term))
    return;
  ScoreTerm part = term;
  Access number = context.trace.open(term.number);
  Operation *op = number.getDefiningOp();
  if ((term.admits && isa_and_nonnull<arith::AndIOp>(op)) ||
      (!term.admits && isa_and_nonnull<arith::OrIOp>(op))) {
    for (unsigned k : {0, 1}) {
      part.number = AccessTrace::getOperand(number, k);
      addMask(part);
    }
    return;
  }
  open.push_back(term);
}

void MaskFinder::add(const ScoreTerm &term) {
  if (term.hidden)
    return addMask(term);
  if (addConstant(term))
    return;
  std::optional<ScoreTerm> mask = asMask(term);
  if (!mask) {
    open.push_back(term);
    return;
  }
  addMask(*mask);
}

/// The mask with these entries, if an attribute says it.
std::optional<MaskAttr> MaskFinder::classify() {
  int64_t rows = admitted.rows;
  int64_t columns = admitted.columns;
  // A window, if there is one, is what the last query reads.
  int64_t window = llvm::count_if(llvm::seq(columns), [&](int64_t column) {
    return admitted(rows - 1, column);
  });
  MLIRContext *context = attention.op.getContext();
  for (auto [causal, size] :
       {std::pair<bool, int64_t>(true, 0), {true, window}, {false, window}}) {
    auto admits = [&, causal = causal, size = size](int64_t row,
                                                    int64_t column) {
      int64_t distance = row + columns - rows - column;
      return (!causal || distance >= 0) &&
             (size == 0 || std::abs(distance) < size);
    };
    if ((causal || size > 0) &&
        llvm::all_of(llvm::seq(rows * columns), [&, this](int64_t k) {
          return admits(k / columns, k % columns) == admitted.entries[k];
        }))
      return MaskAttr::get(context, causal, size);
  }
  return std::nullopt;
}

/// Whether the program may give anything but zeros for a row without keys, or
/// have others.
bool MaskFinder::differsWithoutKeys(bool hasMask) const {
  bool givesZeros = attention.softmax.isGuarded && allInfinite;
  if (open.empty() && !mayHideScores(attention.function))
    return hasMask && admitted.hasEmptyRow() && !givesZeros;
  bool hasNumbers =
      llvm::any_of(open, [](const ScoreTerm &term) { return !term.hidden; });
  return !givesZeros || (hasNumbers && hasMask);
}

bool MaskFinder::find(FullyMasked fullyMasked) {
  for (const ScoreTerm &term : attention.terms)
    add(term);
  for (const ScoreTerm &term : open)
    if (term.hidden)
      allInfinite &= std::isinf(*term.hidden);
  bool hasMask = !constant.empty();
  if (fullyMasked == FullyMasked::Refuse && differsWithoutKeys(hasMask)) {
    context.progress.end(200, attention.op,
                         "rows without keys may give other numbers than zeros");
    return false;
  }
  if (hasMask) {
    if (std::optional<MaskAttr> mask = classify())
      attention.mask = *mask;
    else
      llvm::append_range(open, constant);
  }
  for (const ScoreTerm &term : open) {
    if (!AccessWriter::canWrite(context.trace, term.number)) {
      context.progress.end(200, term.op,
                           "what is added to scores is no tensor");
      return false;
    }
  }
  attention.terms = open;
  return true;
}

bool fovea::attn::detail::matchMasks(const MatchContext &context,
                                     Attention &attention,
                                     FullyMasked fullyMasked) {
  return MaskFinder(context, attention).find(fullyMasked);
}
