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

namespace fovea::attn::detail {

/// The type of an operand, a tensor or a memref, and one of its extents.
inline mlir::ShapedType shaped(mlir::Value operand) {
  return mlir::cast<mlir::ShapedType>(operand.getType());
}
inline int64_t extent(mlir::Value operand, int64_t dim) {
  return shaped(operand).getDimSize(dim);
}

/// Extents that agree, or that could agree because one of them is dynamic.
bool extentsMatch(int64_t a, int64_t b);

/// Emits an error on `op` unless extent `dim` of operand `name` matches
/// `expected`; `what` says where the expectation comes from.
mlir::LogicalResult verifyExtent(mlir::Operation *op, llvm::StringRef name,
                                 mlir::Value operand, int64_t dim,
                                 int64_t expected, llvm::StringRef what,
                                 bool mayBroadcast = false);

/// Checks that the elements of operand `name` are of type `expected`.
mlir::LogicalResult verifyElements(mlir::Operation *op, llvm::StringRef name,
                                   mlir::Value operand, mlir::Type expected);

/// The same for an operand that may hold elements of type `data`, or sums of
/// them, as they are kept.
mlir::LogicalResult verifyElementsOrSums(mlir::Operation *op,
                                         llvm::StringRef name,
                                         mlir::Value operand, mlir::Type data);

/// Checks extents from the first one on; `what` says where they come from.
mlir::LogicalResult verifyShape(mlir::Operation *op, llvm::StringRef name,
                                mlir::Value operand,
                                llvm::ArrayRef<int64_t> expected,
                                llvm::StringRef what);

/// Checks that the last extent of operand `name` is static and at least 1.
mlir::LogicalResult verifyWidth(mlir::Operation *op, llvm::StringRef name,
                                mlir::Value operand);

/// Checks that `keyHeads` key heads can be shared by `heads` query heads.
mlir::LogicalResult verifyHeads(mlir::Operation *op, int64_t heads,
                                int64_t keyHeads);

/// What the element types of key, value and output have to be.
enum class ElementTypes {
  /// That of query.
  SameAsQuery,
  /// Any whose sums are kept in the same type as those of query.
  SameState,
};

/// Checks what every attention op shares: query [B,H,N,D], key [B,G,M,D],
/// value [B,G,M,E], output [B,H,N,E], lse [B,H,N], element types, head counts
/// that divide, a finite scale, static head width, destination style. A
/// gradient that needs no output has that of the output in its place.
mlir::LogicalResult
verifyAttention(mlir::Operation *op, mlir::Value query, mlir::Value key,
                mlir::Value value, mlir::Value output, mlir::Value lse,
                std::optional<llvm::APFloat> scale,
                ElementTypes types = ElementTypes::SameAsQuery,
                llvm::StringRef outputName = "output");

/// The part of verifyAttention about `output`, `lse`, `scale` and destination
/// style.
mlir::LogicalResult verifyDestinations(mlir::Operation *op, mlir::Value query,
                                       int64_t valueWidth, mlir::Value output,
                                       mlir::Value lse,
                                       std::optional<llvm::APFloat> scale,
                                       llvm::StringRef outputName = "output");

/// Checks log weights `[B, G, M]` or a bias `[B, H, N, M]`: an element type of
/// f32 (f64 for f64 data) or the data's, extents of 1 broadcasting.
mlir::LogicalResult verifyScoreTerm(mlir::Operation *op, llvm::StringRef name,
                                    mlir::Value term,
                                    llvm::ArrayRef<int64_t> shape,
                                    mlir::Type elementType);

/// Checks that ranges depend on the block index of queries only where there is
/// a block size, which is not negative.
mlir::LogicalResult verifyBlock(mlir::Operation *op, mlir::ArrayAttr sources,
                                int64_t block);

/// The scale attribute, or `1 / sqrt(D)`.
double getScaleOrDefault(std::optional<llvm::APFloat> scale, mlir::Value query);

/// Checks one set of weights `[W, p, I, D]` and its bias `[W, p, D]`, which may
/// be null, for `heads` heads and width `width`.
mlir::LogicalResult verifyWeights(mlir::Operation *op, const llvm::Twine &name,
                                  mlir::Value weights, mlir::Value bias,
                                  int64_t heads, int64_t width,
                                  mlir::Type elementType);

/// Checks the operands of attn.summarize or of its gradient; `summaries` is
/// called `name`, and `bias` may be null.
mlir::LogicalResult verifySummaries(mlir::Operation *op, mlir::Value input,
                                    mlir::Value weights, mlir::Value bias,
                                    llvm::StringRef name,
                                    mlir::Value summaries);

/// Checks log weights and bias of dense attention, where not null.
mlir::LogicalResult verifyDenseTerms(mlir::Operation *op, mlir::Value query,
                                     mlir::Value key, mlir::Value logWeight,
                                     mlir::Value bias);

/// The weights of every level for one of query, key and value.
struct LevelWeights {
  llvm::StringRef name;
  mlir::OperandRange weights, biases;
  int64_t heads, width;
};

/// Checks that there are as many keys as queries and that the weights of every
/// level fit the number of tokens, the group and each other.
mlir::LogicalResult verifyLevels(mlir::Operation *op, mlir::Value query,
                                 mlir::Value key, int64_t group,
                                 llvm::ArrayRef<LevelWeights> operands);

/// The same for an operation that is fast multipole attention or its gradient.
template <typename OpTy> mlir::LogicalResult verifyMultipoleLevels(OpTy op) {
  int64_t keyHeads = extent(op.getKey(), 1);
  return verifyLevels(
      op, op.getQuery(), op.getKey(), op.getGroup(),
      {{"key_weights", op.getKeyWeights(), op.getKeyBiases(), keyHeads,
        extent(op.getKey(), 3)},
       {"value_weights", op.getValueWeights(), op.getValueBiases(), keyHeads,
        extent(op.getValue(), 3)}});
}

/// The same for the linear form, which summarises queries as well.
template <typename OpTy> mlir::LogicalResult verifyLinearLevels(OpTy op) {
  if (op.getCausal() && !op.getAllowQueryLookahead())
    return op.emitOpError("expects allow_query_lookahead beside causal, since "
                          "summarised queries mix later queries of their "
                          "interval into a row");
  int64_t keyHeads = extent(op.getKey(), 1);
  return verifyLevels(
      op, op.getQuery(), op.getKey(), op.getGroup(),
      {{"query_weights", op.getQueryWeights(), op.getQueryBiases(),
        extent(op.getQuery(), 1), extent(op.getQuery(), 3)},
       {"key_weights", op.getKeyWeights(), op.getKeyBiases(), keyHeads,
        extent(op.getKey(), 3)},
       {"value_weights", op.getValueWeights(), op.getValueBiases(), keyHeads,
        extent(op.getValue(), 3)}});
}

/// Checks gradients of the results of an attention op: `d_output` and, unless
/// null, `d_lse` are like the results.
mlir::LogicalResult verifyResultGradients(mlir::Operation *op,
                                          mlir::Value output, mlir::Value lse,
                                          mlir::Value dOutput,
                                          mlir::Value dLse);

/// Checks that each of `gradients` has the shape of its operand, and its
/// element type or the type of its sums. Their names are those of the operands,
/// `name` with a number if `isList`.
mlir::LogicalResult verifyGradients(mlir::Operation *op, llvm::StringRef name,
                                    mlir::ValueRange gradients,
                                    mlir::ValueRange operands,
                                    bool isList = true);
inline mlir::LogicalResult verifyGradient(mlir::Operation *op,
                                          llvm::StringRef name,
                                          mlir::Value gradient,
                                          mlir::Value operand) {
  return verifyGradients(op, name, gradient, operand, /*isList=*/false);
}

/// Checks that each of the operand groups `groups`, which are not variadic, has
/// one operand. The generic form can give them any number, and neither the
/// generated verifier nor the accessors notice.
template <typename OpTy>
mlir::LogicalResult verifySingleOperands(OpTy op,
                                         llvm::ArrayRef<unsigned> groups) {
  for (unsigned group : groups) {
    unsigned found = op.getODSOperandIndexAndLength(group).second;
    if (found != 1)
      return op.emitOpError() << "expects one operand in segment " << group
                              << " of operandSegmentSizes, but got " << found;
  }
  return mlir::success();
}

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
