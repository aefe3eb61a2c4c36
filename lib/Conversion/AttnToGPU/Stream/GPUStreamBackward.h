//===- GPUStreamBackward.h - Tiles of gradients of attn.stream on a GPU -*- C++
//-*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMBACKWARD_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMBACKWARD_H

#include "GradientRanges.h"
#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "fovea/Kernels/ScoreBody.h"
#include "fovea/Kernels/TileScore.h"

namespace fovea::attn {

/// Queries, and rows of a source, of a tile.
constexpr int64_t kGradientTile = SquareTile::kSize;

/// Weights of entries and the gradients of their scores, from what the entry's
/// query and row have.
class EntryWeigher {
public:
  using Value = mlir::Value;

  /// Whose gradients are wanted: of nothing, of the scores that terms are
  /// added to, of the products that these are made from, or of the only number
  /// that the region reads.
  enum class Of { Nothing, Scores, Products, Read };

  struct Entry {
    Value batch, head, query, row;
    Value queryPosition, keyPosition; // for a score region
    Value lse, delta, logWeight;      // the last one may be null
    Value isNone; // what the query does not read, whatever its score
  };

  /// `score` is the region with its derivatives, or null.
  EntryWeigher(GPUKernelBuilder &builder, StreamBackwardOp op,
               const StreamSource &source, const ScoreDerivatives *score);

  void enterHead(Value batch, Value head);
  /// Without a `product`, only the weight.
  WeighedEntry weigh(const Entry &entry, Value score, Value product,
                     Of gradients);

private:
  GPUKernelBuilder &b;
  StreamBackwardOp op;
  StreamSource source;
  std::optional<ScoreBody> scoreBody;
};

/// Sums of numbers one by one.
inline KernelBuilder::Values addAll(KernelBuilder &b, mlir::ValueRange first,
                                    mlir::ValueRange second) {
  KernelBuilder::Values sums;
  for (auto [left, right] : llvm::zip_equal(first, second))
    sums.push_back(b.fadd(left, right));
  return sums;
}

/// Code of a block of threads that computes the weights of a tile of 64 queries
/// and 64 rows of a source again, and the gradients of their scores:
///
///   S = Q K^T, T = dO V^T                             products of tiles
///   P = exp(score(scale S) + terms - lse), dS = P (T - delta)   in their place
///
/// Rows of the tile are the queries or the rows of the source.
class GradientTile : public SquareTile {
public:
  /// Which queries and rows a tile has, and the range that these are read by.
  struct Place {
    Value batch, head, keyHead, firstQuery, firstRow, range;
  };
  using Of = EntryWeigher::Of;

  /// `score` is the region with its derivatives, or null.
  GradientTile(GPUKernelBuilder &builder, StreamBackwardOp op,
               const StreamSource &source, Value deltas,
               const ScoreDerivatives *score, F32Math math);

  /// Whether a score region leaves entries of the tile at `place`, unless that
  /// is not known.
  Value isRead(ScoreAdmission &admission, const Place &place);

  static int64_t getSharedBytes();

  /// Keeps weights, and gradients times `factor`.
  void compute(const Place &place, bool rowsAreQueries, Of gradients,
               double factor = 1.0);
  void setBatch(Value batch) { ranges.setBatch(batch); }
  /// Adds gradients of the scores of a tile of queries by rows, of all ranges.
  Values addScores(Place place, ValueRange sums);

  /// Adds `kept tile` times 64 columns of 64 rows of `memref` from `first` on.
  Values addKept(Kept kept, ValueRange sums, Value memref, Value batch,
                 Value head, Value first, Value column);

private:
  struct Query {
    Value index, lse, delta, beginRow, endRow;
  };
  struct Row {
    Value index, number, logWeight;
  };

  /// Leaves which rows each query reads to all threads: 64 queries and as many
  /// ranges have more bounds than a thread has registers.
  void findBounds(const Place &place);
  Query loadQuery(const Place &place, Value number);
  Row loadRow(const Place &place, Value number);
  EntryWeigher::Entry makeEntry(const Place &place, const Query &query,
                                const Row &row);
  /// A number of a row, zero where there is none.
  Value loadElement(Value memref, Value batch, Value head, Value row,
                    Value column);

  StreamBackwardOp op;
  StreamSource source;
  Value deltas, bounds;
  EntryWeigher weigher;

public:
  GradientRanges ranges;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUSTREAMBACKWARD_H
