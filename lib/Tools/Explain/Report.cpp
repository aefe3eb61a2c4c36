//===- Report.cpp - What explanations are written from --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "fovea/Analysis/UsefulFlops.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/IR/Location.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::explanation;

/// More queries, or keys, are not looked at one by one.
static constexpr int64_t kMaxExtent = int64_t(1) << 24;

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

std::string explanation::getPlace(Operation *op) {
  auto place = op->getLoc()->findInstanceOf<FileLineColLoc>();
  if (!place)
    return "";
  return (place.getFilename().getValue() + ":" + Twine(place.getLine()) + ":" +
          Twine(place.getColumn()))
      .str();
}

static std::optional<OperationReport> inspectOperation(Operation *op,
                                                       unsigned number,
                                                       Extents extents,
                                                       const KnownData &data) {
  if (!isa<attn::AttnDialect>(op->getDialect()))
    return std::nullopt;
  OperationReport report;
  report.number = number;
  report.name = op->getName().getStringRef().str();
  report.place = getPlace(op);
  report.flops = countUsefulFlops(op, extents);
  report.matrix = getScoreMatrix(op, extents, data);
  report.extentsAreKnown = extents.isKnown;
  if (!report.flops && !report.matrix && report.extentsAreKnown)
    return std::nullopt;
  if (report.matrix) {
    removeEntries(op, data, *report.matrix);
    for (size_t sequence = 0; sequence < report.matrix->sequences.size();
         ++sequence)
      report.pairs.push_back(countPairs(*report.matrix, sequence));
    report.drawing = draw(*report.matrix);
  }
  return report;
}

/// The elements of contiguous tensors of integers.
static DenseElementsAttr makeElements(const TensorRef &tensor,
                                      MLIRContext *context) {
  unsigned bits = tensor.elementType == ElementType::I1
                      ? 1
                      : 8 * getByteWidth(tensor.elementType);
  Type element = IntegerType::get(context, bits);
  if (tensor.elementType == ElementType::Index)
    element = IndexType::get(context);
  auto type = RankedTensorType::get(tensor.shape, element);
  SmallVector<APInt> elements;
  for (int64_t index : llvm::seq(type.getNumElements()))
    elements.emplace_back(bits,
                          static_cast<int64_t>(getElement(
                              tensor.data, tensor.elementType, index)),
                          /*isSigned=*/true, /*implicitTrunc=*/true);
  return DenseElementsAttr::get(type, elements);
}

static KnownData makeKnownData(FunctionOpInterface function,
                               const ExplainOptions &options) {
  std::vector<Attribute> arguments(function.getNumArguments());
  if (options.getData)
    for (auto [index, argument] : llvm::enumerate(arguments))
      if (std::optional<TensorRef> tensor = options.getData(index))
        argument = makeElements(*tensor, function.getContext());
  return KnownData(&function.front(), std::move(arguments));
}

static void inspectFunction(FunctionOpInterface function,
                            const ArgumentShapes &shapes,
                            const ExplainOptions &options, Report &report) {
  Extents extents(function, shapes);
  KnownData data = makeKnownData(function, options);
  unsigned number = 0;
  function->walk([&](Operation *op) {
    if (auto found = inspectOperation(op, number++, extents, data))
      report.operations.push_back(std::move(*found));
  });
  report.flops = countUsefulFlops(function, shapes);
  report.resultBytes = 0;
  function->walk([&](Operation *op) {
    if (!op->hasTrait<OpTrait::ReturnLike>() ||
        op->getParentOp() != function.getOperation())
      return;
    for (auto [value, spec] :
         llvm::zip_equal(op->getOperands(), report.trace.signature.results)) {
      int64_t bytes = getByteWidth(spec.elementType);
      if (!spec.isScalar)
        for (int64_t extent : extents.shapeOf(value))
          bytes *= extent;
      *report.resultBytes += bytes;
    }
  });
  if (!extents.isKnown)
    report.resultBytes.reset();
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

static int64_t getNumber(const PassDecision &decision, StringRef key) {
  for (const PassDecision::Value &value : decision.values) {
    int64_t number;
    if (value.key == key && !StringRef(value.text).getAsInteger(10, number))
      return number;
  }
  return 0;
}

/// What the tiles that were selected for an operation hold, if it is one
/// kernel.
static void addTiles(OperationReport &operation,
                     ArrayRef<PassDecision> decisions) {
  const PassDecision *selected = nullptr;
  for (const PassDecision &decision : decisions) {
    if (decision.name != "TilesSelected" ||
        decision.operation != operation.number)
      continue;
    if (selected)
      return;
    selected = &decision;
  }
  if (selected && operation.matrix)
    operation.tiles =
        listTiles(*operation.matrix, getNumber(*selected, "TaskQueries"),
                  getNumber(*selected, "KeyTile"));
}

//===----------------------------------------------------------------------===//
// The whole
//===----------------------------------------------------------------------===//

llvm::Expected<Report> explanation::makeReport(StringRef text,
                                               const ExplainOptions &options,
                                               bool keepsStages) {
  Report report;
  TraceOptions traceOptions;
  traceOptions.keepsStages = keepsStages;
  traceOptions.getShapes =
      [&](const Signature &signature,
          auto describe) -> llvm::Expected<ArgumentShapes> {
    llvm::Expected<ArgumentShapes> shapes =
        options.getShapes(signature, describe);
    if (!shapes)
      return shapes;
    for (const SmallVector<int64_t> &shape : *shapes)
      for (int64_t extent : shape)
        if (extent > kMaxExtent)
          return llvm::createStringError(
              "expected extents of at most " + Twine(kMaxExtent) +
              ", because queries are looked at one by one, but got " +
              Twine(extent));
    report.trace.signature = signature;
    report.shapes = *shapes;
    return shapes;
  };
  traceOptions.inspect = [&](FunctionOpInterface function,
                             const ArgumentShapes &shapes) {
    inspectFunction(function, shapes, options, report);
  };
  llvm::Expected<CompilationTrace> trace =
      traceCompilation(text, options.compile, traceOptions);
  if (!trace)
    return trace.takeError();
  report.trace = std::move(*trace);
  report.target = getName(options.compile.target).str();
  report.source = options.compile.sourceName;
  for (OperationReport &operation : report.operations)
    addTiles(operation, report.trace.decisions);
  // What is said of other operations is said of the function.
  for (PassDecision &decision : report.trace.decisions)
    if (llvm::none_of(report.operations, [&](const OperationReport &operation) {
          return decision.operation == operation.number;
        }))
      decision.operation.reset();
  for (auto [spec, shape] :
       llvm::zip_equal(report.trace.signature.arguments, report.shapes)) {
    int64_t bytes = getByteWidth(spec.elementType);
    for (int64_t extent : shape)
      bytes *= extent;
    report.argumentBytes += bytes;
  }
  return report;
}

llvm::Expected<std::vector<std::string>>
fovea::explain(StringRef text, const ExplainOptions &options,
               ArrayRef<ExplanationKind> kinds) {
  llvm::Expected<Report> report = makeReport(
      text, options, llvm::is_contained(kinds, ExplanationKind::HTML));
  if (!report)
    return report.takeError();
  std::vector<std::string> results;
  for (ExplanationKind kind : kinds) {
    llvm::raw_string_ostream os(results.emplace_back());
    switch (kind) {
    case ExplanationKind::Text:
      writeText(*report, os);
      break;
    case ExplanationKind::JSON:
      os << llvm::json::Value(makeJSON(*report)) << '\n';
      break;
    case ExplanationKind::SVG: {
      SmallVector<const OperationReport *> drawn;
      for (const OperationReport &operation : report->operations)
        if (operation.matrix)
          drawn.push_back(&operation);
      if (drawn.empty())
        return llvm::createStringError(
            "@" + report->trace.name +
            " has no operation whose scores can be drawn");
      writeSVG(drawn, os);
      break;
    }
    case ExplanationKind::HTML:
      writeHTML(*report, os);
      break;
    }
  }
  return results;
}
