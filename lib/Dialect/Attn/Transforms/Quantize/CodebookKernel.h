//===- CodebookKernel.h - Loops of codebook summaries -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Summaries, updates and log weights of codebooks, vectorised along the width.
// A token touches one row of means, which its code names, so rows are updated
// in memory, token after token.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_CODEBOOKKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_CODEBOOKKERNEL_H

#include "KernelBuilder.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

/// A KernelBuilder for loops over rows of any width and over independent tasks.
class RowBuilder : public KernelBuilder {
public:
  using KernelBuilder::KernelBuilder;
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  /// Runs `body` for `[begin, end)`, with the builder of vectors for as many
  /// columns as they cover and with one of single lanes for the rest: the same
  /// arithmetic for every column.
  void forColumns(Value begin, Value end,
                  llvm::function_ref<void(KernelBuilder &, Value)> body);
  void forColumns(int64_t width,
                  llvm::function_ref<void(KernelBuilder &, Value)> body) {
    forColumns(index(0), index(width), body);
  }

  /// A parallel loop.
  void forAll(llvm::ArrayRef<Value> bounds,
              llvm::function_ref<void(ValueRange)> body);

  /// Codes and counts: `i32` in memory, `index` in arithmetic.
  Value loadIndex(Value memref, ValueRange indices);
  void storeIndex(Value value, Value memref, ValueRange indices);
  /// An index as a number of the state type.
  Value toNumber(Value index);

  /// An uninitialised buffer of the shape of `like` without its first `drop`
  /// dimensions and with elements of another type; the caller frees it.
  Value allocateLike(Value like, mlir::Type elementType, unsigned drop = 0);
};

void emitAccumulate(mlir::OpBuilder &builder, CodebookAccumulateOp op,
                    int64_t vectorBits);
void emitScan(mlir::OpBuilder &builder, CodebookScanOp op, int64_t vectorBits);
void emitUpdate(mlir::OpBuilder &builder, CodebookUpdateOp op,
                int64_t vectorBits);
void emitLogCount(mlir::OpBuilder &builder, LogCountOp op, int64_t vectorBits);
/// The logarithm of a vector of counts.
mlir::Value emitLogCount(KernelBuilder &builder, mlir::Value count);

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_QUANTIZE_CODEBOOKKERNEL_H
