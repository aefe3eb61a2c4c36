//===- GPUGradientKernel.h - A kernel of gradients on sm_90a ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two kernels for each source. A block of one has rows of the source, K and V,
// in shared memory, and tiles of queries pass, Q and dO; a block of the other
// has queries, and tiles of rows pass, after those of one source perhaps those
// that are gathered of another. With what the block has first, A and B,
// and with what passes, X and Y:
//
//   producer    copies A and B once, and X and Y of each tile, as far ahead as
//               there are places; says what each tile is
//   consumers   have 64 rows of A and B each; for every tile:
//                 start S = A X^T and T = B Y^T
//                 P = 2^(c f(S) + bias - lse)   while T is summed
//                 dS = P f'(S) (T - delta)
//                 sum dS X, and P Y if the block has rows of the source,
//                                               before dS where sums are narrow
//
// Where nobody reads dK there is no T, dS or dS X for rows. Beside wide sums of
// rows and a bias or a region of scores, f, T starts when P is there.
//
// S and T lie in registers as first operands of the sums do, so weights never
// go through shared memory. X and Y serve two products each, as they are and
// transposed. No two blocks add to the same number: sums have one order.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTKERNEL_H

#include "GPUGradientBlock.h"
#include "GPUGradientWarpgroups.h"

namespace fovea::attn {

/// One of the two kernels of a source.
class GradientWarpgroups : GradientBlock {
public:
  GradientWarpgroups(RowBuilder &host, StreamBackwardOp op,
                     const StreamSource &source, const GradientInputs &inputs,
                     bool ofRows, bool sumsGradients,
                     const ListsOfRows *listsOfRows,
                     const GatheredRows *gathered, const GatheredRows *joined);

  /// The sums of dS X go to `first`, with those of `earlier` unless it is null;
  /// those of P Y to `second`, which is null for queries, and those of dS to
  /// `third`, if that is not null. Without `first`, where the block
  /// `sumsGradients` not, there is `second` alone, and the other way round.
  void emit(Value first, Value second, Value third, Value earlier);
  /// The same for rows, whose sums several blocks may share.
  void emitRows(Value first, Value second, Value third);

private:
  /// Both operands of what a block has, or of what passes: keys and values, or
  /// queries and gradients of their output.
  struct Operands {
    bool areRows;
    Value memrefs[2], maps[2];
    int64_t columns[2];
    int64_t places[2] = {0, 0}; // in shared memory
    Value addresses[2];

    /// Of both, or of the first.
    int64_t getBytes(int64_t rows, int64_t count = 2) const {
      int64_t bytes = 0;
      for (int64_t i = 0; i < count; ++i)
        bytes += getBoxedBytes(rows, columns[i]);
      return bytes;
    }
  };

  void emitPasses(mlir::ValueRange sums);
  Operands getOperands(const StreamSource &source, bool areRows, int64_t rows);
  /// Runs `body`, which emits code for tiles of the rows that are joined.
  void withJoined(llvm::function_ref<void()> body);
  void copyOwn();
  void copyOwnListed();
  void produce();
  void copyTile(const Tile &tile);
  void produceRows();
  llvm::SmallVector<SharedRows> getPassingBoxes(int64_t i, Value stage) {
    return getBoxes(passing.places[i], type, passing.columns[i], stage);
  }
  void copy(const Operands &operands, int64_t i, Value target, Value barrier,
            Value head, Value row, int64_t rows);

  Values consume();
  Values addTiles(Value count, ValueRange sums);
  Values addTile(Tile tile, ValueRange sums);
  Values startProducts(int64_t i, Value stage);
  /// What entries have: weights, in pairs where these lie apart from slopes of
  /// rows, and slopes, which are weights times derivatives of scores.
  struct Weighed {
    Values weights, packed, slopes;
  };
  Weighed weigh(const Tile &tile, ValueRange products, ValueRange logWeights,
                ValueRange biases);
  Values markHidden(const Tile &tile, ValueRange weights,
                    ValueRange packed = {});
  Values hide(const Tile &tile, ValueRange weights, ValueRange gradients);
  void clearHidden(const Tile &tile, Values &sums, Values *products);
  Values loadStatistics(Value stage, int64_t which);
  Values loadStatistics(Value stage, int64_t which, int64_t i);

  /// Whether one consumer starts both products of a tile before the other does:
  /// then one multiplies while the other makes weights. Short products leave
  /// gaps that others fill as it comes.
  bool takesTurns();
  /// What products of a block with what passes take of the block.
  int64_t getNumOwn() { return sumsGradients ? 2 : 1; }
  Value getParity(const Tile &tile) {
    return k.rem(k.div(tile.number, numStages), 2);
  }
  Value getAddress(int64_t i, Value stage) {
    return w.advance(passing.addresses[i],
                     k.mul(stage, getBoxedBytes(kTile, passing.columns[i])));
  }
  Value getBarrier(Value first, Value stage) {
    return w.advance(first, k.mul(stage, 8));
  }

  mlir::FloatType type;
  Operands own, passing, joinedPassing;
  Value statistics;
  int64_t statisticsPlace, barrierPlace;
  Value loaded, full, free, passingStatistics; // in shared memory
  Values ownStatistics;                        // of the thread's two queries
  Value hasHidden; // whether a log weight hides own rows
  /// Sums for values are started before gradients of scores are made, while
  /// products are summed: the latency of products with few columns shows. What
  /// lies in registers meanwhile would not fit beside sums of more.
  bool isEarly;
  bool sumsScores = false; // for the gradient of a log weight
  bool sumsGradients;      // dS X
  bool sumsValues = false; // P Y
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUGRADIENTKERNEL_H
