//===- GPUTokensOfCodes.h - Tokens in the order of codes --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUTOKENSOFCODES_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUTOKENSOFCODES_H

#include "fovea/Kernels/GPU/WarpTeamBuilder.h"

namespace fovea::attn {

/// What runs for a token, by a lane, with the number of those of its code that
/// came before and were counted.
using CountedTokenBody =
    llvm::function_ref<void(mlir::Value token, mlir::Value count)>;

/// A warp takes the tokens `begin .. end - 1`, 32 at once, of those whose code
/// is one below `numCodes`, with what `counters` have for the code and such
/// tokens before; then counts them, too.
void forTokensOfCodes(
    WarpTeamBuilder &b, mlir::Value begin, mlir::Value end,
    llvm::function_ref<mlir::Value(mlir::Value token)> getCode,
    mlir::Value numCodes, mlir::Value counters, CountedTokenBody body);

/// The tokens of each head in the order of their codes, and those of one code
/// in their own order. Tokens whose code is none have no place.
class TokensOfCodes {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Emits the sort of tokens by `codes` [B, G, N], below `numCodes`.
  TokensOfCodes(WarpTeamBuilder &builder, Value codes, Value numCodes);
  void free();

  /// The first place of the tokens of a code [batch, head, code], and the one
  /// behind.
  std::pair<Value, Value> getPlaces(KernelBuilder &k, ValueRange code) const;
  Value loadToken(KernelBuilder &k, Value batch, Value head, Value place) const;

private:
  /// Runs `body` for the tokens of a chunk [batch, head, chunk].
  void forTokens(ValueRange at, Value counters, CountedTokenBody body);
  void countTokens();
  void addUpChunks();
  void addUpCodes();
  void sortTokens();

  WarpTeamBuilder &b;
  Value codes, numCodes;
  Value batches, heads, numTokens;
  /// Tokens of a chunk.
  Value chunk, numChunks;
  /// Tokens of a chunk that have a code, and later of the chunks before,
  /// [batch, head, code, chunk]; where the tokens of a code begin, [batch,
  /// head, code]; tokens, [batch, head, place].
  Value counts, begins, sorted;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_QUANTIZE_GPUTOKENSOFCODES_H
