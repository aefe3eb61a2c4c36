//===- WriteText.cpp - An explanation to read -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::explanation;

//===----------------------------------------------------------------------===//
// Sentences
//===----------------------------------------------------------------------===//

static std::string count(int64_t number) { return formatv("{0:N}", number); }
static std::string count(double number) {
  return count(static_cast<int64_t>(number));
}

std::string explanation::describePairs(const KeySequence &keys,
                                       const std::optional<PairCounts> &pairs) {
  std::string text = keys.name + ": " + count(keys.length) + " tokens";
  if (!pairs)
    return text + ", of which data decides which are read";
  text += "; " + count(pairs->admitted) + " pairs of a query and a token";
  if (!keys.mask.empty())
    text += " under the mask <" + keys.mask + ">";
  auto add = [&](double number, StringRef what,
                 const std::optional<PairCounts::Pair> &first) {
    text += ", ";
    text += number > 0 ? count(number) : "none";
    text += what;
    if (first)
      text +=
          formatv(" (first: query {0}, token {1})", first->query, first->token);
  };
  add(pairs->twice, " read twice", pairs->firstTwice);
  add(pairs->never, " never read", pairs->firstNever);
  if (keys.isCausal)
    add(pairs->ahead, " read ahead", pairs->firstAhead);
  return text;
}

std::pair<int64_t, int64_t>
explanation::getRowBounds(const ScoreSource &source) {
  std::pair<int64_t, int64_t> bounds = {source.numQueries ? INT64_MAX : 0, 0};
  for (int64_t query = 0; query < source.numQueries; ++query) {
    int64_t rows = countRows(source.getRows(query));
    bounds = {std::min(bounds.first, rows), std::max(bounds.second, rows)};
  }
  return bounds;
}

std::string explanation::describeSource(const ScoreSource &source) {
  auto [least, most] = getRowBounds(source);
  std::string text = source.name + ": " + count(source.numRows) +
                     " rows, which are " + source.kind + "; " +
                     count(source.countEntries()) + " entries, ";
  text += least == most ? count(most) : count(least) + " to " + count(most);
  text += source.queriesPerRow == 1
              ? " for a query"
              : " for a summary of " + count(source.queriesPerRow) + " queries";
  if (!source.byData.empty())
    text += " (" + source.byData + ")";
  return text;
}

std::string explanation::describeDecision(const PassDecision &decision) {
  std::string text = decision.category + ": " + decision.name;
  if (!decision.isPassed)
    text += " (missed)";
  for (const PassDecision::Value &value : decision.values) {
    text += value.key == "Remark" ? " " : " " + value.key + "=";
    text += value.text;
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static void writeShape(ArrayRef<int64_t> shape, raw_ostream &os) {
  if (shape.empty())
    os << "scalar";
  interleave(shape, os, "x");
}

static void writeCosts(const Report &report, raw_ostream &os) {
  os << "  work         ";
  if (report.flops)
    os << count(*report.flops) << " floating-point operations of products\n";
  else
    os << "not known: an extent does not follow from the arguments, or there "
          "is no attention\n";
  os << "  data         " << count(report.argumentBytes)
     << " bytes of arguments, ";
  if (report.resultBytes) {
    os << count(*report.resultBytes) << " bytes of results";
    double bytes =
        static_cast<double>(report.argumentBytes + *report.resultBytes);
    if (report.flops && bytes > 0)
      os << formatv("; {0:F1} operations a byte", *report.flops / bytes);
  } else {
    os << "results not known";
  }
  os << "\n  workspace    ";
  const Workspace &workspace = report.trace.workspace;
  if (workspace.allocatedBytes)
    os << count(*workspace.allocatedBytes)
       << " bytes allocated, results included, ";
  else
    os << "allocations known when it runs, ";
  os << count(workspace.scratchBytes) << " bytes of scratch for each thread\n";
  os << "  parallelism  ";
  if (report.trace.loops.empty())
    os << "none";
  interleave(
      report.trace.loops, os,
      [&](const ParallelLoop &loop) {
        os << (loop.tasks ? count(*loop.tasks) : "as many as the run decides")
           << (loop.body.empty() ? " blocks of a launch"
                                 : " tasks of " + loop.body);
      },
      ", ");
  os << '\n';
}

static void writeOperation(const OperationReport &operation,
                           const Report &report, raw_ostream &os) {
  os << '\n' << operation.name;
  if (!operation.place.empty())
    os << " at " << operation.place;
  os << '\n';
  if (!operation.extentsAreKnown)
    os << "  an extent does not follow from the arguments: nothing more is "
          "known\n";
  if (operation.flops)
    os << "  work         " << count(*operation.flops)
       << " floating-point operations of products\n";
  if (const std::optional<ScoreMatrix> &matrix = operation.matrix) {
    os << "  queries      " << count(matrix->numQueries) << " in "
       << count(matrix->heads) << " heads and a batch of "
       << count(matrix->batch) << '\n';
    for (auto [keys, pairs] : zip_equal(matrix->sequences, operation.pairs))
      os << "  pairs        " << describePairs(keys, pairs) << '\n';
    for (const ScoreSource &source : matrix->sources)
      os << "  reads        " << describeSource(source) << '\n';
  }
  for (const PassDecision &decision : report.trace.decisions)
    if (decision.operation == operation.number)
      os << "  decided      " << describeDecision(decision) << '\n';
  if (const std::optional<TileList> &tiles = operation.tiles)
    os << "  tiles        " << count(tiles->numTasks) << " tasks of "
       << count(tiles->queries) << " queries a head, tiles of "
       << count(tiles->keys) << " rows\n";
}

void explanation::writeText(const Report &report, raw_ostream &os) {
  os << '@' << report.trace.name << report.trace.signature.getString()
     << " for " << report.target << ", " << report.trace.cpu << '\n';
  for (auto [spec, shape] :
       zip_equal(report.trace.signature.arguments, report.shapes)) {
    os << "  argument     " << (spec.name.empty() ? "" : spec.name + " ");
    writeShape(shape, os);
    os << '\n';
  }
  writeCosts(report, os);
  for (const PassDecision &decision : report.trace.decisions)
    if (!decision.operation)
      os << "  decided      " << describeDecision(decision) << '\n';
  for (const OperationReport &operation : report.operations)
    writeOperation(operation, report, os);
}
