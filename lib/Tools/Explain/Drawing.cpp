//===- Drawing.cpp - Score matrices as rectangles and tiles ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"
#include <map>

using namespace llvm;
using namespace fovea;
using namespace fovea::explanation;

//===----------------------------------------------------------------------===//
// Rectangles
//===----------------------------------------------------------------------===//

/// A matrix of more queries or tokens is drawn by blocks of entries, as many as
/// this along each side.
static constexpr int64_t kMaxExactExtent = 256, kMaxCells = 128;

static int64_t getCellExtent(int64_t extent) {
  return extent <= kMaxExactExtent ? 1 : divideCeil(extent, kMaxCells);
}

namespace {
/// A row of cells, or what of it is the same.
struct Run {
  RowRange tokens;
  double share;

  bool operator==(const Run &other) const {
    return tokens == other.tokens && share == other.share;
  }
};
using Runs = SmallVector<Run>;
} // namespace

namespace {
/// The tokens that a query reads of a source, or that are wrong about it.
using TokensOf = function_ref<RowRanges(int64_t query)>;

/// Makes rectangles of entries of one sequence of `length` tokens.
class CellPainter {
public:
  CellPainter(int64_t numQueries, int64_t length, const Drawing &drawing)
      : numQueries(numQueries), length(length),
        cellQueries(drawing.cellQueries), cellTokens(drawing.cellTokens) {}

  std::vector<Rectangle> paint(TokensOf tokensOf) const;

private:
  /// The runs of the queries of one row of cells.
  Runs getRuns(TokensOf tokensOf, RowRange queries) const;

  int64_t numQueries, length, cellQueries, cellTokens;
};
} // namespace

Runs CellPainter::getRuns(TokensOf tokensOf, RowRange queries) const {
  std::vector<int64_t> counts(divideCeil(length, cellTokens));
  for (int64_t query = queries.begin; query < queries.end; ++query)
    for (const RowRange &range : tokensOf(query))
      for (int64_t at = range.begin; at < range.end;) {
        int64_t end = std::min(range.end, (at / cellTokens + 1) * cellTokens);
        counts[at / cellTokens] += end - at;
        at = end;
      }
  Runs runs;
  for (auto [cell, count] : enumerate(counts)) {
    if (count == 0)
      continue;
    int64_t begin = static_cast<int64_t>(cell) * cellTokens;
    RowRange tokens = {begin, std::min(begin + cellTokens, length)};
    double share =
        static_cast<double>(count) / (tokens.size() * queries.size());
    if (!runs.empty() && runs.back().tokens.end == begin &&
        runs.back().share == share)
      runs.back().tokens.end = tokens.end;
    else
      runs.push_back({tokens, share});
  }
  return runs;
}

std::vector<Rectangle> CellPainter::paint(TokensOf tokensOf) const {
  std::vector<Rectangle> rectangles;
  // Rectangles from `open` on end with the last row of cells.
  size_t open = 0;
  Runs last;
  for (int64_t query = 0; query < numQueries; query += cellQueries) {
    RowRange queries = {query, std::min(query + cellQueries, numQueries)};
    Runs runs = getRuns(tokensOf, queries);
    if (runs == last) {
      for (size_t index = open; index < rectangles.size(); ++index)
        rectangles[index].queries += queries.size();
      continue;
    }
    open = rectangles.size();
    for (const Run &run : runs)
      rectangles.push_back({query, queries.size(), run.tokens.begin,
                            run.tokens.size(), run.share});
    last = std::move(runs);
  }
  return rectangles;
}

/// What is wrong with the pairs of a sequence.
static Drawing::Faults paintFaults(const ScoreMatrix &matrix, unsigned sequence,
                                   const CellPainter &painter) {
  // Most patterns have none.
  std::map<PairFault, DenseMap<int64_t, RowRanges>> found;
  visitFaults(matrix, sequence,
              [&](PairFault fault, int64_t query, RowRange tokens) {
                found[fault][query].push_back(tokens);
              });
  auto paint = [&](PairFault fault) -> std::vector<Rectangle> {
    auto of = found.find(fault);
    if (of == found.end())
      return {};
    return painter.paint(
        [&](int64_t query) { return of->second.lookup(query); });
  };
  return {paint(PairFault::Never), paint(PairFault::Twice),
          paint(PairFault::Ahead)};
}

Drawing explanation::draw(const ScoreMatrix &matrix) {
  Drawing drawing;
  drawing.cellQueries = getCellExtent(matrix.numQueries);
  for (const KeySequence &keys : matrix.sequences)
    drawing.cellTokens =
        std::max(drawing.cellTokens, getCellExtent(keys.length));
  auto makePainter = [&](unsigned sequence) {
    return CellPainter(matrix.numQueries, matrix.sequences[sequence].length,
                       drawing);
  };
  for (const ScoreSource &source : matrix.sources)
    drawing.sources.push_back(
        makePainter(source.sequence).paint([&](int64_t query) {
          return source.getTokens(query / source.queriesPerRow);
        }));
  for (size_t sequence = 0; sequence < matrix.sequences.size(); ++sequence)
    drawing.faults.push_back(
        paintFaults(matrix, sequence, makePainter(sequence)));
  return drawing;
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// The most tasks that are listed.
static constexpr int64_t kMaxTasks = 256;

static TaskTiles makeTask(const ScoreSource &source, RowRange queries,
                          int64_t keyTile) {
  RowRanges ranges;
  double entries = 0;
  for (int64_t query = queries.begin; query < queries.end; ++query) {
    RowRanges rows = source.getRows(query / source.queriesPerRow);
    entries += static_cast<double>(countRows(rows));
    append_range(ranges, rows);
  }
  sort(ranges,
       [](const RowRange &a, const RowRange &b) { return a.begin < b.begin; });
  TaskTiles task{queries.begin, queries.end, 0, {0, 0}, 0, 0};
  int64_t numRows = 0;
  // Ranges that touch are one run of rows.
  for (size_t index = 0; index < ranges.size();) {
    RowRange run = ranges[index++];
    while (index < ranges.size() && ranges[index].begin <= run.end)
      run.end = std::max(run.end, ranges[index++].end);
    numRows += run.size();
    task.tiles += divideCeil(run.size(), keyTile);
    task.rows = {numRows == run.size() ? run.begin : task.rows.begin, run.end};
  }
  if (numRows > 0)
    task.share = entries / (static_cast<double>(numRows) * queries.size());
  return task;
}

std::optional<TileList> explanation::listTiles(const ScoreMatrix &matrix,
                                               int64_t queries, int64_t keys) {
  if (queries <= 0 || keys <= 0)
    return std::nullopt;
  int64_t numTasks = divideCeil(matrix.numQueries, queries);
  TileList list{queries, keys, numTasks, {}};
  for (int64_t task = 0; task < std::min(list.numTasks, kMaxTasks); ++task) {
    int64_t first = task * queries;
    for (auto [number, source] : enumerate(matrix.sources)) {
      TaskTiles tiles = makeTask(
          source, {first, std::min(first + queries, matrix.numQueries)}, keys);
      tiles.source = number;
      if (tiles.tiles > 0)
        list.tasks.push_back(tiles);
    }
  }
  return list;
}
