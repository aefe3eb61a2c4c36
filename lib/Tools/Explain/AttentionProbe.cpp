//===- AttentionProbe.cpp - What attention of a function is given ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Explain/AttentionProbe.h"
#include "Report.h"
#include "fovea/Analysis/UsefulFlops.h"
#include "fovea/Dialect/Attn/IR/DenseTerms.h"
#include "fovea/InitAllDialects.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace fovea;

/// What other patterns do not compute, or empty.
static std::string findReason(attn::DenseOp op, Block *entry) {
  if (op->getBlock() != entry)
    return "it is in a loop or a branch";
  if (StringRef term = attn::findDenseTerm(op); !term.empty())
    return ("it has " + term).str();
  attn::MaskAttr mask = op.getMaskOrNone();
  if (mask && mask.getWindow() > 0)
    return "it has a window";
  if (mask && mask.getPrefix() > 0)
    return "it has a prefix";
  return "";
}

static void returnOperands(func::FuncOp function, AttentionProbe &probe) {
  Block &entry = function.getBody().front();
  SmallVector<Value> operands;
  function.walk([&](attn::DenseOp op) {
    ProbedAttention &found = probe.attention.emplace_back();
    found.place = explanation::getPlace(op);
    found.reason = findReason(op, &entry);
    attn::MaskAttr mask = op.getMaskOrNone();
    found.isCausal = mask && mask.getCausal();
    found.scale = op.getScaleOrDefault();
    if (found.reason.empty())
      llvm::append_range(operands,
                         ValueRange{op.getQuery(), op.getKey(), op.getValue()});
  });
  Operation *terminator = entry.getTerminator();
  SmallVector<Value> results(terminator->getOperands());
  llvm::append_range(results, operands);
  terminator->setOperands(results);
  function.setFunctionType(FunctionType::get(function.getContext(),
                                             function.getArgumentTypes(),
                                             TypeRange(ValueRange(results))));
  function.removeResAttrsAttr();
}

llvm::Expected<AttentionProbe>
fovea::probeAttention(StringRef text, const CompileOptions &options) {
  AttentionProbe probe;
  TraceOptions traceOptions;
  traceOptions.inspect = [&](FunctionOpInterface function,
                             const ArgumentShapes &) {
    OwningOpRef<Operation *> copy(
        function->getParentOfType<ModuleOp>()->clone());
    auto probed = cast<func::FuncOp>(
        SymbolTable::lookupSymbolIn(*copy, function.getName()));
    returnOperands(probed, probe);
    llvm::raw_string_ostream os(probe.text);
    copy->print(os);
  };
  llvm::Expected<CompilationTrace> trace =
      traceCompilation(text, options, traceOptions);
  if (!trace)
    return trace.takeError();
  return std::move(probe);
}

std::optional<double> fovea::countFlops(StringRef text, StringRef entry,
                                        const ArgumentShapes &shapes) {
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  ParserConfig config(&context, /*verifyAfterParse=*/false);
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, config);
  auto function =
      module ? module->lookupSymbol<func::FuncOp>(entry) : func::FuncOp();
  if (!function || function.getNumArguments() != shapes.size())
    return std::nullopt;
  return countUsefulFlops(function, shapes);
}
