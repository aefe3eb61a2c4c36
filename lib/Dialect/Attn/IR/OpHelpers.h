//===- OpHelpers.h - Helpers shared by the op families -*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_IR_OPHELPERS_H
#define FOVEA_LIB_DIALECT_ATTN_IR_OPHELPERS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/Twine.h"

namespace fovea::attn::detail {

/// The type of an operand, a tensor or a memref, and one of its extents.
inline mlir::ShapedType shaped(mlir::Value operand) {
  return mlir::cast<mlir::ShapedType>(operand.getType());
}
inline int64_t extent(mlir::Value operand, int64_t dim) {
  return shaped(operand).getDimSize(dim);
}

/// Emits an error on `op` unless extent `dim` of operand `name` is `needed`,
/// where it is known; `what` says where that comes from.
mlir::LogicalResult verifyExtent(mlir::Operation *op, llvm::StringRef name,
                                 mlir::Value operand, int64_t dim,
                                 int64_t needed, llvm::StringRef what);

/// Checks that the elements of operand `name` are of type `expected`.
mlir::LogicalResult verifyElements(mlir::Operation *op, llvm::StringRef name,
                                   mlir::Value operand, mlir::Type expected);

/// The same for an operand that may hold elements of type `data`, or sums of
/// them, as they are kept.
mlir::LogicalResult verifyElementsOrSums(mlir::Operation *op,
                                         llvm::StringRef name,
                                         mlir::Value operand, mlir::Type data);

/// Checks that ranges depend on the block index of queries only where there is
/// a block size, which is not negative.
mlir::LogicalResult verifyBlock(mlir::Operation *op, mlir::ArrayAttr sources,
                                int64_t block);

/// Checks that `operand` has an entry for each block of queries along extent 2;
/// of a tile, `numQueries` is not known.
mlir::LogicalResult verifyBlockAxis(mlir::Operation *op,
                                    const llvm::Twine &name,
                                    mlir::Value operand, int64_t block,
                                    int64_t numQueries);

/// Checks the lists of rows of `sources`.
mlir::LogicalResult verifyRowLists(mlir::Operation *op,
                                   llvm::ArrayRef<StreamSource> sources,
                                   mlir::Value query, int64_t block,
                                   int64_t numQueries);

/// Checks that there is a score region for each of the `sources` that says so,
/// which may be null, and one of all at most.
mlir::LogicalResult verifyScoreCount(mlir::Operation *op, ScoreRegions scores,
                                     mlir::ArrayAttr sources);

/// Checks that sources whose rows, or queries, are counted by lengths have at
/// most one range: whether two overlap would depend on the batch entry.
mlir::LogicalResult verifyLengths(mlir::Operation *op, mlir::ArrayAttr sources,
                                  bool hasQueryLengths);

/// The scale attribute, or `1 / sqrt(D)`.
double getScaleOrDefault(std::optional<llvm::APFloat> scale, mlir::Value query);

/// Adds log weights, bias and lengths of a source to the operands of a
/// contract.
void addSourceTerms(const StreamSource &source, unsigned index,
                    ContractOperands &operands);

/// What the summaries of every level are made of for one of query, key and
/// value, or these themselves.
struct LevelOperands {
  llvm::StringRef name;
  mlir::OperandRange weights, biases, summaries;
};

/// Checks that there are weights or summaries for every level, which fit the
/// group.
mlir::LogicalResult verifyLevels(mlir::Operation *op, mlir::Value query,
                                 int64_t group,
                                 llvm::ArrayRef<LevelOperands> operands);

/// Summaries of an interval; 0 without levels.
int64_t getSummaryRank(mlir::OperandRange weights,
                       mlir::OperandRange summaries);

/// The same for an operation that is fast multipole attention or its gradient.
template <typename OpTy> mlir::LogicalResult verifyMultipoleLevels(OpTy op) {
  return verifyLevels(
      op, op.getQuery(), op.getGroup(),
      {{"key", op.getKeyWeights(), op.getKeyBiases(), op.getKeySummaries()},
       {"value", op.getValueWeights(), op.getValueBiases(),
        op.getValueSummaries()}});
}

/// The same for the linear form, which summarises queries as well.
template <typename OpTy> mlir::LogicalResult verifyLinearLevels(OpTy op) {
  if (op.getCausal() && !op.getAllowQueryLookahead())
    return op.emitOpError("expects allow_query_lookahead beside causal, since "
                          "summarised queries mix later queries of their "
                          "interval into a row");
  return verifyLevels(
      op, op.getQuery(), op.getGroup(),
      {{"query", op.getQueryWeights(), op.getQueryBiases(),
        op.getQuerySummaries()},
       {"key", op.getKeyWeights(), op.getKeyBiases(), op.getKeySummaries()},
       {"value", op.getValueWeights(), op.getValueBiases(),
        op.getValueSummaries()}});
}

/// The masks of tokens of an operation, each of which may be empty.
template <typename OpTy>
llvm::SmallVector<mlir::MutableOperandRange, 2> getTokenMasks(OpTy op) {
  if constexpr (llvm::is_one_of<OpTy, LowRankOp, LowRankBackwardOp>::value)
    return {op.getQueryMaskMutable(), op.getKeyMaskMutable()};
  else
    return {op.getMaskMutable()};
}

/// Drops masks of tokens that are all true, as constants say.
template <typename OpTy> struct DropFullMasks : mlir::OpRewritePattern<OpTy> {
  using mlir::OpRewritePattern<OpTy>::OpRewritePattern;
  mlir::LogicalResult
  matchAndRewrite(OpTy op, mlir::PatternRewriter &rewriter) const override {
    llvm::SmallVector<mlir::MutableOperandRange, 2> full;
    for (mlir::MutableOperandRange mask : getTokenMasks(op))
      if (!mask.empty() &&
          mlir::matchPattern(mlir::OperandRange(mask)[0], mlir::m_One()))
        full.push_back(mask);
    if (full.empty())
      return mlir::failure();
    rewriter.modifyOpInPlace(op, [&] {
      for (mlir::MutableOperandRange &mask : full)
        mask.clear();
    });
    return mlir::success();
  }
};

/// Checks that operations called `name` have all of `attributes`, unless these
/// belong to another tool, as a prefix says.
mlir::LogicalResult
verifyKnownAttributes(mlir::OperationName name,
                      llvm::ArrayRef<mlir::NamedAttribute> attributes,
                      llvm::function_ref<mlir::InFlightDiagnostic()> emitError);

/// Results are the tensor inits, in order; a memref op has none.
mlir::LogicalResult verifyDestinationStyle(mlir::Operation *op);

/// Memory effects of a destination-style op: none on tensors; on memrefs, reads
/// the inputs, writes the inits, and reads those that it updates.
void getDestinationStyleEffects(
    mlir::DestinationStyleOpInterface op,
    llvm::SmallVectorImpl<
        mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>
        &effects);

/// Memory effects of a check, which may end the invocation: it is neither
/// unused nor to be moved before another one. It reads memrefs among
/// `operands`.
void getCheckEffects(mlir::Operation *op,
                     llvm::ArrayRef<mlir::OpOperand *> operands,
                     llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<
                         mlir::MemoryEffects::Effect>> &effects);

/// Result shapes of a destination-style op are its inits' shapes.
mlir::LogicalResult reifyInitShapes(mlir::OpBuilder &builder,
                                    mlir::DestinationStyleOpInterface op,
                                    mlir::ReifiedRankedShapedTypeDims &shapes);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_IR_OPHELPERS_H
