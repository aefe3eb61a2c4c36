//===- GPUStreamWarpgroups.cpp - attn.stream on sm_90a --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One warpgroup of a block starts all copies and gives most of its registers
// away; the others have 64 queries each. Fragments of their sums are those of
// mma.sync, four warps with 16 rows each, so masks, soft-max and output are
// those of other chips. What is new is the order of things:
//
//   producer    for every tile: wait until it is free, copy keys and values
//   consumers   S = Q K_0^T
//               for every tile n: start S' = Q K_(n+1)^T
//                                 P = soft-max of S, while that runs
//                                 start O += P V_n
//                                 wait for both, set tile n free
//
//===----------------------------------------------------------------------===//

#include "GPUStreamKernel.h"
#include "SoftmaxAlgebra.h"
#include "WarpgroupBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Registers of a thread of the producer and of the consumers: 65536 for three
/// warpgroups, in multiples of 8.
static constexpr int64_t kProducerRegisters = 24, kConsumerRegisters = 240;

bool fovea::attn::canUseWarpgroups(StreamOp op) {
  auto query = cast<ShapedType>(op.getQuery().getType());
  auto output = cast<ShapedType>(op.getOutput().getType());
  Type type = query.getElementType();
  if (op.getWeighting() != Weighting::Softmax || op.getKeys().size() != 1 ||
      !op.getLogWeights().empty() || !op.getBiases().empty() ||
      !op.getCodes().empty() || !(type.isF16() || type.isBF16()) ||
      !(op.getScale().convertToDouble() > 0x1p-20))
    return false;
  // Rows of tensors that are copied by boxes lie 16 bytes apart.
  for (Value operand :
       {op.getKeys()[0], op.getValues()[0], op.getQuery(), op.getOutput()}) {
    auto shaped = cast<ShapedType>(operand.getType());
    int64_t width = shaped.getShape().back();
    if (shaped.getRank() != 4 || shaped.getElementType() != type ||
        ShapedType::isDynamic(width) || width % 8 != 0 || width > kMaxHeadWidth)
      return false;
  }
  // A few queries would leave most of a warpgroup idle.
  int64_t rows = query.getDimSize(2);
  return (ShapedType::isDynamic(rows) || rows > kWarpgroupRows / 2) &&
         output.getDimSize(3) > 0;
}

/// Bytes of `rows` rows in boxes.
static int64_t getBoxedBytes(int64_t rows, int64_t columns) {
  return rows * kBoxBytes * llvm::divideCeil(columns * 2, kBoxBytes);
}

void GPUStreamLayout::placeBoxes(int64_t queryRows, int64_t keyRows,
                                 int64_t width) {
  queries = 0;
  keys = queries + getBoxedBytes(queryRows, width);
  values = keys + 2 * getBoxedBytes(keyRows, width);
  barriers = values + 2 * getBoxedBytes(keyRows, valueColumns);
  bytes = barriers + 8 * 8;
}

namespace {
/// Barriers of a block, and what lies where in shared memory.
struct Shared {
  Value queries, keys, values; // addresses
  Value loaded;                // of the queries
  Value full, free;            // of two tiles each
};
} // namespace

/// The code of one block for its one block of queries.
class fovea::attn::GPUStreamWarpgroups {
public:
  GPUStreamWarpgroups(GPUStreamKernel &kernel, const TensorMaps &maps)
      : k(kernel), b(kernel.b), w(kernel.b), maps(maps),
        numConsumers(kernel.tiles.getVectors()),
        keyBytes(getBoxedBytes(kernel.keyTile, kernel.width)),
        valueBytes(getBoxedBytes(kernel.keyTile, kernel.layout.valueColumns)) {}

  void emit() {
    shared.queries = w.getShared(k.layout.queries);
    shared.keys = w.getShared(k.layout.keys);
    shared.values = w.getShared(k.layout.values);
    shared.loaded = w.getShared(k.layout.barriers);
    shared.full = w.advance(shared.loaded, 8);
    shared.free = w.advance(shared.loaded, 24);
    b.ifThen(b.equal(b.thread(), b.i32(0)), [&] {
      w.initBarrier(shared.loaded, 1);
      for (int64_t stage : {0, 1}) {
        w.initBarrier(w.advance(shared.full, 8 * stage), 1);
        // One arrival of every warp that reads the tile.
        w.initBarrier(w.advance(shared.free, 8 * stage), numConsumers * 4);
      }
      w.publishBarriers();
    });
    b.barrier();
    Value firstProducer = b.i32(numConsumers * kWarpgroupSize);
    b.ifThenElse(
        b.less(b.thread(), firstProducer), [&] { consume(); },
        [&] {
          w.setRegisters(kProducerRegisters, /*raises=*/false);
          b.ifThen(b.equal(b.thread(), firstProducer), [&] { produce(); });
        });
  }

private:
  /// The address of a tile's part of `bytes` bytes.
  Value ofStage(Value address, Value stage, int64_t bytes) {
    return w.advance(address, b.mul(stage, bytes));
  }

  // Producer.
  void produce() {
    int64_t queryBytes = getBoxedBytes(k.queryTile, k.width);
    w.arriveExpecting(shared.loaded, queryBytes);
    copyBoxes(shared.queries, maps.query, shared.loaded, b.i32(0), k.queryTile,
              k.width);
    Value one = b.i32(1);
    b.loop(b.i32(0), k.numTiles, 1, [&](Value number) {
      GPUStreamKernel::Tile tile = k.getTile(number);
      Value stage = b.rem(number, 2), round = b.div(number, 2);
      w.wait(ofStage(shared.free, stage, 8), b.sub(one, b.rem(round, 2)));
      Value full = ofStage(shared.full, stage, 8);
      w.arriveExpecting(full, keyBytes + valueBytes);
      copyBoxes(ofStage(shared.keys, stage, keyBytes), maps.key, full, tile.row,
                k.keyTile, k.width);
      copyBoxes(ofStage(shared.values, stage, valueBytes), maps.value, full,
                tile.row, k.keyTile, k.layout.valueColumns);
    });
  }

  /// Copies `numRows` rows from `row` of an operand on; what it does not have
  /// becomes zero.
  void copyBoxes(Value target, const TensorMap &map, Value barrier, Value row,
                 int64_t numRows, int64_t columns) {
    int64_t perBox = kBoxBytes / 2;
    for (int64_t first = 0; first < columns; first += perBox) {
      Value at[] = {b.add(map.offsets[3], first), b.add(map.offsets[2], row),
                    map.offsets[1], map.offsets[0]};
      w.copyBox(w.advance(target, first / perBox * numRows * kBoxBytes),
                map.map, barrier, at);
    }
  }

  // Consumers.
  void consume() {
    w.setRegisters(kConsumerRegisters, /*raises=*/true);
    w.wait(shared.loaded, b.i32(0));
    Values initial = k.flatten(k.makeState());
    SmallVector<Type> types(initial.size(), b.getF32Type());
    auto ifOp = scf::IfOp::create(b, types, b.less(b.i32(0), k.numTiles),
                                  /*addThenBlock=*/true, /*addElseBlock=*/true);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(ifOp.elseBlock());
      scf::YieldOp::create(b, initial);
      b.setInsertionPointToStart(ifOp.thenBlock());
      scf::YieldOp::create(b, attendAll(initial));
    }
    k.finish(k.unflatten(ifOp.getResults()), b.i32(0));
  }

  Values attendAll(ValueRange initial) {
    Value zero = b.i32(0), last = b.sub(k.numTiles, b.i32(1));
    Values scores = startScores(zero);
    w.commitProducts();
    Values carried(initial);
    carried.append(w.waitProducts(0, scores));
    size_t numSums = initial.size();
    carried =
        b.loop(zero, last, 1, carried, [&](Value number, ValueRange values) {
          return attend(number, values.take_front(numSums),
                        values.drop_front(numSums),
                        /*hasNext=*/true);
        });
    return attend(last, ValueRange(carried).take_front(numSums),
                  ValueRange(carried).drop_front(numSums), /*hasNext=*/false);
  }

  /// The next sums, and with `hasNext` the scores of the next tile.
  Values attend(Value number, ValueRange sums, ValueRange scores,
                bool hasNext) {
    Values next;
    if (hasNext) {
      next = startScores(b.add(number, 1));
      w.commitProducts();
    }
    SmallVector<Values> tile;
    for (size_t i = 0; i < scores.size(); i += 4)
      tile.push_back(Values(scores.slice(i, 4)));
    GPUStreamKernel::State state = k.unflatten(sums);
    k.applyMask(k.getTile(number), tile);
    k.normalise(tile, state);

    Value stage = b.rem(number, 2);
    Values running;
    for (const Values &output : state.output)
      running.append(output);
    running = startOutput(tile, stage, running);
    w.commitProducts();
    // Both products at once, so that neither is looked at too early.
    size_t numOutputs = running.size();
    running.append(next);
    running = w.waitProducts(0, running);
    b.ifThen(b.equal(b.lane(), b.i32(0)),
             [&] { w.arrive(ofStage(shared.free, stage, 8)); });

    for (auto [i, output] : llvm::enumerate(state.output))
      output = Values(ValueRange(running).slice(4 * i, 4));
    Values result = k.flatten(state);
    result.append(running.begin() + numOutputs, running.end());
    return result;
  }

  /// Starts `Q K^T` with the keys of a tile.
  Values startScores(Value number) {
    Value stage = b.rem(number, 2), round = b.div(number, 2);
    w.wait(ofStage(shared.full, stage, 8), b.rem(round, 2));
    Value group = b.div(b.thread(), kWarpgroupSize);
    Value queries =
        w.advance(shared.queries, b.mul(group, kWarpgroupRows * kBoxBytes));
    Value keys = ofStage(shared.keys, stage, keyBytes);
    Values sums(k.keyTile / 2, b.scalar(0.0));
    Value left = w.getDescriptor(queries, kChunkBytes);
    Value right = w.getDescriptor(keys, kChunkBytes);
    w.beginProducts();
    // 16 columns are 32 bytes of a box.
    for (int64_t column = 0; column < k.width; column += 16) {
      int64_t box = column * 2 / kBoxBytes, inBox = column * 2 % kBoxBytes;
      auto at = [&](Value descriptor, int64_t rows) {
        return w.advanceDescriptor(descriptor, box * rows * kBoxBytes + inBox);
      };
      sums = w.multiply(k.type, sums, at(left, k.queryTile),
                        at(right, k.keyTile), /*transpose=*/false,
                        /*adds=*/column != 0);
    }
    return sums;
  }

  /// Starts `O += P V`.
  Values startOutput(ArrayRef<Values> weights, Value stage, Values sums) {
    auto pack = [&](Value first, Value second) -> Value {
      Value both = vector::FromElementsOp::create(
          b, VectorType::get({2}, b.getF32Type()), ValueRange{first, second});
      both = arith::TruncFOp::create(b, VectorType::get({2}, k.type), both);
      both = vector::BitCastOp::create(b, VectorType::get({1}, b.getI32Type()),
                                       both);
      return vector::ExtractOp::create(b, both, 0);
    };
    // Sums of two tiles of columns are, in this order, the first operand.
    SmallVector<Values> left;
    for (size_t tile = 0; tile < weights.size(); tile += 2) {
      Values &registers = left.emplace_back();
      for (const Values &part : weights.slice(tile, 2))
        for (int64_t half : {0, 1})
          registers.push_back(pack(part[2 * half], part[2 * half + 1]));
    }
    Value right = w.getDescriptor(ofStage(shared.values, stage, valueBytes),
                                  /*boxStride=*/k.keyTile * kBoxBytes);
    w.beginProducts();
    for (auto [step, registers] : llvm::enumerate(left))
      sums = w.multiply(k.type, sums, registers,
                        w.advanceDescriptor(right, step * 16 * kBoxBytes),
                        /*transpose=*/true, /*adds=*/true);
    return sums;
  }

  GPUStreamKernel &k;
  GPUKernelBuilder &b;
  WarpgroupBuilder w;
  const TensorMaps &maps;
  int64_t numConsumers, keyBytes, valueBytes;
  Shared shared;
};

void GPUStreamKernel::emitWarpgroups(const TensorMaps &maps) {
  b.begin();
  placeLane();
  beginHead(b.index(0), b.index(0));
  Value blockIndex = b.index(0);
  if (op.getBlock())
    blockIndex = b.floorDiv(firstRow, b.index(op.getBlock()));
  beginQueryBlock(b.index(0), b.extent(op.getQuery(), 2), blockIndex);
  GPUStreamWarpgroups(*this, maps).emit();
}
