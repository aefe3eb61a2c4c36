//===- ParsedFunction.h - A function to analyse -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_UNITTESTS_ANALYSIS_PARSEDFUNCTION_H
#define FOVEA_UNITTESTS_ANALYSIS_PARSEDFUNCTION_H

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"

namespace fovea {

/// The first function of a module.
struct ParsedFunction {
  explicit ParsedFunction(llvm::StringRef text) {
    context.loadDialect<attn::AttnDialect, mlir::arith::ArithDialect,
                        mlir::func::FuncDialect, mlir::linalg::LinalgDialect,
                        mlir::math::MathDialect, mlir::tensor::TensorDialect>();
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    function = *module->getOps<mlir::func::FuncOp>().begin();
  }

  mlir::Value getReturned(unsigned number = 0) {
    return function.front().getTerminator()->getOperand(number);
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  mlir::func::FuncOp function;
};

} // namespace fovea

#endif // FOVEA_UNITTESTS_ANALYSIS_PARSEDFUNCTION_H
