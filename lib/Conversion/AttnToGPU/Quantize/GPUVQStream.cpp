//===- GPUVQStream.cpp - Gradients of attn.vq as those of a stream --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On chips with warpgroups, one attn.stream_backward takes the place of the
// kernels for queries, tokens and codes. Its sources are those of the forward
// stream (ExpandVQ.cpp):
//
//   tokens   their codewords and values; a query reads memory + 1 blocks
//   codes    all codewords for each group of queries, with means and log
//            counts of its older tokens
//
// A mean stands for `count` tokens, each of which gets as much of its gradient.
// Codewords that no token has are rows of zeros with a log weight that leaves
// no weight: their tiles need no masks.
//
// With a state, a window may begin anywhere in a block, after few blocks or
// many. Extents that depend on its position would have to come from the host,
// which encodes tensor maps. So queries and tokens lie in frames that are as
// long as any window of as many queries needs:
//
//   queries  the rows of their first block before them, and the queries
//   tokens   as many blocks as the memory has, and then those of the queries
//
// Block n of the queries reads blocks n to n + memory of the tokens. Lengths
// say what there is at the end; rows at the begin have no weight. Other terms
// than log weights are functions of the scores of tokens, whose positions count
// from the last token.
//
//===----------------------------------------------------------------------===//

#include "GPUVQBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static constexpr double kInfinity = std::numeric_limits<double>::infinity();

static Type getType(Value memref) {
  return getMemRefType(memref).getElementType();
}

bool VQBackwardLoops::isStream(const GPUFacts &gpu) {
  auto type = cast<FloatType>(getType(op.getQuery()));
  Value operands[] = {op.getQuery(), op.getDOutput(), op.getValue()};
  // Frames of a few queries would have more rows than these read.
  int64_t queries = getMemRefType(op.getQuery()).getDimSize(2);
  if (loops.hasState() && !ShapedType::isDynamic(queries) &&
      queries <= kWarpgroupRows / 2)
    return false;
  return gpu.warpgroups && problem.isSoftmax() && !op.getRelativeKeys() &&
         type == getType(op.getCodebook()) &&
         (!op.getCausal() || op.getBlock() % kWarpgroupRows == 0) &&
         llvm::all_of(operands, [&](Value operand) {
           return fitsGradientBoxes(operand, type);
         });
}

static Value loadIf(KernelBuilder &k, Value exists,
                    function_ref<Value()> load) {
  return k.select(exists, k.getVectorType(), load,
                  [&] { return k.splat(0.0); });
}

VQBackwardLoops::CachedRow VQBackwardLoops::findCachedRow(KernelBuilder &k,
                                                          ValueRange at) {
  Value code = k.rem(at[2], numCodes), isEntry;
  CachedRow row = {code, {at[0], at[1]}};
  if (op.getCausal()) {
    // Of group 0 the entry that block `firstCached` reads; the first blocks of
    // a sequence read none.
    Value entry = k.sub(k.add(k.div(at[2], numCodes), firstCached),
                        k.index(problem.getMemory()));
    Value entries = k.extent(problem.window.counts, 2);
    isEntry = k.both(k.less(k.index(-1), entry), k.less(entry, entries));
    row.entry.push_back(k.max(k.min(entry, k.sub(entries, k.index(1))), 0));
  }
  row.entry.push_back(code);
  row.count = k.loadIndex(problem.window.counts, row.entry);
  row.exists = k.less(k.index(0), row.count);
  if (isEntry)
    row.exists = k.both(row.exists, isEntry);
  return row;
}

//===----------------------------------------------------------------------===//
// Frames
//===----------------------------------------------------------------------===//

void VQBackwardLoops::setFrames() {
  const VQWindow &window = problem.window;
  int64_t block = problem.getBlock(), memory = problem.getMemory();
  queryRows = b.add(window.length, block - 1);
  tokenRows = b.add(queryRows, memory * block);
  rowsBeforeQueries = b.rem(window.numBefore, b.index(block));
  Value inBlocks = b.sub(window.numBefore, rowsBeforeQueries);
  rowsBeforeTokens = b.sub(b.index(memory * block), inBlocks);
  // Group 0 is that of the first query's block.
  firstCached = b.div(window.numBefore, block);
}

Value VQBackwardLoops::getMostGroups() {
  int64_t block = problem.getBlock();
  Value most = loops.hasNext() ? b.add(b.div(queryRows, block), 1)
                               : b.ceilDiv(queryRows, block);
  return b.max(most, 1);
}

Value VQBackwardLoops::frameQueries(Value queries) {
  if (!isFramed())
    return queries;
  Value framed = loops.allocate({batches, heads, queryRows},
                                {getWidth(queries)}, getType(queries));
  loops.fillRows(framed, [&](KernelBuilder &k, ValueRange at) {
    Value query = k.sub(at[2], rowsBeforeQueries);
    Value exists = k.both(k.less(k.index(-1), query),
                          k.less(query, problem.window.length));
    return loadIf(k, exists, [&] {
      return k.loadVector(queries, {at[0], at[1], query, at[3]});
    });
  });
  return framed;
}

Value VQBackwardLoops::frameNumbers(Value numbers, double none) {
  if (!isFramed() || !numbers)
    return numbers;
  Value extents[] = {batches, heads, queryRows};
  Value framed = loops.allocate(extents, {}, getType(numbers));
  parallelLoop(b, extents, [&](ValueRange at) {
    Value query = b.sub(at[2], rowsBeforeQueries);
    Value exists = b.both(b.less(b.index(-1), query),
                          b.less(query, problem.window.length));
    Value number = b.select(
        exists, b.getStateType(),
        [&] { return b.loadScalar(numbers, {at[0], at[1], query}); },
        [&] { return b.scalar(none); });
    b.storeScalar(number, framed, at);
  });
  return framed;
}

Value VQBackwardLoops::fillLengths(Value rows) {
  Value lengths = loops.allocate({batches}, {}, b.getI32Type());
  parallelLoop(b, {batches},
               [&](ValueRange at) { b.storeIndex(rows, lengths, at); });
  return lengths;
}

//===----------------------------------------------------------------------===//
// Sources
//===----------------------------------------------------------------------===//

VQBackwardLoops::StreamRows VQBackwardLoops::makeTokens(Value keySums) {
  const VQWindow &window = problem.window;
  Value codebook = op.getCodebook();
  StreamRows tokens = {allocateTokens(width, getType(codebook)), window.values};
  tokens.dKeys = keySums;
  tokens.dValues = valueSums;
  auto tokenOf = [&](KernelBuilder &k, ValueRange at) -> Values {
    return {at[0], at[1], k.sub(at[2], rowsBeforeTokens)};
  };
  // Frames have rows before the first token, and behind the last one.
  auto loadToken = [&](KernelBuilder &k, ValueRange at,
                       function_ref<Value(Values token)> load) {
    Values token = tokenOf(k, at);
    if (!isFramed())
      return load(token);
    Value exists = k.both(k.less(k.index(-1), token[2]),
                          k.less(token[2], window.numTokens));
    return loadIf(k, exists, [&] { return load(token); });
  };
  loops.fillRows(tokens.keys, [&](KernelBuilder &k, ValueRange at) {
    return loadToken(k, at, [&](Values token) {
      Value code = k.loadIndex(window.codes, token);
      // Scores of absent tokens are those of any codeword, which nobody reads.
      if (op.getPadded())
        code = k.max(code, 0);
      Value word = k.broadcastIndex(codebook, 0, at[1]);
      return k.loadVector(codebook, {word, code, at[3]});
    });
  });
  if (isFramed()) {
    tokens.values = allocateTokens(valueWidth, getType(window.values));
    loops.fillRows(tokens.values, [&](KernelBuilder &k, ValueRange at) {
      return loadToken(k, at, [&](Values token) {
        token.push_back(at[3]);
        return k.loadVector(window.values, token);
      });
    });
  }
  if (!op.getPadded() && !isFramed())
    return tokens;
  Value extents[] = {batches, keyHeads, tokenRows};
  tokens.logWeights = loops.allocate(extents, {}, b.getF32Type());
  parallelLoop(b, extents, [&](ValueRange at) {
    Values token = tokenOf(b, at);
    Value isToken = b.both(b.less(b.index(-1), token[2]),
                           b.less(token[2], window.numTokens));
    Value weight = b.select(
        isToken, b.getStateType(),
        [&]() -> Value {
          if (!op.getPadded())
            return b.scalar(0.0);
          Value isPresent =
              b.less(b.index(-1), b.loadIndex(window.codes, token));
          return b.select(isPresent, b.scalar(0.0), b.scalar(-kInfinity));
        },
        [&] { return b.scalar(-kInfinity); });
    b.storeScalar(weight, tokens.logWeights, at);
  });
  return tokens;
}

VQBackwardLoops::StreamRows VQBackwardLoops::makeCodewords() {
  const VQWindow &window = problem.window;
  Value codebook = op.getCodebook();
  Value rows = b.mul(b.extent(codeSums, 2), numCodes);
  Value extents[] = {batches, keyHeads, rows};
  Type type = getType(codebook), number = b.getF32Type();
  StreamRows words = {loops.allocate(extents, width, type),
                      loops.allocate(extents, valueWidth, type)};
  words.logWeights = loops.allocate(extents, {}, number);
  words.dKeys = loops.allocate(extents, width, number);
  words.dValues = memref::CollapseShapeOp::create(
      b, codeSums, ArrayRef<ReassociationIndices>{{0}, {1}, {2, 3}, {4}});
  loops.fillRows(words.keys, [&](KernelBuilder &k, ValueRange at) {
    CachedRow row = findCachedRow(k, at);
    return loadIf(k, row.exists, [&] {
      Value word = k.broadcastIndex(codebook, 0, at[1]);
      return k.loadVector(codebook, {word, row.code, at[3]});
    });
  });
  loops.fillRows(words.values, [&](KernelBuilder &k, ValueRange at) {
    CachedRow row = findCachedRow(k, at);
    return loadIf(k, row.exists, [&] {
      row.entry.push_back(at[3]);
      return k.loadVector(window.means, row.entry);
    });
  });
  parallelLoop(b, extents, [&](ValueRange at) {
    CachedRow row = findCachedRow(b, at);
    Value log = softmax::log(b, b.toNumber(b.max(row.count, 1)));
    b.storeScalar(b.select(row.exists, log, b.scalar(softmax::kMasked)),
                  words.logWeights, at);
  });
  return words;
}

/// Queries of absent tokens read nothing, whatever their lse is.
Value VQBackwardLoops::clearAbsentLse() {
  Value lse = op.getLse();
  if (!op.getPadded())
    return lse;
  Value extents[] = {batches, heads, problem.window.length};
  Value clean = loops.allocate(extents, {}, b.getF32Type());
  parallelLoop(b, extents, [&](ValueRange at) {
    Value keyHead = b.div(at[1], headsOfKey);
    Value code = b.loadIndex(op.getCodes(), {at[0], keyHead, at[2]});
    b.storeScalar(b.select(b.less(b.index(-1), code), b.loadScalar(lse, at),
                           b.scalar(-kInfinity)),
                  clean, at);
  });
  return clean;
}

Values VQBackwardLoops::getScoreCaptures() {
  Values captures;
  for (Value term : {op.getBias(), op.getDistanceBias()})
    if (term)
      captures.push_back(term);
  // Which query row 0 of a frame is.
  if (op.getBias() && isFramed())
    captures.push_back(rowsBeforeQueries);
  return captures;
}

/// Fills the region of a source's scores: terms are added to those of tokens.
void VQBackwardLoops::fillScore(Region &region, bool areTokens,
                                ValueRange captures) {
  Location loc = op.getLoc();
  OpBuilder::InsertionGuard guard(b);
  Block &body = region.emplaceBlock();
  b.setInsertionPointToEnd(&body);
  Type index = b.getIndexType(), number = b.getF32Type();
  Value score = body.addArgument(number, loc);
  Value batch = body.addArgument(index, loc),
        head = body.addArgument(index, loc),
        query = body.addArgument(index, loc),
        key = body.addArgument(index, loc);
  Values arguments;
  for (Value capture : captures) {
    auto type = dyn_cast<MemRefType>(capture.getType());
    arguments.push_back(body.addArgument(
        type ? RankedTensorType::get(type.getShape(), type.getElementType())
             : capture.getType(),
        loc));
  }
  auto *next = arguments.begin();
  auto add = [&](ValueRange at) {
    Value tensor = *next++;
    Values place(at);
    for (auto [dim, extent] :
         llvm::enumerate(cast<RankedTensorType>(tensor.getType()).getShape()))
      if (extent == 1)
        place[dim] = b.index(0);
    Value term = tensor::ExtractOp::create(b, loc, tensor, place);
    if (term.getType() != number)
      term = arith::ExtFOp::create(b, loc, number, term);
    score = arith::AddFOp::create(b, loc, score, term);
  };
  if (areTokens && op.getBias()) {
    // Columns count from the first block that the query reads.
    int64_t block = problem.getBlock(), memory = problem.getMemory() * block;
    Value row = isFramed() ? b.add(query, -memory) : query;
    Value own = b.roundDown(row, block);
    Value begin = isFramed() ? own : b.add(own, -memory);
    // Those before the first query read nothing.
    if (isFramed())
      row = b.max(b.sub(row, arguments.back()), 0);
    add({batch, head, row, b.sub(key, begin)});
  }
  if (areTokens && op.getDistanceBias())
    add({head, b.sub(query, key)});
  YieldOp::create(b, loc, score);
}

void VQBackwardLoops::emitStream(Value keySums) {
  MLIRContext *context = b.getContext();
  AffineExpr block = getAffineDimExpr(0, context),
             rows = getAffineSymbolExpr(0, context),
             zero = getAffineConstantExpr(0, context);
  Values keys, values, logWeights, dKeys, dValues,
      captures = getScoreCaptures();
  SmallVector<Attribute> sources;
  auto addSource = [&](const StreamRows &source, AffineExpr begin,
                       AffineExpr end, bool isCausal, bool hasLengths) {
    keys.push_back(source.keys);
    values.push_back(source.values);
    if (source.logWeights)
      logWeights.push_back(source.logWeights);
    dKeys.push_back(source.dKeys);
    dValues.push_back(source.dValues);
    sources.push_back(
        SourceAttr::get(context, AffineMap::get(1, 2, {begin, end}, context),
                        MaskAttr::get(context, isCausal, /*window=*/0),
                        /*hasLogWeight=*/source.logWeights != nullptr,
                        /*hasBias=*/false, /*hasCodes=*/false,
                        /*hasLocalBias=*/false, hasLengths,
                        /*hasRelative=*/false, /*hasDistanceBias=*/false,
                        /*origin=*/AffineMap(), /*unit=*/0,
                        /*hasListedPositions=*/false,
                        /*hasScore=*/!captures.empty()));
  };
  const VQWindow &window = problem.window;
  Values lengths;
  Value queryLengths;
  if (isFramed()) {
    Value numQueries = b.add(rowsBeforeQueries, window.length);
    queryLengths = fillLengths(numQueries);
    lengths = {fillLengths(b.add(rowsBeforeTokens, window.numTokens))};
  }
  if (op.getCausal()) {
    int64_t length = problem.getBlock(), memory = problem.getMemory() * length;
    AffineExpr begin = block * length - (isFramed() ? 0 : memory);
    addSource(makeTokens(keySums), begin, begin + memory + length,
              /*isCausal=*/true, /*hasLengths=*/isFramed());
    // Blocks of frames begin with that of the first query.
    int64_t first = isFramed() ? 0 : problem.getMemory() + 1;
    begin = block * numCodes - first * numCodes;
    addSource(makeCodewords(), begin, begin + numCodes, /*isCausal=*/false,
              /*hasLengths=*/false);
  } else {
    addSource(makeCodewords(), zero, rows, /*isCausal=*/false,
              /*hasLengths=*/false);
  }
  Value dQuery = op.getDQuery();
  if (isFramed())
    dQuery =
        loops.allocate({batches, heads, queryRows}, {width}, getType(dQuery));
  auto stream = StreamBackwardOp::create(
      b, /*results=*/TypeRange(), frameQueries(window.queries), keys, values,
      logWeights, /*biases=*/ValueRange(), lengths,
      /*rowLists=*/ValueRange(), /*sink=*/Value(), queryLengths, captures,
      frameQueries(op.getOutput()), frameNumbers(clearAbsentLse(), -kInfinity),
      frameQueries(window.dOutputs), frameNumbers(op.getDLse(), 0.0), dQuery,
      dKeys, dValues,
      /*dLogWeights=*/ValueRange(), /*dBiases=*/ValueRange(),
      /*dSink=*/Value(), /*dCaptures=*/ValueRange(), b.getArrayAttr(sources),
      b.getI64IntegerAttr(op.getCausal() ? problem.getBlock() : 0),
      op.getScaleAttr(), /*tiles=*/nullptr,
      /*scoresCount=*/captures.empty() ? 0 : sources.size());
  // Only with tokens, which come first.
  for (auto [i, region] : llvm::enumerate(stream.getScores()))
    fillScore(region, /*areTokens=*/i == 0, captures);
  if (isFramed())
    loops.fillRows(op.getDQuery(), [&](KernelBuilder &k, ValueRange at) {
      Value row = k.add(at[2], rowsBeforeQueries);
      return k.loadVector(dQuery, {at[0], at[1], row, at[3]});
    });
  // Of the tokens of a mean, each gets as much.
  Value dMeans = dValues.back();
  loops.fillRows(dMeans, [&](KernelBuilder &k, ValueRange at) {
    CachedRow row = findCachedRow(k, at);
    return loadIf(k, row.exists, [&]() -> Value {
      return arith::DivFOp::create(k, k.loadVector(dMeans, at),
                                   k.broadcast(k.toNumber(row.count)));
    });
  });
  if (!isFramed())
    return;
  // Sums of later blocks begin with the last one that there is.
  SmallVector<OpFoldResult> offsets(5, b.getIndexAttr(0)),
      strides(5, b.getIndexAttr(1)),
      sizes = memref::getMixedSizes(b, b.getLoc(), codeSums);
  sizes[2] = numGroups;
  codeSums = memref::SubViewOp::create(b, codeSums, offsets, sizes, strides);
}
