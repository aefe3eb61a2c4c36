//===- Report.cpp - What explanations are written from --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "FirstTrips.h"
#include "FunctionData.h"
#include "fovea/Analysis/UsefulFlops.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Location.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/SetVector.h"

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

/// Whether there is that batch entry or head of `count`. Where there is none,
/// the first one stands for it.
static bool isThere(int64_t number, int64_t count) {
  return number >= 0 && number < std::max<int64_t>(count, 1);
}

/// What has to be known besides to tell what an operation reads. Captures count
/// where `capturesDecide`.
static void explainUnknown(Operation *op, const FunctionData &data,
                           bool capturesDecide, OperationReport &report) {
  llvm::SmallSetVector<unsigned, 4> arguments;
  ValueRange captures = getScoreCaptures(op);
  for (Value operand : getDecidingOperands(op)) {
    auto unknown = data.unknown.find(operand);
    if (unknown == data.unknown.end() ||
        (!capturesDecide && llvm::is_contained(captures, operand)))
      continue;
    arguments.insert_range(unknown->second.arguments);
    if (!unknown->second.reason.empty())
      report.notComputed = unknown->second.reason;
  }
  llvm::append_range(report.neededArguments, arguments);
}

static std::optional<OperationReport>
inspectOperation(const FunctionOp &found, Extents extents,
                 const FunctionData &data) {
  Operation *op = found.op;
  if (!isa<attn::AttnDialect>(op->getDialect()))
    return std::nullopt;
  OperationReport report;
  report.number = found.number;
  report.trips = found.trips;
  report.name = op->getName().getStringRef().str();
  report.place = getPlace(op);
  report.flops = countUsefulFlops(op, extents);
  report.matrix = getScoreMatrix(op, extents);
  // Without the batch entry and the head that are drawn, there is an error.
  if (report.matrix && (!isThere(data.known.batch, report.matrix->batch) ||
                        !isThere(data.known.head, report.matrix->heads)))
    return report;
  report.matrix = getScoreMatrix(op, extents, data.known);
  report.extentsAreKnown = extents.isKnown;
  if (!report.flops && !report.matrix && report.extentsAreKnown)
    return std::nullopt;
  if (report.matrix) {
    bool capturesDecide = removeEntries(op, data.known, *report.matrix);
    for (size_t sequence = 0; sequence < report.matrix->sequences.size();
         ++sequence)
      report.pairs.push_back(countPairs(*report.matrix, sequence));
    report.drawing = draw(*report.matrix);
    explainUnknown(op, data, capturesDecide, report);
  }
  return report;
}

/// Lets arguments that are the same array be one value, in a copy of the
/// module: what sources share is told by values.
static OwningOpRef<Operation *> mergeArguments(FunctionOpInterface &function,
                                               ArrayRef<unsigned> sameAs) {
  OwningOpRef<Operation *> copy(function->getParentOfType<ModuleOp>()->clone());
  function = cast<FunctionOpInterface>(
      SymbolTable::lookupSymbolIn(*copy, function.getName()));
  for (auto [number, other] : llvm::enumerate(sameAs)) {
    Value merged = function.getArgument(number);
    Value kept = function.getArgument(other);
    if (merged != kept && merged.getType() == kept.getType())
      merged.replaceAllUsesWith(kept);
  }
  return copy;
}

static void inspectFunction(FunctionOpInterface function,
                            const ArgumentShapes &shapes,
                            const ExplainOptions &options, Report &report) {
  OwningOpRef<Operation *> copy;
  if (!options.sameAs.empty())
    copy = mergeArguments(function, options.sameAs);
  Extents extents(function, shapes);
  FirstTrips first = unrollFirstTrips(function);
  FunctionData data = findData(first.function, shapes, options);
  Extents extentsAtFirst(first.function, shapes);
  for (const FunctionOp &op : first.ops)
    if (auto found = inspectOperation(op, extentsAtFirst, data))
      report.operations.push_back(std::move(*found));
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

/// That all operations have the batch entry and the head that are drawn.
static llvm::Error checkDrawn(const Report &report,
                              const ExplainOptions &options) {
  for (const OperationReport &operation : report.operations) {
    if (!operation.matrix)
      continue;
    auto check = [&](StringRef name, int64_t found,
                     int64_t count) -> llvm::Error {
      if (isThere(found, count))
        return llvm::Error::success();
      return llvm::createStringError(
          std::make_error_code(std::errc::invalid_argument),
          name + ": found " + Twine(found) + ", needed 0 to " +
              Twine(std::max<int64_t>(count, 1) - 1) + ", as " +
              describePlace(operation) + " has");
    };
    if (llvm::Error error =
            check("batch", options.batch, operation.matrix->batch))
      return error;
    if (llvm::Error error =
            check("head", options.head, operation.matrix->heads))
      return error;
  }
  return llvm::Error::success();
}

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
  if (llvm::Error error = checkDrawn(report, options))
    return std::move(error);
  report.target = getName(options.compile.target).str();
  report.source = options.compile.sourceName;
  report.batch = options.batch;
  report.head = options.head;
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
