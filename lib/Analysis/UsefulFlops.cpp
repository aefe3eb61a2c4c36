//===- UsefulFlops.cpp - The work that operations ask for -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/UsefulFlops.h"
#include "VisitAttnOp.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea;

//===----------------------------------------------------------------------===//
// Pairs of query and key
//===----------------------------------------------------------------------===//

/// Key rows of `[begin, end)` that `mask` admits for query row `i` of `n`,
/// where the source has `m` rows.
static int64_t countAdmitted(attn::MaskAttr mask, int64_t i, int64_t n,
                             int64_t m, int64_t begin, int64_t end) {
  int64_t position = i + m - n;
  if (mask && mask.getCausal())
    end = std::min(end, position + 1);
  if (mask && mask.hasWindow()) {
    begin = std::max(begin, position - mask.getWindow() + 1);
    end = std::min(end, position + mask.getWindow());
  }
  return std::max<int64_t>(end - begin, 0);
}

static double countDensePairs(attn::MaskAttr mask, int64_t n, int64_t m) {
  if (!mask || mask.isTrivial())
    return double(n) * m;
  double pairs = 0;
  for (int64_t i = 0; i < n; ++i)
    pairs += countAdmitted(mask, i, n, m, 0, m);
  return pairs;
}

static double countSourcePairs(attn::SourceAttr source, int64_t block,
                               int64_t n, int64_t m) {
  double pairs = 0;
  if (n == 0)
    return pairs;
  int64_t rowsPerBlock = block > 0 ? block : n;
  MLIRContext *context = source.getContext();
  auto evaluate = [&](AffineMap map, int64_t b) {
    SmallVector<Attribute> results;
    Builder builder(context);
    SmallVector<Attribute> operands;
    for (int64_t operand : {b, m, n})
      operands.push_back(builder.getIndexAttr(operand));
    bool folded = succeeded(map.constantFold(operands, results));
    auto rowOf = [&](unsigned i) -> int64_t {
      return folded ? cast<IntegerAttr>(results[i]).getInt() : 0;
    };
    // A level of a pool has rows of its own.
    bool hasBounds = map.getNumResults() == 4;
    int64_t lower = hasBounds ? std::max<int64_t>(rowOf(2), 0) : 0;
    int64_t upper = hasBounds ? std::min(rowOf(3), m) : m;
    auto clamp = [&](unsigned i) {
      return std::clamp(rowOf(i), lower, std::max(lower, upper));
    };
    return std::make_pair(clamp(0), clamp(1));
  };
  for (int64_t first = 0; first < n; first += rowsPerBlock)
    for (AffineMap map : source.getRanges()) {
      auto [begin, end] = evaluate(map, first / rowsPerBlock);
      int64_t last = std::min(first + rowsPerBlock, n);
      for (int64_t i = first; i < last; ++i)
        pairs += countAdmitted(source.getMask(), i, n, m, begin, end);
    }
  return pairs;
}

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

namespace {
/// The hierarchy over `n` rows in groups of `m`, `p` summaries an interval.
struct Hierarchy {
  int64_t n, m, p, levels;
  bool causal;

  int64_t getInterval(int64_t level) const { return m << (level - 1); }

  /// Rows of group `b` that exist.
  int64_t countRows(int64_t b) const {
    return std::clamp<int64_t>(n - b * m, 0, m);
  }

  /// Summaries of interval `u` of a level that stand for a row.
  int64_t countSummaries(int64_t level, int64_t u) const {
    int64_t rows =
        std::clamp<int64_t>(n - u * getInterval(level), 0, getInterval(level));
    return llvm::divideCeil(rows, getInterval(level) / p);
  }

  double countNearPairs() const {
    double pairs = 0;
    for (int64_t b = 0; b * m < n; ++b) {
      double rows = countRows(b);
      double before = b > 0 ? m : 0;
      pairs += causal ? rows * before + rows * (rows + 1) / 2
                      : rows * (before + rows + countRows(b + 1));
    }
    return pairs;
  }

  /// Summaries that the rows of interval `u` of `level` read at that level.
  int64_t countFarSummaries(int64_t level, int64_t u) const {
    int64_t numIntervals = llvm::divideCeil(n, getInterval(level));
    // Neighbours of the parent, which the coarsest level has none of.
    int64_t first = level == levels ? 0 : std::max<int64_t>(u / 2 - 1, 0) * 2;
    int64_t last = level == levels ? numIntervals : (u / 2 + 2) * 2;
    last = std::min(last, causal ? u - 1 : numIntervals);
    int64_t summaries = 0;
    for (int64_t j = first; j < last; ++j)
      if (std::abs(j - u) >= 2)
        summaries += countSummaries(level, j);
    return summaries;
  }

  double countFarPairs() const {
    double pairs = 0;
    for (int64_t b = 0; b * m < n; ++b)
      for (int64_t level = 1; level <= levels; ++level)
        pairs +=
            double(countRows(b)) * countFarSummaries(level, b >> (level - 1));
    return pairs;
  }

  /// The same where a row is represented by its summary.
  double countFarSummaryPairs() const {
    double pairs = 0;
    for (int64_t level = 1; level <= levels; ++level)
      for (int64_t u = 0; u * getInterval(level) < n; ++u)
        pairs += double(countSummaries(level, u)) * countFarSummaries(level, u);
    return pairs;
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

namespace {
/// FLOPs of attention and of its gradient. Scores are products along D and
/// outputs along E; a gradient computes the scores again, weights along E, and
/// the gradients of queries, keys and values.
struct Products {
  int alongD, alongE;
  /// For each element of a row and each summary of its interval.
  double ofSummaries;

  /// For a pair of a query and a key in every head.
  double count(ArrayRef<int64_t> q, ArrayRef<int64_t> v) const {
    return 2.0 * (alongD * q[3] + alongE * v[3]) * q[0] * q[1];
  }
};
constexpr Products kForward = {1, 1, 2.0}, kGradient = {3, 2, 4.0};

class Counter {
public:
  Counter(Block *entry, ArrayRef<SmallVector<int64_t>> shapes)
      : entry(entry), shapes(shapes) {}

  double count(attn::DenseOp op) { return countDense(op, kForward); }

  /// Scores of a table's rows count once, whatever looks them up.
  double count(attn::StreamOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery());
    SmallVector<attn::StreamOp::Source> sources = op.getSourceList();
    SmallPtrSet<Value, 2> tables;
    for (const attn::StreamOp::Source &source : sources)
      if (source.codes)
        tables.insert(source.keys);
    double flops = 0;
    for (Value table : tables)
      flops += 2.0 * q[3] * q[0] * q[1] * q[2] * shapeOf(table)[2];
    for (const attn::StreamOp::Source &source : sources) {
      int64_t rows = shapeOf(source.getRowsOperand())[2];
      int64_t valueWidth = shapeOf(source.values).back();
      if (!isKnown)
        return 0;
      int64_t width = tables.contains(source.keys) ? 0 : q[3];
      flops += 2.0 * (width + valueWidth) * q[0] * q[1] *
               countSourcePairs(source.attr, op.getBlock(), q[2], rows);
    }
    return flops;
  }

  double count(attn::SummarizeOp op) {
    SmallVector<int64_t> x = shapeOf(op.getInput());
    return isKnown ? kForward.ofSummaries * op.getRank() * product(x) : 0;
  }

  double count(attn::FastMultipoleOp op) {
    return countMultipole(op, kForward, /*summarizesQueries=*/false);
  }
  double count(attn::FastMultipoleLinearOp op) {
    return countMultipole(op, kForward, /*summarizesQueries=*/true);
  }

  double count(attn::DenseBackwardOp op) { return countDense(op, kGradient); }

  double count(attn::StreamBackwardOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery());
    double flops = 0;
    for (const attn::StreamSourceGradient &source : op.getSourceList()) {
      SmallVector<int64_t> v = shapeOf(source.forward.values);
      if (!isKnown)
        return 0;
      flops += kGradient.count(q, v) *
               countSourcePairs(source.forward.attr, op.getBlock(), q[2], v[2]);
    }
    return flops;
  }

  double count(attn::SummarizeBackwardOp op) {
    SmallVector<int64_t> x = shapeOf(op.getInput());
    return isKnown ? kGradient.ofSummaries * op.getRank() * product(x) : 0;
  }

  double count(attn::FastMultipoleBackwardOp op) {
    return countMultipole(op, kGradient, /*summarizesQueries=*/false);
  }
  double count(attn::FastMultipoleLinearBackwardOp op) {
    return countMultipole(op, kGradient, /*summarizesQueries=*/true);
  }

  double count(attn::QuantizeOp op) {
    SmallVector<int64_t> k = shapeOf(op.getKey()),
                         c = shapeOf(op.getCodebook());
    return isKnown ? 2.0 * c[1] * product(k) : 0;
  }

  /// Scores of the codewords and products with the values of what is read: with
  /// blocks n and n - 1 one by one where a bias or a state asks for it.
  double count(attn::VQOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!isKnown)
      return 0;
    double heads = double(q[0]) * q[1], rows = q[2], codes = c[1];
    double entries = codes * rows;
    if (op.getCausal()) {
      bool readsTwo =
          op.getBias() || !op.getState().empty() || !op.getNextState().empty();
      int64_t block = op.getBlock(), lag = readsTwo ? 2 : 1;
      entries = 0;
      for (int64_t i = 0; i < q[2]; ++i) {
        int64_t first = std::max<int64_t>(i / block + 1 - lag, 0) * block;
        // No codeword is read before some token is older than the local ones.
        entries += double(i - first + 1) + (first > 0 ? codes : 0);
      }
    }
    return 2.0 * heads * (q[3] * rows * codes + v[3] * entries);
  }

  double count(attn::VQDecodeOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!isKnown)
      return 0;
    return 2.0 * q[0] * q[1] *
           (double(q[3]) * c[1] + double(v[3]) * (c[1] + 2.0 * op.getBlock()));
  }

  /// An outer product for every key and its application to every row, once.
  double count(attn::LowRankOp op) {
    SmallVector<int64_t> u1 = shapeOf(op.getU1()), u2 = shapeOf(op.getU2()),
                         v = shapeOf(op.getValue());
    if (!isKnown)
      return 0;
    return 2.0 * u1[3] * v[3] * u1[0] * u1[1] * (double(u1[2]) + u2[2]);
  }

  /// Of the forward operation's sums one for the rows' gradients and one for
  /// the keys' and values', which is applied to both.
  double count(attn::LowRankBackwardOp op) {
    SmallVector<int64_t> u1 = shapeOf(op.getU1()), u2 = shapeOf(op.getU2()),
                         v = shapeOf(op.getValue());
    if (!isKnown)
      return 0;
    return 2.0 * u1[3] * v[3] * u1[0] * u1[1] *
           (2.0 * double(u1[2]) + 3.0 * u2[2]);
  }

  /// Four products with codewords or their means, and two with the tokens that
  /// are read one by one: three with a bias.
  double count(attn::VQBackwardOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!isKnown)
      return 0;
    double heads = double(q[0]) * q[1], codes = c[1], local = 0, cached = 0;
    int64_t block = op.getBlock();
    for (int64_t i = 0; i < q[2]; ++i) {
      int64_t first = std::max<int64_t>(i / block - 1, 0) * block;
      local += op.getCausal() ? double(i - first + 1) : 0;
      bool readsCache = first > 0 || !op.getCausal() || !op.getState().empty();
      cached += readsCache ? codes : 0;
    }
    return 2.0 * heads *
           (2.0 * q[3] * q[2] * codes + 2.0 * v[3] * cached +
            (q[3] + (op.getBias() ? 2.0 : 1.0) * v[3]) * local);
  }

  // Convolutions over a whole sequence: a product for every pair where the
  // algorithm is that, else one transform each of twice as many rows for what
  // goes in and what comes out, and a product with the spectrum of each basis.

  double count(attn::ConvApplyOp op) {
    SmallVector<int64_t> b = shapeOf(op.getBasis());
    return countBases(op.getAlgorithm(), b[2], b[0] * b[1], b[3],
                      shapeOf(op.getValue())[3], /*numTransforms=*/2,
                      /*numProducts=*/1);
  }

  /// Transforms of values and rows, and back; products of both with each other,
  /// and of rows with the weights.
  double count(attn::ConvApplyBackwardOp op) {
    SmallVector<int64_t> b = shapeOf(op.getBasis());
    return countBases(op.getAlgorithm(), b[2], b[0] * b[1], b[3],
                      shapeOf(op.getValue())[3], /*numTransforms=*/3,
                      /*numProducts=*/2);
  }

  /// The columns where bases begin.
  double count(attn::ConvRecoverOp op) {
    return 2.0 * shapeOf(op.getBasis())[2] * product(shapeOf(op.getQuery()));
  }
  double count(attn::ConvRecoverBackwardOp op) {
    return 4.0 * shapeOf(op.getDBasis())[2] * product(shapeOf(op.getQuery()));
  }

  double count(attn::ConvOp op) { return countConv(op, 2, 1, /*columns=*/1); }
  double count(attn::ConvBackwardOp op) {
    return countConv(op, 3, 2, /*columns=*/3);
  }

  double count(attn::RopeOp op) { return countTurns(op, op.getInput()); }
  double count(attn::RopeBackwardOp op) {
    return countTurns(op, op.getDOutput());
  }

  /// False once an extent was not found.
  bool isKnown = true;

private:
  /// Four products and two additions for two numbers that turn.
  template <typename OpTy> double countTurns(OpTy op, Value rows) {
    auto shape = shapeOf(rows);
    return 3.0 * product(shape) / std::max<double>(shape[3], 1.0) *
           op.getTurnedWidth();
  }

  template <typename OpTy>
  double countDense(OpTy op, const Products &products) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), k = shapeOf(op.getKey()),
                         v = shapeOf(op.getValue());
    return isKnown ? products.count(q, v) *
                         countDensePairs(op.getMaskOrNone(), q[2], k[2])
                   : 0;
  }

  /// Far queries are read as their summaries where there are these.
  template <typename OpTy>
  double countMultipole(OpTy op, const Products &products,
                        bool summarizesQueries) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), k = shapeOf(op.getKey()),
                         v = shapeOf(op.getValue());
    if (!isKnown)
      return 0;
    Hierarchy tree = getHierarchy(op, q[2]);
    double far =
        summarizesQueries ? tree.countFarSummaryPairs() : tree.countFarPairs();
    double summarized =
        product(k) + product(v) + (summarizesQueries ? product(q) : 0);
    return products.count(q, v) * (tree.countNearPairs() + far) +
           products.ofSummaries * tree.p * tree.levels * summarized;
  }

  SmallVector<int64_t> shapeOf(Value value) {
    SmallVector<int64_t> shape;
    unsigned rank = cast<ShapedType>(value.getType()).getRank();
    for (unsigned dim = 0; dim < rank; ++dim) {
      std::optional<ExtentOrigin> origin = getExtentOrigin(value, dim, entry);
      if (!origin) {
        isKnown = false;
        return SmallVector<int64_t>(rank, 0);
      }
      shape.push_back(origin->argument ? shapes[*origin->argument][origin->dim]
                                       : origin->constant);
    }
    return shape;
  }

  static double product(ArrayRef<int64_t> shape) {
    double result = 1;
    for (int64_t extent : shape)
      result *= extent;
    return result;
  }

  /// Of one real column.
  static double countTransform(double length) {
    return length > 1 ? 2.5 * length * std::log2(length) : 0;
  }

  static double countBases(attn::ConvAlgorithm algorithm, double bases,
                           double heads, double tokens, double width,
                           int numTransforms, int numProducts) {
    if (algorithm == attn::ConvAlgorithm::Toeplitz)
      return numProducts * heads * width * tokens * (tokens + 1);
    // A complex product and its sum for the two columns of a number.
    return heads * width *
           (numTransforms * countTransform(2 * tokens) +
            numProducts * 8 * bases * tokens);
  }

  /// With groups, of every pair of neighbours.
  template <typename OpTy>
  double countConv(OpTy op, int numTransforms, int numProducts, int columns) {
    SmallVector<int64_t> q = shapeOf(op.getQuery());
    int64_t width = shapeOf(op.getValue())[3], bases = op.getNumBasis(),
            tokens = q[2], pairs = 1;
    int64_t group = op.getGroup().value_or(tokens);
    if (group < tokens) {
      pairs = std::max<int64_t>(llvm::divideCeil(tokens, group) - 1, 1);
      tokens = std::min(2 * group, tokens);
    }
    double heads = double(q[0]) * q[1] * pairs;
    return countBases(op.getAlgorithm(), bases, heads, tokens, width,
                      numTransforms, numProducts) +
           columns * 2.0 * heads * bases * tokens * q[3];
  }

  template <typename OpT>
  static Hierarchy getHierarchy(OpT op, int64_t numRows) {
    return {numRows, int64_t(op.getGroup()), op.getRank(), op.getNumLevels(),
            op.getCausal()};
  }

  Block *entry;
  ArrayRef<SmallVector<int64_t>> shapes;
};
} // namespace

std::optional<double>
fovea::countUsefulFlops(FunctionOpInterface function,
                        ArrayRef<SmallVector<int64_t>> argumentShapes) {
  Counter counter(&function.getFunctionBody().front(), argumentShapes);
  bool found = false;
  double flops = 0;
  function->walk([&](Operation *op) {
    found |= visitAttnOp(
        op, [&](auto attention) -> decltype(counter.count(attention)) {
          return flops += counter.count(attention);
        });
  });
  if (!found || !counter.isKnown)
    return std::nullopt;
  return flops;
}
