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
#include "fovea/Dialect/Attn/IR/PositionMask.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// Kernels take lower numbers as minus infinity.
static constexpr double kHidden = 0x1p32 * llvm::numbers::ln2;
/// What is added to a position may be as much, and a few such do not overflow:
/// an index, i64, or i32, where no program has 2^31 - 2^24 positions.
static constexpr uint64_t kMostOffset = uint64_t(1) << 40;
static constexpr uint64_t kMostOffset32 = uint64_t(1) << 20;

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
  bool addSelect(const ScoreTerm &term, const Access &select);
  bool addConstant(const ScoreTerm &term);
  std::optional<ConstantTensor> evaluate(const Access &number);
  bool addBound(const PositionSum &sum);
  bool addBounds(const ScoreTerm &term);
  std::optional<MaskAttr> getBounds();
  std::optional<ScoreTerm> asMask(const ScoreTerm &term);
  std::optional<MaskAttr> classify();
  bool isKeyPosition(const Access &number);
  std::optional<KeyLengths> matchLengths(const ScoreTerm &term);
  std::optional<EntryCondition> matchCondition(const ScoreTerm &term);
  bool isInteger(const Access &number, const IndexList &positions);
  bool hidesKeys(const ScoreTerm &term) const;
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

/// A number for each query and key, which may be read by batch entry, but is
/// the same for all of them.
std::optional<ConstantTensor> MaskFinder::evaluate(const Access &number) {
  const IndexList &rows = attention.rows;
  const IndexList &columns = attention.columns;
  std::optional<ConstantTensor> values =
      context.cones.evaluate(context.trace, number, {rows, columns});
  if (!values)
    values = context.cones.evaluate(context.trace, number,
                                    {attention.batch, rows, columns});
  if (!values)
    return std::nullopt;
  size_t size = admitted.rows * admitted.columns;
  for (size_t k : llvm::seq(size, values->elements.size())) {
    const ConstantElement &first = values->elements[k % size];
    const ConstantElement &other = values->elements[k];
    if (values->isReal() ? first.real != other.real
                         : first.integer != other.integer)
      return std::nullopt;
  }
  values->elements.resize(size);
  return values;
}

/// Takes numbers that only hide for a part of the mask.
bool MaskFinder::addConstant(const ScoreTerm &term) {
  // Of extents that are not known, what is the same for all of them.
  bool isSame = !context.trace.isStatic(attention.rows) ||
                !context.trace.isStatic(attention.columns);
  std::optional<ConstantTensor> values =
      isSame ? context.cones.evaluate(context.trace, term.number)
             : evaluate(term.number);
  if (!values)
    return false;
  std::vector<bool> admits(values->elements.size());
  bool isInfinite = true;
  // Of most masks all hidden numbers are one.
  std::optional<double> hidden;
  for (auto [k, value] : llvm::enumerate(values->elements)) {
    if (term.hidden) {
      admits[k] = (value.integer != 0) == term.admits;
      continue;
    }
    double number = value.real * term.factor;
    admits[k] = number == 0;
    if (!admits[k] && value.real != hidden) {
      if (!isHidden(value.real, term.factor, getType(term)))
        return false;
      hidden = value.real;
    }
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

static std::optional<PositionSum> matchPosition(AccessTrace &trace,
                                                const Attention &attention,
                                                const Access &start) {
  Access number = trace.open(start);
  Operation *op = number.getDefiningOp();
  if (auto index = dyn_cast_or_null<linalg::IndexOp>(op)) {
    IndexList list = trace.resolve(number.indices[index.getDim()]);
    if (list == trace.resolve(attention.rows))
      return PositionSum{1, 0, 0};
    if (list == trace.resolve(attention.columns))
      return PositionSum{0, 1, 0};
    return std::nullopt;
  }
  // Positions are far from the ends of these types.
  Type type = getElementTypeOrSelf(number.value);
  if (!type.isIndex() && !type.isInteger(64) && !type.isInteger(32))
    return std::nullopt;
  APInt constant;
  if (matchPattern(number.value, m_ConstantInt(&constant))) {
    if (constant.abs().ugt(type.isInteger(32) ? kMostOffset32 : kMostOffset))
      return std::nullopt;
    return PositionSum{0, 0, constant.getSExtValue()};
  }
  if (isa_and_nonnull<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>(
          op)) {
    std::optional<PositionSum> sum =
        matchPosition(trace, attention, AccessTrace::getOperand(number, 0));
    // What a narrower type cannot hold is another number there.
    bool isHeld = sum && (!type.isInteger(32) ||
                          std::abs(sum->offset) <= int64_t(kMostOffset32));
    return isHeld ? sum : std::nullopt;
  }
  if (!isa_and_nonnull<arith::AddIOp, arith::SubIOp>(op))
    return std::nullopt;
  std::optional<PositionSum> sides[2];
  for (unsigned k : {0, 1}) {
    sides[k] =
        matchPosition(trace, attention, AccessTrace::getOperand(number, k));
    if (!sides[k])
      return std::nullopt;
  }
  PositionSum sum =
      combine(*sides[0], isa<arith::AddIOp>(op) ? 1 : -1, *sides[1]);
  if (std::abs(sum.query) > 1 || std::abs(sum.key) > 1)
    return std::nullopt;
  return sum;
}

/// Takes that a sum of positions is not negative: always so, or a bound of how
/// far keys are from queries, of which there are as many, whatever that number
/// is.
bool MaskFinder::addBound(const PositionSum &sum) {
  auto [query, key, offset] = sum;
  if (query >= 0 && key >= 0 && offset >= 0)
    return true;
  if (std::abs(query) != 1 || key != -query ||
      context.trace.getExtent(attention.rows) !=
          context.trace.getExtent(attention.columns))
    return false;
  if (query == 1)
    least = std::max(-offset, least.value_or(-offset));
  else
    greatest = std::min(offset, greatest.value_or(offset));
  return true;
}

/// Takes a comparison of positions.
bool MaskFinder::addBounds(const ScoreTerm &term) {
  AccessTrace &trace = context.trace;
  if (trace.isStatic(attention.rows) && trace.isStatic(attention.columns))
    return false;
  Access condition = trace.open(term.number);
  auto comparison = dyn_cast_or_null<arith::CmpIOp>(condition.getDefiningOp());
  if (!comparison)
    return false;
  arith::CmpIPredicate predicate = comparison.getPredicate();
  if (!term.admits)
    predicate = arith::invertPredicate(predicate);
  Access sides[2] = {AccessTrace::getOperand(condition, 0),
                     AccessTrace::getOperand(condition, 1)};
  // The lesser side first.
  if (predicate == arith::CmpIPredicate::sgt ||
      predicate == arith::CmpIPredicate::sge) {
    predicate = swapOperands(predicate);
    std::swap(sides[0], sides[1]);
  }
  if (predicate != arith::CmpIPredicate::slt &&
      predicate != arith::CmpIPredicate::sle)
    return false;
  // |x| <= y is -x <= y and x <= y.
  Access lesser = trace.open(sides[0]);
  bool isAbsolute = isa_and_nonnull<math::AbsIOp>(lesser.getDefiningOp());
  if (isAbsolute)
    lesser = AccessTrace::getOperand(lesser, 0);
  std::optional<PositionSum> low = matchPosition(trace, attention, lesser);
  std::optional<PositionSum> high = matchPosition(trace, attention, sides[1]);
  if (!low || !high)
    return false;
  if (predicate == arith::CmpIPredicate::slt)
    --high->offset;
  auto before = std::pair(least, greatest);
  if (!addBound(combine(*high, -1, *low)) ||
      (isAbsolute && !addBound(combine(*high, 1, *low)))) {
    std::tie(least, greatest) = before;
    return false;
  }
  if (before != std::pair(least, greatest))
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

/// A truth value that is selected: `select(c, true, false)` is the condition,
/// and `select(c, x, false)` a conjunction with it.
bool MaskFinder::addSelect(const ScoreTerm &term, const Access &select) {
  auto get = [&](unsigned operand) -> std::optional<bool> {
    std::optional<ConstantTensor> value = context.cones.evaluate(
        context.trace, AccessTrace::getOperand(select, operand));
    if (!value || value->elements.size() != 1)
      return std::nullopt;
    return value->elements.front().integer != 0;
  };
  std::optional<bool> chosen = get(1);
  std::optional<bool> other = get(2);
  ScoreTerm part = term;
  part.number = AccessTrace::getOperand(select, 0);
  if (chosen && other && *chosen != *other) {
    part.admits = *chosen == term.admits;
    addMask(part);
    return true;
  }
  if (other != false || !term.admits)
    return false;
  addMask(part);
  part.number = AccessTrace::getOperand(select, 1);
  addMask(part);
  return true;
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
  if (isa_and_nonnull<arith::SelectOp>(op) && addSelect(term, number))
    return;
  if ((term.admits && isa_and_nonnull<arith::AndIOp>(op)) ||
      (!term.admits && isa_and_nonnull<arith::OrIOp>(op))) {
    for (unsigned k : {0, 1}) {
      part.number = AccessTrace::getOperand(number, k);
      addMask(part);
    }
    return;
  }
  if (!addBounds(term))
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

bool MaskFinder::isKeyPosition(const Access &number) {
  if (!context.trace.isStatic(attention.columns)) {
    std::optional<PositionSum> sum =
        matchPosition(context.trace, attention, number);
    return sum && sum->query == 0 && sum->key == 1 && sum->offset == 0;
  }
  std::optional<ConstantTensor> keys =
      context.cones.evaluate(context.trace, number, {attention.columns});
  return keys && llvm::all_of(llvm::enumerate(keys->elements), [](auto key) {
           return key.value().integer == int64_t(key.index());
         });
}

/// Whether what the term hides has no weight: what is added and does not hide
/// weighs keys where nothing else is left.
bool MaskFinder::hidesKeys(const ScoreTerm &term) const {
  return term.hidden && (term.replaces || *term.hidden <= -kHidden);
}

/// Whether the number is an integer that differs along these positions, and of
/// a batch entry at most besides, and that a region of scores can read.
bool MaskFinder::isInteger(const Access &number, const IndexList &positions) {
  auto type = dyn_cast<IntegerType>(getElementTypeOrSelf(number.value));
  if (!type || type.getWidth() < 8 || type.getWidth() > 64 ||
      !AccessWriter::canWrite(context.trace, number))
    return false;
  const AtomSet found = context.trace.getDependencies(number);
  auto isPosition = [&](Atom atom) {
    return llvm::is_contained(positions, atom);
  };
  return llvm::any_of(found, isPosition) && llvm::all_of(found, [&](Atom atom) {
           return isPosition(atom) || llvm::is_contained(attention.batch, atom);
         });
}

/// A comparison of an integer of the query and one of the key, which needs no
/// number for each pair of them. Other masks are small.
std::optional<EntryCondition>
MaskFinder::matchCondition(const ScoreTerm &term) {
  // Positions in a region count from the last key.
  AccessTrace &trace = context.trace;
  bool isKnown =
      trace.isStatic(attention.rows) && trace.isStatic(attention.columns);
  if (!hidesKeys(term) ||
      (!isKnown &&
       trace.getExtent(attention.rows) != trace.getExtent(attention.columns)) ||
      std::max(admitted.rows, admitted.columns) >= kMaxScorePositions)
    return std::nullopt;
  Access condition = trace.open(term.number);
  auto comparison = dyn_cast_or_null<arith::CmpIOp>(condition.getDefiningOp());
  if (!comparison)
    return std::nullopt;
  for (unsigned k : {0, 1}) {
    Access query = AccessTrace::getOperand(condition, k);
    Access key = AccessTrace::getOperand(condition, 1 - k);
    if (!isInteger(query, attention.rows) || !isInteger(key, attention.columns))
      continue;
    arith::CmpIPredicate predicate = comparison.getPredicate();
    if (k == 1)
      predicate = swapOperands(predicate);
    return EntryCondition{query, key,
                          term.admits ? predicate
                                      : arith::invertPredicate(predicate)};
  }
  return std::nullopt;
}

/// A mask that hides the keys from some number on, which each batch entry has.
std::optional<KeyLengths> MaskFinder::matchLengths(const ScoreTerm &term) {
  AccessTrace &trace = context.trace;
  if (!hidesKeys(term))
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
    if (!isKeyPosition(AccessTrace::getOperand(condition, k)))
      continue;
    Access number = AccessTrace::getOperand(condition, 1 - k);
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
  if (!attention.lengths) {
    llvm::erase_if(open, [&](const ScoreTerm &term) {
      std::optional<EntryCondition> condition = matchCondition(term);
      if (condition)
        attention.conditions.push_back(*condition);
      return condition.has_value();
    });
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
