//===- ScoreRegionEntries.cpp - Entries that functions of scores remove ---===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A region removes an entry by minus infinity as its result. Whether it does is
// found by folding its body for the positions of each entry.
//
//===----------------------------------------------------------------------===//

#include "ScoreMask.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea;

/// The most entries of a source that are looked at one by one.
static constexpr int64_t kMaxEntries = int64_t(1) << 17;

static constexpr const char *kRemovesEntries =
    "a function of scores says which entries are read";
static constexpr const char *kOneHead =
    "a function of scores, which may read others in other batch entries and "
    "heads";

static bool isMinusInfinity(Attribute attribute) {
  auto number = dyn_cast_or_null<FloatAttr>(attribute);
  return number && number.getValue().isInfinity() &&
         number.getValue().isNegative();
}

namespace {
enum class Entry { Read, Removed, Unknown };

/// The region of an operation, for one entry after the other.
class EntryFolder {
public:
  EntryFolder(Region &original, ValueRange captures, const KnownData &data)
      : batch(data.batch), head(data.head) {
    // Folding may put operands in order.
    IRMapping mapping;
    original.cloneInto(&region, mapping);
    for (auto [capture, argument] : llvm::zip_equal(
             captures,
             block().getArguments().drop_front(attn::score_argument::Captures)))
      if (Attribute value = data.lookup(capture))
        captured[argument] = value;
    index = IndexType::get(original.getContext());
  }

  /// Whether any entry may be removed.
  bool mayRemove() {
    bool found = false;
    region.walk([&](Operation *op) {
      Attribute value;
      found |= matchPattern(op, m_Constant(&value)) && isMinusInfinity(value);
    });
    return found;
  }
  /// Whether other batch entries, or heads, may have other entries.
  bool isOfOne(const ScoreMatrix &matrix) {
    auto uses = [&](unsigned argument) {
      return !block().getArgument(argument).use_empty();
    };
    return (matrix.batch > 1 && uses(attn::score_argument::Batch)) ||
           (matrix.heads > 1 && uses(attn::score_argument::Head));
  }
  Entry fold(int64_t query, int64_t key);

private:
  Block &block() { return region.front(); }

  int64_t batch, head;
  Region region;
  llvm::DenseMap<Value, Attribute> captured;
  Type index;
};
} // namespace

Entry EntryFolder::fold(int64_t query, int64_t key) {
  llvm::DenseMap<Value, Attribute> known = captured;
  auto set = [&](unsigned argument, int64_t value) {
    known[block().getArgument(argument)] = IntegerAttr::get(index, value);
  };
  set(attn::score_argument::Batch, batch);
  set(attn::score_argument::Head, head);
  set(attn::score_argument::Query, query);
  set(attn::score_argument::Key, key);
  bool isUnknown = false;
  for (Operation &op : block().without_terminator()) {
    SmallVector<Attribute> operands;
    for (Value operand : op.getOperands())
      operands.push_back(known.lookup(operand));
    if (isa<arith::SelectOp>(op) && !operands[0])
      isUnknown |= isMinusInfinity(operands[1]) || isMinusInfinity(operands[2]);
    SmallVector<OpFoldResult> results;
    if (failed(op.fold(operands, results)) || results.empty())
      continue;
    for (auto [result, folded] : llvm::zip_equal(op.getResults(), results)) {
      auto attribute = dyn_cast<Attribute>(folded);
      known[result] = attribute ? attribute : known.lookup(cast<Value>(folded));
    }
  }
  if (isMinusInfinity(known.lookup(block().getTerminator()->getOperand(0))))
    return Entry::Removed;
  return isUnknown ? Entry::Unknown : Entry::Read;
}

/// The keys that the region leaves to each query; none if data decides.
static std::optional<std::vector<RowRanges>>
findLeftRows(EntryFolder &folder, const ScoreSource &source) {
  std::vector<RowRanges> left(source.numQueries);
  for (int64_t query = 0; query < source.numQueries; ++query)
    for (const RowRange &range : source.getRows(query))
      for (int64_t key = range.begin; key < range.end; ++key) {
        Entry entry = folder.fold(query + source.firstPosition, key);
        if (entry == Entry::Unknown)
          return std::nullopt;
        if (entry == Entry::Removed)
          continue;
        fovea::detail::addRow(left[query], key);
      }
  return left;
}

/// The regions that compute the scores of each source, in their order.
static std::vector<SmallVector<Region *, 2>>
getRegionsOfSources(Operation *op, size_t numSources) {
  std::vector<SmallVector<Region *, 2>> regions(numSources);
  auto add = [&](auto index, Region *region) {
    if (region)
      regions[index].push_back(region);
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<attn::DenseOp, attn::DenseBackwardOp>([&](auto dense) {
        if (!dense.getScore().empty())
          add(0, &dense.getScore().front());
      })
      .Case([&](attn::StreamOp stream) {
        for (auto [index, source] : llvm::enumerate(stream.getSourceList())) {
          add(index, source.score);
          add(index, stream.getCommonScore());
        }
      })
      .Case([&](attn::StreamBackwardOp stream) {
        for (auto [index, source] : llvm::enumerate(stream.getSourceList())) {
          add(index, source.forward.score);
          add(index, stream.getCommonScore());
        }
      });
  return regions;
}

ValueRange fovea::getScoreCaptures(Operation *op) {
  return llvm::TypeSwitch<Operation *, ValueRange>(op)
      .Case<attn::DenseOp, attn::DenseBackwardOp, attn::StreamOp,
            attn::StreamBackwardOp>(
          [](auto attention) { return attention.getCaptures(); })
      .Default(ValueRange());
}

bool fovea::removeEntries(Operation *op, const KnownData &data,
                          ScoreMatrix &matrix) {
  // Rows at positions of their own.
  bool hasOtherPositions = false, mayRemove = false, isLeftOpen = false;
  if (auto stream = dyn_cast<attn::StreamOp>(op))
    for (const attn::StreamSource &source : stream.getSourceList())
      hasOtherPositions |= source.attr.getHasListedPositions();
  auto regions = getRegionsOfSources(op, matrix.sources.size());
  for (auto [source, own] : llvm::zip(matrix.sources, regions))
    for (Region *region : own) {
      EntryFolder folder(*region, getScoreCaptures(op), data);
      if (!folder.mayRemove())
        continue;
      mayRemove = true;
      std::optional<std::vector<RowRanges>> left;
      if (!hasOtherPositions && source.kind == "tokens" &&
          source.numRows * source.numQueries <= kMaxEntries)
        left = findLeftRows(folder, source);
      if (!left) {
        source.byData = kRemovesEntries;
        isLeftOpen = true;
        continue;
      }
      if (folder.isOfOne(matrix))
        source.byData = kOneHead;
      source.getRows = [left = std::move(*left)](int64_t query) {
        return left[query];
      };
      source.getTokens = source.getRows;
    }
  if (mayRemove)
    for (KeySequence &keys : matrix.sequences)
      keys.getAdmitted = nullptr;
  return isLeftOpen;
}
