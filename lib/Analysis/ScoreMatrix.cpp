//===- ScoreMatrix.cpp - Which keys queries read --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ScoreMatrix.h"
#include "NamedRows.h"
#include "VisitAttnOp.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;

static void addRange(RowRanges &ranges, RowRange range) {
  if (range.size() > 0)
    ranges.push_back(range);
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

namespace {
/// #attn.mask, without its context.
struct Mask {
  bool isCausal = false;
  int64_t window = 0, prefix = 0, stride = 1;

  Mask() = default;
  explicit Mask(bool isCausal) : isCausal(isCausal) {}
  explicit Mask(attn::MaskAttr mask)
      : isCausal(mask && mask.getCausal()), window(mask ? mask.getWindow() : 0),
        prefix(mask ? mask.getPrefix() : 0),
        stride(mask ? mask.getStride() : 1) {}

  /// Rows of `range` that are admitted for query `i` of `n`, where the source
  /// has `m` rows.
  RowRange admit(int64_t i, int64_t n, int64_t m, RowRange range) const {
    int64_t tokens = m * stride;
    tokens += std::clamp<int64_t>(n - tokens, 0, stride - 1);
    int64_t position = i + tokens - n;
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

  std::string describe() const {
    std::string text = isCausal ? "causal" : "";
    if (window > 0)
      text += (text.empty() ? "window of " : ", window of ") +
              std::to_string(window);
    if (prefix > 0)
      text += ", prefix of " + std::to_string(prefix);
    if (stride > 1 && !text.empty())
      text += ", stride of " + std::to_string(stride);
    return text;
  }
};
} // namespace

/// Tokens of a matrix of `n` queries, with this mask.
static KeySequence makeSequence(std::string name, int64_t length, int64_t n,
                                Mask mask) {
  KeySequence sequence{std::move(name), length, {}, mask.describe()};
  sequence.isCausal = mask.isCausal;
  sequence.getAdmitted = [=](int64_t query) {
    int64_t rows = length / mask.stride;
    RowRange admitted = mask.admit(query, n, rows, {0, rows});
    return RowRange{admitted.begin * mask.stride, admitted.end * mask.stride};
  };
  return sequence;
}

/// A source whose rows are the tokens of sequence 0, read once by every query.
static ScoreSource makeTokenSource(int64_t n, int64_t rows,
                                   std::function<RowRange(int64_t)> getRows) {
  ScoreSource source;
  source.name = "keys";
  source.kind = "tokens";
  source.numRows = rows;
  source.tokensPerRow = 1;
  source.numQueries = n;
  source.getRows = [=](int64_t query) {
    RowRanges ranges;
    addRange(ranges, getRows(query));
    return ranges;
  };
  source.getTokens = source.getRows;
  return source;
}

//===----------------------------------------------------------------------===//
// Sources of streams
//===----------------------------------------------------------------------===//

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
  StreamReader(int64_t block, ArrayRef<int64_t> query, Extents &extents)
      : rowsPerBlock(block > 0 ? block : std::max<int64_t>(query[2], 1)),
        extents(extents), matrix{query[0], query[1], query[2], {}, {}} {}

  void add(const attn::StreamSource &source);
  ScoreMatrix take();

private:
  /// The sequence of the tokens that rows of `root` are, or stand for.
  unsigned getSequence(Value root, int64_t tokensPerRow);

  int64_t rowsPerBlock;
  Extents &extents;
  ScoreMatrix matrix;
  SmallVector<std::pair<Value, int64_t>> roots;
  /// Masks of the sources whose rows are the tokens of a sequence.
  SmallVector<SmallVector<Mask>> masks;
};
} // namespace

unsigned StreamReader::getSequence(Value root, int64_t tokensPerRow) {
  auto *found = llvm::find(roots, std::make_pair(root, tokensPerRow));
  if (found != roots.end())
    return found - roots.begin();
  roots.push_back({root, tokensPerRow});
  masks.emplace_back();
  matrix.sequences.push_back(
      {"keys of source " + std::to_string(matrix.sources.size()),
       extents.shapeOf(root)[cast<ShapedType>(root.getType()).getRank() - 2] *
           tokensPerRow,
       {},
       {}});
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
  if (source.lengths)
    result.byData = "lengths say how many rows there are";
  SourceRows named = getSourceRows(source, rows, rowsPerBlock, n);
  if (named.hasUnknownLists)
    result.byData = "lists say which rows are read";
  if (named.isOfFirstHead)
    result.byData = "other heads have other lists";

  // Values say what rows stand for: keys may be looked up in a table.
  SmallVector<RowOrigin> origins = {{0, rows, source.values, 0, 1}};
  if (!source.hasValueBlocks())
    origins = traceRows(source.values, extents);
  if (!llvm::all_equal(llvm::map_range(
          origins, [](const RowOrigin &origin) { return origin.root; })))
    origins = {{0, rows, source.values, 0, 1}};
  // Summaries of unknown origin stand for as many tokens as their mask says.
  Mask mask(source.attr.getMask());
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
      !source.attr.getHasListedPositions())
    masks[result.sequence].push_back(mask);

  result.getRows = [named = std::move(named), perBlock = rowsPerBlock, mask,
                    n](int64_t query) {
    RowRanges admitted;
    for (const NamedRows &part : named.blocks[query / perBlock]) {
      RowRange range = mask.admit(query, n, named.numPositions, part.positions);
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
  for (auto [sequence, given] : llvm::zip_equal(matrix.sequences, masks))
    sequence = makeSequence(sequence.name, sequence.length, n, unite(given));
  return std::move(matrix);
}

//===----------------------------------------------------------------------===//
// Levels of summaries
//===----------------------------------------------------------------------===//

namespace {
/// The hierarchy over `n` tokens in groups of `group`, `rank` summaries an
/// interval.
struct Hierarchy {
  int64_t n, group, rank, levels;
  bool causal;

  int64_t getInterval(int64_t level) const { return group << (level - 1); }
  int64_t getTokensPerRow(int64_t level) const {
    return getInterval(level) / rank;
  }
  /// Summaries of a level that stand for a token.
  int64_t countSummaries(int64_t level) const {
    return llvm::divideCeil(n, getTokensPerRow(level));
  }

  RowRange getNearTokens(int64_t query) const {
    int64_t own = query / group * group;
    return {std::max<int64_t>(own - group, 0),
            causal ? query + 1 : std::min(own + 2 * group, n)};
  }

  /// Summaries that the tokens of interval `u` of `level` read at that level.
  RowRanges getFarSummaries(int64_t level, int64_t u) const {
    int64_t numIntervals = llvm::divideCeil(n, getInterval(level));
    // Neighbours of the parent, which the coarsest level has none of.
    int64_t first = level == levels ? 0 : std::max<int64_t>(u / 2 - 1, 0) * 2;
    int64_t last = level == levels ? numIntervals : (u / 2 + 2) * 2;
    last = std::min(last, causal ? u - 1 : numIntervals);
    auto rowOf = [&](int64_t interval) {
      return std::min(interval * rank, countSummaries(level));
    };
    RowRanges rows;
    addRange(rows, {rowOf(first), rowOf(std::min(last, u - 1))});
    addRange(rows, {rowOf(u + 2), rowOf(last)});
    return rows;
  }
};
} // namespace

/// One level; with `ofSummaries`, its queries are summaries, too.
static ScoreSource makeLevel(const Hierarchy &tree, int64_t level,
                             bool ofSummaries) {
  ScoreSource source;
  int64_t tokensPerRow = tree.getTokensPerRow(level);
  source.name = "level " + std::to_string(level);
  source.kind = "summaries of " + std::to_string(tokensPerRow) + " tokens";
  source.numRows = tree.countSummaries(level);
  source.tokensPerRow = tokensPerRow;
  source.queriesPerRow = ofSummaries ? tokensPerRow : 1;
  source.numQueries = llvm::divideCeil(tree.n, source.queriesPerRow);
  source.getRows = [=, perRow = source.queriesPerRow](int64_t query) {
    return tree.getFarSummaries(level,
                                query * perRow / tree.getInterval(level));
  };
  source.getTokens = [=, getRows = source.getRows](int64_t query) {
    RowRanges tokens = getRows(query);
    for (RowRange &range : tokens)
      range = {range.begin * tokensPerRow,
               std::min(range.end * tokensPerRow, tree.n)};
    return tokens;
  };
  return source;
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace {
/// Makes the matrix of an operation by its class. Those without scores have no
/// function here.
class MatrixMaker {
public:
  explicit MatrixMaker(Extents &extents) : extents(extents) {}

  void make(attn::DenseOp op) { makeDense(op); }
  void make(attn::DenseBackwardOp op) { makeDense(op); }

  void make(attn::StreamOp op) {
    // A tile does not have all queries.
    if (op.getFirstRow() || op.getNumRows()) {
      extents.isKnown = false;
      return;
    }
    StreamReader reader(op.getBlock(), extents.shapeOf(op.getQuery()), extents);
    for (const attn::StreamSource &source : op.getSourceList())
      reader.add(source);
    matrix = reader.take();
  }
  void make(attn::StreamBackwardOp op) {
    StreamReader reader(op.getBlock(), extents.shapeOf(op.getQuery()), extents);
    for (const attn::StreamSourceGradient &source : op.getSourceList())
      reader.add(source.forward);
    matrix = reader.take();
  }

  void make(attn::FastMultipoleOp op) { makeMultipole(op, false); }
  void make(attn::FastMultipoleBackwardOp op) { makeMultipole(op, false); }
  void make(attn::FastMultipoleLinearOp op) { makeMultipole(op, true); }
  void make(attn::FastMultipoleLinearBackwardOp op) { makeMultipole(op, true); }

  void make(attn::VQOp op) { makeVQ(op); }
  void make(attn::VQBackwardOp op) { makeVQ(op); }
  void make(attn::VQDecodeOp op) {
    makeVQ(op);
    if (matrix)
      matrix->sources[0].byData = kEarlierTokens;
  }

  void make(attn::ConvOp op) { makeConv(op); }
  void make(attn::ConvBackwardOp op) { makeConv(op); }
  void make(attn::ConvApplyOp op) { makeConvApply(op); }
  void make(attn::ConvApplyBackwardOp op) { makeConvApply(op); }

  void make(attn::LowRankOp op) { makeLowRank(op); }
  void make(attn::LowRankBackwardOp op) { makeLowRank(op); }

  std::optional<ScoreMatrix> matrix;

private:
  static constexpr const char *kEarlierTokens =
      "tokens of earlier windows are in the state";

  /// The matrix, with one sequence of keys.
  ScoreMatrix &start(ArrayRef<int64_t> query, int64_t length, Mask mask) {
    matrix = ScoreMatrix{query[0], query[1], query[2], {}, {}};
    matrix->sequences.push_back(makeSequence("keys", length, query[2], mask));
    return *matrix;
  }
  template <typename OpTy> void makeDense(OpTy op) {
    SmallVector<int64_t> q = extents.shapeOf(op.getQuery());
    int64_t n = q[2], m = extents.shapeOf(op.getKey())[2];
    Mask mask(op.getMaskOrNone());
    start(q, m, mask).sources.push_back(makeTokenSource(n, m, [=](int64_t i) {
      return mask.admit(i, n, m, {0, m});
    }));
  }

  template <typename OpTy> void makeMultipole(OpTy op, bool ofSummaries) {
    SmallVector<int64_t> q = extents.shapeOf(op.getQuery());
    int64_t group = op.getGroup();
    int64_t levels =
        std::min(op.getNumLevels(), attn::countLevels(q[2], group));
    Hierarchy tree{q[2], group, op.getRank(), levels, op.getCausal()};
    start(q, q[2], Mask(op.getCausal()));
    matrix->sources.push_back(makeTokenSource(
        q[2], q[2], [=](int64_t i) { return tree.getNearTokens(i); }));
    for (int64_t level = 1; level <= tree.levels; ++level)
      matrix->sources.push_back(makeLevel(tree, level, ofSummaries));
    if (op.getMask())
      for (ScoreSource &source : matrix->sources)
        source.byData = "tokens that the mask lacks are not read";
  }

  /// Blocks n - memory to n token by token, and codewords for everything older.
  template <typename OpTy> void makeVQ(OpTy op) {
    SmallVector<int64_t> q = extents.shapeOf(op.getQuery());
    int64_t n = q[2], codes = extents.shapeOf(op.getCodebook())[1];
    int64_t block = op.getBlock(), memory = op.getMemory();
    bool isCausal = true, hasState = true;
    if constexpr (!std::is_same_v<OpTy, attn::VQDecodeOp>) {
      isCausal = op.getCausal();
      hasState = !op.getState().empty();
    }
    auto getFirst = [=](int64_t i) {
      return isCausal ? std::max<int64_t>(i / block - memory, 0) * block : n;
    };
    start(q, n, Mask(isCausal));
    ScoreSource local = makeTokenSource(
        n, n, [=](int64_t i) { return RowRange{getFirst(i), i + 1}; });
    if (isCausal)
      matrix->sources.push_back(std::move(local));
    ScoreSource codebook;
    codebook.name = "codebook";
    codebook.kind = "codewords";
    codebook.byData = "tokens are read as the codeword of their code";
    codebook.numRows = codes;
    codebook.numQueries = n;
    codebook.getRows = [=](int64_t i) {
      RowRanges rows;
      if (hasState || getFirst(i) > 0)
        addRange(rows, {0, codes});
      return rows;
    };
    codebook.getTokens = [=](int64_t i) {
      RowRanges tokens;
      addRange(tokens, {0, getFirst(i)});
      return tokens;
    };
    matrix->sources.push_back(std::move(codebook));
    if (hasState)
      for (ScoreSource &source : matrix->sources)
        source.byData = kEarlierTokens;
  }

  template <typename OpTy> void makeConv(OpTy op) {
    SmallVector<int64_t> q = extents.shapeOf(op.getQuery());
    makeConvRows(q[0], q[1], q[2], op.getGroup().value_or(q[2]));
    if (op.getMask())
      matrix->sources[0].byData =
          "tokens that the mask lacks do not count in distances and groups";
  }
  template <typename OpTy> void makeConvApply(OpTy op) {
    SmallVector<int64_t> b = extents.shapeOf(op.getBasis());
    makeConvRows(b[0], b[1], b[3], b[3]);
  }
  /// Tokens of the own group and of the one before, up to the query.
  void makeConvRows(int64_t batch, int64_t heads, int64_t n, int64_t group) {
    ScoreMatrix &result = start({batch, heads, n}, n, Mask(true));
    result.sources.push_back(makeTokenSource(n, n, [=](int64_t i) {
      return RowRange{std::max<int64_t>(i / group - 1, 0) * group, i + 1};
    }));
    result.sources[0].byData = "keys before the first basis have no weight";
    if (group < n)
      result.sequences[0].getAdmitted =
          [getRows = result.sources[0].getRows](int64_t i) {
            return getRows(i).front();
          };
  }

  template <typename OpTy> void makeLowRank(OpTy op) {
    SmallVector<int64_t> u = extents.shapeOf(op.getU1());
    int64_t n = u[2], m = extents.shapeOf(op.getU2())[2];
    bool isCausal = op.getMask() == attn::RowMask::Causal;
    Mask mask(isCausal);
    ScoreMatrix &result = start(u, m, mask);
    result.sources.push_back(makeTokenSource(
        n, m, [=](int64_t i) { return mask.admit(i, n, m, {0, m}); }));
    if (!isCausal) {
      result.sources[0].byData = "operands of the mask choose keys";
      result.sequences[0].getAdmitted = nullptr;
    }
  }

  Extents &extents;
};
} // namespace

std::optional<ScoreMatrix> fovea::getScoreMatrix(Operation *op,
                                                 Extents &extents) {
  MatrixMaker maker(extents);
  visitAttnOp(op, [&](auto attention) -> decltype(maker.make(attention)) {
    return maker.make(attention);
  });
  if (!extents.isKnown)
    return std::nullopt;
  return std::move(maker.matrix);
}
