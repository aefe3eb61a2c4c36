//===- ScoreCounts.cpp - Counts of entries and pairs ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ScoreMatrix.h"
#include "llvm/ADT/STLExtras.h"

using namespace fovea;
using llvm::ArrayRef;

int64_t fovea::countRows(ArrayRef<RowRange> ranges) {
  int64_t rows = 0;
  for (const RowRange &range : ranges)
    rows += range.size();
  return rows;
}

double ScoreSource::countEntries() const {
  double entries = 0;
  for (int64_t query = 0; query < numQueries; ++query)
    entries += static_cast<double>(countRows(getRows(query)));
  return entries;
}

double ScoreMatrix::countEntries() const {
  double entries = 0;
  for (const ScoreSource &source : sources)
    entries += source.countEntries();
  return entries;
}

void fovea::visitFaults(
    const ScoreMatrix &matrix, unsigned sequence,
    llvm::function_ref<void(PairFault, int64_t query, RowRange)> visit) {
  const KeySequence &keys = matrix.sequences[sequence];
  if (!keys.getAdmitted)
    return;
  auto add = [&](PairFault fault, int64_t query, RowRange tokens) {
    if (tokens.size() > 0)
      visit(fault, query, tokens);
  };
  auto addNever = [&](int64_t query, RowRange tokens) {
    for (int64_t token = tokens.begin; token < tokens.end;) {
      int64_t absent = tokens.end;
      if (!keys.absent.empty())
        absent = keys.absent.find_first_in(token, tokens.end);
      absent = absent < 0 ? tokens.end : absent;
      add(PairFault::Never, query, {token, absent});
      token = absent + 1;
    }
  };
  for (int64_t query = 0; query < matrix.numQueries; ++query) {
    RowRanges tokens;
    for (const ScoreSource &source : matrix.sources)
      if (source.sequence == sequence)
        llvm::append_range(tokens,
                           source.getTokens(query / source.queriesPerRow));
    llvm::sort(tokens, [](const RowRange &a, const RowRange &b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    RowRange admitted = keys.getAdmitted(query);
    // A prefix is admitted whatever the query's position is.
    int64_t last = std::max(query + keys.firstPosition + 1, admitted.end);
    // Tokens before `next` are done, and so are those before `nextTwice` that
    // are read more than once.
    int64_t next = admitted.begin, nextTwice = 0;
    int64_t read = 0;
    for (const RowRange &range : tokens) {
      addNever(query, {next, std::min(range.begin, admitted.end)});
      next = std::max(next, range.end);
      add(PairFault::Twice, query,
          {std::max(range.begin, nextTwice), std::min(range.end, read)});
      if (range.begin < read)
        nextTwice = std::max(nextTwice, std::min(range.end, read));
      if (keys.isCausal)
        add(PairFault::Ahead, query,
            {std::max({range.begin, last, read}), range.end});
      read = std::max(read, range.end);
    }
    addNever(query, {next, admitted.end});
  }
}

std::optional<PairCounts> fovea::countPairs(const ScoreMatrix &matrix,
                                            unsigned sequence) {
  const KeySequence &keys = matrix.sequences[sequence];
  if (!keys.getAdmitted)
    return std::nullopt;
  PairCounts counts;
  for (int64_t query = 0; query < matrix.numQueries; ++query) {
    RowRange admitted = keys.getAdmitted(query);
    int64_t count = admitted.size();
    for (int64_t token : keys.absent.set_bits())
      count -= admitted.begin <= token && token < admitted.end;
    counts.admitted += static_cast<double>(count);
  }
  visitFaults(
      matrix, sequence, [&](PairFault fault, int64_t query, RowRange tokens) {
        auto add = [&](double &count, std::optional<PairCounts::Pair> &first) {
          count += static_cast<double>(tokens.size());
          if (!first)
            first = {query, tokens.begin};
        };
        switch (fault) {
        case PairFault::Never:
          return add(counts.never, counts.firstNever);
        case PairFault::Twice:
          return add(counts.twice, counts.firstTwice);
        case PairFault::Ahead:
          return add(counts.ahead, counts.firstAhead);
        }
      });
  return counts;
}
