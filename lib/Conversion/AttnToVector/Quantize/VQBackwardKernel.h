//===- VQBackwardKernel.h - Loops of the gradient of attn.vq ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A task goes through the blocks of queries of a batch entry and key head, or
// of a chunk of them, in reverse, a tile of queries at a time, queries along
// vectors:
//
//   F[s]    = exp(scale C_s . q - lse)                     once for each
//   codeword local tokens j:  dS_j = F[code_j] (v_j . dO - delta),  dS[code_j]
//   += dS_j
//                    dK_j += scale dS_j q
//   cache:           dS[s] += F[s] count_s (mean_s . dO - delta)
//   dQ      = scale dS^T C
//   U[s]   += F[s] dO
//
// U is all that goes from block to block: it is the gradient of the value of
// any token with that code that is older than the tiles seen so far. Without a
// bias all later queries weigh the tokens of a code alike, so that a token
// takes its gradient from U, and only its own tile is added. With a bias that
// holds for cached tokens, and local ones are added one by one.
//
// A chunk begins with U = 0, and adds to the tokens of the blocks before it in
// rows of its own. Both are added up behind all tasks (VQBackwardChunks.cpp).
//
// With a state, the tokens that it keeps and queries read come before the
// window's as tokens without queries (VQWindow.h). The scan of means starts
// with those of the state, whose tokens take count_s U[s] from the last U.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_VQBACKWARDKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_VQBACKWARDKERNEL_H

#include "fovea/Kernels/ProductBuilder.h"
#include "fovea/Kernels/SkewedRows.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "fovea/Kernels/VQDistanceSums.h"

namespace fovea::attn {

class VQBackwardKernel {
public:
  using Value = mlir::Value;

  VQBackwardKernel(TeamBuilder &builder, VQBackwardOp op);

  void emit();

private:
  /// Vectors of queries in a tile, and tokens or codewords read at a time.
  static constexpr int64_t kTileVectors = 4, kStep = 64;

  Value getSums(Value gradient);
  Value getTokenSums(Value gradient);
  void storeTokenSums(Value sums, Value gradient, unsigned part);

  // Chunks (VQBackwardChunks.cpp).
  /// Where gradients of tokens from `first` on are summed. Without a bias
  /// nothing is added to values before the chunk.
  struct TokenRows {
    Value keys, values, first;
  };
  void divideTokens();
  void beginChunk(Value batch, Value head, Value chunk);
  /// `body` for tokens `low .. high` of the chunk and of those before it.
  void forTokens(
      Value low, Value high,
      llvm::function_ref<void(const TokenRows &, Value low, Value high)> body);
  void addChunks();
  void addValueGradients(Value low, Value high, Value chunk);

  // Terms by distance (VQBackwardDistances.cpp).
  DistanceRows getDistanceRows();
  Value getDistanceEnd();
  void layOutDistances();
  void beginDistances();
  void beginDistancesOfHead();
  void loadDistanceQueries();
  void addDistanceTerms(Value low, Value number);
  void addDistanceGradients(Value low, Value number);
  void takeDistanceGradients();

  // One task.
  void emitTask(Value batch, Value head, Value chunk);
  void emitBlock(Value n);
  void addNextMean(Value nextBlock);
  void emitTile();
  void emitHead();
  void loadRows();
  /// Which queries of a vector are absent or read nothing.
  Value areQueriesEmpty(Value column) {
    return softmax::isMasked(b, b.loadVector(offsets, {column}));
  }
  Value emitDot(Value left, Value right, KernelBuilder::Values row);
  void emitFactors();
  void lookAhead(Value code);
  void emitLocal();
  void emitTokens(const TokenRows &rows, Value low, Value high, bool isOwn);
  void emitLocalScores(Value low, Value count, bool isOwn);
  void addBiasGradient(Value low, Value count);
  void storeBiasGradient(Value low, Value count);
  Value isBiasAligned();
  void clearBiasGradient();
  void emitCache();
  void emitQueryGradient();
  /// Adds `gradients^T rows` to the gradients of the tile's queries, where the
  /// gradients for row 0 begin at row `firstGradient`.
  void addQueryGradients(
      Value gradients, int64_t firstGradient, Value rows, Value numRows,
      llvm::function_ref<Value(KernelBuilder &, Value gradient)> hides);
  void addToSums();

  /// `gradient = U[code]` or 0 for tokens of the present batch entry and head.
  void takeValueGradients(const TokenRows &rows, Value low, Value high);
  void clearKeyGradients(const TokenRows &rows, Value low, Value high);

  /// `exp(x)` or `2 max(x, 0)`: what dS is made with.
  Value getFactor(Value score);
  /// The weight of an entry with that factor.
  Value getWeight(KernelBuilder &kb, Value factor, Value quarter);
  /// Scores are in base 2 for the exponential.
  double getScoreFactor() const { return isSoftmax ? softmax::kLog2E : 1.0; }
  double getScale() { return op.getScale().convertToDouble(); }
  /// The tokens of `memory` blocks, and the first of them for this block.
  int64_t getReach() const { return memory * block; }
  Value getMemoryBegin() {
    return b.max(b.sub(blockBegin, b.index(getReach())), 0);
  }
  Value biasIndex(Value memref, int64_t dim, Value index) {
    return b.broadcastIndex(memref, dim, index);
  }

  VQBackwardOp op;
  ProductBuilder b;
  VQWindowLoops loops;
  const VQWindow &window;
  mlir::FloatType state;
  int64_t tile;
  Value zero;
  int64_t width, valueWidth, numCodes, block, memory;
  bool isSoftmax;
  bool sumsBias = false; // the gradient of a bias that broadcasts

  // Of all tasks: sums of gradients in the state type.
  Value dKey, dValue, dBias;
  Value chunkTokens, numChunks, chunkSums, keysBefore, valuesBefore;
  // Of a task: memory, and where it is.
  Value queries, dOutputs, dQueries, offsets, deltas, factors, dScores, weights,
      dLocal, biases, sums;
  Value batch, keyHead, word, head, chunk, chunkBegin, chunkEnd, blockIndex,
      blockBegin, blockEnd, first, firstRow, count;
  TokenRows rows;

  // Terms by distance. Of all tasks: the bias of each head in rows, and for
  // each chunk what tokens give terms.
  Value distanceBias;
  VQDistanceSums distanceSums;
  // Of a task: `dLocal` with rows around it; queries with their bias, also
  // transposed, their products with relative keys and gradients, by distance;
  // and of the present head views of the above.
  Value localRows, relativeRows, relativeQueries, products, distanceGradients,
      headKeys, headTerms, headKeySums, headDistanceSums;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_VQBACKWARDKERNEL_H
