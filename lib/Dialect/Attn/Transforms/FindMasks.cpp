//===- FindMasks.cpp - Conditions of score regions that are masks ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/PositionMask.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/ReadLines.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_FINDMASKSPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
/// A condition, or that it does not hold.
struct Literal {
  Value condition;
  bool holds;
};

/// The rows that regions of an operation see, and the mask of these.
struct MaskedRows {
  ShapedType query, rows;
  MaskAttr mask;
  bool hasLengths, hasListedPositions;
};

/// What is known of the integers of a region, for the entries of some rows.
class RegionFacts {
public:
  RegionFacts(Region &region, ValueRange captures, const MaskedRows &rows);

  /// The entries for which a condition holds, or does not, if they are of this
  /// kind.
  std::optional<PositionMask> match(Literal literal);
  /// Whether no entry reads a tensor out of bounds, or all of a head do.
  bool isWithinBounds();

private:
  void inferRanges(const MaskedRows &rows);
  void findSum(Operation &op);
  std::optional<PositionMask> matchOnce(Literal literal);
  std::optional<PositionMask> compare(Value low, Value high, bool isStrict,
                                      unsigned depth);
  std::optional<PositionMask> compareSums(Value low, Value high, bool isStrict);
  ConstantIntRanges getRange(Value value) const;

  Block &block;
  ValueRange captures;
  DenseMap<Value, ConstantIntRanges> ranges;
  DenseMap<Value, PositionSum> sums;
  DenseMap<std::pair<Value, unsigned>, std::optional<PositionMask>> found;
};
} // namespace

//===----------------------------------------------------------------------===//
// Integers of a region
//===----------------------------------------------------------------------===//

RegionFacts::RegionFacts(Region &region, ValueRange captures,
                         const MaskedRows &rows)
    : block(region.front()), captures(captures) {
  inferRanges(rows);
  sums[block.getArgument(score_argument::Query)] = {1, 0, 0};
  sums[block.getArgument(score_argument::Key)] = {0, 1, 0};
  for (Operation &op : block.without_terminator())
    findSum(op);
}

ConstantIntRanges RegionFacts::getRange(Value value) const {
  auto known = ranges.find(value);
  return known != ranges.end()
             ? known->second
             : ConstantIntRanges::maxRange(
                   ConstantIntRanges::getStorageBitwidth(value.getType()));
}

void RegionFacts::inferRanges(const MaskedRows &rows) {
  auto set = [&](unsigned argument, int64_t low, int64_t high) {
    ranges.try_emplace(
        block.getArgument(argument),
        ConstantIntRanges::fromSigned(APInt(64, low, /*isSigned=*/true),
                                      APInt(64, high, /*isSigned=*/true)));
  };
  auto getExtent = [](ShapedType type, unsigned dim) {
    int64_t extent = type.getDimSize(dim);
    return ShapedType::isDynamic(extent) ? kMaxScorePositions : extent;
  };
  int64_t n = getExtent(rows.query, 2);
  int64_t m =
      rows.hasListedPositions ? kMaxScorePositions : getExtent(rows.rows, 2);
  bool isStatic = n != kMaxScorePositions && m != kMaxScorePositions;
  set(score_argument::Batch, 0, getExtent(rows.query, 0) - 1);
  set(score_argument::Head, 0, getExtent(rows.query, 1) - 1);
  set(score_argument::Query, isStatic && !rows.hasLengths ? m - n : -n, m - 1);
  set(score_argument::Key, 0, m - 1);
  for (Operation &op : block.without_terminator()) {
    auto inferable = dyn_cast<InferIntRangeInterface>(op);
    if (!inferable || !op.getResult(0).getType().isIntOrIndex())
      continue;
    inferable.inferResultRanges(
        llvm::map_to_vector(op.getOperands(),
                            [&](Value operand) { return getRange(operand); }),
        [&](Value result, const ConstantIntRanges &range) {
          ranges.insert_or_assign(result, range);
        });
  }
}

/// Remembers the sum of positions that an operation computes.
void RegionFacts::findSum(Operation &op) {
  Value result = op.getResult(0);
  if (!result.getType().isIntOrIndex())
    return;
  std::optional<PositionSum> sum;
  auto get = [&](unsigned operand) -> std::optional<PositionSum> {
    auto known = sums.find(op.getOperand(operand));
    return known == sums.end() ? std::nullopt : std::optional(known->second);
  };
  APInt constant;
  if (matchPattern(result, m_ConstantInt(&constant))) {
    if (constant.isSignedIntN(60))
      sum = PositionSum{0, 0, constant.getSExtValue()};
  } else if (isa<arith::IndexCastOp, arith::ExtSIOp, arith::TruncIOp>(op)) {
    sum = get(0);
  } else if (isa<arith::AddIOp, arith::SubIOp>(op)) {
    auto lhs = get(0), rhs = get(1);
    if (lhs && rhs)
      sum = combine(*lhs, isa<arith::AddIOp>(op) ? 1 : -1, *rhs);
  } else if (isa<arith::MulIOp>(op)) {
    auto lhs = get(0), rhs = get(1);
    if (lhs && rhs && lhs->query == 0 && lhs->key == 0)
      std::swap(lhs, rhs);
    if (lhs && rhs && rhs->query == 0 && rhs->key == 0 &&
        std::abs(rhs->offset) < 64)
      sum = combine({}, rhs->offset, *lhs);
  }
  // What a narrower type cannot hold is another number there.
  if (sum && sum->fits(ConstantIntRanges::getStorageBitwidth(result.getType())))
    sums[result] = *sum;
}

bool RegionFacts::isWithinBounds() {
  for (auto read : block.getOps<tensor::ExtractOp>()) {
    auto argument = cast<BlockArgument>(read.getTensor());
    auto type = cast<ShapedType>(
        captures[argument.getArgNumber() - score_argument::Captures].getType());
    // What a whole head reads, such as a slope, is missing for all entries that
    // a mask leaves as well.
    bool isOfHead = findReadLines(read) == ReadLines::Head;
    for (auto [index, extent] :
         llvm::zip_equal(read.getIndices(), type.getShape())) {
      ConstantIntRanges range = getRange(index);
      if (range.smin().isNegative() ||
          (ShapedType::isDynamic(extent) ? !isOfHead
                                         : range.smax().sge(extent)))
        return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

/// What a condition is the conjunction of, or the disjunction, of two others;
/// empty where it is something else.
static SmallVector<Literal> split(Literal literal, bool &isConjunction) {
  auto [condition, holds] = literal;
  Operation *op = condition.getDefiningOp();
  if (isa_and_nonnull<arith::AndIOp, arith::OrIOp>(op)) {
    isConjunction = isa<arith::AndIOp>(op) == holds;
    return {{op->getOperand(0), holds}, {op->getOperand(1), holds}};
  }
  isConjunction = true;
  if (isa_and_nonnull<arith::XOrIOp>(op))
    for (unsigned k : {0, 1})
      if (matchPattern(op->getOperand(k), m_One()))
        return {{op->getOperand(1 - k), !holds}};
  auto select = dyn_cast_or_null<arith::SelectOp>(op);
  if (!select || !select.getCondition().getType().isInteger(1))
    return {};
  // `select(c, x, false)` is `c and x`, and so on.
  for (bool isTrue : {true, false}) {
    Value constant = isTrue ? select.getTrueValue() : select.getFalseValue();
    Value other = isTrue ? select.getFalseValue() : select.getTrueValue();
    bool isOne = matchPattern(constant, m_One());
    if (!isOne && !matchPattern(constant, m_Zero()))
      continue;
    isConjunction = isOne != holds;
    // A conjunction needs the other one, a disjunction does without.
    return {{select.getCondition(), isTrue != isConjunction}, {other, holds}};
  }
  return {};
}

std::optional<PositionMask> RegionFacts::match(Literal literal) {
  auto key = std::pair(literal.condition, unsigned(literal.holds));
  if (auto known = found.find(key); known != found.end())
    return known->second;
  std::optional<PositionMask> mask = matchOnce(literal);
  found[key] = mask;
  return mask;
}

std::optional<PositionMask> RegionFacts::matchOnce(Literal literal) {
  if (std::optional<APInt> value =
          getRange(literal.condition).getConstantValue())
    return value->isOne() == literal.holds ? PositionMask::getAll()
                                           : PositionMask::getNone();
  bool isConjunction = false;
  SmallVector<Literal> parts = split(literal, isConjunction);
  if (!parts.empty()) {
    auto result = match(parts.front());
    for (Literal part : llvm::drop_begin(parts)) {
      auto other = match(part);
      if (!result || !other)
        return std::nullopt;
      result =
          isConjunction ? result->intersect(*other) : result->unite(*other);
    }
    return result;
  }
  auto comparison = literal.condition.getDefiningOp<arith::CmpIOp>();
  if (!comparison)
    return std::nullopt;
  arith::CmpIPredicate predicate = comparison.getPredicate();
  if (!literal.holds)
    predicate = arith::invertPredicate(predicate);
  Value low = comparison.getLhs(), high = comparison.getRhs();
  if (predicate == arith::CmpIPredicate::sgt ||
      predicate == arith::CmpIPredicate::sge) {
    predicate = swapOperands(predicate);
    std::swap(low, high);
  }
  if (predicate != arith::CmpIPredicate::slt &&
      predicate != arith::CmpIPredicate::sle)
    return std::nullopt;
  return compare(low, high, predicate == arith::CmpIPredicate::slt, 0);
}

/// The entries of which `low` is at most `high`, or less.
std::optional<PositionMask>
RegionFacts::compare(Value low, Value high, bool isStrict, unsigned depth) {
  constexpr unsigned kMostDepth = 6;
  if (depth > kMostDepth)
    return std::nullopt;
  for (bool isLow : {true, false}) {
    Operation *op = (isLow ? low : high).getDefiningOp();
    if (!isa_and_nonnull<arith::MaxSIOp, arith::MinSIOp>(op))
      continue;
    auto get = [&](unsigned k) {
      Value side = op->getOperand(k);
      return compare(isLow ? side : low, isLow ? high : side, isStrict,
                     depth + 1);
    };
    auto first = get(0), second = get(1);
    if (!first || !second)
      return std::nullopt;
    // A maximum is at most something if both are.
    return isa<arith::MaxSIOp>(op) == isLow ? first->intersect(*second)
                                            : first->unite(*second);
  }
  return compareSums(low, high, isStrict);
}

std::optional<PositionMask> RegionFacts::compareSums(Value low, Value high,
                                                     bool isStrict) {
  auto lowAbsolute = low.getDefiningOp<math::AbsIOp>();
  auto highAbsolute = high.getDefiningOp<math::AbsIOp>();
  auto lowSum = sums.find(lowAbsolute ? lowAbsolute.getOperand() : low);
  auto highSum = sums.find(highAbsolute ? highAbsolute.getOperand() : high);
  if (lowSum == sums.end() || highSum == sums.end() ||
      (lowAbsolute && highAbsolute))
    return std::nullopt;
  auto compareSigned = [&](int64_t ofLow, int64_t ofHigh) {
    PositionSum sum =
        combine(combine({}, ofHigh, highSum->second), -ofLow, lowSum->second);
    if (isStrict)
      --sum.offset;
    return PositionMask::ofNonNegative(sum);
  };
  auto mask = compareSigned(1, 1);
  if (!lowAbsolute && !highAbsolute)
    return mask;
  // |x| <= y is x <= y and -x <= y.
  auto other = lowAbsolute ? compareSigned(-1, 1) : compareSigned(1, -1);
  if (!mask || !other)
    return std::nullopt;
  return lowAbsolute ? mask->intersect(*other) : mask->unite(*other);
}

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

static void addConjuncts(Literal literal, SmallVectorImpl<Literal> &conjuncts) {
  // More is no longer a mask, and conditions may share their parts.
  constexpr size_t kMost = 32;
  bool isConjunction = false;
  SmallVector<Literal> parts = split(literal, isConjunction);
  if (parts.empty() || !isConjunction || conjuncts.size() > kMost)
    return conjuncts.push_back(literal);
  for (Literal part : parts)
    addConjuncts(part, conjuncts);
}

/// What remains of `yielded` where no condition makes it minus infinity, and
/// the conditions for that.
static Value findConditions(Value yielded, SmallVectorImpl<Literal> &found) {
  while (auto select = yielded.getDefiningOp<arith::SelectOp>()) {
    bool removesIf = matchPattern(select.getTrueValue(), m_NegInfFloat());
    if (!removesIf && !matchPattern(select.getFalseValue(), m_NegInfFloat()))
      break;
    addConjuncts({select.getCondition(), !removesIf}, found);
    yielded = removesIf ? select.getFalseValue() : select.getTrueValue();
  }
  return yielded;
}

/// Takes conditions to the masks of all of `rows`, as many as attributes say.
/// Leaves the others, and returns how many it took.
static unsigned takeConditions(SmallVectorImpl<Literal> &conditions,
                               MutableArrayRef<RegionFacts> facts,
                               MutableArrayRef<MaskedRows *> rows) {
  MLIRContext *context = conditions.front().condition.getContext();
  unsigned before = conditions.size();
  auto take = [&](ArrayRef<unsigned> chosen) {
    SmallVector<MaskAttr> masks;
    for (auto [fact, of] : llvm::zip_equal(facts, rows)) {
      std::optional<PositionMask> mask = PositionMask::of(of->mask);
      for (unsigned index : chosen) {
        auto other = fact.match(conditions[index]);
        mask = mask && other ? mask->intersect(*other) : std::nullopt;
      }
      auto attr = mask ? mask->getAttr(context) : std::nullopt;
      if (!attr)
        return false;
      masks.push_back(*attr);
    }
    for (auto [of, mask] : llvm::zip_equal(rows, masks))
      of->mask = mask;
    for (unsigned index : llvm::reverse(chosen))
      conditions.erase(conditions.begin() + index);
    return true;
  };
  // A window of past keys is two conditions, neither of which is a mask.
  auto takeAny = [&]() {
    for (unsigned second : llvm::seq<unsigned>(0, conditions.size())) {
      if (take({second}))
        return true;
      for (unsigned first : llvm::seq<unsigned>(0, second))
        if (take({first, second}))
          return true;
    }
    return false;
  };
  while (takeAny())
    ;
  return before - conditions.size();
}

/// Makes a region yield `kept`, and minus infinity unless all conditions hold.
static void setConditions(Region &region, Value kept,
                          ArrayRef<Literal> conditions) {
  Block &block = region.front();
  auto yield = cast<YieldOp>(block.getTerminator());
  OpBuilder b(yield);
  Location loc = yield.getLoc();
  Value all;
  for (auto [condition, holds] : conditions) {
    if (!holds)
      condition = arith::XOrIOp::create(
          b, loc, condition,
          arith::ConstantOp::create(b, loc, b.getBoolAttr(true)));
    all = all ? arith::AndIOp::create(b, loc, all, condition) : condition;
  }
  if (all) {
    auto type = cast<FloatType>(kept.getType());
    Value removed = arith::ConstantOp::create(
        b, loc,
        b.getFloatAttr(type, APFloat::getInf(type.getFloatSemantics(),
                                             /*Negative=*/true)));
    kept = arith::SelectOp::create(b, loc, all, kept, removed);
  }
  yield->setOperand(0, kept);
  SmallVector<Operation *> ops = llvm::map_to_vector(
      block.without_terminator(), [](Operation &op) { return &op; });
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
}

static bool isIdentity(Region &region) {
  return getYieldedScore(region) == region.getArgument(score_argument::Score);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace {
/// The regions of an operation and the rows that each is for.
class MaskSearch {
public:
  MaskSearch(Operation *op, ValueRange captures) : op(op), captures(captures) {}

  SmallVector<MaskedRows> rows;
  /// Takes the conditions of a region that is for some of the rows.
  void search(Region &region, ArrayRef<unsigned> indices);
  /// Whether all reads of these regions are within bounds: an entry is NaN
  /// where one is not, even if a condition removes it.
  bool areWithinBounds(Region &region, ArrayRef<unsigned> indices) {
    return llvm::all_of(indices, [&](unsigned index) {
      return RegionFacts(region, captures, rows[index]).isWithinBounds();
    });
  }

private:
  Operation *op;
  ValueRange captures;
};
} // namespace

void MaskSearch::search(Region &region, ArrayRef<unsigned> indices) {
  SmallVector<Literal> conditions;
  Value kept = findConditions(getYieldedScore(region), conditions);
  if (conditions.empty() || indices.empty() ||
      llvm::any_of(indices, [&](unsigned index) {
        return rows[index].mask.hasStride();
      }))
    return;
  SmallVector<RegionFacts> facts;
  SmallVector<MaskedRows *> masked;
  for (unsigned index : indices) {
    facts.emplace_back(region, captures, rows[index]);
    masked.push_back(&rows[index]);
  }
  unsigned taken = takeConditions(conditions, facts, masked);
  if (taken == 0)
    return;
  setConditions(region, kept, conditions);
  auto remark = remark::passed(op->getLoc(),
                               remark::RemarkOpts::name("ConditionsAreMasks")
                                   .category(op->getName().getStringRef()));
  remark << remark::metric("Taken", taken)
         << remark::metric("Left", unsigned(conditions.size()));
  for (MaskedRows *of : masked) {
    std::string text;
    llvm::raw_string_ostream(text) << of->mask;
    remark << remark::metric("Mask", StringRef(text));
  }
}

/// The operation without some of its regions, and without captures where none
/// is left.
template <typename OpTy>
static OpTy dropRegions(OpTy op, const llvm::BitVector &dropped) {
  if (dropped.all())
    op.getCapturesMutable().clear();
  OpBuilder builder(op);
  OperationState state(op.getLoc(), op->getName(), op->getOperands(),
                       op->getResultTypes(), op->getAttrs());
  for (auto [index, region] : llvm::enumerate(op->getRegions()))
    if (!dropped.test(index))
      state.addRegion()->takeBody(region);
  auto result = cast<OpTy>(builder.create(state));
  op->replaceAllUsesWith(result);
  op->erase();
  return result;
}

/// The regions that give every entry the score that they are given.
template <typename OpTy> static llvm::BitVector findIdentities(OpTy op) {
  llvm::BitVector found(op->getNumRegions());
  // What is captured has gradients as long as it is captured.
  if constexpr (std::is_same_v<OpTy, DenseBackwardOp> ||
                std::is_same_v<OpTy, StreamBackwardOp>)
    if (!op.getDCaptures().empty())
      return found;
  for (auto [index, region] : llvm::enumerate(op->getRegions()))
    if (isIdentity(region))
      found.set(index);
  return found;
}

template <typename OpTy> static void findDenseMasks(OpTy op) {
  if (op.getScore().empty())
    return;
  MaskSearch search(op, op.getCaptures());
  search.rows = {{cast<ShapedType>(op.getQuery().getType()),
                  cast<ShapedType>(op.getKey().getType()), op.getMaskOrNone(),
                  op.getLengths() || op.getQueryLengths(),
                  /*hasListedPositions=*/false}};
  Region &region = op.getScore().front();
  if (!search.areWithinBounds(region, {0}))
    return;
  search.search(region, {0});
  if (search.rows[0].mask != op.getMaskOrNone())
    op.setMaskAttr(search.rows[0].mask);
  if (llvm::BitVector identities = findIdentities(op); identities.any())
    dropRegions(op, identities);
}

static const StreamSource &getForward(const StreamSource &source) {
  return source;
}
static const StreamSource &getForward(const StreamSourceGradient &source) {
  return source.forward;
}

static SourceAttr setMask(SourceAttr source, MaskAttr mask) {
  return SourceAttr::get(
      source.getContext(), source.getRanges(), mask, source.getHasLogWeight(),
      source.getHasBias(), source.getHasCodes(), source.getHasLocalBias(),
      source.getHasLengths(), source.getHasRelative(),
      source.getHasDistanceBias(), source.getOrigin(), source.getUnit(),
      source.getHasListedPositions(), source.getHasScore());
}

template <typename OpTy> static void findStreamMasks(OpTy op) {
  // Positions of a tile are not those of its rows.
  if constexpr (std::is_same_v<OpTy, StreamOp>)
    if (op.getFirstRow())
      return;
  if (op.getScores().empty())
    return;
  MaskSearch search(op, op.getCaptures());
  auto sources = op.getSourceList();
  SmallVector<unsigned> all;
  for (auto [index, each] : llvm::enumerate(sources)) {
    const StreamSource &source = getForward(each);
    all.push_back(index);
    search.rows.push_back({cast<ShapedType>(op.getQuery().getType()),
                           cast<ShapedType>(source.getRowsOperand().getType()),
                           source.attr.getMask(),
                           source.lengths || op.getQueryLengths(),
                           source.attr.getHasListedPositions()});
  }
  Region *common = op.getCommonScore();
  if (common && !search.areWithinBounds(*common, all))
    return;
  for (auto [index, each] : llvm::enumerate(sources))
    if (Region *own = getForward(each).score;
        own && !search.areWithinBounds(*own, all[index]))
      return;
  for (auto [index, each] : llvm::enumerate(sources))
    if (Region *own = getForward(each).score)
      search.search(*own, all[index]);
  if (common)
    search.search(*common, all);

  llvm::BitVector identities = findIdentities(op);
  SmallVector<Attribute> attrs;
  unsigned region = 0;
  for (auto [each, rows] : llvm::zip_equal(sources, search.rows)) {
    SourceAttr attr = setMask(getForward(each).attr, rows.mask);
    if (attr.getHasScore() && identities.test(region++))
      attr = attr.withScore(false);
    attrs.push_back(attr);
  }
  op.setSourcesAttr(ArrayAttr::get(op.getContext(), attrs));
  if (identities.any())
    dropRegions(op, identities);
}

namespace {
struct FindMasksPass : fovea::attn::impl::FindMasksPassBase<FindMasksPass> {
  using FindMasksPassBase::FindMasksPassBase;

  void runOnOperation() override {
    SmallVector<Operation *> ops;
    getOperation()->walk([&](Operation *op) { ops.push_back(op); });
    for (Operation *op : ops)
      llvm::TypeSwitch<Operation *>(op)
          .Case<DenseOp, DenseBackwardOp>(
              [](auto dense) { findDenseMasks(dense); })
          .Case<StreamOp, StreamBackwardOp>(
              [](auto stream) { findStreamMasks(stream); });
  }
};
} // namespace
