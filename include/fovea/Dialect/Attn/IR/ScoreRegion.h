//===- ScoreRegion.h - Functions of scores ----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A score region computes the score of an entry from the scaled product of its
// query and key, its place, and what the region captures. Captures are operands
// of the operation, and arguments of the region behind its own: a tensor is a
// tensor there even where the operand is a memref, so that one body serves both
// forms. The regions of one operation capture the same: those of its sources
// that have one, in their order, and behind them that of all entries.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_SCOREREGION_H
#define FOVEA_DIALECT_ATTN_IR_SCOREREGION_H

#include "mlir/IR/OpImplementation.h"

namespace fovea::attn {

/// The regions of an operation, or none: upstream takes no empty ones.
using ScoreRegions = llvm::MutableArrayRef<mlir::Region>;

/// The arguments of a score region; those from `Captures` on are captured.
namespace score_argument {
enum Number : unsigned { Score, Batch, Head, Query, Key, Captures };
} // namespace score_argument

// score ::= (`score` (`(` captures `:` types `)`)? region)?
mlir::ParseResult parseScoreRegion(
    mlir::OpAsmParser &parser,
    llvm::SmallVectorImpl<mlir::OpAsmParser::UnresolvedOperand> &captures,
    llvm::SmallVectorImpl<mlir::Type> &types,
    llvm::SmallVectorImpl<std::unique_ptr<mlir::Region>> &score);
/// The region alone, which is added to `scores`.
mlir::ParseResult
parseScoreBody(mlir::OpAsmParser &parser,
               llvm::SmallVectorImpl<std::unique_ptr<mlir::Region>> &scores);
void printScoreRegion(mlir::OpAsmPrinter &printer, mlir::Operation *op,
                      mlir::OperandRange captures, mlir::TypeRange types,
                      ScoreRegions score);

/// Copies the bodies of regions to others, which are as many.
void cloneScoreRegions(ScoreRegions from, ScoreRegions to);

/// Positions that a region may be given, and extents of batch entries and
/// heads.
constexpr int64_t kMaxScorePositions = int64_t(1) << 28;

/// Whether a captured operand has a gradient: floating-point tensors have.
bool isDifferentiableCapture(mlir::Type captured);

/// What a region yields.
mlir::Value getYieldedScore(mlir::Region &region);

/// Makes the batch entries and heads of regions count from `batch` and `head`,
/// which become captures: for a tile, which counts its own from 0.
void offsetScoreRegions(ScoreRegions scores, mlir::MutableOperandRange captures,
                        mlir::Value batch, mlir::Value head);

namespace detail {
/// Checks the regions of `op`, whose sums have type `sums`, and what they
/// capture: one at most, and one for each of the `sources` that says so, which
/// may be null.
mlir::LogicalResult verifyScoreRegions(mlir::Operation *op, ScoreRegions scores,
                                       mlir::ArrayAttr sources,
                                       mlir::ValueRange captures,
                                       mlir::Type sums);
/// Checks that `gradients` are none, or fit the captures that have one.
mlir::LogicalResult verifyCaptureGradients(mlir::Operation *op,
                                           mlir::ValueRange captures,
                                           mlir::ValueRange gradients);
} // namespace detail

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_SCOREREGION_H
