//===- UsefulFlops.cpp - The work that operations ask for -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/UsefulFlops.h"
#include "VisitAttnOp.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace mlir;
using namespace fovea;

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
  explicit Counter(Extents &extents) : extents(extents) {}

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
    std::optional<ScoreMatrix> matrix = getScoreMatrix(op, extents);
    if (!matrix)
      return 0;
    for (auto [source, read] : llvm::zip_equal(sources, matrix->sources)) {
      int64_t valueWidth = shapeOf(source.values).back();
      int64_t width = tables.contains(source.keys) ? 0 : q[3];
      if (source.relativeKeys)
        width += q[3];
      flops += 2.0 * (width + valueWidth) * q[0] * q[1] * read.countEntries();
    }
    return flops;
  }

  double count(attn::SummarizeOp op) {
    SmallVector<int64_t> x = shapeOf(op.getInput());
    return extents.isKnown
               ? kForward.ofSummaries * countFactors(op.getWeights(), x)
               : 0;
  }

  double count(attn::FastMultipoleOp op) {
    return countMultipole(op, kForward);
  }
  double count(attn::FastMultipoleLinearOp op) {
    return countMultipole(op, kForward);
  }

  double count(attn::DenseBackwardOp op) { return countDense(op, kGradient); }

  double count(attn::StreamBackwardOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery());
    std::optional<ScoreMatrix> matrix = getScoreMatrix(op, extents);
    if (!matrix)
      return 0;
    double flops = 0;
    for (auto [source, read] :
         llvm::zip_equal(op.getSourceList(), matrix->sources))
      flops += kGradient.count(q, shapeOf(source.forward.values)) *
               read.countEntries();
    return flops;
  }

  double count(attn::SummarizeBackwardOp op) {
    SmallVector<int64_t> x = shapeOf(op.getInput());
    return extents.isKnown
               ? kGradient.ofSummaries * countFactors(op.getWeights(), x)
               : 0;
  }

  double count(attn::FastMultipoleBackwardOp op) {
    return countMultipole(op, kGradient);
  }
  double count(attn::FastMultipoleLinearBackwardOp op) {
    return countMultipole(op, kGradient);
  }

  double count(attn::QuantizeOp op) {
    SmallVector<int64_t> k = shapeOf(op.getKey()),
                         c = shapeOf(op.getCodebook());
    return extents.isKnown ? 2.0 * c[1] * product(k) : 0;
  }

  /// Scores of the codewords and products with the values of what is read: with
  /// blocks n - memory to n one by one where a bias or a state asks for it.
  double count(attn::VQOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!extents.isKnown)
      return 0;
    double heads = double(q[0]) * q[1], rows = q[2], codes = c[1], local = 0;
    double entries = codes * rows;
    if (op.getCausal()) {
      bool readsMemory = op.hasLocalTerms() || !op.getState().empty() ||
                         !op.getNextState().empty();
      int64_t block = op.getBlock(), lag = readsMemory ? op.getMemory() + 1 : 1;
      entries = 0;
      for (int64_t i = 0; i < q[2]; ++i) {
        int64_t first = std::max<int64_t>(i / block + 1 - lag, 0) * block;
        local += double(i - first + 1);
        // No codeword is read before some token is older than the local ones.
        entries += double(i - first + 1) + (first > 0 ? codes : 0);
      }
    }
    // Each token that is read one by one has a relative key.
    double products = rows * codes + (op.getRelativeKeys() ? local : 0);
    return 2.0 * heads * (q[3] * products + v[3] * entries);
  }

  double count(attn::VQDecodeOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!extents.isKnown)
      return 0;
    double kept = (double(op.getMemory()) + 1) * op.getBlock();
    // Each kept token has a relative key.
    double products = double(c[1]) + (op.getRelativeKeys() ? kept : 0);
    return 2.0 * q[0] * q[1] *
           (double(q[3]) * products + double(v[3]) * (c[1] + kept));
  }

  /// An outer product for every key and its application to every row, once.
  double count(attn::LowRankOp op) {
    SmallVector<int64_t> u1 = shapeOf(op.getU1()), u2 = shapeOf(op.getU2()),
                         v = shapeOf(op.getValue());
    if (!extents.isKnown)
      return 0;
    return 2.0 * u1[3] * v[3] * u1[0] * u1[1] * (double(u1[2]) + u2[2]);
  }

  /// Of the forward operation's sums one for the rows' gradients and one for
  /// the keys' and values', which is applied to both.
  double count(attn::LowRankBackwardOp op) {
    SmallVector<int64_t> u1 = shapeOf(op.getU1()), u2 = shapeOf(op.getU2()),
                         v = shapeOf(op.getValue());
    if (!extents.isKnown)
      return 0;
    return 2.0 * u1[3] * v[3] * u1[0] * u1[1] *
           (2.0 * double(u1[2]) + 3.0 * u2[2]);
  }

  /// Four products with codewords or their means, and two with the tokens that
  /// are read one by one: three with a bias.
  double count(attn::VQBackwardOp op) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue()),
                         c = shapeOf(op.getCodebook());
    if (!extents.isKnown)
      return 0;
    double heads = double(q[0]) * q[1], codes = c[1], local = 0, cached = 0;
    int64_t block = op.getBlock(), memory = op.getMemory();
    for (int64_t i = 0; i < q[2]; ++i) {
      int64_t first = std::max<int64_t>(i / block - memory, 0) * block;
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

private:
  /// Four products and two additions for two numbers that turn.
  template <typename OpTy> double countTurns(OpTy op, Value rows) {
    auto shape = shapeOf(rows);
    return 3.0 * product(shape) / std::max<double>(shape[3], 1.0) *
           op.getTurnedWidth();
  }

  template <typename OpTy>
  double countDense(OpTy op, const Products &products) {
    std::optional<ScoreMatrix> matrix = getScoreMatrix(op, extents);
    return matrix ? products.count(shapeOf(op.getQuery()),
                                   shapeOf(op.getValue())) *
                        matrix->countEntries()
                  : 0;
  }

  /// Of the summaries of `x` with these weights, which may mix columns.
  static double countFactors(Value weights, ArrayRef<int64_t> x) {
    ArrayRef<int64_t> w = cast<ShapedType>(weights.getType()).getShape();
    return product(x) * w[1] * (w.size() == 5 ? w[4] : 1);
  }

  /// Far queries are read as their summaries where there are these. Ready-made
  /// summaries are those of somebody else.
  template <typename OpTy>
  double countMultipole(OpTy op, const Products &products) {
    SmallVector<int64_t> q = shapeOf(op.getQuery()), v = shapeOf(op.getValue());
    std::optional<ScoreMatrix> matrix = getScoreMatrix(op, extents);
    if (!matrix)
      return 0;
    // All sources but that of near tokens are levels.
    size_t levels = matrix->sources.size() - 1;
    double factors = 0;
    auto add = [&](Value input, OperandRange weights) {
      if (!weights.empty())
        for (Value level : weights.take_front(levels))
          factors += countFactors(level, shapeOf(input));
    };
    add(op.getKey(), op.getKeyWeights());
    add(op.getValue(), op.getValueWeights());
    if constexpr (llvm::is_one_of<OpTy, attn::FastMultipoleLinearOp,
                                  attn::FastMultipoleLinearBackwardOp>::value)
      add(op.getQuery(), op.getQueryWeights());
    return products.count(q, v) * matrix->countEntries() +
           products.ofSummaries * factors;
  }

  SmallVector<int64_t> shapeOf(Value value) { return extents.shapeOf(value); }

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

  Extents &extents;
};
} // namespace

std::optional<double> fovea::countUsefulFlops(Operation *op, Extents &extents) {
  Counter counter(extents);
  double flops = 0;
  bool found = visitAttnOp(
      op, [&](auto attention) -> decltype(counter.count(attention)) {
        return flops = counter.count(attention);
      });
  if (!found || !extents.isKnown)
    return std::nullopt;
  return flops;
}

/// How often loops of `function` run an operation, as far as that is constant.
static double countRuns(Operation *op, Operation *function) {
  double runs = 1;
  for (Operation *parent = op->getParentOp(); parent && parent != function;
       parent = parent->getParentOp())
    if (auto loop = dyn_cast<LoopLikeOpInterface>(parent))
      if (std::optional<APInt> count = loop.getStaticTripCount())
        runs *= static_cast<double>(count->getLimitedValue());
  return runs;
}

std::optional<double>
fovea::countUsefulFlops(FunctionOpInterface function,
                        ArrayRef<SmallVector<int64_t>> argumentShapes) {
  Extents extents(function, argumentShapes);
  std::optional<double> total;
  function->walk([&](Operation *op) {
    if (std::optional<double> flops = countUsefulFlops(op, extents))
      total = total.value_or(0) + *flops * countRuns(op, function);
  });
  return extents.isKnown ? total : std::nullopt;
}
