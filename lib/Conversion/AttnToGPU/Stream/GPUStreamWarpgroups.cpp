//===- GPUStreamWarpgroups.cpp - attn.stream on sm_90a --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One warpgroup of a block makes all copies and gives most of its registers
// away; the others have 64 queries each. Fragments of their sums are those of
// mma.sync, four warps with 16 rows each, so terms, masks, soft-max and output
// are those of other chips. What is new is the order of things:
//
//   producer    copy K_0
//               for every tile n: when K_(n-1) is free, copy K_(n+1)
//                                 when V_(n-2) is free, copy V_n
//   consumers   P = soft-max of Q K_0^T
//               for every tile n: when K_(n+1) and V_n are full, in turn:
//                                   start S = Q K_(n+1)^T and O += P V_n
//                                 wait for S, set K_(n+1) free
//                                 P' = soft-max of S, while O is summed
//                                 wait for O, set V_n free, rescale O
//
// Consumers take turns to start products: one makes weights while the products
// of the other run.
//
// Keys and values have barriers of their own: with common ones a tile would be
// free only after its values are read, and its place would be waited for at
// once, a whole load for every tile. Now each load has an iteration's time.
// What a tile is, and its weights, are handed over with its keys but read until
// its values are: they have kSlots places.
//
// Consecutive rows are copied by boxes, which one thread starts. Rows that are
// listed or that codes name, rows of other types and log weights take all
// threads of the producer, which write them where boxes would lie. Each arrives
// by `cp.async.mbarrier.arrive`, when its copies have: nobody waits for them
// before the next tile's are started. So whoever multiplies such rows brings
// them to the asynchronous proxy.
//
// Results of a warp are stored by boxes, too, where it has all of its rows.
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// With all threads of the producer that copy.
static constexpr WarpgroupRegisters kRegistersTogether = {56, 224};

/// Numbers of 32 bits that say what a tile is.
static constexpr int64_t kTileFields = 12;
/// Places for what tiles are, and for their weights. A place is written again
/// when keys two tiles before are free, one iteration after its last reading.
static constexpr int64_t kSlots = 4;
/// Where nothing is ever read, behind nine barriers.
static constexpr int64_t kNever = 9 * 8;

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

void GPUStreamLayout::placeBoxes(int64_t queryRows, int64_t keyRows,
                                 int64_t width) {
  queries = place(getBoxedBytes(queryRows, width));
  keys = place(2 * getBoxedBytes(keyRows, width));
  values = place(2 * getBoxedBytes(keyRows, valueColumns));
  barriers = place(kNever + 4);
  tiles = place(kSlots * kTileFields * 4);
  numSlots = kSlots;
}

namespace {
/// Keys or values of two tiles: where they begin, the same as rows of boxes,
/// and two barriers of each kind.
struct Boxes {
  Value address, full, free;
  SharedMatrix rows;
  int64_t columns, numColumns; // that there are, and that products read
  int64_t bytes;               // of a tile
  // How tiles are copied, perhaps some so and some so.
  bool hasBoxes = false, hasRows = false;
};

/// Barriers of a block, and what lies where in shared memory.
struct Shared {
  Value queries;
  Boxes keys, values;
  Value tiles;  // kSlots, kTileFields numbers each
  Value loaded; // of the queries
  Value never;  // read
  // Of two tiles each: a barrier, and a number of each warp that multiplies.
  Value voted, votes;
};
} // namespace

/// The code of one block for its one block of queries.
class fovea::attn::GPUStreamWarpgroups {
public:
  GPUStreamWarpgroups(GPUStreamKernel &kernel, const TensorMaps &maps)
      : k(kernel), b(kernel.b), w(kernel.b), maps(maps),
        numConsumers(kernel.tiles.getVectors()),
        sharesTiles(kernel.segments.size() > 1 || kernel.scalesScores ||
                    kernel.hasLists) {
    for (const GPUStreamKernel::Segment &segment : k.segments) {
      const TensorMaps::Source &source = maps.sources[segment.source];
      for (auto [boxes, map] : {std::pair(&shared.keys, &source.keys),
                                std::pair(&shared.values, &source.values)})
        (segment.isTable || !map->map ? boxes->hasRows : boxes->hasBoxes) =
            true;
    }
    // A warp finds out together which tiles are read.
    isAlone = !shared.keys.hasRows && !shared.values.hasRows && !k.hasWeights &&
              !k.skipsTiles();
    numTiles = k.skipsTiles() ? k.countTurns() : k.numTiles;
  }

  void emit() {
    shared.queries = w.getShared(k.layout.queries);
    shared.tiles =
        b.sharedBuffer(k.layout.tiles, {kSlots * kTileFields}, b.getI32Type());
    shared.loaded = w.getShared(k.layout.barriers);
    shared.never =
        b.sharedBuffer(k.layout.barriers + kNever, {1}, b.getF32Type());
    placeBoxes(shared.keys, k.layout.keys, k.width, /*multiple=*/16,
               w.advance(shared.loaded, 8));
    placeBoxes(shared.values, k.layout.values, k.layout.valueColumns,
               /*multiple=*/1, w.advance(shared.loaded, 40));
    int64_t numWarps = 4 * numConsumers;
    if (k.scoresHide) {
      shared.voted = w.getShared(k.layout.votes);
      shared.votes = b.sharedBuffer(k.layout.votes + 2 * 8, {2 * numWarps},
                                    b.getI32Type());
    }
    b.ifThen(b.equal(b.thread(), b.i32(0)), [&] {
      w.initBarrier(shared.loaded, 1);
      for (int64_t stage = 0; k.scoresHide && stage < 2; ++stage)
        w.initBarrier(w.advance(shared.voted, 8 * stage), numWarps);
      for (const Boxes *boxes : {&shared.keys, &shared.values})
        for (int64_t stage : {0, 1}) {
          // One arrival of every warp that writes the tile, or reads it, and
          // of every thread whose copies others do not wait for.
          int64_t copies = boxes->hasRows ? kWarpgroupSize : 0;
          w.initBarrier(w.advance(boxes->full, 8 * stage),
                        isAlone ? 1 : copies + 4);
          w.initBarrier(w.advance(boxes->free, 8 * stage), numConsumers * 4);
        }
      w.publishBarriers();
    });
    b.barrier();
    WarpgroupRegisters registers =
        isAlone ? kRegistersAlone : kRegistersTogether;
    int64_t firstProducer = numConsumers * kWarpgroupSize;
    b.ifThenElse(
        b.less(b.thread(), b.i32(firstProducer)),
        [&] {
          w.setRegisters(registers.consumer, /*raises=*/true);
          b.inGroup(0, firstProducer, [&] { consume(); });
        },
        [&] {
          w.setRegisters(registers.producer, /*raises=*/false);
          b.inGroup(firstProducer, kWarpgroupSize, [&] {
            if (isAlone)
              b.ifThen(b.equal(b.thread(), b.i32(0)), [&] { produce(); });
            else
              produce();
          });
        });
  }

private:
  void placeBoxes(Boxes &boxes, int64_t offset, int64_t columns,
                  int64_t multiple, Value barriers) {
    boxes.full = barriers;
    boxes.free = w.advance(barriers, 16);
    boxes.columns = columns;
    boxes.numColumns = llvm::alignTo(columns, multiple);
    boxes.bytes = getBoxedBytes(k.keyTile, columns);
    boxes.address = w.getShared(offset);
    boxes.rows = b.sharedMatrix(offset, 2 * boxes.bytes / kBoxBytes,
                                kBoxBytes / 2, k.type);
  }

  /// The rows of each box of a tile.
  SmallVector<SharedRows> getRows(const Boxes &boxes, Value stage) {
    int64_t perBox = kBoxBytes / 2;
    SmallVector<SharedRows> rows;
    Value row = b.mul(stage, boxes.bytes / kBoxBytes);
    for (int64_t first = 0; first < boxes.columns; first += perBox) {
      rows.push_back({boxes.rows, row, k.keyTile,
                      std::min(perBox, boxes.columns - first)});
      row = b.add(row, k.keyTile);
    }
    return rows;
  }

  /// The address of a tile's part of `bytes` bytes.
  Value ofStage(Value address, Value stage, int64_t bytes) {
    return w.advance(address, b.mul(stage, bytes));
  }

  // Producer.
  void produce() {
    asLeader([&] {
      w.arriveExpecting(shared.loaded, getBoxedBytes(k.queryTile, k.width));
      copyBoxes(shared.queries, maps.query, shared.loaded, b.i32(0),
                k.queryTile, k.width);
    });
    Value zero = b.i32(0), last = b.sub(numTiles, b.i32(1));
    b.ifThen(b.less(zero, numTiles), [&] {
      Values turn = startTurns();
      findRowsAhead(zero);
      startKeys(zero, turn);
      findRowsAhead(b.i32(1));
      turn = b.loop(zero, last, 1, turn, [&](Value number, ValueRange turn) {
        Value next = b.add(number, 1);
        awaitFree(shared.keys, next);
        Values nextTurn = takeTurn(turn);
        startKeys(next, nextTurn);
        startValues(number, turn);
        findRowsAhead(b.add(next, 1));
        return nextTurn;
      });
      startValues(last, turn);
    });
  }

  // Which tiles there are, in order: one after the other with nothing carried
  // along, or those that a region leaves.
  Values startTurns() {
    return k.skipsTiles() ? k.startTurns().pack() : Values();
  }
  Values takeTurn(ValueRange turn) {
    if (!k.skipsTiles())
      return {};
    return k.takeTurn({turn[0], turn[1], turn[2]}).pack();
  }
  GPUStreamKernel::Tile getTile(Value number, ValueRange turn) {
    return k.getTile(k.skipsTiles() ? turn[0] : number);
  }

  /// Starts to copy the keys of a tile, and hands over what the tile is.
  void startKeys(Value number, ValueRange turn) {
    GPUStreamKernel::Tile tile = getTile(number, turn);
    Value slot = getSlot(number);
    if (sharesTiles)
      asLeader([&] { storeTile(tile, slot); });
    if (k.hasWeights)
      k.loadWeights(tile, slot);
    if (k.hasLists && k.skipsTiles())
      findRows(tile, slot);
    startCopy(tile, number, shared.keys, &TensorMaps::Source::keys,
              &GPUStreamKernel::SourceView::keys);
  }

  /// Finds the listed rows of a tile, for all threads of the producer.
  void findRows(const GPUStreamKernel::Tile &tile, Value slot) {
    k.loadPlaces(tile, slot);
    b.barrier();
  }

  /// The same of a tile that may be there, ahead of its turn: who copies it
  /// does not wait for its list. The place is of the tile four before, whose
  /// weights had been made when keys two tiles after it were free.
  void findRowsAhead(Value number) {
    if (k.hasLists && !k.skipsTiles())
      b.ifThen(b.less(number, numTiles),
               [&] { findRows(k.getTile(number), getSlot(number)); });
  }

  void startValues(Value number, ValueRange turn) {
    awaitFree(shared.values, number);
    startCopy(getTile(number, turn), number, shared.values,
              &TensorMaps::Source::values,
              &GPUStreamKernel::SourceView::values);
  }

  /// Starts to copy keys or values of a tile, and arrives for them. A thread
  /// alone arrives before.
  void startCopy(const GPUStreamKernel::Tile &tile, Value number,
                 const Boxes &boxes, TensorMap TensorMaps::Source::*map,
                 Value GPUStreamKernel::SourceView::*view) {
    Value full = ofStage(boxes.full, getStage(number), 8);
    if (isAlone)
      w.arriveExpecting(full, boxes.bytes);
    bool areValues = &boxes == &shared.values;
    for (auto [index, source] : llvm::enumerate(k.sources)) {
      auto copy = [&, index = index, &source = source] {
        copyOperand(tile, index, maps.sources[index].*map, view, boxes, number,
                    full, areValues ? source.valueBlock : Value());
      };
      if (k.sources.size() == 1)
        copy();
      else
        b.ifThen(b.equal(tile.source, b.i32(index)), copy);
    }
    if (isAlone)
      return;
    if (boxes.hasRows)
      w.arriveAfterCopies(full);
    // What all lanes wrote themselves comes before the arrival of one.
    b.warpBarrier();
    b.ifThen(b.equal(b.lane(), b.i32(0)), [&] { w.arrive(full); });
  }

  // Two stages of keys and of values.
  Value getStage(Value number) { return b.rem(number, 2); }
  Value getSlot(Value number) { return b.rem(number, kSlots); }

  /// Waits until the tile that had the place of tile `number` has been read.
  void awaitFree(const Boxes &boxes, Value number) {
    Value parity = b.sub(b.i32(1), b.rem(b.div(number, 2), 2));
    w.wait(ofStage(boxes.free, getStage(number), 8), parity);
  }

  /// Waits until tile `number` has been copied.
  void awaitFull(const Boxes &boxes, Value number) {
    w.wait(ofStage(boxes.full, getStage(number), 8),
           b.rem(b.div(number, 2), 2));
  }

  /// The same, to multiply it.
  void awaitOperand(const Boxes &boxes, Value number) {
    awaitFull(boxes, number);
    if (boxes.hasRows)
      w.publishWrites();
  }

  /// Says that this warp has read tile `number`.
  void setFree(const Boxes &boxes, Value number) {
    b.ifThen(b.equal(b.lane(), b.i32(0)),
             [&] { w.arrive(ofStage(boxes.free, getStage(number), 8)); });
  }

  /// What starts copies and announces them.
  void asLeader(function_ref<void()> body) {
    if (isAlone)
      return body();
    b.ifThen(b.equal(b.thread(), b.i32(0)), body);
  }

  /// Copies keys or values of a tile, whose source is `index`.
  void copyOperand(const GPUStreamKernel::Tile &tile, unsigned index,
                   const TensorMap &map,
                   Value GPUStreamKernel::SourceView::*view, const Boxes &boxes,
                   Value number, Value full, Value block) {
    Value stage = getStage(number);
    bool hasTable = false, hasRows = false;
    for (const GPUStreamKernel::Segment &segment : k.segments)
      if (segment.source == index)
        (segment.isTable ? hasTable : hasRows) = true;
    auto byRows = [&](bool isTable) {
      GPUStreamKernel::Tile own = tile;
      if (!isTable)
        own.isTable = Value();
      k.copyToBoxes(own, k.sources[index], view, boxes.rows, stage,
                    getSlot(number), boxes.columns, boxes.numColumns);
    };
    auto byBoxes = [&] {
      asLeader([&] {
        if (!isAlone)
          w.expect(full, boxes.bytes);
        // Copies of rows may have been there before.
        if (boxes.hasRows)
          w.publishWrites();
        copyBoxes(ofStage(boxes.address, stage, boxes.bytes), map, full,
                  tile.row, k.keyTile, boxes.columns, block);
      });
    };
    if (!map.map || !hasRows)
      byRows(hasTable);
    else if (!hasTable)
      byBoxes();
    else
      b.ifThenElse(tile.isTable, [&] { byRows(true); }, byBoxes);
  }

  /// Copies `numRows` rows from `row` of an operand on; what it does not have
  /// becomes zero.
  void copyBoxes(Value target, const TensorMap &map, Value barrier, Value row,
                 int64_t numRows, int64_t columns, Value block = {}) {
    Values at = map.offsets;
    at[at.size() - 2] = b.add(at[at.size() - 2], row);
    if (block)
      at[at.size() - 3] = b.add(at[at.size() - 3], block);
    w.copyBoxes(target, map.map, barrier, at, numRows, columns);
  }

  // Tiles, as the producer hands them over.
  Value getField(Value slot, size_t field) {
    return b.toIndex(b.add(b.mul(slot, kTileFields), int64_t(field)));
  }

  void storeTile(const GPUStreamKernel::Tile &tile, Value slot) {
    for (auto [i, field] : llvm::enumerate(k.pack(tile))) {
      Value number = field;
      if (field.getType().isInteger(1))
        number = arith::ExtUIOp::create(b, b.getI32Type(), field);
      memref::StoreOp::create(b, number, shared.tiles, getField(slot, i));
    }
  }

  GPUStreamKernel::Tile getSharedTile(Value number) {
    if (!sharesTiles)
      return k.getTile(number);
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

  // Consumers.
  void consume() {
    w.wait(shared.loaded, b.i32(0));
    group = b.div(b.thread(), kWarpgroupSize);
    if (numConsumers > 1)
      b.ifThen(b.equal(group, b.i32(numConsumers - 1)),
               [&] { w.giveTurn(b.i32(0)); });
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

  Values attendAll(ValueRange initial) {
    Value zero = b.i32(0), last = b.sub(numTiles, b.i32(1));
    GPUStreamKernel::State state = k.unflatten(initial);
    awaitOperand(shared.keys, zero);
    w.beginProducts();
    Values scores = startScores(zero);
    GPUStreamKernel::Terms terms = loadTerms(zero);
    scores = w.waitProducts(0, scores);
    Values weights = weigh(zero, terms, scores, state, [] {});
    Values carried = k.flatten(state);
    size_t numSums = carried.size();
    carried.append(weights);
    carried =
        b.loop(zero, last, 1, carried, [&](Value number, ValueRange values) {
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
    return k.flatten(state);
  }

  /// Adds the values of a tile with its `weights`, and makes the weights of the
  /// next tile meanwhile. Returns sums and weights.
  Values attend(Value number, ValueRange sums, ValueRange weights) {
    GPUStreamKernel::State state = k.unflatten(sums);
    Value next = b.add(number, 1);
    awaitOperand(shared.keys, next);
    // Whoever has the turn must not wait for others.
    clearVoted(number, state);
    // Numbers of barriers take no registers of the loop.
    Value turn = numConsumers > 1 ? b.recompute(group) : Value();
    if (turn)
      w.awaitTurn(turn);
    w.beginProducts();
    Values scores = startScores(next);
    // Beside the products of scores. After a wait, which branches, ptxas wants
    // a fence of its own.
    awaitOperand(shared.values, number);
    w.beginProducts();
    Values output = startOutput(number, weights, state);
    if (turn)
      w.giveTurn(b.rem(b.add(turn, 1), numConsumers));
    GPUStreamKernel::Terms terms = loadTerms(next);
    scores = w.waitProducts(1, scores);
    Values nextWeights = weigh(next, terms, scores, state, [&] {
      finishOutput(output, state);
      setFree(shared.values, number);
    });
    Values result = k.flatten(state);
    result.append(nextWeights);
    return result;
  }

  /// Starts to load what is added to the scores of a tile, beside products.
  GPUStreamKernel::Terms loadTerms(Value number) {
    return k.hasBias ? k.loadTerms(getSharedTile(number))
                     : GPUStreamKernel::Terms();
  }

  /// Makes weights of the scores of a tile, in pairs of narrow ones: the first
  /// operands of products. Sums of values change after `finish`.
  Values weigh(Value number, const GPUStreamKernel::Terms &terms,
               ValueRange scores, GPUStreamKernel::State &state,
               function_ref<void()> finish) {
    Value slot = getSlot(number);
    GPUStreamKernel::Tile present = getSharedTile(number);
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
    if (!k.scoresHide)
      clearHidden(present, number, isCut, state);
    Values all;
    for (const Values &part : tile)
      all.append(part);
    return w.packWeights(k.type, all);
  }

  /// Takes out of the values of a tile what is not finite, if it is cut.
  void clearHidden(const GPUStreamKernel::Tile &tile, Value number, Value isCut,
                   GPUStreamKernel::State &state) {
    auto publish = [&] { w.publishWrites(); };
    k.clearHidden(
        tile, getSlot(number), isCut, getRows(shared.values, getStage(number)),
        state, [&] { awaitFull(shared.values, number); },
        // Otherwise whoever multiplies them does that.
        shared.values.hasRows ? function_ref<void()>() : publish);
  }

  // Where scores say which entries there are, consumers have to agree on what
  // is taken out of values that they share. Each votes as soon as it has scores
  // and asks for the votes before it multiplies the values: by then the other,
  // half an iteration apart, has scores, too, and nobody waits for weights.

  /// Says for a warp whether some entry of a tile is not read.
  void castVote(Value number, Value isCut) {
    Value ballot = b.ballot(isCut);
    b.ifThen(b.equal(b.lane(), b.i32(0)), [&] {
      Value stage = getStage(number);
      Value at = b.add(b.mul(stage, 4 * numConsumers), b.warp());
      memref::StoreOp::create(b, ballot, shared.votes, b.toIndex(at));
      w.arrive(ofStage(shared.voted, stage, 8));
    });
  }

  /// Waits for the votes on a tile, and does what they say.
  void clearVoted(Value number, GPUStreamKernel::State &state) {
    if (!k.scoresHide)
      return;
    Value stage = getStage(number);
    w.wait(ofStage(shared.voted, stage, 8), b.rem(b.div(number, 2), 2));
    Value at = b.add(b.mul(stage, 4 * numConsumers),
                     b.rem(b.lane(), 4 * numConsumers));
    Value vote = memref::LoadOp::create(b, shared.votes, b.toIndex(at));
    auto differs = [&](Value vote) {
      return b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ne, vote,
                                           b.i32(0));
    };
    Value isCut = differs(b.ballot(differs(vote)));
    clearHidden(getSharedTile(number), number, isCut, state);
  }

  /// Keeps waits for products behind what makes `number`: they have no
  /// operands, and ptxas would put them before the weights that are made beside
  /// the products. It does not move them across a store. A sum of a soft-max is
  /// at most 2^40, so none is made; what squares of scores may leave there,
  /// nobody reads.
  void keepBehind(Value number) {
    Value isImpossible = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                               number, b.scalar(0x1p100));
    b.ifThen(isImpossible, [&] {
      memref::StoreOp::create(b, number, shared.never, b.index(0));
    });
  }

  /// Starts `Q K^T` with the keys of a tile.
  Values startScores(Value number) {
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
  Values startOutput(Value number, ValueRange weights,
                     const GPUStreamKernel::State &state) {
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
  void finishOutput(ValueRange sums, GPUStreamKernel::State &state) {
    Values output = w.waitProducts(0, sums);
    for (auto [i, values] : llvm::enumerate(state.output))
      values = Values(ValueRange(output).slice(4 * i, 4));
  }

  GPUStreamKernel &k;
  GPUKernelBuilder &b;
  WarpgroupBuilder w;
  const TensorMaps &maps;
  int64_t numConsumers;
  /// What a tile is says the producer, not each thread; one thread of the
  /// producer does everything.
  bool sharesTiles, isAlone;
  Shared shared;
  Value numTiles; // that are read
  Value group;    // of a consumer
};

void GPUStreamKernel::emitWarpgroups(const TensorMaps &maps) {
  b.begin();
  placeTerms();
  placeLane();
  beginHead(b.index(0), b.index(0));
  Value blockIndex = b.index(0);
  if (op.getBlock())
    blockIndex = b.floorDiv(firstRow, b.index(op.getBlock()));
  beginQueryBlock(b.index(0), b.extent(op.getQuery(), 2), blockIndex);
  GPUStreamWarpgroups(*this, maps).emit();
  remarkOnAdmission();
}
