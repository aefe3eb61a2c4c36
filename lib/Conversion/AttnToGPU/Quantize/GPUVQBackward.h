//===- GPUVQBackward.h - Kernels of gradients of attn.vq --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Queries read tokens of their block and of those of its memory one by one, and
// older ones as codewords with mean values:
//
//   queries   for each 64 queries of a block: dQ = scale dS K over these tokens
//             and over all codewords
//   tokens    for each 64 tokens: dK = scale dS^T Q, dV = P^T dO over the
//             queries of memory + 1 blocks, and the heads that share them
//   codes     for each 64 codewords and block of queries: U = P^T dO, the
//             gradient of the value of any older token with that code
//   values    U summed over later blocks, and added to dV by the token's code
//   bias      for each 64 queries of a block and 64 columns: dS
//   distances for each 64 distances and part of the queries of a head: sums of
//             dS, and of its products with the queries (VQDistanceSums.h)
//
// Tiles of scores and their gradients are made again in each. Of these, the
// first three are one attn.stream_backward where chips have warpgroups for it
// (GPUVQStream.cpp).
//
// With a state, the tokens that it keeps and queries read come before the
// window's as tokens without queries (VQWindow.h): all kernels count in tokens.
// Its means are the first entry of those that the codewords have, and take the
// sum of U over all blocks. Gradients for the means of the next state are where
// that sum, which goes from the last block to the first, begins.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQBACKWARD_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQBACKWARD_H

#include "GPUVQTile.h"
#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Kernels/GPU/WarpTeamBuilder.h"
#include "fovea/Kernels/VQDistanceSums.h"

namespace fovea::attn {

class VQBackwardLoops {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  VQBackwardLoops(mlir::OpBuilder &builder, VQBackwardOp op,
                  const GPULowering &lowering);

  void emit();

private:
  using Place = VQTile::Place;

  // In place of the kernels for queries, tokens and codes (GPUVQStream.cpp).
  bool isStream(const GPUFacts &gpu);
  void emitStream(Value keySums);
  /// What regions of its scores read.
  Values getScoreCaptures();
  void fillScore(mlir::Region &region, bool areTokens, ValueRange captures);
  /// Rows of a source, and where sums for them go; of log weights perhaps none.
  struct StreamRows {
    Value keys, values, logWeights = {}, dKeys = {}, dValues = {};
  };
  StreamRows makeTokens(Value keySums);
  StreamRows makeCodewords();
  /// A codeword for a group of queries: where it lies in what the codewords
  /// have, how many tokens it stands for, and whether there are any.
  struct CachedRow {
    Value code;
    Values entry;
    Value count = {}, exists = {};
  };
  CachedRow findCachedRow(KernelBuilder &k, ValueRange at);
  /// What belongs to each query, whose lse is minus infinity where it is
  /// absent.
  Value clearAbsentLse();
  /// Says how many rows there are, and where the first ones are.
  void setFrames();
  /// The most groups of queries that a window has wherever it begins.
  Value getMostGroups();
  /// A copy with zeros where there are no queries, or with `none`.
  Value frameQueries(Value queries);
  Value frameNumbers(Value numbers, double none);
  /// How many rows of the frames there are in this window.
  Value fillLengths(Value rows);
  /// Whether extents may not depend on the position of a state.
  bool isFramed() { return usesStream && loops.hasState(); }

  /// That of a token, or the first of all where the token was kept.
  Value getFirstQuery(KernelBuilder &k, Value token);
  /// The queries of tile number `tile` of block `block`.
  void setQueries(KernelBuilder &k, Place &place, Value block, Value tile);
  void emitDeltas();
  void emitKernels(Value keySums);
  void emitQueries();
  /// Either of the sums may be null, for another kernel.
  void emitTokens(Value keySums, Value valueSums);
  void emitCodes();
  void storeValues();
  Value allocateTokens(int64_t columns, mlir::Type elementType) {
    return loops.allocate({batches, keyHeads, tokenRows}, {columns},
                          elementType);
  }
  /// Where sums of a token are.
  Values getTokenPlace(KernelBuilder &k, ValueRange at) {
    return {at[0], at[1], k.add(at[2], rowsBeforeTokens), at[3]};
  }
  void emitBias();
  void emitDistances();
  Values loopOverHeads(GPUKernelBuilder &k, Value keyHead, ValueRange running,
                       llvm::function_ref<Values(Value head, ValueRange)> body);
  /// Stores parts of 64 columns, from `column` on, of rows `first .. end - 1`.
  void store(GPUKernelBuilder &k, VQTile &tile, ValueRange parts, Value memref,
             ValueRange leading, Value first, Value end, Value column);
  GPUKernelBuilder makeBuilder() {
    return {op.getLoc(), b, VQTile::kNumThreads};
  }

  VQBackwardOp op;
  WarpTeamBuilder b;
  VQWindowLoops loops;
  VQGradient problem;
  bool usesStream;
  int64_t width, valueWidth, numCodes;
  Value batches, heads, keyHeads, headsOfKey;
  /// The first block of queries that may read older tokens.
  Value firstCached;
  /// Blocks of tokens with a cache of their own, their length and tiles: one
  /// of all tokens where nothing is causal.
  Value numBlocks, blockLength, tilesOfBlock;
  /// Rows of queries and of tokens, and those before the first query and before
  /// the first token.
  Value queryRows, tokenRows, rowsBeforeQueries, rowsBeforeTokens;
  /// Gradients of values from queries that read tokens one by one, [B, G,
  /// tokens, E], and of the value of any older token with a code, [B, G, groups
  /// of queries, S, E].
  Value valueSums, numGroups, codeSums;
  VQDistanceSums distanceSums;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUVQBACKWARD_H
