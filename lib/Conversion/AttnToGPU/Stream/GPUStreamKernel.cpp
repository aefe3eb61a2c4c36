//===- GPUStreamKernel.cpp - Query blocks of attn.stream on a GPU ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace fovea::attn;

static FloatType getElementType(Value memref) {
  return cast<FloatType>(cast<ShapedType>(memref.getType()).getElementType());
}
static int64_t getExtent(Value memref, int64_t dim) {
  return cast<ShapedType>(memref.getType()).getDimSize(dim);
}

FloatType fovea::attn::getProductType(StreamOp op) {
  FloatType type = getElementType(op.getQuery());
  SmallVector<Value> operands(op.getKeys());
  llvm::append_range(operands, op.getValues());
  bool isMixed = getElementType(op.getOutput()) != type;
  for (Value operand : operands)
    isMixed |=
        getElementType(operand) != type && !getElementType(operand).isF32();
  return isMixed ? FloatType(Float32Type::get(op.getContext())) : type;
}

LogicalResult fovea::attn::verifyGPUStream(StreamOp op) {
  // Data is f64 altogether, if at all; captures of a region may be, too.
  if (failed(verifyGPUElementTypes(op, {op.getQuery()})) ||
      failed(verifyGPUWidths(op, {op.getQuery()}, kMaxQueryWidth)))
    return failure();
  // Threads count rows and positions in 32 bits, with room for differences.
  for (const StreamOp::Source &source : op.getSourceList()) {
    int64_t rows = getExtent(source.getRowsOperand(), 2);
    if (source.attr.getHasListedPositions()) {
      int64_t entries = getExtent(source.rowList, 3);
      if (!ShapedType::isDynamic(entries))
        rows = std::max(rows, entries * source.attr.getUnit());
    }
    int64_t stride = source.attr.getMask().getStride();
    if (rows < (int64_t(1) << 30) / stride)
      continue;
    InFlightDiagnostic error = op.emitOpError("has ")
                               << rows << " rows of keys";
    if (stride > 1)
      error << " with a stride of " << stride << " tokens";
    return error << ", but GPU kernels take fewer than 2^30";
  }
  return success();
}

GPUStreamLayout::GPUStreamLayout(StreamOp op) {
  TilesAttr tiles = *op.getTiles();
  int64_t elementBytes = getProductType(op).getWidth() / 8;
  int64_t width = getExtent(op.getQuery(), 3);
  int64_t valueWidth = getExtent(op.getOutput(), 3);
  // Wide values are summed in passes of equal width.
  numPasses = llvm::divideCeil(valueWidth, kMaxHeadWidth);
  valueColumns = valueWidth;
  if (numPasses > 1)
    valueColumns = llvm::alignTo(llvm::divideCeil(valueWidth, numPasses), 16);

  tableRows = RangeAnalysis(op).getMaxTableRows();
  if (tiles.getLanes() == kWarpgroupRows) {
    placeBoxes(tiles.getQueryLanes(), tiles.getKey(), width);
    if (multipliesRelativeKeys(op))
      placeRelativeKeys(tiles.getQueryLanes(), width);
  } else {
    auto matrix = [&](int64_t rows, int64_t columns) {
      return place(rows * SharedMatrix::getChunks(columns * elementBytes) *
                   kChunkBytes);
    };
    queries = matrix(tiles.getQueryLanes(), width);
    keys = matrix(2 * tiles.getKey(), width);
    values = matrix(2 * tiles.getKey(), valueColumns);
    auto placeWide = [&](OperandRange rows,
                         int64_t columns) -> std::optional<int64_t> {
      if (tiles.getVectors() > 1 || elementBytes == 4 ||
          llvm::none_of(rows, [](Value operand) {
            return getElementType(operand).isF32();
          }))
        return std::nullopt;
      return place(tiles.getKey() * SharedMatrix::getChunks(columns * 4) *
                   kChunkBytes);
    };
    wideKeys = placeWide(op.getKeys(), width);
    wideValues = placeWide(op.getValues(), valueColumns);
  }
  bool hasWeights = !op.getLogWeights().empty();
  int64_t words = llvm::divideCeil(tiles.getKey(), kWarpSize);
  weights = place(hasWeights ? numSlots * tiles.getKey() * 4 : 0);
  hidden = place(hasWeights ? numSlots * words * 4 : 0);
  table = place(tableRows * 4);
  bool hasLists = !op.getRowLists().empty();
  places = place(hasLists ? numSlots * tiles.getKey() * 4 : 0);
  cuts = place(hasLists ? numSlots * words * 4 : 0);
  bool hasListedRows = hasLists && tiles.getLanes() == kWarpgroupRows;
  listedRows = place(hasListedRows ? numSlots * tiles.getKey() * 4 : 0);
  keyRows = place(findsKeyRows(op) ? tiles.getKey() * 4 : 0);
  bool votes = tiles.getLanes() == kWarpgroupRows && scoresHide(op);
  this->votes = place(votes ? 2 * 8 + 2 * tiles.getVectors() * 4 * 4 : 0);
  search = place(canStay(op) ? 2 * 8 + 2 * 4 : 0);
  if (tiles.getLanes() == kWarpgroupRows)
    placeResults(tiles.getQueryLanes());
}

bool GPUStreamLayout::scoresHide(StreamOp op) {
  return !op.getBiases().empty() || !op.getDistanceBiases().empty() ||
         llvm::any_of(op.getScores(), [&](Region &score) {
           return ScoreBody(score, op.getCaptures()).mayRemove();
         });
}

bool GPUStreamLayout::findsKeyRows(StreamOp op) {
  return op.getTiles()->getLanes() != kWarpgroupRows &&
         op.getTiles()->getVectors() == 1 &&
         llvm::any_of(op.getSourceList(), [](const auto &source) {
           return source.codes != nullptr;
         });
}

int64_t GPUStreamLayout::place(int64_t size) {
  int64_t offset = bytes;
  bytes += llvm::alignTo(size, 128);
  return offset;
}

int64_t GPUStreamKernel::getNumThreads(StreamOp op) {
  TilesAttr tiles = *op.getTiles();
  // One warpgroup more copies.
  if (tiles.getLanes() == kWarpgroupRows)
    return (tiles.getVectors() + 1) * kWarpgroupSize;
  return tiles.getVectors() * kWarpSize;
}

GPUStreamKernel::GPUStreamKernel(StreamOp op, OpBuilder &builder, F32Math math)
    : op(op), tiles(*op.getTiles()), b(op.getLoc(), builder, getNumThreads(op)),
      math(math), type(getProductType(op)), width(getExtent(op.getQuery(), 3)),
      valueWidth(getExtent(op.getOutput(), 3)), keyTile(tiles.getKey()),
      queryTile(tiles.getQueryLanes()), layout(op), ranges(op),
      isSoftmax(op.getWeighting() == Weighting::Softmax),
      hasWeights(!op.getLogWeights().empty()),
      hasBias(!op.getBiases().empty() || !op.getRelativeKeys().empty() ||
              !op.getDistanceBiases().empty()),
      hasLocalBias(llvm::any_of(
          op.getSourceList(),
          [](const auto &source) { return source.attr.getHasLocalBias(); })),
      hasPrefix(llvm::any_of(op.getSourceList(),
                             [](const auto &source) {
                               return source.attr.getMask().hasPrefix();
                             })),
      hasStride(llvm::any_of(op.getSourceList(),
                             [](const auto &source) {
                               return source.attr.getMask().hasStride();
                             })),
      hasLists(!op.getRowLists().empty()) {
  for (Region &score : op.getScores()) {
    scoreBodies.emplace_back(score, op.getCaptures());
    admissions.emplace_back(score, op.getCaptures());
  }
  bool hasScores = !scoreBodies.empty(), hasTerms = hasBias || hasScores;
  scoresHide = GPUStreamLayout::scoresHide(op);
  double scale = op.getScale().convertToDouble();
  double toBase = isSoftmax ? softmax::kLog2E : 1.0;
  // The exponential can take the scale only if a larger product gives a larger
  // score, and only if the masked product stays finite. What is not added to
  // log weights, which are in base 2, has its base changed there.
  scalesScores =
      !isSoftmax || hasWeights || hasTerms || !(scale * toBase > 0x1p-40);
  exponentScale = 1.0;
  if (!scalesScores)
    exponentScale = scale * toBase;
  else if (hasTerms && !hasWeights)
    exponentScale = toBase;
  termScale = toBase / (scalesScores ? exponentScale : 1.0);
  scoreScale = scale * termScale;
  // A power of two, whose product with the scale is exact: equal masked scores
  // must differ by zero.
  masked = -std::exp2(std::ceil(std::log2(-softmax::kMasked / exponentScale)));
}

//===----------------------------------------------------------------------===//
// Loops around a query block
//===----------------------------------------------------------------------===//

void GPUStreamKernel::placeLane() {
  lane8 = b.rem(b.lane(), 8);
  lane16 = b.rem(b.lane(), 16);
  group = b.div(b.lane(), 4);
  pairColumn = b.mul(b.rem(b.lane(), 4), 2);
  warpRow = b.mul(b.warp(), kWarpRows);
}

void GPUStreamKernel::rarely(function_ref<void()> body) {
  // Products of f32 take the registers elsewhere: with 128 columns, ptxas
  // spills two for positions of their own, and none without.
  if (type.isF32())
    return body();
  llvm::SaveAndRestore eighth(lane8), half(lane16), row(group);
  llvm::SaveAndRestore column(pairColumn), first(warpRow);
  b.rarely([&] {
    placeLane();
    body();
  });
}

void GPUStreamKernel::placeTerms() {
  if (GPUStreamLayout::findsKeyRows(op))
    sharedKeyRows = b.sharedBuffer(layout.keyRows, {keyTile}, b.getI32Type());
  if (hasWeights) {
    sharedWeights = b.sharedBuffer(layout.weights, {layout.numSlots * keyTile},
                                   b.getF32Type());
    sharedHidden = b.sharedBuffer(
        layout.hidden, {layout.numSlots * getHiddenWords()}, b.getI32Type());
  }
  if (layout.tableRows)
    table = b.sharedBuffer(layout.table, {layout.tableRows}, b.getI32Type());
  if (hasLists && tiles.getLanes() == kWarpgroupRows)
    sharedListedRows = b.sharedBuffer(
        layout.listedRows, {layout.numSlots * keyTile}, b.getI32Type());
  if (hasLists) {
    sharedPlaces = b.sharedBuffer(layout.places, {layout.numSlots * keyTile},
                                  b.getI32Type());
    sharedCuts = b.sharedBuffer(
        layout.cuts, {layout.numSlots * getHiddenWords()}, b.getI32Type());
  }
}

void GPUStreamKernel::placeShared() {
  sharedQueries = b.sharedMatrix(layout.queries, queryTile, width, type);
  sharedKeys = b.sharedMatrix(layout.keys, 2 * keyTile, width, type);
  sharedValues =
      b.sharedMatrix(layout.values, 2 * keyTile, layout.valueColumns, type);
  auto placeWide = [&](std::optional<int64_t> offset, int64_t columns) {
    SharedMatrix matrix;
    if (offset) {
      matrix = b.sharedMatrix(*offset, keyTile, columns, b.getF32Type());
      clearPadding(b, matrix, keyTile, columns);
    }
    return matrix;
  };
  wideKeys = placeWide(layout.wideKeys, width);
  wideValues = placeWide(layout.wideValues, layout.valueColumns);
  placeTerms();
  placeLane();
  // Matrices of values are (rows, chunks) = (0, 0), (8, 0), (0, 1), (8, 1).
  valueSwizzle = b.bitXor(b.div(b.lane(), 16), b.swizzle(sharedValues, lane8));
  clearPadding(b, sharedQueries, queryTile, width);
  clearPadding(b, sharedKeys, 2 * keyTile, width);
  clearPadding(b, sharedValues, 2 * keyTile, layout.valueColumns);
}

void GPUStreamKernel::emit() {
  b.begin();
  placeShared();
  Value zero = b.index(0);
  b.loop(zero, b.extent(op.getQuery(), 0), 1, [&](Value batch) {
    b.loop(zero, b.extent(op.getQuery(), 1), 1,
           [&](Value head) { emitHead(batch, head); });
  });
  remarkOnAdmission();
}

/// Whether an index is known to be a multiple of `factor`.
static bool isMultiple(Value value, int64_t factor) {
  if (std::optional<int64_t> constant = getConstantIntValue(value))
    return *constant % factor == 0;
  if (auto sum = value.getDefiningOp<arith::AddIOp>())
    return isMultiple(sum.getLhs(), factor) && isMultiple(sum.getRhs(), factor);
  auto product = value.getDefiningOp<arith::MulIOp>();
  return product && (isMultiple(product.getLhs(), factor) ||
                     isMultiple(product.getRhs(), factor));
}

/// Where query `number` of the operand stands, and how many rows there are.
void GPUStreamKernel::placeQueries(Value number) {
  Value first = op.getFirstRow(), rows = op.getNumRows();
  firstRow = first ? b.add(first, number) : number;
  numRows = rows ? rows : b.extent(op.getQuery(), 2);
}

void GPUStreamKernel::beginHead(Value batch, Value head) {
  this->batch = batch;
  this->head = head;
  queryRows = b.rowView(op.getQuery(), {batch, head});
  outputView = b.rowView(op.getOutput(), {batch, head});
  if (op.getLse())
    lseView = b.rowView(op.getLse(), {batch, head});

  placeQueries(b.index(0));
  numRows = b.lengthOf(op.getQueryLengths(), batch, numRows);
  for (ScoreBody &body : scoreBodies)
    body.enterHead(b, batch, head);
}

/// Zeros to what there is of rows from `row` on, which do not exist.
void GPUStreamKernel::leaveEmpty(Value row) {
  Value rows = b.extent(op.getQuery(), 2);
  Value thread = b.toIndex(b.thread()), count = b.max(b.sub(rows, row), 0);
  b.loop(thread, b.mul(count, valueWidth), b.getNumThreads(),
         [&](Value number) {
           b.storeScalar(b.scalar(0.0), outputView,
                         {b.add(row, b.div(number, valueWidth)),
                          b.rem(number, valueWidth)});
         });
  if (!lseView)
    return;
  Value none = b.scalar(-std::numeric_limits<double>::infinity());
  b.loop(thread, count, b.getNumThreads(), [&](Value number) {
    b.storeScalar(none, lseView, b.add(row, number));
  });
}

void GPUStreamKernel::emitHead(Value batch, Value head) {
  beginHead(batch, head);
  Value rows = b.extent(op.getQuery(), 2);
  bool mayBeEmpty = op.getQueryLengths() != nullptr;
  if (mayBeEmpty) {
    rows = b.clamp(b.sub(numRows, firstRow), b.index(0), rows);
    leaveEmpty(rows);
  }
  // How many rows there can be; a tile has no more than it was cut to.
  int64_t maxRows = getExtent(op.getQuery(), 2);
  if (ShapedType::isDynamic(maxRows) && op.getFirstRow())
    maxRows = tiles.getQuery();
  bool isOneBlock = !mayBeEmpty && !ShapedType::isDynamic(maxRows) &&
                    maxRows <= queryTile && getExtent(op.getQuery(), 0) == 1 &&
                    getExtent(op.getQuery(), 1) == 1;
  int64_t block = op.getBlock();
  auto emitQueries = [&](Value low, Value high, Value blockIndex) {
    b.loop(low, high, queryTile, [&](Value query) {
      // What the block before has in shared memory may still be read.
      b.barrier();
      Value count = b.min(b.sub(high, query), b.index(queryTile));
      emitQueryBlock(query, count, blockIndex);
    });
  };
  if (block == 0) {
    if (isOneBlock)
      return emitQueryBlock(b.index(0), rows, b.index(0));
    return emitQueries(b.index(0), rows, b.index(0));
  }
  // A query block must not reach into the next block of the sequence.
  Value blockSize = b.index(block), one = b.index(1);
  Value firstBlock = b.floorDiv(firstRow, blockSize);
  if (isOneBlock && op.getFirstRow() && block % tiles.getQuery() == 0 &&
      isMultiple(op.getFirstRow(), tiles.getQuery()))
    return emitQueryBlock(b.index(0), rows, firstBlock);
  Value lastBlock = b.floorDiv(b.sub(b.add(firstRow, rows), one), blockSize);
  b.loop(firstBlock, b.add(lastBlock, one), 1, [&](Value index) {
    Value begin = b.sub(b.mul(index, blockSize), firstRow);
    Value low = b.max(begin, b.index(0));
    Value high = b.min(b.add(begin, blockSize), rows);
    emitQueries(low, high, index);
  });
}

/// Views of what the queries of a block read.
void GPUStreamKernel::emitSources(Value blockIndex) {
  sources.clear();
  Value heads = b.extent(op.getQuery(), 1);
  for (const StreamOp::Source &source : op.getSourceList()) {
    // Several heads may share keys and values, and all of them a table.
    Value ownHead =
        b.floorDiv(head, b.floorDiv(heads, b.extent(source.values, 1)));
    auto broadcast = [&](Value operand, Value head, bool hasBlocks) {
      Values at = {b.broadcastIndex(operand, 0, batch),
                   b.broadcastIndex(operand, 1, head)};
      if (hasBlocks)
        at.push_back(blockIndex);
      return b.rowView(operand, at);
    };
    SourceView view;
    view.keys = broadcast(source.keys, ownHead, /*hasBlocks=*/false);
    view.values = broadcast(source.values, ownHead, source.hasValueBlocks());
    if (source.hasValueBlocks())
      view.valueBlock = b.toI32(blockIndex);
    SourceLength length = emitLength(b, source, batch, numRows);
    view.rows = length.rows;
    view.tokens = length.tokens;
    view.attr = source.attr;
    if (Value weight = source.logWeight)
      view.logWeight = broadcast(weight, ownHead, source.hasLogWeightBlocks());
    if (Value bias = source.bias)
      view.bias = rowsAreHeads ? viewHeads(bias)
                               : broadcast(bias, head, /*hasBlocks=*/false);
    auto viewTerms = [&](Value terms) {
      return terms && !rowsAreHeads
                 ? b.rowView(terms, b.broadcastIndex(terms, 0, head))
                 : terms;
    };
    view.relativeKeys = viewTerms(source.relativeKeys);
    view.relativeBias = viewTerms(source.relativeBias);
    view.distanceBias = viewTerms(source.distanceBias);
    if (source.attr.hasDistances())
      view.origin = b.toI32(
          affine::expandAffineExpr(b, b.getLoc(), source.attr.getOriginExpr(),
                                   /*dimValues=*/{}, {view.rows, numRows}));
    if (Value codes = source.codes)
      view.codes = broadcast(codes, ownHead, /*hasBlocks=*/false);
    if (Value lists = source.rowList)
      view.list = b.rowView(lists, {b.broadcastIndex(lists, 0, batch),
                                    emitListHead(b, lists, head, heads),
                                    b.broadcastIndex(lists, 2, blockIndex)});
    sources.push_back(view);
  }
}

void GPUStreamKernel::beginQueryBlock(Value query, Value numQueries,
                                      Value blockIndex) {
  queryStart = query;
  queryCount = numQueries;
  blockQuery = b.toI32(query);
  blockQueries = b.toI32(numQueries);
  emitSources(blockIndex);
  collectSegments(blockIndex);
  beginTile = b.i32(0);
  endTile = numTiles;
}

void GPUStreamKernel::emitQueryBlock(Value query, Value numQueries,
                                     Value blockIndex) {
  beginQueryBlock(query, numQueries, blockIndex);
  emitPasses();
}

void GPUStreamKernel::emitPasses() {
  loadQueries();
  if (layout.numPasses == 1)
    return emitPass(b.i32(0));
  b.loop(b.i32(0), b.i32(valueWidth), layout.valueColumns, [&](Value column) {
    b.barrier();
    emitPass(column);
  });
}

/// What `find` finds for a tile, or for the last one where there are fewer.
KernelBuilder::Values
GPUStreamKernel::lookUp(Value number,
                        Values (GPUStreamKernel::*find)(const Tile &)) {
  Value last = b.sub(endTile, b.i32(1));
  return (this->*find)(getTile(b.min(number, last)));
}

/// Sums of the value columns from `column` on.
void GPUStreamKernel::emitPass(Value column) {
  // Narrow heads keep their queries in registers all the way.
  queryFragments.clear();
  Turn turn = {beginTile, {}, {}};
  if (skipsTiles())
    turn = startTurns();
  Tile first = getTile(turn.number);
  // Where the tile behind the next one is known.
  bool findsTwoAhead = sharedKeyRows && !skipsTiles();
  b.ifThen(b.less(turn.number, endTile), [&] {
    Values second;
    if (findsTwoAhead)
      second = lookUp(b.add(beginTile, 1), &GPUStreamKernel::findKeyRows);
    if (sharedKeyRows)
      storeKeyRows(findKeyRows(first));
    loadTile(first, b.i32(0), column);
    if (findsTwoAhead)
      storeKeyRows(second);
    if (hasWeights && looksAhead())
      storeWeights(findWeights(first), b.i32(0));
  });
  b.commitCopies();
  if (type.getWidth() == 16 && width <= 128) {
    b.waitCopies(0);
    b.barrier();
    for (int64_t step = 0; step * 2 * kChunkBytes < width * 2; ++step)
      queryFragments.push_back(b.loadLeft(sharedQueries, warpRow, step));
  }

  Values carried = flatten(makeState());
  size_t numSums = carried.size();
  carried.append(pack(first));
  // Attends to the present tile while the next one is copied.
  auto attendTile = [&](ValueRange values, Value stage, Value next) {
    State state = unflatten(values.take_front(numSums));
    Tile tile = unpack(values.drop_front(numSums));
    Tile following = getTile(next);
    Value nextStage = b.sub(b.i32(1), stage);
    roundTile(tile, stage);
    b.ifThen(b.less(next, endTile), [&] {
      if (sharedKeyRows && !findsTwoAhead)
        storeKeyRows(findKeyRows(following));
      loadTile(following, nextStage, column);
    });
    b.commitCopies();
    Values keyRows, weights;
    if (findsTwoAhead)
      keyRows = lookUp(b.add(next, 1), &GPUStreamKernel::findKeyRows);
    if (hasWeights && looksAhead())
      weights = lookUp(next, &GPUStreamKernel::findWeights);
    b.waitCopies(1);
    b.barrier();
    attend(tile, stage, state);
    if (!keyRows.empty())
      storeKeyRows(keyRows);
    if (!weights.empty())
      storeWeights(weights, nextStage);
    b.barrier();
    Values result = flatten(state);
    result.append(pack(following));
    return result;
  };
  if (!skipsTiles()) {
    carried = b.loop(beginTile, endTile, 1, carried,
                     [&](Value number, ValueRange values) {
                       Value stage = b.rem(b.sub(number, beginTile), 2);
                       return attendTile(values, stage, b.add(number, 1));
                     });
  } else {
    Values all = turn.pack();
    all.push_back(/*stage=*/b.i32(0));
    size_t numTurns = all.size();
    all.append(carried);
    all = b.loopWhile(
        all, [&](ValueRange values) { return b.less(values[0], endTile); },
        [&](ValueRange values) {
          Turn next = takeTurn({values[0], values[1], values[2]});
          Value stage = values[3];
          Values result = next.pack();
          result.push_back(b.sub(b.i32(1), stage));
          result.append(
              attendTile(values.drop_front(numTurns), stage, next.number));
          return result;
        });
    carried = Values(ValueRange(all).drop_front(numTurns));
  }
  // Without a tile the copies of queries would still run.
  b.waitCopies(0);
  finish(unflatten(ValueRange(carried).take_front(numSums)), column);
}
