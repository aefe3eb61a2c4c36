//===- StreamRowKernel.cpp - One query row of attn.stream -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

/// Rows whose scores are kept at once: 4 KB in f32.
static constexpr int64_t kTile = 1024;
/// Accumulators of the product with the values: rows times vectors of columns.
static constexpr int64_t kRows = 4, kVectors = 4;

bool StreamRowKernel::fits(StreamOp op) {
  return cast<MemRefType>(op.getQuery().getType()).getDimSize(2) == 1;
}

StreamRowKernel::StreamRowKernel(StreamOp op, OpBuilder &builder)
    : op(op),
      b(op.getLoc(), builder, getStateType(getElementTypeOrSelf(op.getQuery())),
        op.getTiles()->getLanes()),
      lanes(op.getTiles()->getLanes()),
      isSoftmax(op.getWeighting() == Weighting::Softmax) {
  width = cast<MemRefType>(op.getQuery().getType()).getDimSize(3);
  valueWidth = cast<MemRefType>(op.getOutput().getType()).getDimSize(3);
}

//===----------------------------------------------------------------------===//
// Loops and views
//===----------------------------------------------------------------------===//

void StreamRowKernel::emit() {
  Type state = b.getStateType();
  auto allocate = [&](int64_t size) {
    int64_t padded = llvm::alignTo(size, lanes);
    return b.scratch({padded}, state);
  };
  query = allocate(width);
  scores = allocate(kTile);
  output = allocate(valueWidth);
  for (const StreamOp::Source &source : op.getSourceList())
    if (source.codes && llvm::none_of(keyTables, [&](const KeyTable &table) {
          return table.operand == source.keys;
        })) {
      int64_t rows = cast<MemRefType>(source.keys.getType()).getDimSize(2);
      keyTables.push_back({source.keys, allocate(rows), rows});
    }
  b.loop(b.index(0), b.extent(op.getQuery(), 0), 1, [&](Value batch) {
    b.loop(b.index(0), b.extent(op.getQuery(), 1), 1,
           [&](Value head) { emitHead(batch, head); });
  });
  b.freeScratch();
}

/// The view of `memref` with its leading dimensions fixed, where static extents
/// of 1 stand for any.
static Value fix(KernelBuilder &b, Value memref, ArrayRef<Value> leading) {
  auto type = cast<MemRefType>(memref.getType());
  int64_t rank = type.getRank();
  SmallVector<OpFoldResult> offsets(rank, b.getIndexAttr(0)), sizes,
      strides(rank, b.getIndexAttr(1));
  SmallVector<int64_t> shape;
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (dim < static_cast<int64_t>(leading.size())) {
      if (type.getDimSize(dim) != 1)
        offsets[dim] = leading[dim];
      sizes.push_back(b.getIndexAttr(1));
      continue;
    }
    sizes.push_back(memref::getMixedSize(b, b.getLoc(), memref, dim));
    shape.push_back(type.getDimSize(dim));
  }
  auto view = memref::SubViewOp::inferRankReducedResultType(
      shape, type, offsets, sizes, strides);
  return memref::SubViewOp::create(b, cast<MemRefType>(view), memref, offsets,
                                   sizes, strides);
}

StreamRowKernel::SourceView
StreamRowKernel::view(const StreamOp::Source &source, Value batch, Value head,
                      Value keyHead) {
  int64_t size = op.getBlock();
  Value block = size ? b.floorDiv(firstRow, b.index(size)) : b.index(0);
  SourceView view;
  view.attr = source.attr;
  view.rows = b.extent(source.getRowsOperand(), 2);
  view.keys = fix(b, source.keys, {batch, keyHead});
  SmallVector<Value> at = {batch, keyHead};
  if (source.hasValueBlocks())
    at.push_back(block);
  view.values = fix(b, source.values, at);
  if (source.codes)
    view.codes = fix(b, source.codes, {batch, keyHead});
  if (source.logWeight) {
    at = {batch, keyHead};
    if (source.hasLogWeightBlocks())
      at.push_back(block);
    view.logWeight = fix(b, source.logWeight, at);
  }
  if (source.bias)
    view.bias = fix(b, source.bias, {batch, head, b.index(0)});
  auto *table = llvm::find_if(keyTables, [&](const KeyTable &table) {
    return table.operand == source.keys;
  });
  view.keyTable = table == keyTables.end() ? nullptr : table;
  return view;
}

void StreamRowKernel::emitHead(Value batch, Value head) {
  firstRow = op.getFirstRow() ? Value(op.getFirstRow()) : b.index(0);
  numRows = op.getNumRows() ? Value(op.getNumRows()) : b.index(1);
  Value keyHeads = b.extent(op.getValues().front(), 1);
  Value heads = b.extent(op.getQuery(), 1);
  Value keyHead = b.floorDiv(head, b.floorDiv(heads, keyHeads));
  packQuery(fix(b, op.getQuery(), {batch, head, b.index(0)}));
  for (const KeyTable &table : keyTables)
    scoreRows(fix(b, table.operand, {batch, keyHead}), b.index(0),
              b.index(table.numRows), table.scores);
  b.loop(b.index(0), b.index(valueWidth), lanes,
         [&](Value column) { b.storeVector(b.splat(0.0), output, column); });

  // Above a masked score, so that such an entry weighs nothing from the start.
  State state = {b.scalar(softmax::kAdmitted), b.scalar(0.0)};
  if (Value sinks = op.getSink()) {
    Value sink = b.loadScalar(sinks, {b.broadcastIndex(sinks, 0, batch),
                                      b.broadcastIndex(sinks, 1, head)});
    std::tie(state.maximum, state.sum) = softmax::startWithSink(b, sink);
  }
  for (const StreamOp::Source &source : op.getSourceList()) {
    SourceView rows = view(source, batch, head, keyHead);
    for (AffineMap range : source.attr.getRanges()) {
      auto [low, high, biasBegin] = getInterval(rows, range);
      Values carried =
          b.loop(low, high, kTile, {state.maximum, state.sum},
                 [&, high = high, biasBegin = biasBegin](
                     Value first, ValueRange values) -> Values {
                   Value count = b.min(b.sub(high, first), b.index(kTile));
                   State next = attendTile({rows, first, count, biasBegin},
                                           {values[0], values[1]});
                   return {next.maximum, next.sum};
                 });
      state = {carried[0], carried[1]};
    }
  }
  Value lse;
  if (op.getLse())
    lse = fix(b, op.getLse(), {batch, head});
  finish(fix(b, op.getOutput(), {batch, head, b.index(0)}), lse, state);
}

/// The query, scaled, with zeros up to a whole vector.
void StreamRowKernel::packQuery(Value queryRow) {
  double scale = op.getScale().convertToDouble();
  if (isSoftmax)
    scale *= softmax::kLog2E;
  b.loop(b.index(0), b.index(llvm::alignTo(width, lanes)), lanes,
         [&](Value column) { b.storeVector(b.splat(0.0), query, column); });
  b.loop(b.index(0), b.index(width), 1, [&](Value column) {
    Value element = b.loadScalar(queryRow, column);
    b.storeScalar(b.fmul(element, b.scalar(scale)), query, column);
  });
}

std::tuple<Value, Value, Value>
StreamRowKernel::getInterval(const SourceView &source, AffineMap range) {
  int64_t size = op.getBlock();
  Value block = size ? b.floorDiv(firstRow, b.index(size)) : b.index(0);
  auto bounds = *affine::expandAffineMap(b, b.getLoc(), range,
                                         {block, source.rows, numRows});
  Value low = b.max(bounds[0], b.index(0)),
        high = b.min(bounds[1], source.rows);
  if (range.getNumResults() == 4) {
    low = b.max(low, bounds[2]);
    high = b.min(high, bounds[3]);
  }
  Value biasBegin = b.index(0);
  if (source.attr.getHasLocalBias()) {
    biasBegin = bounds[0];
    high = b.min(high, b.add(biasBegin, b.extent(source.bias, 0)));
  }
  MaskAttr mask = source.attr.getMask();
  Value position = b.add(firstRow, b.sub(source.rows, numRows));
  if (mask.getCausal())
    high = b.min(high, b.add(position, 1));
  if (mask.hasWindow()) {
    low = b.max(low, b.add(b.sub(position, b.index(mask.getWindow())), 1));
    if (!mask.getCausal())
      high = b.min(high, b.add(position, mask.getWindow()));
  }
  return {low, high, biasBegin};
}

//===----------------------------------------------------------------------===//
// One tile
//===----------------------------------------------------------------------===//

void StreamRowKernel::forRows(Value count, function_ref<void(Value)> body,
                              function_ref<void(Value)> tail) {
  Value whole = b.roundDown(count, lanes);
  b.loop(b.index(0), whole, lanes, body);
  b.loop(whole, count, 1, tail);
}

static Value reduce(KernelBuilder &b, vector::CombiningKind kind,
                    Value vector) {
  // In any order: the order is fixed by the code all the same.
  return vector::ReductionOp::create(b, kind, vector,
                                     arith::FastMathFlags::reassoc);
}

/// `scores[i] = keys[low + i] . query`.
void StreamRowKernel::scoreRows(Value keys, Value low, Value count,
                                Value target) {
  int64_t whole = width / lanes * lanes;
  auto products = [&](Value row, int64_t numRows) {
    Values zeros(numRows, b.splat(0.0));
    return b.loop(b.index(0), b.index(whole), lanes, zeros,
                  [&](Value column, ValueRange sums) {
                    Value part = b.loadVector(query, column);
                    Values next;
                    for (int64_t i = 0; i < numRows; ++i)
                      next.push_back(
                          b.fma(b.loadVector(keys, {b.add(row, i), column}),
                                part, sums[i]));
                    return next;
                  });
  };
  // Columns that fill no vector.
  auto addTail = [&](Value row, Value score) -> Value {
    if (whole == width)
      return score;
    return b.loop(b.index(whole), b.index(width), 1, score,
                  [&](Value column, ValueRange sum) -> Values {
                    Value product = b.fmul(b.loadScalar(keys, {row, column}),
                                           b.loadScalar(query, column));
                    return {b.fadd(sum[0], product)};
                  })[0];
  };
  forRows(
      count,
      [&](Value offset) {
        Value row = b.add(low, offset);
        // Lane i of the sum of the transposed vectors is the sum of row i.
        Values parts = b.transpose(products(row, lanes));
        while (parts.size() > 1) {
          Values sums;
          for (size_t i = 0; i < parts.size(); i += 2)
            sums.push_back(b.fadd(parts[i], parts[i + 1]));
          parts = sums;
        }
        b.storeVector(parts[0], target, offset);
        if (whole != width)
          b.loop(b.index(0), b.index(lanes), 1, [&](Value i) {
            Value at = b.add(offset, i);
            b.storeScalar(addTail(b.add(row, i), b.loadScalar(target, at)),
                          target, at);
          });
      },
      [&](Value offset) {
        Value row = b.add(low, offset);
        Value sum = reduce(b, vector::CombiningKind::ADD, products(row, 1)[0]);
        b.storeScalar(addTail(row, sum), target, offset);
      });
}

/// Scores of rows of a table.
void StreamRowKernel::lookUp(const SourceView &source, Value low, Value count) {
  Value table = source.keyTable->scores;
  if (!source.codes)
    return forRows(
        count,
        [&](Value offset) {
          b.storeVector(b.loadVector(table, b.add(low, offset)), scores,
                        offset);
        },
        [&](Value offset) {
          b.storeScalar(b.loadScalar(table, b.add(low, offset)), scores,
                        offset);
        });
  b.loop(b.index(0), count, 1, [&](Value offset) {
    Value code = memref::LoadOp::create(b, source.codes, b.add(low, offset));
    Value row = arith::IndexCastOp::create(b, b.getIndexType(), code);
    b.storeScalar(b.loadScalar(table, row), scores, offset);
  });
}

static bool isSingle(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back() == 1;
}

/// Sets `scores[i]` to `update(score, bias, log weight)`, in base 2 with a
/// soft-max; a term that the source lacks is null.
void StreamRowKernel::updateScores(const Tile &tile, Update update) {
  const SourceView &source = tile.source;
  double scale = isSoftmax ? softmax::kLog2E : 1.0;
  bool biasBroadcasts =
      source.bias && !source.attr.getHasLocalBias() && isSingle(source.bias);
  auto updateAt = [&](Value offset, bool isVector) {
    auto load = [&](Value term, Value first, bool broadcasts) -> Value {
      if (!term)
        return Value();
      Value at = broadcasts ? b.index(0) : b.add(first, offset), element;
      if (isVector && !broadcasts)
        return b.fmul(b.loadVector(term, at), b.splat(scale));
      element = b.fmul(b.loadScalar(term, at), b.scalar(scale));
      return isVector ? b.broadcast(element) : element;
    };
    Value bias =
        load(source.bias, b.sub(tile.low, tile.biasBegin), biasBroadcasts);
    Value weight = load(source.logWeight, tile.low,
                        source.logWeight && isSingle(source.logWeight));
    if (isVector)
      b.storeVector(update(b.loadVector(scores, offset), bias, weight), scores,
                    offset);
    else
      b.storeScalar(update(b.loadScalar(scores, offset), bias, weight), scores,
                    offset);
  };
  forRows(
      tile.count, [&](Value offset) { updateAt(offset, /*isVector=*/true); },
      [&](Value offset) { updateAt(offset, /*isVector=*/false); });
}

/// Whether a term removes its entry; null without a term.
static Value isRemoved(KernelBuilder &b, Value bias, Value weight) {
  if (!bias || !weight)
    return softmax::isMasked(b, bias ? bias : weight);
  return arith::OrIOp::create(b, softmax::isMasked(b, bias),
                              softmax::isMasked(b, weight));
}

/// Adds the terms to the scores. What they remove has the masked score,
/// whatever it was.
void StreamRowKernel::addTerms(const Tile &tile) {
  updateScores(tile, [&](Value score, Value bias, Value weight) -> Value {
    Value masked = isa<VectorType>(score.getType())
                       ? b.splat(softmax::kMasked)
                       : b.scalar(softmax::kMasked);
    if (bias)
      score = b.fadd(score, bias);
    // Without a soft-max the weight is a factor.
    if (isSoftmax && weight)
      score = b.fadd(score, weight);
    return arith::SelectOp::create(b, isRemoved(b, bias, weight), masked,
                                   score);
  });
}

/// Marks the weights of entries that terms remove.
void StreamRowKernel::markHidden(const Tile &tile) {
  updateScores(tile, [&](Value found, Value bias, Value weight) {
    return softmax::hide(b, isRemoved(b, bias, weight), found);
  });
}

StreamRowKernel::State StreamRowKernel::attendTile(const Tile &tile,
                                                   State state) {
  const SourceView &source = tile.source;
  Value low = tile.low, count = tile.count;
  if (source.keyTable)
    lookUp(source, low, count);
  else
    scoreRows(source.keys, low, count, scores);
  if (mayHide(tile))
    addTerms(tile);
  // Whole vectors from here on: what is left of the last one counts nothing.
  Value padded = b.roundDown(b.add(count, lanes - 1), lanes);
  b.loop(count, padded, 1, [&](Value offset) {
    b.storeScalar(b.scalar(softmax::kMasked), scores, offset);
  });
  if (!isSoftmax) {
    scaleWeights(source, low, count);
    accumulate(tile);
    return state;
  }

  Value top = b.loop(b.index(0), padded, lanes, b.broadcast(state.maximum),
                     [&](Value offset, ValueRange top) -> Values {
                       return {b.fmax(top[0], b.loadVector(scores, offset))};
                     })[0];
  Value maximum = reduce(b, vector::CombiningKind::MAXNUMF, top);
  Value reference = b.broadcast(maximum);
  Value total = b.loop(b.index(0), padded, lanes, b.splat(0.0),
                       [&](Value offset, ValueRange sum) -> Values {
                         Value score = b.loadVector(scores, offset);
                         Value weight =
                             softmax::exp2(b, b.fsub(score, reference));
                         b.storeVector(weight, scores, offset);
                         return {b.fadd(sum[0], weight)};
                       })[0];
  Value rescale =
      softmax::exp2(b, b.fsub(b.broadcast(state.maximum), reference));
  b.loop(b.index(0), b.index(valueWidth), lanes, [&](Value column) {
    b.storeVector(b.fmul(b.loadVector(output, column), rescale), output,
                  column);
  });
  accumulate(tile);
  Value old = vector::ExtractOp::create(b, rescale, 0);
  Value sum = b.fadd(b.fmul(state.sum, old),
                     reduce(b, vector::CombiningKind::ADD, total));
  return {maximum, sum};
}

/// The weights of `squared_relu`.
void StreamRowKernel::scaleWeights(const SourceView &source, Value low,
                                   Value count) {
  Value padded = b.roundDown(b.add(count, lanes - 1), lanes);
  b.loop(b.index(0), padded, lanes, [&](Value offset) {
    Value positive = b.fmax(b.splat(0.0), b.loadVector(scores, offset));
    b.storeVector(b.fmul(positive, positive), scores, offset);
  });
  if (!source.logWeight)
    return;
  bool broadcasts = isSingle(source.logWeight);
  b.loop(b.index(0), count, 1, [&](Value offset) {
    Value weight = b.loadScalar(source.logWeight,
                                broadcasts ? b.index(0) : b.add(low, offset));
    weight = b.fmax(b.scalar(softmax::kMasked),
                    b.fmul(weight, b.scalar(softmax::kLog2E)));
    weight = math::Exp2Op::create(b, weight);
    b.storeScalar(b.fmul(b.loadScalar(scores, offset), weight), scores, offset);
  });
}

/// `output += scores . values`.
void StreamRowKernel::accumulate(const Tile &tile) {
  int64_t whole = valueWidth / lanes * lanes;
  int64_t step = kVectors * lanes, full = whole / step * step;
  auto panel = [&](Value column, int64_t numVectors) {
    Values totals = sumPanel(tile, column, numVectors, /*onlyVisible=*/false);
    if (mayHide(tile))
      totals = softmax::unlessFinite(b, totals, [&] {
        markHidden(tile);
        return sumPanel(tile, column, numVectors, /*onlyVisible=*/true);
      });
    for (int64_t v = 0; v < numVectors; ++v) {
      Value at = b.add(column, v * lanes);
      b.storeVector(b.fadd(b.loadVector(output, at), totals[v]), output, at);
    }
  };
  b.loop(b.index(0), b.index(full), step,
         [&](Value column) { panel(column, kVectors); });
  if (full != whole)
    panel(b.index(full), (whole - full) / lanes);
  b.loop(b.index(whole), b.index(valueWidth), 1, [&](Value column) {
    auto sumColumn = [&](bool onlyVisible) {
      return b.loop(
          b.index(0), tile.count, 1, b.loadScalar(output, column),
          [&](Value offset, ValueRange sum) -> Values {
            Value weight = b.loadScalar(scores, offset);
            Value product =
                b.fmul(weight, b.loadScalar(tile.source.values,
                                            {b.add(tile.low, offset), column}));
            Value next = b.fadd(sum[0], product);
            if (onlyVisible)
              next = arith::SelectOp::create(b, softmax::isHidden(b, weight),
                                             sum[0], next);
            return {next};
          });
    };
    Values sum = sumColumn(/*onlyVisible=*/false);
    if (mayHide(tile))
      sum = softmax::unlessFinite(b, sum, [&] {
        markHidden(tile);
        return sumColumn(/*onlyVisible=*/true);
      });
    b.storeScalar(sum[0], output, column);
  });
}

/// The product with vectors of columns of the values, without hidden entries if
/// `onlyVisible`, whose weights are marked.
StreamRowKernel::Values StreamRowKernel::sumPanel(const Tile &tile,
                                                  Value column,
                                                  int64_t numVectors,
                                                  bool onlyVisible) {
  auto addRows = [&](Value begin, Value end, int64_t numRows,
                     ValueRange initial) {
    return b.loop(
        begin, end, numRows, initial, [&](Value offset, ValueRange sums) {
          Values next;
          for (int64_t i = 0; i < numRows; ++i) {
            Value at = b.add(offset, i);
            Value weight = b.broadcast(b.loadScalar(scores, at));
            for (int64_t v = 0; v < numVectors; ++v) {
              Value value =
                  b.loadVector(tile.source.values,
                               {b.add(tile.low, at), b.add(column, v * lanes)});
              Value sum = sums[i * numVectors + v];
              next.push_back(onlyVisible
                                 ? softmax::addVisible(b, weight, value, sum)
                                 : b.fma(weight, value, sum));
            }
          }
          return next;
        });
  };
  Value wholeRows = b.roundDown(tile.count, kRows);
  Values zeros(kRows * numVectors, b.splat(0.0));
  Values sums = addRows(b.index(0), wholeRows, kRows, zeros), totals;
  for (int64_t v = 0; v < numVectors; ++v)
    totals.push_back(
        b.fadd(b.fadd(sums[v], sums[numVectors + v]),
               b.fadd(sums[2 * numVectors + v], sums[3 * numVectors + v])));
  return addRows(wholeRows, tile.count, 1, totals);
}

void StreamRowKernel::finish(Value outputRow, Value lse, const State &state) {
  Value maximum = b.broadcast(state.maximum), sum = b.broadcast(state.sum);
  Value zero = b.splat(0.0), factor = b.splat(1.0);
  if (isSoftmax)
    factor = softmax::inverseSum(b, maximum, sum);
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor, zero);
  // As for blocks of queries: infinite sums become NaN, empty rows zero.
  b.loop(b.index(0), b.index(valueWidth), lanes, [&](Value column) {
    Value total = b.loadVector(output, column);
    Value mean = b.fma(total, zero, b.fmul(total, factor));
    b.storeVector(arith::SelectOp::create(b, isEmpty, zero, mean), output,
                  column);
  });
  int64_t whole = valueWidth / lanes * lanes;
  b.loop(b.index(0), b.index(whole), lanes, [&](Value column) {
    b.storeVector(b.loadVector(output, column), outputRow, column);
  });
  b.loop(b.index(whole), b.index(valueWidth), 1, [&](Value column) {
    b.storeScalar(b.loadScalar(output, column), outputRow, column);
  });
  if (!lse)
    return;
  Value logSum = softmax::logSumExp(b, maximum, sum);
  b.storeScalar(vector::ExtractOp::create(b, logSum, 0), lse, b.index(0));
}
