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

  mlir::ParseResult parse(mlir::OpAsmParser &parser);

private:
  mlir::ParseResult parseOne(mlir::OpAsmParser &parser);
};

/// Parses `attr-dict (`->` types)?`, of the operation that begins at `loc`.
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
template <typename OpTy>
void printScoreBehindSources(mlir::OpAsmPrinter &printer, OpTy op) {
  if (op.getScore().empty())
    return;
  printIndentedLine(printer);
  printScoreRegion(printer, op, op.getCaptures(), op.getCaptures().getTypes(),
                   op.getScore());
}
/// What is said behind the sources, on a line of its own, unless it is null.
void printBehindSources(mlir::OpAsmPrinter &printer, llvm::StringRef keyword,
                        mlir::Value operand);

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_DIALECT_ATTN_IR_SOURCESYNTAX_H
