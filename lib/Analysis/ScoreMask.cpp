//===- ScoreMask.cpp - Entries that masks and lengths leave ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ScoreMask.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

void fovea::detail::addRange(RowRanges &ranges, RowRange range) {
  if (range.size() > 0)
    ranges.push_back(range);
}

void fovea::detail::addRow(RowRanges &ranges, int64_t row) {
  if (!ranges.empty() && ranges.back().end == row)
    ++ranges.back().end;
  else
    ranges.push_back({row, row + 1});
}

//===----------------------------------------------------------------------===//
// Lengths
//===----------------------------------------------------------------------===//

SequenceLengths fovea::detail::getLengths(Value queryLengths, Value lengths,
                                          int64_t queries, int64_t tokens,
                                          const KnownData &data) {
  SequenceLengths found{queries, tokens, ""};
  auto take = [&](Value operand, int64_t &length) {
    if (!operand)
      return;
    auto known = dyn_cast_or_null<DenseIntElementsAttr>(data.lookup(operand));
    if (!known || known.empty()) {
      found.byData = "lengths say how many rows there are";
      return;
    }
    int64_t entry = known.getNumElements() == 1 ? 0 : data.batch;
    length = std::clamp<int64_t>(known.getValues<APInt>()[entry].getSExtValue(),
                                 0, length);
    if (!known.isSplat() && found.byData.empty())
      found.byData = "other batch entries have other lengths";
  };
  take(queryLengths, found.queries);
  take(lengths, found.tokens);
  return found;
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

Mask::Mask(attn::MaskAttr mask)
    : isCausal(mask && mask.getCausal()), window(mask ? mask.getWindow() : 0),
      prefix(mask ? mask.getPrefix() : 0), stride(mask ? mask.getStride() : 1) {
}

int64_t Mask::getFirstPosition(int64_t n, int64_t m) const {
  int64_t tokens = m * stride;
  return tokens + std::clamp<int64_t>(n - tokens, 0, stride - 1) - n;
}

RowRange Mask::admit(int64_t position, RowRange range) const {
  auto rowAt = [&](int64_t position) {
    return llvm::divideFloorSigned(position, stride);
  };
  if (isCausal)
    range.end = std::min(range.end, rowAt(std::max(position + 1, prefix)));
  if (window > 0) {
    range.begin = std::max(range.begin, rowAt(position - window + 1));
    range.end = std::min(range.end, rowAt(position + window));
  }
  return range;
}

std::string Mask::describe() const {
  std::string text = isCausal ? "causal" : "";
  if (window > 0)
    text +=
        (text.empty() ? "window of " : ", window of ") + std::to_string(window);
  if (prefix > 0)
    text += ", prefix of " + std::to_string(prefix);
  if (stride > 1 && !text.empty())
    text += ", stride of " + std::to_string(stride);
  return text;
}

//===----------------------------------------------------------------------===//
// Sequences and sources
//===----------------------------------------------------------------------===//

KeySequence fovea::detail::makeSequence(std::string name, int64_t length,
                                        const SequenceLengths &lengths,
                                        int64_t firstPosition, Mask mask) {
  KeySequence sequence;
  sequence.name = std::move(name);
  sequence.length = length;
  sequence.mask = mask.describe();
  sequence.isCausal = mask.isCausal;
  sequence.firstPosition = lengths.tokens - lengths.queries;
  sequence.getAdmitted = [=, queries = lengths.queries,
                          rows = lengths.tokens / mask.stride](int64_t query) {
    if (query >= queries)
      return RowRange{0, 0};
    RowRange admitted = mask.admit(firstPosition + query, {0, rows});
    return RowRange{admitted.begin * mask.stride, admitted.end * mask.stride};
  };
  return sequence;
}

ScoreSource
fovea::detail::makeTokenSource(int64_t n, int64_t rows,
                               std::function<RowRange(int64_t)> getRows) {
  ScoreSource source;
  source.name = "keys";
  source.kind = "tokens";
  source.numRows = rows;
  source.tokensPerRow = 1;
  source.numQueries = n;
  source.firstPosition = rows - n;
  source.getRows = [=](int64_t query) {
    RowRanges ranges;
    addRange(ranges, getRows(query));
    return ranges;
  };
  source.getTokens = source.getRows;
  return source;
}

void fovea::detail::removeAbsent(ScoreMatrix &matrix,
                                 const llvm::BitVector &absent) {
  auto isAbsent = [=](int64_t first, int64_t end) {
    end = std::min<int64_t>(end, absent.size());
    return first >= end || absent.find_first_unset_in(first, end) < 0;
  };
  auto keepPresent = [=](RowRange range, int64_t tokensPerRow,
                         RowRanges &kept) {
    for (int64_t row = range.begin; row < range.end; ++row) {
      if (isAbsent(row * tokensPerRow, (row + 1) * tokensPerRow))
        continue;
      addRow(kept, row);
    }
  };
  auto filter = [=](auto get, int64_t queriesPerRow, int64_t tokensPerRow) {
    return [=](int64_t query) {
      RowRanges kept;
      if (!isAbsent(query * queriesPerRow, (query + 1) * queriesPerRow))
        for (const RowRange &range : get(query))
          keepPresent(range, tokensPerRow, kept);
      return kept;
    };
  };
  for (ScoreSource &source : matrix.sources) {
    source.getRows =
        filter(source.getRows, source.queriesPerRow, source.tokensPerRow);
    source.getTokens = filter(source.getTokens, source.queriesPerRow, 1);
  }
  KeySequence &keys = matrix.sequences.front();
  keys.absent = absent;
  keys.getAdmitted = [=, get = keys.getAdmitted](int64_t query) {
    return isAbsent(query, query + 1) ? RowRange{0, 0} : get(query);
  };
}
