//===- SourceSyntax.h - Custom form of sources -------------*- C++ -* -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_IR_SOURCESYNTAX_H
#define FOVEA_LIB_DIALECT_ATTN_IR_SOURCESYNTAX_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn::detail {

/// Operands in parentheses, with their types behind a colon.
struct TypedOperands {
  llvm::SmallVector<mlir::OpAsmParser::UnresolvedOperand> operands;
  llvm::SmallVector<mlir::Type> types;

  int32_t size() const { return operands.size(); }
  /// Parses `(` operands `:` types `)` with `min` to `max` operands and appends
  /// them.
  mlir::ParseResult parse(mlir::OpAsmParser &parser, unsigned min,
                          unsigned max);
  /// The same behind `keyword`, for one operand that may be missing.
  mlir::ParseResult parseOptional(mlir::OpAsmParser &parser,
                                  llvm::StringRef keyword);
  mlir::ParseResult resolve(mlir::OpAsmParser &parser, llvm::SMLoc loc,
                            mlir::OperationState &result) const;
};

/// The operands of all sources, and their descriptions.
struct ParsedSources {
  TypedOperands keys, values, logWeights, biases, codes, lengths, rowLists,
      relativeKeys, relativeBiases, distanceBiases;
  llvm::SmallVector<mlir::Attribute> attrs;
  llvm::SmallVector<std::unique_ptr<mlir::Region>> scores;

  mlir::ParseResult parse(mlir::OpAsmParser &parser);

private:
  mlir::ParseResult parseOne(mlir::OpAsmParser &parser);
};

/// Parses `attr-dict (`->` types)?`, of the operation that begins at `loc`.
// scores ::= score | `captures` `(` captures `:` types `)`
/// Parses the score region of all entries, or what those of sources capture,
/// and adds all regions to `result`.
mlir::ParseResult parseScores(mlir::OpAsmParser &parser, ParsedSources &sources,
                              TypedOperands &captures,
                              mlir::OperationState &result);

mlir::ParseResult parseAttributesAndTypes(mlir::OpAsmParser &parser,
                                          llvm::SMLoc loc,
                                          mlir::OperationState &result);

void printTypedOperands(mlir::OpAsmPrinter &printer, mlir::ValueRange operands);
/// Starts a line that belongs to the operation.
void printIndentedLine(mlir::OpAsmPrinter &printer);
/// Each source on a line of its own.
void printSources(mlir::OpAsmPrinter &printer,
                  llvm::ArrayRef<StreamSource> sources);
/// The score region of `op` on lines of its own, if there is one.
void printBehindSources(mlir::OpAsmPrinter &printer, llvm::StringRef keyword,
                        mlir::Value operand);
template <typename OpTy>
void printScores(mlir::OpAsmPrinter &printer, OpTy op) {
  mlir::OperandRange captures = op.getCaptures();
  mlir::Region *common = op.getCommonScore();
  if (!common && captures.empty())
    return;
  printIndentedLine(printer);
  if (common)
    return printScoreRegion(printer, op, captures, captures.getTypes(),
                            *common);
  printer << "captures";
  printTypedOperands(printer, captures);
}

/// Score regions are entered for entries, in any order, and pass nothing on.
template <typename OpTy>
void findScoreSuccessors(OpTy op,
                         llvm::SmallVectorImpl<mlir::RegionSuccessor> &found) {
  for (mlir::Region &score : op.getScores())
    found.emplace_back(&score);
  found.emplace_back(op, op->getResults().take_front(0));
}

/// The region for the entries of all sources, which is behind theirs; or null.
template <typename OpTy> mlir::Region *findCommonScore(OpTy op) {
  size_t numOwn =
      llvm::count_if(op.getSources().template getAsRange<SourceAttr>(),
                     [](SourceAttr source) { return source.getHasScore(); });
  ScoreRegions scores = op.getScores();
  return scores.size() > numOwn ? &scores[numOwn] : nullptr;
}

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_IR_SOURCESYNTAX_H
