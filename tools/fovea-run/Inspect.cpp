//===- Inspect.cpp - What the IR says about a run -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Inspect.h"
#include "fovea/Analysis/UsefulFlops.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/InitAllDialects.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace fovea;

/// Whether an attention op produced the value as its second result.
static bool isLogSumExp(Value value) {
  auto result = dyn_cast<OpResult>(value);
  return result && result.getResultNumber() == 1 &&
         isa<attn::DenseOp, attn::StreamOp, attn::FastMultipoleOp>(
             result.getOwner());
}

run::Inspection run::inspect(llvm::StringRef text, llvm::StringRef entry,
                             llvm::ArrayRef<TensorRef> inputs) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  ParserConfig config(&context, /*verifyAfterParse=*/false);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, config);
  auto function = module->lookupSymbol<func::FuncOp>(entry);

  Inspection inspection;
  // Constants come before the inputs.
  SmallVector<SmallVector<int64_t>> shapes;
  for (Type type : function.getArgumentTypes().drop_back(inputs.size()))
    shapes.emplace_back(cast<ShapedType>(type).getShape());
  for (const TensorRef &input : inputs)
    shapes.emplace_back(input.shape);
  inspection.usefulFlops = countUsefulFlops(function, shapes);
  inspection.isLogSumExp.assign(function.getNumResults(), false);
  function.walk([&](func::ReturnOp op) {
    for (auto [flag, value] :
         llvm::zip_equal(inspection.isLogSumExp, op.getOperands()))
      flag = isLogSumExp(value);
  });
  return inspection;
}
