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
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// Kernels take lower numbers as minus infinity.
static constexpr double kHidden = 0x1p32 * llvm::numbers::ln2;
/// What is added to a position may be as much, and a few such do not overflow.
static constexpr uint64_t kMostOffset = uint64_t(1) << 40;

namespace {
/// Which keys which queries may read, as far as known when compiling.
struct Admitted {
  int64_t rows, columns;
  std::vector<bool> entries;

  bool operator()(int64_t row, int64_t column) const {
    return entries[row * columns + column];
  }
  bool hasEmptyRow() const {
    return !entries.empty() && llvm::any_of(llvm::seq(rows), [&](int64_t row) {
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
  bool addBound(const ScoreTerm &term);
  std::optional<MaskAttr> getBounds();
  std::optional<ScoreTerm> asMask(const ScoreTerm &term);
  std::optional<MaskAttr> classify();
  std::optional<KeyLengths> matchLengths(const ScoreTerm &term);
  bool differsWithoutKeys(bool hasMask) const;
  FloatType getType(const ScoreTerm &term) {
    return cast<FloatType>(getElementTypeOrSelf(term.number.value));
  }

  const MatchContext &context;
  Attention &attention;
  Admitted admitted;
  /// Terms by when they are known.
  SmallVector<ScoreTerm> constant, open;
  /// Where extents are not known, the least and the greatest distance of a key
  /// behind its query, and the terms that say so.
  std::optional<int64_t> least, greatest;
  SmallVector<ScoreTerm> bounds;
  bool allInfinite = true;
};
} // namespace

/// Takes numbers that only hide for a part of the mask.
bool MaskFinder::addConstant(const ScoreTerm &term) {
  // Of extents that are not known, what is the same for all of them.
  bool isSame = !context.trace.isStatic(attention.rows) ||
                !context.trace.isStatic(attention.columns);
  SmallVector<IndexList> lists;
  if (!isSame)
    lists = {attention.rows, attention.columns};
  std::optional<ConstantTensor> values =
      context.cones.evaluate(context.trace, term.number, lists);
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
  if (isSame)
    return false;
  allInfinite &= term.hidden ? std::isinf(*term.hidden) : isInfinite;
  if (admitted.entries.empty())
    admitted.entries.assign(admits.size(), true);
  for (auto [k, admit] : llvm::enumerate(admits))
    if (!admit)
      admitted.entries[k] = false;
  constant.push_back(term);
  return true;
}

/// The predicate with the operands in the other order.
static arith::CmpIPredicate swapOperands(arith::CmpIPredicate predicate) {
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    return arith::CmpIPredicate::sgt;
  case arith::CmpIPredicate::sle:
    return arith::CmpIPredicate::sge;
  case arith::CmpIPredicate::sgt:
    return arith::CmpIPredicate::slt;
  case arith::CmpIPredicate::sge:
    return arith::CmpIPredicate::sle;
  default:
    return predicate;
  }
}

namespace {
/// A position among queries or keys, and what is added to it.
struct OffsetPosition {
  bool isKey;
  int64_t offset;
};
} // namespace

static std::optional<OffsetPosition>
matchPosition(AccessTrace &trace, const Attention &attention, Access number) {
  int64_t offset = 0;
  while (true) {
    number = trace.open(number);
    Operation *op = number.getDefiningOp();
    if (auto index = dyn_cast_or_null<linalg::IndexOp>(op)) {
      IndexList list = trace.resolve(number.indices[index.getDim()]);
      for (bool isKey : {false, true})
        if (list == trace.resolve(isKey ? attention.columns : attention.rows))
          return OffsetPosition{isKey, offset};
      return std::nullopt;
    }
    // Positions are far from the ends of i64.
    Type type = getElementTypeOrSelf(number.value);
    if (isa_and_nonnull<arith::IndexCastOp>(op) &&
        (type.isInteger(64) || type.isIndex())) {
      number = AccessTrace::getOperand(number, 0);
      continue;
    }
    if (!isa_and_nonnull<arith::AddIOp, arith::SubIOp>(op))
      return std::nullopt;
    APInt constant;
    Access right = trace.open(AccessTrace::getOperand(number, 1));
    if (!matchPattern(right.value, m_ConstantInt(&constant)) ||
        constant.abs().ugt(kMostOffset))
      return std::nullopt;
    offset += (isa<arith::AddIOp>(op) ? 1 : -1) * constant.getSExtValue();
    number = AccessTrace::getOperand(number, 0);
  }
}

/// Takes a comparison of the positions of a query and a key, of which there are
/// as many, whatever that number is.
bool MaskFinder::addBound(const ScoreTerm &term) {
  AccessTrace &trace = context.trace;
  if (trace.isStatic(attention.rows) ||
      trace.getExtent(attention.rows) != trace.getExtent(attention.columns))
    return false;
  Access condition = trace.open(term.number);
  auto comparison = dyn_cast_or_null<arith::CmpIOp>(condition.getDefiningOp());
  if (!comparison)
    return false;
  std::optional<OffsetPosition> sides[2];
  for (unsigned k : {0, 1})
    sides[k] =
        matchPosition(trace, attention, AccessTrace::getOperand(condition, k));
  if (!sides[0] || !sides[1] || sides[0]->isKey == sides[1]->isKey)
    return false;
  arith::CmpIPredicate predicate = comparison.getPredicate();
  if (!term.admits)
    predicate = arith::invertPredicate(predicate);
  if (!sides[0]->isKey) {
    predicate = swapOperands(predicate);
    std::swap(sides[0], sides[1]);
  }
  // key + offset0 < query + offset1, and the like, of the distance query - key.
  int64_t bound = sides[0]->offset - sides[1]->offset;
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    ++bound;
    [[fallthrough]];
  case arith::CmpIPredicate::sle:
    least = std::max(bound, least.value_or(bound));
    break;
  case arith::CmpIPredicate::sgt:
    --bound;
    [[fallthrough]];
  case arith::CmpIPredicate::sge:
    greatest = std::min(bound, greatest.value_or(bound));
    break;
  default:
    return false;
  }
  bounds.push_back(term);
  return true;
}

/// The mask of the bounds, if an attribute says it; each query reads itself.
std::optional<MaskAttr> MaskFinder::getBounds() {
  MLIRContext *context = attention.op.getContext();
  bool isCausal = least == 0;
  if (greatest ? *greatest < 0 || (!isCausal && least != -*greatest)
               : !isCausal)
    return std::nullopt;
  return MaskAttr::get(context, isCausal, greatest ? *greatest + 1 : 0);
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
  if (isa_and_nonnull<arith::XOrIOp>(op)) {
    Access other = context.trace.open(AccessTrace::getOperand(number, 1));
    if (matchPattern(other.value, m_One())) {
      part.number = AccessTrace::getOperand(number, 0);
      part.admits = !part.admits;
      return addMask(part);
    }
  }
  if ((term.admits && isa_and_nonnull<arith::AndIOp>(op)) ||
      (!term.admits && isa_and_nonnull<arith::OrIOp>(op))) {
    for (unsigned k : {0, 1}) {
      part.number = AccessTrace::getOperand(number, k);
      addMask(part);
    }
    return;
  }
  if (!addBound(term))
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
  auto count = [&](int64_t row) {
    return llvm::count_if(llvm::seq(columns), [&](int64_t column) {
      return admitted(row, column);
    });
  };
  // A window, if there is one, is what the last query reads, and a prefix what
  // the first reads.
  int64_t window = count(rows - 1);
  int64_t prefix = count(0);
  auto has = [&](bool causal, int64_t window, int64_t prefix) {
    return llvm::all_of(llvm::seq(rows * columns), [&](int64_t k) {
      int64_t row = k / columns;
      int64_t column = k % columns;
      int64_t distance = row + columns - rows - column;
      bool admits = (!causal || distance >= 0) &&
                    (window == 0 || std::abs(distance) < window);
      return (admits || column < prefix) == admitted.entries[k];
    });
  };
  MLIRContext *context = attention.op.getContext();
  if (has(true, 0, 0))
    return MaskAttr::get(context, /*causal=*/true, /*window=*/0);
  for (bool causal : {true, false})
    if (window > 0 && has(causal, window, 0))
      return MaskAttr::get(context, causal, window);
  if (has(true, 0, prefix))
    return MaskAttr::get(context, /*causal=*/true, /*window=*/0, prefix);
  return std::nullopt;
}

/// A mask that hides the keys from some number on, which each batch entry has.
std::optional<KeyLengths> MaskFinder::matchLengths(const ScoreTerm &term) {
  AccessTrace &trace = context.trace;
  // What is added and does not hide weighs keys where nothing else is left.
  if (!term.hidden || (!term.replaces && *term.hidden > -kHidden))
    return std::nullopt;
  Access condition = trace.open(term.number);
  auto comparison = dyn_cast_or_null<arith::CmpIOp>(condition.getDefiningOp());
  if (!comparison || comparison.getLhs().getType().isInteger(1))
    return std::nullopt;
  for (unsigned k : {0, 1}) {
    arith::CmpIPredicate predicate = comparison.getPredicate();
    if (k == 1)
      predicate = swapOperands(predicate);
    if (!term.admits)
      predicate = arith::invertPredicate(predicate);
    if (predicate != arith::CmpIPredicate::slt &&
        predicate != arith::CmpIPredicate::sle)
      continue;
    std::optional<ConstantTensor> keys = context.cones.evaluate(
        trace, AccessTrace::getOperand(condition, k), {attention.columns});
    Access number = AccessTrace::getOperand(condition, 1 - k);
    if (!keys || !llvm::all_of(llvm::enumerate(keys->elements), [](auto key) {
          return key.value().integer == int64_t(key.index());
        }))
      continue;
    const AtomSet found = trace.getDependencies(number);
    if (AccessWriter::canWrite(trace, number) &&
        llvm::all_of(found, [&](Atom atom) {
          return llvm::is_contained(attention.batch, atom);
        }))
      return KeyLengths{number, predicate == arith::CmpIPredicate::sle};
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
  std::optional<MaskAttr> mask = getBounds();
  if (!mask)
    llvm::append_range(open, bounds);
  for (const ScoreTerm &term : open)
    if (term.hidden)
      allInfinite &= std::isinf(*term.hidden);
  bool hasMask = !constant.empty() || mask;
  if (fullyMasked == FullyMasked::Refuse && differsWithoutKeys(hasMask)) {
    context.progress.end(200, attention.op,
                         "rows without keys may give other numbers than zeros");
    return false;
  }
  if (!constant.empty())
    mask = classify();
  if (mask)
    attention.mask = *mask;
  else
    llvm::append_range(open, constant);
  // Masks and functions of positions count from the last key that there is.
  if (!attention.mask && !attention.function) {
    for (auto [index, term] : llvm::enumerate(open)) {
      attention.lengths = matchLengths(term);
      if (attention.lengths) {
        open.erase(open.begin() + index);
        break;
      }
    }
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
