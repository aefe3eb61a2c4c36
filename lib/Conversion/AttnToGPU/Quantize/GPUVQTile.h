//===- GPUVQTile.h - Tiles of gradients of attn.vq on a GPU -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQTILE_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQTILE_H

#include "fovea/Kernels/GPU/GPUTileProduct.h"
#include "fovea/Kernels/VQWindow.h"

namespace fovea::attn {

/// What all kernels of a gradient know.
struct VQGradient {
  using Value = mlir::Value;

  VQBackwardOp op;
  F32Math math;
  const VQWindow &window;
  Value deltas = {};

  bool isSoftmax() { return op.getWeighting() == Weighting::Softmax; }
  int64_t getBlock() { return op.getBlock(); }
  int64_t getMemory() { return op.getMemory(); }
  int64_t getNumCodes() {
    return mlir::cast<mlir::MemRefType>(op.getCodebook().getType())
        .getDimSize(1);
  }
};

/// 64 queries by 64 tokens or codewords:
///
///   S = Q K^T, T = dO V^T                                products of tiles
///   P = exp(scale S + bias - lse), dS = P (T - delta)        in their place
///
/// or P = max(s, 0)^2, dS = 2 max(s, 0) T. The weight of a codeword is that of
/// one token; its gradient that of all the tokens which it stands for.
///
/// Query c of a tile and token r are `d + c - r` apart, where d is the distance
/// of the first ones. So a tile of 64 distances by queries holds the entries of
/// two tiles of tokens that follow each other: in the later one those of
/// queries c >= r, in the earlier one the others, each at distance `(c - r) mod
/// 64`.
class VQTile : public SquareTile {
public:
  /// Which queries and rows a tile has; rows are numbers of tokens.
  struct Place {
    Value batch, head, keyHead, firstQuery = {}, endQuery = {}, firstRow = {};
    /// Whether rows are the codewords of what `block` has as its cache.
    bool isCache = false;
    Value block = {};
  };
  VQTile(GPUKernelBuilder &builder, const VQGradient &problem)
      : SquareTile(builder, problem.math), problem(problem), op(problem.op) {}

  /// Keeps weights and, where they are asked for, gradients times `factor`.
  void compute(const Place &place, bool rowsAreQueries, bool hasGradients,
               double factor = 1.0);
  /// Adds the gradients times 64 columns of the keys, or what is kept times
  /// those of what belongs to the queries.
  Values addKeys(const Place &place, ValueRange sums, Value column);
  Values addQueries(Kept kept, const Place &place, ValueRange sums,
                    Value memref, Value column);

  /// Keeps the gradients of 64 distances from `firstDistance` on: a row for
  /// each query, or for each distance.
  void keepByDistance(Place place, Value firstDistance, bool rowsAreDistances,
                      double factor);
  /// Adds these gradients times 64 columns of relative keys, or of queries
  /// with their bias.
  Values addRelativeKeys(const Place &place, ValueRange sums,
                         Value firstDistance, Value column);
  Values addRelativeQueries(const Place &place, ValueRange sums, Value column);

private:
  struct Query {
    Value token, row, exists, offset, delta, memoryBegin;
  };
  struct Row {
    Value index, exists, count;
  };

  Query loadQuery(const Place &place, Value number);
  Row loadRow(const Place &place, Value number);
  Value existsRow(const Place &place, Value row);
  Value isPresent(const Place &place, Value token);
  Value loadQueryElement(const Place &place, Value memref, Value number,
                         Value column);
  Value loadKey(const Place &place, Value number, Value column);
  Value loadValue(const Place &place, Value number, Value column);
  Value loadBias(const Place &place, const Query &query, Value row);
  Value loadRelativeKey(const Place &place, Value distance, Value column);
  Value loadRelativeQuery(const Place &place, Value number, Value column);
  void addDistanceScores(const Place &place, bool rowsAreQueries);
  /// The token of the tile's first query.
  Value getFirstToken(const Place &place) {
    return b.add(place.firstQuery, problem.window.numBefore);
  }
  WeighedEntry weigh(const Place &place, const Query &query, const Row &row,
                     Value score, Value product);
  /// A codeword of the cache.
  Values ofCache(const Place &place, Value code) {
    Values at = {place.batch, place.keyHead};
    if (op.getCausal())
      at.push_back(b.sub(place.block, b.index(problem.getMemory())));
    at.push_back(code);
    return at;
  }

  VQGradient problem;
  VQBackwardOp op;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQTILE_H
