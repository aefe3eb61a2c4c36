//===- StreamMatrix.cpp - Which rows of sources queries read --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamMatrix.h"
#include "NamedRows.h"
#include "ScoreMask.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

namespace {
/// Rows from `firstRow` on that stand for tokens of `root`, each for as many,
/// or for themselves, if `root` is the tensor that has them.
struct RowOrigin {
  int64_t firstRow, numRows;
  Value root;
  int64_t firstToken, tokensPerRow;

  RowRange getTokens(RowRange rows) const {
    auto tokenOf = [&](int64_t row) {
      return firstToken +
             std::clamp<int64_t>(row - firstRow, 0, numRows) * tokensPerRow;
    };
    return {tokenOf(rows.begin), tokenOf(rows.end)};
  }
};
} // namespace

/// Where a slice of rows begins that has everything of the other dimensions.
static std::optional<int64_t> getFirstRow(tensor::InsertSliceOp slice) {
  if (slice.getSourceType().getRank() != 4 ||
      slice.getDestType().getRank() != 4)
    return std::nullopt;
  for (unsigned dim : {0, 1, 3})
    if (slice.getStaticOffsets()[dim] != 0)
      return std::nullopt;
  bool isDense = llvm::all_of(slice.getStaticStrides(),
                              [](int64_t stride) { return stride == 1; });
  int64_t first = slice.getStaticOffsets()[2];
  if (!isDense || ShapedType::isDynamic(first))
    return std::nullopt;
  return first;
}

/// Follows rows of keys or values back to what they are made of.
static SmallVector<RowOrigin> traceRows(Value value, Extents &extents) {
  while (auto cast = value.getDefiningOp<tensor::CastOp>())
    value = cast.getSource();
  int64_t numRows = extents.shapeOf(value)[2];
  SmallVector<RowOrigin> itself = {{0, numRows, value, 0, 1}};
  auto summarize = [&](Value tokens, int64_t tokensPerRow) {
    SmallVector<RowOrigin> input = traceRows(tokens, extents);
    if (input.size() != 1 || input[0].tokensPerRow != 1)
      return itself;
    return SmallVector<RowOrigin>{{0, numRows, input[0].root, 0, tokensPerRow}};
  };
  if (auto summaries = value.getDefiningOp<attn::SummarizeOp>())
    return summarize(summaries.getInput(),
                     summaries.getInterval() / summaries.getRank());
  if (auto pool = value.getDefiningOp<attn::PoolOp>())
    return summarize(pool.getInput(), pool.getInterval());
  auto slice = value.getDefiningOp<tensor::InsertSliceOp>();
  std::optional<int64_t> first = slice ? getFirstRow(slice) : std::nullopt;
  if (!first)
    return itself;
  SmallVector<RowOrigin> origins = traceRows(slice.getSource(), extents);
  int64_t last = *first + extents.shapeOf(slice.getSource())[2];
  for (RowOrigin &origin : origins)
    origin.firstRow += *first;
  // What the slice leaves of the rows that were there.
  for (const RowOrigin &origin : traceRows(slice.getDest(), extents))
    for (RowRange rest : {RowRange{0, *first}, RowRange{last, numRows}}) {
      RowOrigin part = origin;
      part.firstRow = std::max(origin.firstRow, rest.begin);
      part.numRows =
          std::min(origin.firstRow + origin.numRows, rest.end) - part.firstRow;
      part.firstToken = origin.getTokens({part.firstRow, part.firstRow}).begin;
      if (part.numRows > 0)
        origins.push_back(part);
    }
  return origins;
}

namespace {
/// Collects the sources of a stream, and the sequences that they read.
class StreamReader {
public:
  StreamReader(int64_t block, ArrayRef<int64_t> query, Value queryLengths,
               Extents &extents, const KnownData &data)
      : rowsPerBlock(block > 0 ? block : std::max<int64_t>(query[2], 1)),
        queryLengths(queryLengths), extents(extents), data(data),
        matrix{query[0], query[1], query[2], {}, {}} {}

  void add(const attn::StreamSource &source);
  ScoreMatrix take();

private:
  /// The sequence of the tokens that rows of `root` are, or stand for.
  unsigned getSequence(Value root, int64_t tokensPerRow);

  int64_t rowsPerBlock;
  Value queryLengths;
  Extents &extents;
  const KnownData &data;
  ScoreMatrix matrix;
  SmallVector<std::pair<Value, int64_t>> roots;
  /// Of the sources whose rows are the tokens of a sequence.
  struct Promise {
    SmallVector<Mask> masks;
    /// None if there are as many as rows.
    std::optional<SequenceLengths> lengths;
  };
  SmallVector<Promise> promises;
};
} // namespace

unsigned StreamReader::getSequence(Value root, int64_t tokensPerRow) {
  auto *found = llvm::find(roots, std::make_pair(root, tokensPerRow));
  if (found != roots.end())
    return found - roots.begin();
  roots.push_back({root, tokensPerRow});
  KeySequence &sequence = matrix.sequences.emplace_back();
  sequence.name = "keys of source " + std::to_string(matrix.sources.size());
  sequence.length =
      extents.shapeOf(root)[cast<ShapedType>(root.getType()).getRank() - 2] *
      tokensPerRow;
  promises.emplace_back();
  return roots.size() - 1;
}

void StreamReader::add(const attn::StreamSource &source) {
  int64_t n = matrix.numQueries;
  int64_t rows = extents.shapeOf(source.getRowsOperand())[2];
  if (!extents.isKnown)
    return;
  ScoreSource result;
  result.name = "source " + std::to_string(matrix.sources.size());
  result.numRows = rows;
  result.numQueries = n;
  if (source.codes)
    result.byData = "the key of a row is that of its code";
  Mask mask(source.attr.getMask());
  // Lengths may count tokens that make no row yet.
  SequenceLengths lengths = getLengths(queryLengths, source.lengths, n,
                                       (rows + 1) * mask.stride - 1, data);
  std::optional<int64_t> numPositions;
  if (source.lengths)
    numPositions = lengths.tokens / mask.stride;
  SourceRows named = getSourceRows(source, data, rows, numPositions,
                                   rowsPerBlock, lengths.queries, matrix.heads);
  if (!lengths.byData.empty())
    result.byData = lengths.byData;
  if (named.hasUnknownLists)
    result.byData = "lists say which rows are read";
  if (named.isOfOneHead)
    result.byData = "other heads have other lists";
  result.firstPosition =
      source.lengths
          ? lengths.tokens - lengths.queries
          : mask.getFirstPosition(lengths.queries, named.numPositions);

  // Values say what rows stand for: keys may be looked up in a table.
  SmallVector<RowOrigin> origins = {{0, rows, source.values, 0, 1}};
  if (!source.hasValueBlocks())
    origins = traceRows(source.values, extents);
  if (!llvm::all_equal(llvm::map_range(
          origins, [](const RowOrigin &origin) { return origin.root; })))
    origins = {{0, rows, source.values, 0, 1}};
  // Summaries of unknown origin stand for as many tokens as their mask says.
  bool isItself = llvm::all_of(origins, [](const RowOrigin &origin) {
    return origin.tokensPerRow == 1;
  });
  for (RowOrigin &origin : origins)
    if (isItself)
      origin.tokensPerRow = mask.stride;
  result.sequence =
      getSequence(origins.front().root, isItself ? mask.stride : 1);
  int64_t length = matrix.sequences[result.sequence].length;
  int64_t least = INT64_MAX, most = 0;
  for (const RowOrigin &origin : origins) {
    least = std::min(least, origin.tokensPerRow);
    most = std::max(most, origin.tokensPerRow);
  }
  result.kind = "summaries of " + std::to_string(least) +
                (least == most ? "" : " to " + std::to_string(most)) +
                " tokens";
  if (most == 1)
    result.kind = "tokens";
  const RowOrigin &first = origins.front();
  if (origins.size() == 1 && first.firstRow == 0 && first.firstToken == 0)
    result.tokensPerRow = first.tokensPerRow;
  // Rows that stand where they are listed are not read in the order of tokens.
  if (least == mask.stride && most == mask.stride &&
      !source.attr.getHasListedPositions()) {
    Promise &promise = promises[result.sequence];
    promise.masks.push_back(mask);
    if (!source.lengths)
      lengths.tokens = length;
    if (source.lengths || queryLengths)
      promise.lengths = lengths;
  }

  result.getRows = [named = std::move(named), perBlock = rowsPerBlock, mask,
                    first = result.firstPosition,
                    queries = lengths.queries](int64_t query) {
    RowRanges admitted;
    if (query >= queries)
      return admitted;
    for (const NamedRows &part : named.blocks[query / perBlock]) {
      RowRange range = mask.admit(first + query, part.positions);
      addRange(admitted, {range.begin + part.shift, range.end + part.shift});
    }
    return admitted;
  };
  result.getTokens = [getRows = result.getRows, origins,
                      length](int64_t query) {
    RowRanges tokens;
    for (const RowRange &range : getRows(query))
      for (const RowOrigin &origin : origins) {
        RowRange part = origin.getTokens(range);
        // The last summary may stand for fewer.
        part.end = std::min(part.end, length);
        addRange(tokens, part);
      }
    return tokens;
  };
  matrix.sources.push_back(std::move(result));
}

/// What several masks admit together.
static Mask unite(ArrayRef<Mask> masks) {
  Mask united;
  bool hasWindow = true;
  if (!masks.empty())
    united.stride = masks.front().stride;
  for (const Mask &mask : masks) {
    united.isCausal |= mask.isCausal;
    hasWindow &= mask.window > 0;
    united.window = std::max(united.window, mask.window);
    united.stride = std::min(united.stride, mask.stride);
  }
  if (!hasWindow)
    united.window = 0;
  return united;
}

ScoreMatrix StreamReader::take() {
  int64_t n = matrix.numQueries;
  for (auto [sequence, promise] : llvm::zip_equal(matrix.sequences, promises)) {
    Mask mask = unite(promise.masks);
    int64_t length = sequence.length;
    int64_t first = mask.getFirstPosition(n, length / mask.stride);
    if (promise.lengths)
      first = promise.lengths->tokens - promise.lengths->queries;
    sequence = makeSequence(
        sequence.name, length,
        promise.lengths.value_or(SequenceLengths{n, length, ""}), first, mask);
  }
  return std::move(matrix);
}

ScoreMatrix fovea::detail::makeStreamMatrix(attn::StreamOp op, Extents &extents,
                                            const KnownData &data) {
  StreamReader reader(op.getBlock(), extents.shapeOf(op.getQuery()),
                      op.getQueryLengths(), extents, data);
  for (const attn::StreamSource &source : op.getSourceList())
    reader.add(source);
  return reader.take();
}

ScoreMatrix fovea::detail::makeStreamMatrix(attn::StreamBackwardOp op,
                                            Extents &extents,
                                            const KnownData &data) {
  StreamReader reader(op.getBlock(), extents.shapeOf(op.getQuery()),
                      op.getQueryLengths(), extents, data);
  for (const attn::StreamSourceGradient &source : op.getSourceList())
    reader.add(source.forward);
  return reader.take();
}
