//===- VQBuilder.h - Parts of attention over quantized keys -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the expansions of attn.vq and attn.vq_decode are made of: tokens, their
// summaries by code, and where a state keeps the last of them.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_VQBUILDER_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_VQBUILDER_H

#include "fovea/Dialect/Attn/Transforms/ExpandPatterns.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"

namespace fovea::attn::detail {

/// Means and counts by code.
struct Summary {
  mlir::Value mean, count;
};

/// Tokens with their codes.
struct Tokens {
  mlir::Value codes, values;
};

/// Tokens as attn.stream reads them one by one: with codes of codewords, and
/// log weights if any may be absent.
struct ReadTokens {
  mlir::Value codes, values, logWeights = {};
};

/// What a state keeps, a ring of blocks: the row of the present one, and the
/// blocks before it, of which those behind it in the ring are older. One block
/// is `older` wherever it lies.
struct Ring {
  mlir::OpFoldResult start;
  Tokens older;
  std::optional<Tokens> newer;
};

/// Emits the parts that expansions are made of.
class VQBuilder {
public:
  using AffineExpr = mlir::AffineExpr;
  using OpFoldResult = mlir::OpFoldResult;
  using Value = mlir::Value;

  VQBuilder(mlir::OpBuilder &builder, mlir::Location loc, Value codebook);

  // Indices; constants fold.
  OpFoldResult constant(int64_t value) { return builder.getIndexAttr(value); }
  AffineExpr constantExpr(int64_t value) {
    return mlir::getAffineConstantExpr(value, builder.getContext());
  }
  OpFoldResult apply(AffineExpr expr, llvm::ArrayRef<OpFoldResult> symbols);
  OpFoldResult min(llvm::ArrayRef<AffineExpr> exprs,
                   llvm::ArrayRef<OpFoldResult> symbols);
  OpFoldResult max(llvm::ArrayRef<AffineExpr> exprs,
                   llvm::ArrayRef<OpFoldResult> symbols);
  Value value(OpFoldResult index) {
    return mlir::getValueOrCreateConstantIndexOp(builder, loc, index);
  }
  OpFoldResult extent(Value tensor, int64_t dim);
  Value equal(OpFoldResult a, OpFoldResult b);

  // Tensors.
  Value slice(Value tensor, int64_t dim, OpFoldResult offset,
              OpFoldResult size);
  Value insert(Value part, Value tensor, int64_t dim, OpFoldResult offset);
  Tokens slice(const Tokens &tokens, OpFoldResult offset, OpFoldResult size) {
    return {slice(tokens.codes, 2, offset, size),
            slice(tokens.values, 2, offset, size)};
  }
  /// `map(code)` of every code, of type `elementType`.
  Value mapCodes(Value codes, mlir::Type elementType,
                 llvm::function_ref<Value(mlir::OpBuilder &, Value)> map);
  ReadTokens read(const Tokens &tokens, bool mayBeAbsent);
  /// Rows `[B, H, N, ..]` of queries, with `value` in those of absent tokens.
  Value fillAbsent(Value rows, Value codes, double value);
  Value empty(llvm::ArrayRef<OpFoldResult> sizes, mlir::Type elementType);
  Value fillZero(Value init);

  // Summaries.
  Summary emptySummary(Value values);
  /// Puts a summary `[B, G, S, ..]` into entry `number` of `[B, G, T, S, ..]`,
  /// whose means may be narrow, and takes one out. Slices keep all dimensions:
  /// where one that drops a dimension has another extent of 1, canonicalization
  /// may take that one.
  Summary insertEntry(const Summary &entry, const Summary &entries,
                      OpFoldResult number);
  Summary extractEntry(const Summary &entries, OpFoldResult number);
  Summary accumulate(const Tokens &tokens, const Summary &summary);
  /// `condition ? then(summary) : otherwise(summary)`.
  Summary when(Value condition, const Summary &summary,
               llvm::function_ref<Summary(const Summary &)> then,
               llvm::function_ref<Summary(const Summary &)> otherwise);
  Summary when(Value condition, const Summary &summary,
               llvm::function_ref<Summary(const Summary &)> then) {
    return when(condition, summary, then,
                [](const Summary &same) { return same; });
  }
  /// The codewords, each with its mean value and log count.
  void addCache(StreamSources &sources, const Summary &summary,
                mlir::AffineMap range);

  /// Puts the last tokens where the state keeps them: token t of the sequence
  /// in row t mod `numRows`. `position` is that of the first of `tokens`.
  Tokens keep(const Tokens &tokens, Tokens kept, OpFoldResult position,
              int64_t numRows);
  /// The present block is that of token `position`.
  Ring readRing(const Tokens &kept, OpFoldResult position, int64_t block,
                int64_t memory);
  /// The block that is `memory` before it, empty if there is none.
  Tokens getOldest(const Tokens &kept, OpFoldResult position, int64_t block,
                   int64_t memory);
  /// The position that a state holds.
  OpFoldResult loadPosition(Value position);
  Value storePosition(OpFoldResult position);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  AffineExpr s[3]; // symbols
  Value table;     // [1, G, S, D]

private:
  using Slice = std::tuple<llvm::SmallVector<OpFoldResult>,
                           llvm::SmallVector<OpFoldResult>,
                           llvm::SmallVector<OpFoldResult>>;
  /// Where the ring has the block of token `position`.
  OpFoldResult getRow(OpFoldResult position, int64_t block, int64_t memory);
  Slice getSlice(Value tensor, int64_t dim, OpFoldResult offset,
                 OpFoldResult size);
  mlir::AffineMap getMap(llvm::ArrayRef<AffineExpr> exprs,
                         unsigned numSymbols) {
    return mlir::AffineMap::get(0, numSymbols, exprs, builder.getContext());
  }
};

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_EXPAND_VQBUILDER_H
