//===- VQBackwardKernel.cpp - Loops of the gradient of attn.vq ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQBackwardKernel.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

static MemRefType getType(Value memref) {
  return cast<MemRefType>(memref.getType());
}

/// Lines of one operand that are asked for at once.
static constexpr int64_t kMaxBurst = 4;

VQBackwardKernel::VQBackwardKernel(TeamBuilder &builder, VQBackwardOp op)
    : op(op),
      b(op.getLoc(), builder, builder.getStateType(), builder.getLanes()),
      loops(builder, op), window(loops.getWindow()), state(b.getStateType()),
      tile(kTileVectors * b.getLanes()), zero(b.index(0)),
      width(getType(op.getQuery()).getDimSize(3)),
      valueWidth(getType(op.getValue()).getDimSize(3)),
      numCodes(getType(op.getCodebook()).getDimSize(1)), block(op.getBlock()),
      memory(op.getMemory()),
      isSoftmax(op.getWeighting() == Weighting::Softmax),
      distanceSums(builder, loops, op) {}

//===----------------------------------------------------------------------===//
// All tasks
//===----------------------------------------------------------------------===//

/// Memory for sums of `gradient`: its own where it holds the state type.
Value VQBackwardKernel::getSums(Value gradient) {
  MemRefType type = getType(gradient);
  if (type.getElementType() == state)
    return gradient;
  Value rows[] = {b.extent(gradient, 0), b.extent(gradient, 1),
                  b.extent(gradient, 2)};
  return loops.allocate(rows, {type.getDimSize(3)}, state);
}

/// The same for a gradient of tokens, which may be of other windows, too.
Value VQBackwardKernel::getTokenSums(Value gradient) {
  if (loops.hasState() || loops.hasNext())
    return loops.allocateRows(getType(gradient).getDimSize(3), state);
  return getSums(gradient);
}

void VQBackwardKernel::storeTokenSums(Value sums, Value gradient,
                                      unsigned part) {
  if (sums != gradient)
    loops.storeTokens(gradient, part, [&](KernelBuilder &k, ValueRange at) {
      return k.loadVector(sums, at);
    });
}

void VQBackwardKernel::emit() {
  loops.gatherTokens(Reduction::Serial, state);
  dKey = getTokenSums(op.getDKey());
  dValue = getTokenSums(op.getDValue());
  auto broadcasts = [&](int64_t dim) {
    return op.getDBias() && getType(op.getDBias()).getDimSize(dim) == 1 &&
           getType(op.getQuery()).getDimSize(dim) != 1;
  };
  if (op.getDBias()) {
    sumsBias = broadcasts(0) || broadcasts(1) || broadcasts(2);
    dBias = sumsBias ? getSums(op.getDBias()) : op.getDBias();
    if (sumsBias)
      loops.fillRows(dBias,
                     [](KernelBuilder &k, ValueRange) { return k.splat(0.0); });
  }
  divideTokens();
  layOutDistances();
  Value batches = b.extent(op.getValue(), 0),
        heads = b.extent(op.getValue(), 1);
  // Gradients of a bias that tasks share are added in order.
  if (broadcasts(0) || broadcasts(1))
    b.forAll({b.index(1)}, [&](ValueRange) {
      b.loop(zero, batches, 1, [&](Value batch) {
        b.loop(zero, heads, 1,
               [&](Value head) { emitTask(batch, head, /*chunk=*/zero); });
      });
    });
  else
    b.forAll({batches, heads, numChunks},
             [&](ValueRange at) { emitTask(at[0], at[1], at[2]); });
  addChunks();
  // Queries were scaled, and in base 2 for the exponential.
  if (op.hasDistances())
    distanceSums.store(/*keyFactor=*/1.0 / getScoreFactor());
  storeTokenSums(dKey, op.getDKey(), /*part=*/1);
  storeTokenSums(dValue, op.getDValue(), /*part=*/2);
  if (dBias != op.getDBias())
    loops.fillRows(op.getDBias(), [&](KernelBuilder &k, ValueRange at) {
      return k.loadVector(dBias, at);
    });
  loops.freeBuffers();
}

//===----------------------------------------------------------------------===//
// One task
//===----------------------------------------------------------------------===//

void VQBackwardKernel::emitTask(Value batchIndex, Value headIndex,
                                Value chunkIndex) {
  beginChunk(batchIndex, headIndex, chunkIndex);
  word = biasIndex(op.getCodebook(), 0, keyHead);
  queries = b.scratch({width, tile}, state);
  dOutputs = b.scratch({valueWidth, tile}, state);
  dQueries = b.scratch({tile, width}, state);
  offsets = b.scratch({tile}, state);
  deltas = b.scratch({tile}, state);
  factors = b.scratch({numCodes, tile}, state);
  dScores = b.scratch({numCodes, tile}, state);
  weights = b.scratch({kStep, tile}, state);
  if (!op.hasDistances())
    dLocal = b.scratch({kStep, tile}, state);
  if (op.hasLocalTerms())
    biases = b.scratch({kStep, tile}, state);
  beginDistances();
  b.loop(zero, b.index(numCodes), 1, [&](Value code) {
    b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), sums, {code, column});
    });
  });

  if (op.getCausal()) {
    Value begin = b.div(chunkBegin, block);
    Value blocks = b.sub(b.ceilDiv(chunkEnd, block), begin);
    b.loop(zero, blocks, 1, [&](Value step) {
      emitBlock(b.add(begin, b.sub(b.sub(blocks, b.index(1)), step)));
    });
  } else {
    b.loop(chunkBegin, chunkEnd, tile, [&](Value low) {
      first = low;
      count = b.min(b.sub(chunkEnd, low), tile);
      emitTile();
    });
    clearKeyGradients(rows, chunkBegin, chunkEnd);
  }
  b.freeScratch();
}

void VQBackwardKernel::takeValueGradients(const TokenRows &rows, Value low,
                                          Value high) {
  b.loop(low, high, 1, [&](Value token) {
    Value code = b.loadIndex(window.codes, {batch, keyHead, token});
    b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
      Value sum = loops.loadPresent(
          k, code, [&] { return k.loadVector(sums, {code, column}); });
      k.storeVector(sum, rows.values, {k.sub(token, rows.first), column});
    });
  });
}

void VQBackwardKernel::clearKeyGradients(const TokenRows &rows, Value low,
                                         Value high) {
  b.loop(low, high, 1, [&](Value token) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), rows.keys,
                    {k.sub(token, rows.first), column});
    });
  });
}

void VQBackwardKernel::emitBlock(Value n) {
  blockIndex = n;
  blockBegin = b.mul(n, block);
  blockEnd = b.min(b.add(blockBegin, block), window.numTokens);
  // From here on the tokens of the block `memory` before take part, and before
  // anything else those that the chunk's last block reads beside them.
  Value memoryBegin = getMemoryBegin();
  Value memoryEnd = b.max(b.sub(blockBegin, b.index(getReach() - block)), 0);
  if (memory == 0)
    memoryEnd = blockEnd;
  Value isLast = b.equal(blockEnd, chunkEnd);
  Value end = b.select(isLast, blockEnd, memoryEnd);
  auto clear = [&](Value low, Value high) {
    forTokens(low, high, [&](const TokenRows &rows, Value low, Value high) {
      clearKeyGradients(rows, low, high);
      if (op.hasLocalTerms())
        takeValueGradients(rows, low, high);
    });
  };
  clear(memoryEnd, end);
  addNextMean(b.add(n, op.hasLocalTerms() ? 1 : memory + 1));
  clear(memoryBegin, memoryEnd);
  // Tokens that were kept have no queries here.
  Value begin = blockBegin;
  if (loops.hasState())
    begin = b.clamp(window.numBefore, blockBegin, blockEnd);
  Value tiles = b.ceilDiv(b.sub(blockEnd, begin), tile);
  b.loop(zero, tiles, 1, [&](Value step) {
    Value index = b.sub(b.sub(tiles, b.index(1)), step);
    first = b.add(begin, b.mul(index, tile));
    count = b.min(b.sub(blockEnd, first), tile);
    if (!op.hasLocalTerms())
      takeValueGradients(rows, first, b.add(first, count));
    emitTile();
  });
  if (loops.hasState() && !op.hasLocalTerms())
    takeValueGradients(rows, blockBegin, begin);
}

/// Adds the gradient for the means of the next state to U, if `nextBlock` is
/// the block that the next token lies in: the tokens of these means, which are
/// those before its memory, take theirs from now on.
void VQBackwardKernel::addNextMean(Value nextBlock) {
  if (!loops.hasNext())
    return;
  b.ifThen(b.equal(nextBlock, b.div(window.numTokens, block)), [&] {
    b.loop(zero, b.index(numCodes), 1, [&](Value code) {
      b.forColumns(valueWidth, [&](KernelBuilder &k, Value column) {
        Value gradient = loops.loadNextMean(k, {batch, keyHead, code, column});
        Value old = k.loadVector(sums, {code, column});
        k.storeVector(k.fadd(old, gradient), sums, {code, column});
      });
    });
  });
}

void VQBackwardKernel::emitTile() {
  firstRow = b.sub(first, window.numBefore);
  Value heads = b.div(b.extent(op.getQuery(), 1), b.extent(op.getValue(), 1));
  b.loop(zero, heads, 1, [&](Value i) {
    head = b.add(b.mul(keyHead, heads), i);
    emitHead();
  });
}

void VQBackwardKernel::emitHead() {
  loadRows();
  emitFactors();
  if (!op.getCausal()) {
    emitCache();
    emitQueryGradient();
    addToSums();
    return;
  }
  emitLocal();
  // The first block with `memory` before it has none older, but for the
  // state's.
  Value hasCache =
      b.less(b.index(loops.hasState() ? memory - 1 : memory), blockIndex);
  b.ifThen(hasCache, [&] { emitCache(); });
  emitQueryGradient();
  if (op.hasLocalTerms())
    b.ifThen(hasCache, [&] { addToSums(); });
  else
    addToSums();
}

//===----------------------------------------------------------------------===//
// Queries and codewords
//===----------------------------------------------------------------------===//

/// The product of two rows of the values' width.
Value VQBackwardKernel::emitDot(Value left, Value right, Values row) {
  auto at = [&](Value column) {
    Values position(row);
    position.push_back(column);
    return position;
  };
  int64_t whole = valueWidth / b.getLanes() * b.getLanes();
  Values sums =
      b.loop(zero, b.index(whole), b.getLanes(), b.splat(0.0),
             [&](Value column, ValueRange sum) {
               return Values{b.fma(b.loadVector(left, at(column)),
                                   b.loadVector(right, at(column)), sum[0])};
             });
  return b.loop(b.index(whole), b.index(valueWidth), 1, sumLanes(b, sums[0]),
                [&](Value column, ValueRange sum) {
                  Value product = b.fmul(b.loadScalar(left, at(column)),
                                         b.loadScalar(right, at(column)));
                  return Values{b.fadd(sum[0], product)};
                })[0];
}

/// Queries and gradients of the tile with queries along vectors, and what is
/// added to its scores and taken from its products.
void VQBackwardKernel::loadRows() {
  b.emitTransposition({window.queries,
                       queries,
                       {batch, head},
                       firstRow,
                       count,
                       zero,
                       b.index(width),
                       getScale() * getScoreFactor()});
  loadDistanceQueries();
  b.emitTransposition({window.dOutputs,
                       dOutputs,
                       {batch, head},
                       firstRow,
                       count,
                       zero,
                       b.index(valueWidth)});
  if (!isSoftmax && !op.getPadded())
    return;
  Value masked = b.scalar(softmax::kMasked), none = b.scalar(0.0);
  b.loop(zero, b.index(tile), 1, [&](Value row) {
    b.storeScalar(masked, offsets, {row});
    b.storeScalar(none, deltas, {row});
  });
  b.loop(zero, count, 1, [&](Value row) {
    Value query = b.add(firstRow, row);
    if (!isSoftmax) {
      Value code =
          b.loadIndex(window.codes, {batch, keyHead, b.add(first, row)});
      b.storeScalar(b.select(b.less(code, zero), masked, none), offsets, {row});
      return;
    }
    Value lse = b.loadScalar(op.getLse(), {batch, head, query});
    // A row that read nothing passes nothing on.
    Value isEmpty = arith::CmpFOp::create(
        b, arith::CmpFPredicate::OEQ, lse,
        b.scalar(-std::numeric_limits<double>::infinity()));
    Value offset = b.fmul(lse, b.scalar(-softmax::kLog2E));
    b.storeScalar(b.select(isEmpty, masked, offset), offsets, {row});
    Value delta =
        emitDot(op.getOutput(), window.dOutputs, {batch, head, query});
    if (op.getDLse())
      delta = b.fsub(delta, b.loadScalar(op.getDLse(), {batch, head, query}));
    b.storeScalar(b.select(isEmpty, none, delta), deltas, {row});
  });
}

Value VQBackwardKernel::getFactor(Value score) {
  if (!isSoftmax) {
    Value positive = b.fmax(b.splat(0.0), score);
    return b.fadd(positive, positive);
  }
  // No score is above its row's lse, except that of a codeword that no token
  // has; its count is 0.
  Value isPositive =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OGT, score, b.splat(0.0));
  Value clamped = arith::SelectOp::create(b, isPositive, b.splat(0.0), score);
  return softmax::exp2(b, b.fmax(b.splat(softmax::kMasked), clamped));
}

Value VQBackwardKernel::getWeight(KernelBuilder &kb, Value factor,
                                  Value quarter) {
  if (isSoftmax)
    return factor;
  return kb.fmul(kb.fmul(factor, factor), quarter);
}

/// Factors of all codewords; with a bias their scores, to which it is added
/// first.
void VQBackwardKernel::emitFactors() {
  bool areScores = bool(op.hasLocalTerms());
  b.emitProduct({b.index(numCodes), b.index(width), tile,
                 [&](KernelBuilder &kb, Value code, Value k) {
                   return kb.loadScalar(op.getCodebook(), {word, code, k});
                 },
                 [&](KernelBuilder &kb, Value k, Value column) {
                   return kb.loadVector(queries, {k, column});
                 },
                 [&](KernelBuilder &kb, Value code, Value column, Value score) {
                   if (isSoftmax)
                     score = b.fadd(score, b.loadVector(offsets, {column}));
                   b.storeVector(areScores ? score : getFactor(score), factors,
                                 {code, column});
                   b.storeVector(b.splat(0.0), dScores, {code, column});
                 },
                 /*startRow=*/{},
                 /*startTile=*/[&](Value code) { lookAhead(code); }});
}

/// Asks for a few lines of what the tile before this one, which is next, reads
/// and writes once.
void VQBackwardKernel::lookAhead(Value code) {
  for (auto [memref, index] :
       {std::pair(window.queries, head), std::pair(window.dOutputs, head),
        std::pair(op.getOutput(), head), std::pair(dValue, keyHead)}) {
    // Only a soft-max needs the output.
    if (!memref)
      continue;
    MemRefType type = getType(memref);
    int64_t lineElements = 512 / type.getElementTypeBitWidth();
    int64_t linesPerRow = llvm::divideCeil(type.getDimSize(3), lineElements);
    int64_t lines =
        llvm::divideCeil(tile * linesPerRow * b.kTileRows, numCodes);
    // A burst for few codewords would stall the loads of their products.
    if (lines > kMaxBurst)
      continue;
    for (int64_t i = 0; i < lines; ++i) {
      Value line = b.add(b.mul(b.div(code, b.kTileRows), lines), i);
      Value start = memref == dValue ? first : firstRow;
      Value row = b.add(b.sub(start, b.index(tile)), b.div(line, linesPerRow));
      Value column = b.mul(b.rem(line, linesPerRow), lineElements);
      b.prefetch(memref, {batch, index, row, column}, /*locality=*/2);
    }
  }
}

/// Adds the cached tokens to dScores.
void VQBackwardKernel::emitCache() {
  Values at{batch, keyHead};
  if (op.getCausal())
    at.push_back(b.sub(blockIndex, b.index(memory)));
  auto with = [&](ValueRange more) {
    Values position(at);
    position.append(more.begin(), more.end());
    return position;
  };
  Value number, isNothing;
  b.emitProduct(
      {b.index(numCodes), b.index(valueWidth), tile,
       [&](KernelBuilder &kb, Value code, Value k) {
         return kb.loadScalar(window.means, with({code, k}));
       },
       [&](KernelBuilder &kb, Value k, Value column) {
         return kb.loadVector(dOutputs, {k, column});
       },
       [&](KernelBuilder &kb, Value code, Value column, Value product) {
         Value factor = b.loadVector(factors, {code, column});
         if (op.hasLocalTerms()) {
           factor = getFactor(factor);
           b.storeVector(factor, factors, {code, column});
         }
         if (isSoftmax)
           product = b.fsub(product, b.loadVector(deltas, {column}));
         Value old = b.loadVector(dScores, {code, column});
         Value gradient = b.fmul(b.fmul(factor, number), product);
         // The mean of nothing is not read: it may be anything.
         Value hidden = isNothing;
         if (op.getPadded())
           hidden = arith::OrIOp::create(b, hidden, areQueriesEmpty(column));
         gradient = arith::SelectOp::create(b, hidden, b.splat(0.0), gradient);
         b.storeVector(b.fadd(old, gradient), dScores, {code, column});
       },
       [&](Value code) {
         number =
             b.broadcast(b.toNumber(b.loadIndex(window.counts, with({code}))));
         isNothing = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, number,
                                           b.splat(0.0));
       }});
}

/// Rows go by in blocks that stay in the first cache level for all queries.
void VQBackwardKernel::addQueryGradients(
    Value gradients, int64_t firstGradient, Value rows, Value numRows,
    function_ref<Value(KernelBuilder &, Value)> hides) {
  auto addBlock = [&](Value low, Value depth) {
    b.emitProduct({count, depth, width,
                   [&](KernelBuilder &kb, Value row, Value k) {
                     Value gradient = kb.add(kb.add(low, k), firstGradient);
                     return kb.loadScalar(gradients, {gradient, row});
                   },
                   [&](KernelBuilder &kb, Value k, Value column) {
                     return kb.loadVector(rows, {kb.add(low, k), column});
                   },
                   [&](KernelBuilder &kb, Value row, Value column, Value sum) {
                     Value old = kb.loadVector(dQueries, {row, column});
                     kb.storeVector(kb.fadd(old, sum), dQueries, {row, column});
                   },
                   /*startRow=*/{},
                   /*startTile=*/{},
                   /*firstStep=*/{}, hides});
  };
  Value whole = b.roundDown(numRows, kStep);
  b.loop(zero, whole, kStep, [&](Value low) { addBlock(low, b.index(kStep)); });
  Value rest = b.sub(numRows, whole);
  if (getConstantIntValue(rest) != 0)
    addBlock(whole, rest);
}

void VQBackwardKernel::emitQueryGradient() {
  b.loop(zero, count, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      k.storeVector(k.splat(0.0), dQueries, {row, column});
    });
  });
  addQueryGradients(
      dScores, /*firstGradient=*/0, b.rowView(op.getCodebook(), word),
      b.index(numCodes), [](KernelBuilder &kb, Value gradient) -> Value {
        // A codeword that is read and not finite has made it NaN.
        return arith::CmpFOp::create(kb, arith::CmpFPredicate::OEQ, gradient,
                                     kb.splat(0.0));
      });
  takeDistanceGradients();
  double scale = getScale();
  b.loop(zero, count, 1, [&](Value row) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value sum = k.loadVector(dQueries, {row, column});
      k.storeVector(k.fmul(sum, k.splat(scale)), op.getDQuery(),
                    {batch, head, k.add(firstRow, row), column});
    });
  });
}

void VQBackwardKernel::addToSums() {
  b.emitProduct({b.index(numCodes), count, valueWidth,
                 [&](KernelBuilder &kb, Value code, Value k) {
                   return getWeight(kb, kb.loadScalar(factors, {code, k}),
                                    kb.scalar(0.25));
                 },
                 [&](KernelBuilder &kb, Value k, Value column) {
                   return kb.loadVector(
                       window.dOutputs,
                       {batch, head, kb.add(firstRow, k), column});
                 },
                 [&](KernelBuilder &kb, Value code, Value column, Value sum) {
                   Value old = kb.loadVector(sums, {code, column});
                   kb.storeVector(kb.fadd(old, sum), sums, {code, column});
                 }});
}
