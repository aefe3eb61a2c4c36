//===- GPUStreamWarpgroups.h - attn.stream on sm_90a ------------*- C++ -*-===//
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
//   producer    copy K_0 and Q
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
// Blocks of a cluster, for heads that share keys, copy equal parts of each tile
// to all of them: a tile is full when all parts are there, and free when the
// consumers of all blocks say so.
//
// Results of a warp are stored by boxes, too, where it has all of its rows.
//
// A block may stay for several blocks of queries. Tiles are numbered on, so
// that phases of barriers and turns go on, too: the producer copies keys of the
// next block of queries as soon as a place of keys is free. Its queries take
// the place of those before when the last keys of these are free, as consumers
// have their scores then, while they make the last weights, multiply values and
// store results. Most tiles of such blocks are cut: all threads of the producer
// look for what is not finite among values once they have arrived, before they
// copy the next keys, and say what they find in time for the tile's product.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMWARPGROUPS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMWARPGROUPS_H

#include "GPUStreamKernel.h"
#include "fovea/Kernels/GPU/WarpgroupBuilder.h"

namespace fovea::attn {

/// The code of one block of threads.
class GPUStreamWarpgroups {
public:
  GPUStreamWarpgroups(GPUStreamKernel &kernel, const TensorMaps &maps);

  /// `loop` goes through blocks of queries; null if there is one.
  void emit(mlir::scf::ForOp loop);

  /// Numbers of 32 bits that say what a tile is.
  static constexpr int64_t kTileFields = 12;
  /// Places for what tiles are, and for their weights. A place is written again
  /// when keys two tiles before are free, one iteration after its last reading.
  static constexpr int64_t kSlots = 4;
  /// Where nothing is ever read, behind eight barriers.
  static constexpr int64_t kNever = 8 * 8;

private:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;
  using Tile = GPUStreamKernel::Tile;
  using State = GPUStreamKernel::State;
  using Terms = GPUStreamKernel::Terms;

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
    Value tiles; // kSlots, kTileFields numbers each
    Value never; // read
    // Of two tiles each: a barrier, and a number of each warp that multiplies.
    Value voted, votes;
    // Likewise: a barrier, and whether the producer found a value that is not
    // finite.
    Value searched, found;
    // Four boxes, and two products of each consumer.
    Value relativeKeys, relativeProducts;
  };

  Value forEachBlock(mlir::scf::ForOp loop, llvm::function_ref<void()> body);
  void placeBoxes(Boxes &boxes, int64_t offset, int64_t columns,
                  int64_t multiple, Value barriers);
  /// The address of a tile's part of `bytes` bytes.
  Value ofStage(Value address, Value stage, int64_t bytes) {
    return w.advance(address, b.mul(stage, bytes));
  }
  // Two stages of keys and of values.
  Value getStage(Value number) { return b.rem(number, 2); }
  Value getSlot(Value number) { return b.rem(number, kSlots); }
  Value getField(Value slot, size_t field);

  // The producer (GPUStreamProducer.cpp).
  void produce();
  Values startTurns();
  Values takeTurn(mlir::ValueRange turn);
  Tile getTile(Value number, mlir::ValueRange turn);
  void startKeys(Value number, mlir::ValueRange turn);
  void findRows(const Tile &tile, Value slot);
  void findRowsAhead(Value number);
  void startValues(Value number, mlir::ValueRange turn);
  void searchBefore(Value number);
  void startCopy(const Tile &tile, Value number, const Boxes &boxes,
                 TensorMap TensorMaps::Source::*map,
                 Value GPUStreamKernel::SourceView::*view);
  void awaitFree(const Boxes &boxes, Value number);
  void asLeader(llvm::function_ref<void()> body);
  void copyOperand(const Tile &tile, unsigned index, const TensorMap &map,
                   Value GPUStreamKernel::SourceView::*view, const Boxes &boxes,
                   Value number, Value full, Value block);
  void copyBoxes(Value target, const TensorMap &map, Value barrier, Value row,
                 int64_t numRows, int64_t columns, Value block = {},
                 int64_t cluster = 1);
  void storeTile(const Tile &tile, Value slot);

  // Relative keys (GPURelativeKeys.cpp).
  void placeRelativeKeys();
  bool isOneRun();
  Value startsAnew(const Tile &tile, const Tile &previous);
  void whereRelative(const Tile &tile,
                     llvm::function_ref<void(unsigned index)> body);
  Value getFirstDistance(const Tile &tile, unsigned index);
  void startRelativeKeys(Value number, const Tile &tile);
  Value getRelativeBox(Value number);
  Values loadRelativeBiases(const Tile &tile, unsigned index, bool isUpper);
  Values multiplyRelativeKeys(Value number, bool isUpper);
  Value getProductRow(int64_t half);
  Value getProductSwizzle();
  void storeRelative(Value number, bool isUpper, mlir::ValueRange products,
                     mlir::ValueRange biases);
  Values loadRelative(Value number, int64_t columns);
  void prepareRelative(Value number);
  Values startRelative(Value number);
  Values takeScores(Value number, mlir::ValueRange products, Terms &terms);

  // Consumers (GPUStreamWarpgroups.cpp).
  llvm::SmallVector<SharedRows> getRows(const Boxes &boxes, Value stage);
  Tile getSharedTile(Value number);
  void awaitFull(const Boxes &boxes, Value number);
  void awaitOperand(const Boxes &boxes, Value number);
  void setFree(const Boxes &boxes, Value number);
  void consume(mlir::scf::ForOp loop);
  void consumeBlock();
  Values attendAll(mlir::ValueRange initial);
  Values attend(Value number, mlir::ValueRange sums, mlir::ValueRange weights);
  Terms loadTerms(Value number);
  Values weigh(Value number, const Terms &terms, mlir::ValueRange scores,
               State &state, llvm::function_ref<void()> finish);
  void clearHidden(const Tile &tile, Value number, Value isCut, State &state);
  void publishCleared();
  void castVote(Value number, Value isCut);
  void clearVoted(Value number, State &state);
  void clearFound(const Tile &tile, Value number, Value isCut, State &state);
  void keepBehind(Value number);
  Values startScores(Value number);
  Values startOutput(Value number, mlir::ValueRange weights,
                     const State &state);
  void finishOutput(mlir::ValueRange sums, State &state);

  GPUStreamKernel &k;
  GPUKernelBuilder &b;
  WarpgroupBuilder w;
  TensorMaps maps;
  int64_t numConsumers;
  int64_t cluster;
  /// What a tile is says the producer, not each thread; one thread of the
  /// producer does everything.
  bool sharesTiles, isAlone;
  Shared shared;
  // The first tile of the block of queries, and how many it reads.
  Value firstTile, numTiles;
  Value group; // of a consumer
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMWARPGROUPS_H
