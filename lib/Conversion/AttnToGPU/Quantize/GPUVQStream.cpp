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
// With a state, extents would depend on its position, which the host of a
// launch by tensor maps would have to wait for.
//
//===----------------------------------------------------------------------===//

#include "GPUVQBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
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
  return gpu.warpgroups && !loops.hasState() && problem.isSoftmax() &&
         !op.hasLocalTerms() && type == getType(op.getCodebook()) &&
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
    // Of group 0 the entry that block `firstCached` reads.
    Value entry =
        k.add(k.div(at[2], numCodes), firstCached - problem.getMemory());
    Value entries = k.extent(problem.window.counts, 2);
    isEntry = k.less(entry, entries);
    row.entry.push_back(k.min(entry, k.sub(entries, k.index(1))));
  }
  row.entry.push_back(code);
  row.count = k.loadIndex(problem.window.counts, row.entry);
  row.exists = k.less(k.index(0), row.count);
  if (isEntry)
    row.exists = k.both(row.exists, isEntry);
  return row;
}

VQBackwardLoops::StreamRows VQBackwardLoops::makeTokens(Value keySums) {
  const VQWindow &window = problem.window;
  Value codebook = op.getCodebook();
  StreamRows tokens = {loops.allocateRows(width, getType(codebook)),
                       window.values};
  tokens.dKeys = keySums;
  tokens.dValues = valueSums;
  loops.fillRows(tokens.keys, [&](KernelBuilder &k, ValueRange at) {
    Value code = k.loadIndex(window.codes, at.take_front(3));
    // Scores of absent tokens are those of any codeword, which nobody reads.
    if (op.getPadded())
      code = k.max(code, 0);
    Value word = k.broadcastIndex(codebook, 0, at[1]);
    return k.loadVector(codebook, {word, code, at[3]});
  });
  if (!op.getPadded())
    return tokens;
  Value extents[] = {batches, keyHeads, window.numTokens};
  tokens.logWeights = loops.allocate(extents, {}, b.getF32Type());
  parallelLoop(b, extents, [&](ValueRange at) {
    Value isPresent = b.less(b.index(-1), b.loadIndex(window.codes, at));
    b.storeScalar(b.select(isPresent, b.scalar(0.0), b.scalar(-kInfinity)),
                  tokens.logWeights, at);
  });
  return tokens;
}

VQBackwardLoops::StreamRows VQBackwardLoops::makeCodewords() {
  const VQWindow &window = problem.window;
  Value codebook = op.getCodebook();
  Value extents[] = {batches, keyHeads, b.mul(numGroups, numCodes)};
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

void VQBackwardLoops::emitStream(Value keySums) {
  MLIRContext *context = b.getContext();
  AffineExpr block = getAffineDimExpr(0, context),
             rows = getAffineSymbolExpr(0, context),
             zero = getAffineConstantExpr(0, context);
  Values keys, values, logWeights, dKeys, dValues;
  SmallVector<Attribute> sources;
  auto addSource = [&](const StreamRows &source, AffineExpr begin,
                       AffineExpr end, bool isCausal) {
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
                        /*hasLocalBias=*/false, /*hasLengths=*/false,
                        /*hasRelative=*/false, /*hasDistanceBias=*/false,
                        /*origin=*/AffineMap(), /*unit=*/0,
                        /*hasListedPositions=*/false, /*hasScore=*/false));
  };
  if (op.getCausal()) {
    int64_t length = problem.getBlock();
    AffineExpr begin = block * length;
    addSource(makeTokens(keySums), begin - problem.getMemory() * length,
              begin + length, /*isCausal=*/true);
    begin = block * numCodes - firstCached * numCodes;
    addSource(makeCodewords(), begin, begin + numCodes, /*isCausal=*/false);
  } else {
    addSource(makeCodewords(), zero, rows, /*isCausal=*/false);
  }
  const VQWindow &window = problem.window;
  StreamBackwardOp::create(
      b, /*results=*/TypeRange(), window.queries, keys, values, logWeights,
      /*biases=*/ValueRange(), /*lengths=*/ValueRange(),
      /*rowLists=*/ValueRange(), /*sink=*/Value(), /*queryLengths=*/Value(),
      /*captures=*/ValueRange(), op.getOutput(), clearAbsentLse(),
      window.dOutputs, op.getDLse(), op.getDQuery(), dKeys, dValues,
      /*dLogWeights=*/ValueRange(), /*dBiases=*/ValueRange(), /*dSink=*/Value(),
      /*dCaptures=*/ValueRange(), b.getArrayAttr(sources),
      b.getI64IntegerAttr(op.getCausal() ? problem.getBlock() : 0),
      op.getScaleAttr(), /*tiles=*/nullptr, /*scoresCount=*/0);
  // Of the tokens of a mean, each gets as much.
  Value dMeans = dValues.back();
  loops.fillRows(dMeans, [&](KernelBuilder &k, ValueRange at) {
    CachedRow row = findCachedRow(k, at);
    return loadIf(k, row.exists, [&]() -> Value {
      return arith::DivFOp::create(k, k.loadVector(dMeans, at),
                                   k.broadcast(k.toNumber(row.count)));
    });
  });
}
