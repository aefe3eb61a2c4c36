//===- GPUStreamWarpgroups.cpp - attn.stream on sm_90a --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block of threads, and its consumers: the order of things is that of
// GPUStreamWarpgroups.h.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamWarpgroups.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// With all threads of the producer that copy.
static constexpr WarpgroupRegisters kRegistersTogether = {56, 224};

bool fovea::attn::canUseWarpgroups(StreamOp op) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  auto output = cast<ShapedType>(op.getOutput().getType());
  if (getProductType(op).isF32() || op.getQueryLengths())
    return false;
  // Queries are copied by boxes, whose rows lie a multiple of 16 bytes apart.
  int64_t width = query.getDimSize(3), valueWidth = output.getDimSize(3);
  if (width % 8 != 0 || valueWidth % 8 != 0 || valueWidth == 0 ||
      std::max(width, valueWidth) > kMaxHeadWidth)
    return false;
  // A few queries would leave most of a warpgroup idle.
  int64_t rows = query.getDimSize(2);
  return ShapedType::isDynamic(rows) || rows > kWarpgroupRows / 2;
}

bool fovea::attn::canStay(StreamOp op) {
  TilesAttr tiles = *op.getTiles();
  return tiles.getLanes() == kWarpgroupRows && tiles.getVectors() > 1 &&
         tiles.getCluster() == 1 && op.getKeys().size() > 1 &&
         op.getScores().empty() && op.getRowLists().empty() &&
         !GPUStreamLayout::scoresHide(op) && op.getRelativeKeys().empty();
}

void GPUStreamLayout::placeBoxes(int64_t queryRows, int64_t keyRows,
                                 int64_t width) {
  queries = place(getBoxedBytes(queryRows, width));
  keys = place(2 * getBoxedBytes(keyRows, width));
  values = place(2 * getBoxedBytes(keyRows, valueColumns));
  barriers = place(GPUStreamWarpgroups::kNever + 4);
  tiles =
      place(GPUStreamWarpgroups::kSlots * GPUStreamWarpgroups::kTileFields * 4);
  numSlots = GPUStreamWarpgroups::kSlots;
}

GPUStreamWarpgroups::GPUStreamWarpgroups(GPUStreamKernel &kernel,
                                         const TensorMaps &maps)
    : k(kernel), b(kernel.b), w(kernel.b), maps(maps),
      numConsumers(kernel.tiles.getVectors()), cluster(maps.cluster) {
  int64_t numSegments = 0;
  for (auto [index, source] : llvm::enumerate(maps.sources)) {
    bool hasTable = k.ranges.hasTable(index);
    int64_t numOthers = k.ranges.countOthers(index);
    numSegments += hasTable + numOthers;
    for (auto [boxes, map] : {std::pair(&shared.keys, &source.keys),
                              std::pair(&shared.values, &source.values)}) {
      boxes->hasRows |= hasTable || (numOthers && !map->map);
      boxes->hasBoxes |= numOthers && map->map;
    }
  }
  // Where blocks stay, the producer looks at a tile of the block before.
  sharesTiles = numSegments > 1 || k.scalesScores || k.hasLists || k.stays;
  // A warp finds out together which tiles are read.
  isAlone = !shared.keys.hasRows && !shared.values.hasRows && !k.hasWeights &&
            !k.skipsTiles() && !k.stays;
  firstTile = b.i32(0);
  if (!k.stays)
    numTiles = k.skipsTiles() ? k.countTurns() : k.numTiles;
}

/// Runs `body` for each block of queries, and returns how many tiles they have.
Value GPUStreamWarpgroups::forEachBlock(scf::ForOp loop,
                                        function_ref<void()> body) {
  if (!loop) {
    body();
    return numTiles;
  }
  auto ofRole = scf::ForOp::create(b, b.getLoc(), loop.getLowerBound(),
                                   loop.getUpperBound(), loop.getStep(),
                                   ValueRange{firstTile});
  llvm::SaveAndRestore op(k.op);
  llvm::SaveAndRestore all(maps);
  llvm::SaveAndRestore first(firstTile);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(ofRole.getBody());
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), ofRole.getInductionVar());
  for (Operation &operation : loop.getBody()->without_terminator())
    b.clone(operation, mapping);
  k.op = cast<StreamOp>(mapping.lookup(k.op.getOperation()));
  b.setInsertionPoint(k.op);
  firstTile = ofRole.getRegionIterArg(0);
  auto move = [&](TensorMap &map) {
    for (Value &offset : map.offsets)
      offset = mapping.lookupOrDefault(offset);
  };
  move(maps.query);
  move(maps.output);
  for (TensorMaps::Source &source : maps.sources) {
    move(source.keys);
    move(source.values);
  }
  // Others may still read the table of rows.
  if (k.layout.tableRows && k.fillsTable)
    b.barrier();
  k.beginOnlyBlock();
  numTiles = k.numTiles;
  body();
  scf::YieldOp::create(b, b.add(firstTile, numTiles));
  k.op.erase();
  return ofRole.getResult(0);
}

void GPUStreamWarpgroups::emit(scf::ForOp loop) {
  shared.queries = w.getShared(k.layout.queries);
  shared.tiles =
      b.sharedBuffer(k.layout.tiles, {kSlots * kTileFields}, b.getI32Type());
  shared.never =
      b.sharedBuffer(k.layout.barriers + kNever, {1}, b.getF32Type());
  Value barriers = w.getShared(k.layout.barriers);
  placeBoxes(shared.keys, k.layout.keys, k.width, /*multiple=*/16, barriers);
  placeBoxes(shared.values, k.layout.values, k.layout.valueColumns,
             /*multiple=*/1, w.advance(barriers, 32));
  if (k.layout.relativeKeys)
    placeRelativeKeys();
  int64_t numWarps = 4 * numConsumers;
  if (k.scoresHide) {
    shared.voted = w.getShared(k.layout.votes);
    shared.votes =
        b.sharedBuffer(k.layout.votes + 2 * 8, {2 * numWarps}, b.getI32Type());
  }
  if (k.stays) {
    shared.searched = w.getShared(k.layout.search);
    shared.found = b.sharedBuffer(k.layout.search + 2 * 8, {2}, b.getI32Type());
  }
  b.ifThen(b.equal(b.thread(), b.i32(0)), [&] {
    for (int64_t stage : {0, 1}) {
      if (k.scoresHide)
        w.initBarrier(w.advance(shared.voted, 8 * stage), numWarps);
      if (k.stays)
        w.initBarrier(w.advance(shared.searched, 8 * stage), 1);
    }
    for (const Boxes *boxes : {&shared.keys, &shared.values})
      for (int64_t stage : {0, 1}) {
        // One arrival of every warp that writes the tile, or reads it, and
        // of every thread whose copies others do not wait for.
        int64_t copies = boxes->hasRows ? kWarpgroupSize : 0;
        w.initBarrier(w.advance(boxes->full, 8 * stage),
                      isAlone ? 1 : copies + 4);
        w.initBarrier(w.advance(boxes->free, 8 * stage),
                      cluster * numConsumers * 4);
      }
    w.publishBarriers();
  });
  // No block arrives at barriers of another one before they are there.
  if (cluster > 1)
    w.meetCluster();
  else
    b.barrier();
  WarpgroupRegisters registers = isAlone ? kRegistersAlone : kRegistersTogether;
  int64_t firstProducer = numConsumers * kWarpgroupSize;
  auto produceAll = [&] {
    Value end = forEachBlock(loop, [&] { produce(); });
    searchBefore(end);
  };
  b.ifThenElse(
      b.less(b.thread(), b.i32(firstProducer)),
      [&] {
        w.setRegisters(registers.consumer, /*raises=*/true);
        b.inGroup(0, firstProducer, [&] { consume(loop); });
      },
      [&] {
        w.setRegisters(registers.producer, /*raises=*/false);
        b.inGroup(firstProducer, kWarpgroupSize, [&] {
          if (isAlone)
            b.ifThen(b.equal(b.thread(), b.i32(0)), produceAll);
          else
            produceAll();
        });
      });
  // Nor after they have gone with their block.
  if (cluster > 1)
    w.meetCluster();
}

void GPUStreamWarpgroups::placeBoxes(Boxes &boxes, int64_t offset,
                                     int64_t columns, int64_t multiple,
                                     Value barriers) {
  boxes.full = barriers;
  boxes.free = w.advance(barriers, 16);
  boxes.columns = columns;
  boxes.numColumns = llvm::alignTo(columns, multiple);
  boxes.bytes = getBoxedBytes(k.keyTile, columns);
  boxes.address = w.getShared(offset);
  boxes.rows = b.sharedMatrix(offset, 2 * boxes.bytes / kBoxBytes,
                              kBoxBytes / 2, k.type);
}

// Tiles, as the producer hands them over.
Value GPUStreamWarpgroups::getField(Value slot, size_t field) {
  return b.toIndex(b.add(b.mul(slot, kTileFields), int64_t(field)));
}

/// The rows of each box of a tile.
SmallVector<SharedRows> GPUStreamWarpgroups::getRows(const Boxes &boxes,
                                                     Value stage) {
  int64_t perBox = kBoxBytes / 2;
  SmallVector<SharedRows> rows;
  Value row = b.mul(stage, boxes.bytes / kBoxBytes);
  for (int64_t first = 0; first < boxes.columns; first += perBox) {
    rows.push_back(
        {boxes.rows, row, k.keyTile, std::min(perBox, boxes.columns - first)});
    row = b.add(row, k.keyTile);
  }
  return rows;
}

GPUStreamWarpgroups::Tile GPUStreamWarpgroups::getSharedTile(Value number) {
  if (!sharesTiles)
    return k.getTile(b.sub(number, firstTile));
  Value slot = getSlot(number);
  Values fields;
  for (auto [i, type] : llvm::enumerate(k.getTileTypes())) {
    Value number = memref::LoadOp::create(b, shared.tiles, getField(slot, i));
    if (type.isInteger(1))
      number = arith::TruncIOp::create(b, type, number);
    fields.push_back(number);
  }
  return k.unpack(fields);
}

/// Waits until tile `number` has been copied.
void GPUStreamWarpgroups::awaitFull(const Boxes &boxes, Value number) {
  w.wait(ofStage(boxes.full, getStage(number), 8), b.rem(b.div(number, 2), 2));
}

/// The same, to multiply it.
void GPUStreamWarpgroups::awaitOperand(const Boxes &boxes, Value number) {
  awaitFull(boxes, number);
  if (boxes.hasRows)
    w.publishWrites();
}

/// Says that this warp has read tile `number`: to each block that copies parts
/// of the next one to its place, by a lane of its own.
void GPUStreamWarpgroups::setFree(const Boxes &boxes, Value number) {
  auto barrier = [&] { return ofStage(boxes.free, getStage(number), 8); };
  if (cluster == 1)
    b.ifThen(b.equal(b.lane(), b.i32(0)), [&] { w.arrive(barrier()); });
  else
    b.ifThen(b.less(b.lane(), b.i32(cluster)), [&] {
      // Not ahead of the branch, where lanes have numbers of no block.
      w.arriveAt(barrier(), b.recompute(b.lane()));
    });
}

void GPUStreamWarpgroups::consume(scf::ForOp loop) {
  group = b.div(b.thread(), kWarpgroupSize);
  if (numConsumers > 1)
    b.ifThen(b.equal(group, b.i32(numConsumers - 1)),
             [&] { w.giveTurn(b.i32(0)); });
  k.fillsTable = !k.stays;
  forEachBlock(loop, [&] { consumeBlock(); });
  k.fillsTable = true;
  if (k.stays)
    k.awaitBoxes();
}

void GPUStreamWarpgroups::consumeBlock() {
  Values initial = k.flatten(k.makeState());
  SmallVector<Type> types(initial.size(), b.getF32Type());
  auto ifOp = scf::IfOp::create(b, types, b.less(b.i32(0), numTiles),
                                /*addThenBlock=*/true, /*addElseBlock=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(ifOp.elseBlock());
    scf::YieldOp::create(b, initial);
    b.setInsertionPointToStart(ifOp.thenBlock());
    scf::YieldOp::create(b, attendAll(initial));
  }
  k.finishRows(k.unflatten(ifOp.getResults()), maps.output);
}

Values GPUStreamWarpgroups::attendAll(ValueRange initial) {
  Value first = firstTile, last = b.sub(b.add(first, numTiles), b.i32(1));
  State state = k.unflatten(initial);
  awaitOperand(shared.keys, first);
  prepareRelative(first);
  w.beginProducts();
  Values scores = startRelative(first);
  scores.append(startScores(first));
  Terms terms = loadTerms(first);
  scores = takeScores(first, w.waitProducts(0, scores), terms);
  Values weights = weigh(first, terms, scores, state, [] {});
  Values carried = k.flatten(state);
  size_t numSums = carried.size();
  carried.append(weights);
  carried =
      b.loop(first, last, 1, carried, [&](Value number, ValueRange values) {
        return attend(number, values.take_front(numSums),
                      values.drop_front(numSums));
      });
  state = k.unflatten(ValueRange(carried).take_front(numSums));
  clearVoted(last, state);
  awaitOperand(shared.values, last);
  w.beginProducts();
  Values output =
      startOutput(last, ValueRange(carried).drop_front(numSums), state);
  finishOutput(output, state);
  if (k.stays)
    setFree(shared.values, last);
  return k.flatten(state);
}

/// Adds the values of a tile with its `weights`, and makes the weights of the
/// next tile meanwhile. Returns sums and weights.
Values GPUStreamWarpgroups::attend(Value number, ValueRange sums,
                                   ValueRange weights) {
  State state = k.unflatten(sums);
  Value next = b.add(number, 1);
  awaitOperand(shared.keys, next);
  // Whoever has the turn must not wait for others.
  clearVoted(number, state);
  prepareRelative(next);
  // Numbers of barriers take no registers of the loop.
  Value turn = numConsumers > 1 ? b.recompute(group) : Value();
  if (turn)
    w.awaitTurn(turn);
  w.beginProducts();
  Values scores = startRelative(next);
  scores.append(startScores(next));
  // Beside the products of scores. After a wait, which branches, ptxas wants
  // a fence of its own.
  awaitOperand(shared.values, number);
  w.beginProducts();
  Values output = startOutput(number, weights, state);
  if (turn)
    w.giveTurn(b.rem(b.add(turn, 1), numConsumers));
  Terms terms = loadTerms(next);
  scores = takeScores(next, w.waitProducts(1, scores), terms);
  Values nextWeights = weigh(next, terms, scores, state, [&] {
    finishOutput(output, state);
    setFree(shared.values, number);
  });
  Values result = k.flatten(state);
  result.append(nextWeights);
  return result;
}

/// Starts to load what is added to the scores of a tile, beside products.
GPUStreamWarpgroups::Terms GPUStreamWarpgroups::loadTerms(Value number) {
  if (!k.hasBias)
    return {};
  Tile tile = getSharedTile(number);
  Terms terms = k.loadTerms(tile);
  if (k.layout.relativeKeys && isOneRun())
    terms.relativeBiases =
        loadRelativeBiases(tile, /*index=*/0, /*isUpper=*/false);
  return terms;
}

/// Makes weights of the scores of a tile, in pairs of narrow ones: the first
/// operands of products. Sums of values change after `finish`.
Values GPUStreamWarpgroups::weigh(Value number, const Terms &terms,
                                  ValueRange scores, State &state,
                                  function_ref<void()> finish) {
  Value slot = getSlot(number);
  Tile present = getSharedTile(number);
  Value isCut = k.isCut(present, slot);
  SmallVector<Values> tile;
  for (size_t i = 0; i < scores.size(); i += 4)
    tile.push_back(Values(scores.slice(i, 4)));
  setFree(shared.keys, number);
  auto vote = [&](Value isCut) { castVote(number, isCut); };
  Values factors = k.weigh(present, slot, isCut, terms, tile, state, vote);
  keepBehind(k.isSoftmax ? state.sum.back() : tile.back().back());
  // What lanes read themselves comes before the arrival of one.
  if (sharesTiles || k.hasWeights)
    b.warpBarrier();
  finish();
  k.rescale(factors, state);
  if (k.stays)
    clearFound(present, number, isCut, state);
  else if (!k.scoresHide)
    clearHidden(present, number, isCut, state);
  Values all;
  for (const Values &part : tile)
    all.append(part);
  return w.packWeights(k.type, all);
}

/// Takes out of the values of a tile what is not finite, if it is cut.
void GPUStreamWarpgroups::clearHidden(const Tile &tile, Value number,
                                      Value isCut, State &state) {
  k.clearHidden(
      tile, getSlot(number), isCut, getRows(shared.values, getStage(number)),
      state, [&] { awaitFull(shared.values, number); },
      [&] { publishCleared(); });
}

/// Tells products what has been taken out of values, unless whoever multiplies
/// them does that.
void GPUStreamWarpgroups::publishCleared() {
  if (!shared.values.hasRows)
    w.publishWrites();
}

// Where scores say which entries there are, consumers have to agree on what
// is taken out of values that they share. Each votes as soon as it has scores
// and asks for the votes before it multiplies the values: by then the other,
// half an iteration apart, has scores, too, and nobody waits for weights.

/// Says for a warp whether some entry of a tile is not read.
void GPUStreamWarpgroups::castVote(Value number, Value isCut) {
  Value ballot = b.ballot(isCut);
  b.ifThen(b.equal(b.lane(), b.i32(0)), [&] {
    Value stage = getStage(number);
    Value at = b.add(b.mul(stage, 4 * numConsumers), b.warp());
    memref::StoreOp::create(b, ballot, shared.votes, b.toIndex(at));
    w.arrive(ofStage(shared.voted, stage, 8));
  });
}

/// Waits for the votes on a tile, and does what they say.
void GPUStreamWarpgroups::clearVoted(Value number, State &state) {
  if (!k.scoresHide)
    return;
  Value stage = getStage(number);
  w.wait(ofStage(shared.voted, stage, 8), b.rem(b.div(number, 2), 2));
  Value at =
      b.add(b.mul(stage, 4 * numConsumers), b.rem(b.lane(), 4 * numConsumers));
  Value vote = memref::LoadOp::create(b, shared.votes, b.toIndex(at));
  auto differs = [&](Value vote) {
    return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ne, vote,
                                         b.i32(0));
  };
  Value isCut = differs(b.ballot(differs(vote)));
  clearHidden(getSharedTile(number), number, isCut, state);
}

// Where blocks stay, most tiles are cut: the producer looks for what is not
// finite, so that consumers neither look nor wait for each other.

/// Waits for what the producer says of a tile that is cut, and does so.
void GPUStreamWarpgroups::clearFound(const Tile &tile, Value number,
                                     Value isCut, State &state) {
  Values numbers = changeIf(b, isCut, k.flatten(state), [&] {
    Value stage = getStage(number);
    w.wait(ofStage(shared.searched, stage, 8), b.rem(b.div(number, 2), 2));
    Value found = memref::LoadOp::create(b, shared.found, b.toIndex(stage));
    Value isAny =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, found, b.i32(0));
    return changeIf(b, isAny, k.flatten(state), [&] {
      Values changed;
      k.rarely([&] {
        changed =
            k.clearFound(tile, getSlot(number), getRows(shared.values, stage),
                         state, [&] { publishCleared(); });
      });
      return changed;
    });
  });
  state = k.unflatten(numbers);
}

/// Keeps waits for products behind what makes `number`: they have no
/// operands, and ptxas would put them before the weights that are made beside
/// the products. It does not move them across a store. A sum of a soft-max is
/// at most 2^40, so none is made; what squares of scores may leave there,
/// nobody reads.
void GPUStreamWarpgroups::keepBehind(Value number) {
  Value isImpossible = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                             number, b.scalar(0x1p100));
  b.ifThen(isImpossible, [&] {
    memref::StoreOp::create(b, number, shared.never, b.index(0));
  });
}

/// Starts `Q K^T` with the keys of a tile.
Values GPUStreamWarpgroups::startScores(Value number) {
  Value stage = getStage(number);
  Value queries =
      w.advance(shared.queries, b.mul(group, kWarpgroupRows * kBoxBytes));
  Value keys = ofStage(shared.keys.address, stage, shared.keys.bytes);
  // Eight descriptors or more, otherwise kept in registers by the loop.
  Value left = b.recompute(w.getDescriptor(queries, kChunkBytes));
  Value right = w.getDescriptor(keys, kChunkBytes);
  return w.startScores(k.type, left, k.queryTile, right, k.keyTile, k.width);
}

/// Starts `O += P V` with the values of a tile.
Values GPUStreamWarpgroups::startOutput(Value number, ValueRange weights,
                                        const State &state) {
  Values sums;
  for (const Values &output : state.output)
    sums.append(output);
  sums = w.multiplyWeights(
      k.type, sums, weights,
      ofStage(shared.values.address, getStage(number), shared.values.bytes),
      k.keyTile);
  w.commitProducts();
  return sums;
}

/// Waits for what startOutput has started.
void GPUStreamWarpgroups::finishOutput(ValueRange sums, State &state) {
  Values output = w.waitProducts(0, sums);
  for (auto [i, values] : llvm::enumerate(state.output))
    values = Values(ValueRange(output).slice(4 * i, 4));
}

void GPUStreamKernel::emitWarpgroups(const TensorMaps &maps) {
  b.begin();
  placeTerms();
  placeLane();
  auto loop = dyn_cast<scf::ForOp>(op->getParentOp());
  stays = loop != nullptr;
  if (!stays)
    beginOnlyBlock();
  GPUStreamWarpgroups(*this, maps).emit(loop);
  remarkOnAdmission();
}

/// Begins the block of queries that an operation in a loop has.
void GPUStreamKernel::beginOnlyBlock() {
  beginHead(b.index(0), b.index(0));
  Value blockIndex = b.index(0);
  if (op.getBlock())
    blockIndex = b.floorDiv(firstRow, b.index(op.getBlock()));
  beginQueryBlock(b.index(0), b.extent(op.getQuery(), 2), blockIndex);
}
