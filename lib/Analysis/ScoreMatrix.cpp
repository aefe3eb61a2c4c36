//===- ScoreMatrix.cpp - Which keys queries read --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ScoreMatrix.h"
#include "ScoreMask.h"
#include "StreamMatrix.h"
#include "VisitAttnOp.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::detail;

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
  MatrixMaker(Extents &extents, const KnownData &data)
      : extents(extents), data(data) {}

  void make(attn::DenseOp op) { makeDense(op); }
  void make(attn::DenseBackwardOp op) { makeDense(op); }

  void make(attn::StreamOp op) {
    // A tile does not have all queries.
    if (op.getFirstRow() || op.getNumRows()) {
      extents.isKnown = false;
      return;
    }
    matrix = makeStreamMatrix(op, extents, data);
  }
  void make(attn::StreamBackwardOp op) {
    matrix = makeStreamMatrix(op, extents, data);
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
    SequenceLengths all{query[2], length, ""};
    matrix->sequences.push_back(makeSequence(
        "keys", length, all, mask.getFirstPosition(query[2], length), mask));
    return *matrix;
  }
  template <typename OpTy> void makeDense(OpTy op) {
    SmallVector<int64_t> q = extents.shapeOf(op.getQuery());
    int64_t n = q[2], m = extents.shapeOf(op.getKey())[2];
    Mask mask(op.getMaskOrNone());
    SequenceLengths lengths =
        getLengths(op.getQueryLengths(), op.getLengths(), n, m, data);
    int64_t first = lengths.tokens - lengths.queries;
    ScoreMatrix &result = start(q, m, mask);
    result.sequences[0] = makeSequence("keys", m, lengths, first, mask);
    ScoreSource source = makeTokenSource(
        n, m, [get = result.sequences[0].getAdmitted](int64_t query) {
          return get(query);
        });
    source.firstPosition = first;
    source.byData = lengths.byData;
    result.sources.push_back(std::move(source));
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
      applyTokenMask(op.getMask());
  }

  /// Leaves the tokens of a mask out.
  void applyTokenMask(Value operand) {
    auto mask = dyn_cast_or_null<DenseIntElementsAttr>(data.lookup(operand));
    int64_t n = matrix->sequences[0].length;
    for (ScoreSource &source : matrix->sources)
      if (!mask)
        source.byData = "tokens that the mask lacks are not read";
      else if (matrix->batch > 1 && !mask.isSplat())
        source.byData = "other batch entries may have other masks";
    if (!mask || mask.empty())
      return;
    llvm::BitVector absent(n);
    int64_t first = mask.getType().getDimSize(0) == 1 ? 0 : data.batch * n;
    for (int64_t token = 0; token < n; ++token)
      absent[token] = mask.getValues<APInt>()[first + token].isZero();
    removeAbsent(*matrix, absent);
  }

  /// For each code the first token that has it, in the batch entry and head to
  /// look at; none if they are not known.
  std::optional<std::vector<int64_t>> findFirstTokens(Value operand,
                                                      int64_t numCodes) {
    auto codes = dyn_cast_or_null<DenseIntElementsAttr>(data.lookup(operand));
    if (!codes || codes.empty())
      return std::nullopt;
    ArrayRef<int64_t> shape = codes.getType().getShape();
    int64_t group = data.head * shape[1] / std::max<int64_t>(matrix->heads, 1);
    int64_t first = (data.batch * shape[1] + group) * shape[2];
    std::vector<int64_t> tokens(numCodes, INT64_MAX);
    for (int64_t token = shape[2]; token-- > 0;) {
      int64_t code = codes.getValues<APInt>()[first + token].getSExtValue();
      if (code >= 0 && code < numCodes)
        tokens[code] = token;
    }
    return tokens;
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
    codebook.numRows = codes;
    codebook.numQueries = n;
    codebook.getRows = [=](int64_t i) {
      RowRanges rows;
      if (hasState || getFirst(i) > 0)
        addRange(rows, {0, codes});
      return rows;
    };
    std::optional<std::vector<int64_t>> firstTokens;
    if (!hasState)
      firstTokens = findFirstTokens(op.getCodes(), codes);
    if (!firstTokens)
      codebook.byData = "tokens are read as the codeword of their code";
    else if (matrix->batch > 1 || matrix->heads > 1)
      codebook.byData = "other heads may have other codes";
    // Codewords that no token has are not there.
    if (firstTokens)
      codebook.getRows = [=, first = std::move(*firstTokens)](int64_t i) {
        RowRanges rows;
        for (int64_t code = 0; code < codes; ++code)
          if (first[code] < getFirst(i))
            addRow(rows, code);
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
        n, m, [=](int64_t i) { return mask.admit(i + m - n, {0, m}); }));
    if (!isCausal) {
      result.sources[0].byData = "operands of the mask choose keys";
      result.sequences[0].getAdmitted = nullptr;
    }
  }

  Extents &extents;
  const KnownData &data;
};
} // namespace

std::optional<ScoreMatrix>
fovea::getScoreMatrix(Operation *op, Extents &extents, const KnownData &data) {
  MatrixMaker maker(extents, data);
  visitAttnOp(op, [&](auto attention) -> decltype(maker.make(attention)) {
    return maker.make(attention);
  });
  if (!extents.isKnown)
    return std::nullopt;
  return std::move(maker.matrix);
}
