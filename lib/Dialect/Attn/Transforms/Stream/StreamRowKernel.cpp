//===- StreamRowKernel.cpp - One query row of attn.stream -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowKernel.h"
#include "SoftmaxAlgebra.h"
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

  State state = {b.scalar(softmax::kMasked), b.scalar(0.0)};
  for (const StreamOp::Source &source : op.getSourceList()) {
    SourceView rows = view(source, batch, head, keyHead);
    for (AffineMap range : source.attr.getRanges()) {
      auto [low, high, biasBegin] = getInterval(rows, range);
      Values carried =
          b.loop(low, high, kTile, {state.maximum, state.sum},
                 [&, high = high, biasBegin = biasBegin](
                     Value first, ValueRange values) -> Values {
                   Value count = b.min(b.sub(high, first), b.index(kTile));
                   State next = attendTile(rows, first, count, biasBegin,
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

/// Adds a row of log weights or bias, in base 2; masked where it is minus
/// infinity.
void StreamRowKernel::addTerm(Value term, Value at, Value count,
                              bool broadcasts) {
  double scale = isSoftmax ? softmax::kLog2E : 1.0;
  auto vectorTerm = [&](Value offset) {
    Value element = broadcasts ? b.broadcast(b.loadScalar(term, b.index(0)))
                               : b.loadVector(term, b.add(at, offset));
    return b.fmax(b.splat(softmax::kMasked), b.fmul(element, b.splat(scale)));
  };
  auto scalarTerm = [&](Value offset) {
    Value element =
        b.loadScalar(term, broadcasts ? b.index(0) : b.add(at, offset));
    return b.fmax(b.scalar(softmax::kMasked), b.fmul(element, b.scalar(scale)));
  };
  forRows(
      count,
      [&](Value offset) {
        b.storeVector(b.fadd(b.loadVector(scores, offset), vectorTerm(offset)),
                      scores, offset);
      },
      [&](Value offset) {
        b.storeScalar(b.fadd(b.loadScalar(scores, offset), scalarTerm(offset)),
                      scores, offset);
      });
}

static bool isSingle(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape().back() == 1;
}

StreamRowKernel::State StreamRowKernel::attendTile(const SourceView &source,
                                                   Value low, Value count,
                                                   Value biasBegin,
                                                   State state) {
  if (source.keyTable)
    lookUp(source, low, count);
  else
    scoreRows(source.keys, low, count, scores);
  if (source.bias)
    addTerm(source.bias, b.sub(low, biasBegin), count,
            !source.attr.getHasLocalBias() && isSingle(source.bias));
  if (isSoftmax && source.logWeight)
    addTerm(source.logWeight, low, count, isSingle(source.logWeight));
  // Whole vectors from here on: what is left of the last one counts nothing.
  Value padded = b.roundDown(b.add(count, lanes - 1), lanes);
  b.loop(count, padded, 1, [&](Value offset) {
    b.storeScalar(b.scalar(softmax::kMasked), scores, offset);
  });
  if (!isSoftmax) {
    scaleWeights(source, low, count);
    accumulate(source.values, low, count);
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
  accumulate(source.values, low, count);
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
void StreamRowKernel::accumulate(Value values, Value low, Value count) {
  int64_t whole = valueWidth / lanes * lanes;
  auto panel = [&](Value column, int64_t numVectors) {
    auto addRows = [&](Value begin, Value end, int64_t numRows,
                       ValueRange initial) {
      return b.loop(
          begin, end, numRows, initial, [&](Value offset, ValueRange sums) {
            Values next;
            for (int64_t i = 0; i < numRows; ++i) {
              Value at = b.add(offset, i);
              Value weight = b.broadcast(b.loadScalar(scores, at));
              for (int64_t v = 0; v < numVectors; ++v)
                next.push_back(
                    b.fma(weight,
                          b.loadVector(values, {b.add(low, at),
                                                b.add(column, v * lanes)}),
                          sums[i * numVectors + v]));
            }
            return next;
          });
    };
    Value wholeRows = b.roundDown(count, kRows);
    Values zeros(kRows * numVectors, b.splat(0.0));
    Values sums = addRows(b.index(0), wholeRows, kRows, zeros), totals;
    for (int64_t v = 0; v < numVectors; ++v)
      totals.push_back(
          b.fadd(b.fadd(sums[v], sums[numVectors + v]),
                 b.fadd(sums[2 * numVectors + v], sums[3 * numVectors + v])));
    totals = addRows(wholeRows, count, 1, totals);
    for (int64_t v = 0; v < numVectors; ++v) {
      Value at = b.add(column, v * lanes);
      b.storeVector(b.fadd(b.loadVector(output, at), totals[v]), output, at);
    }
  };
  int64_t step = kVectors * lanes, full = whole / step * step;
  b.loop(b.index(0), b.index(full), step,
         [&](Value column) { panel(column, kVectors); });
  if (full != whole)
    panel(b.index(full), (whole - full) / lanes);
  b.loop(b.index(whole), b.index(valueWidth), 1, [&](Value column) {
    Value sum =
        b.loop(b.index(0), count, 1, b.loadScalar(output, column),
               [&](Value offset, ValueRange sum) -> Values {
                 Value product =
                     b.fmul(b.loadScalar(scores, offset),
                            b.loadScalar(values, {b.add(low, offset), column}));
                 return {b.fadd(sum[0], product)};
               })[0];
    b.storeScalar(sum, output, column);
  });
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
