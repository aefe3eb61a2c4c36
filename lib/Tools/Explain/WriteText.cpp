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
    return text + ", of which data or a function decides which are read";
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
// Facts
//===----------------------------------------------------------------------===//

static std::string describeShape(ArrayRef<int64_t> shape) {
  std::string text = shape.empty() ? "scalar" : "";
  raw_string_ostream os(text);
  interleave(shape, os, "x");
  return text;
}

static std::string describeWork(double flops) {
  return count(flops) + " floating-point operations of products";
}

static std::string describeData(const Report &report) {
  std::string text = count(report.argumentBytes) + " bytes of arguments, ";
  if (!report.resultBytes)
    return text + "results not known";
  text += count(*report.resultBytes) + " bytes of results";
  double bytes =
      static_cast<double>(report.argumentBytes + *report.resultBytes);
  if (report.flops && bytes > 0)
    text += formatv("; {0:F1} operations a byte", *report.flops / bytes);
  return text;
}

static std::string describeWorkspace(const Workspace &workspace) {
  std::string text = workspace.allocatedBytes
                         ? count(*workspace.allocatedBytes) +
                               " bytes allocated, results included, "
                         : "allocations known when it runs, ";
  return text + count(workspace.scratchBytes) +
         " bytes of scratch for each thread";
}

static std::string describeParallelism(ArrayRef<ParallelLoop> loops) {
  std::string text = loops.empty() ? "none" : "";
  raw_string_ostream os(text);
  interleave(
      loops, os,
      [&](const ParallelLoop &loop) {
        os << (loop.tasks ? count(*loop.tasks) + " " : "")
           << (loop.body.empty() ? "blocks of a launch"
                                 : "tasks of " + loop.body)
           << (loop.tasks ? "" : " (their number is known when it runs)");
      },
      ", ");
  return text;
}

static std::string describeNeeded(const OperationReport &operation,
                                  const Report &report) {
  std::string names;
  for (unsigned number : operation.neededArguments) {
    const ValueSpec &spec = report.trace.signature.arguments[number];
    names += names.empty() ? "" : ", ";
    names +=
        spec.name.empty() ? "argument " + std::to_string(number) : spec.name;
  }
  return "data of " + names + ", which decides on what is read";
}

static std::string describeTrips(std::optional<int64_t> trips) {
  return trips ? "the first of " + count(*trips) + " trips of its loops"
               : "the first trip of its loops, which run as often as data or "
                 "lengths say";
}

static void addDecisions(const Report &report,
                         std::optional<unsigned> operation,
                         std::vector<Fact> &facts) {
  for (const PassDecision &decision : report.trace.decisions)
    if (decision.operation == operation)
      facts.push_back({"decided", describeDecision(decision)});
}

std::vector<Fact> explanation::getFacts(const Report &report) {
  std::vector<Fact> facts;
  for (auto [spec, shape] :
       zip_equal(report.trace.signature.arguments, report.shapes))
    facts.push_back({"argument", (spec.name.empty() ? "" : spec.name + " ") +
                                     describeShape(shape)});
  facts.push_back(
      {"work", report.flops ? describeWork(*report.flops)
                            : "not known: an extent does not follow from the "
                              "arguments, or there is no attention"});
  facts.push_back({"data", describeData(report)});
  facts.push_back({"workspace", describeWorkspace(report.trace.workspace)});
  facts.push_back({"parallelism", describeParallelism(report.trace.loops)});
  addDecisions(report, std::nullopt, facts);
  return facts;
}

std::vector<Fact> explanation::getFacts(const OperationReport &operation,
                                        const Report &report) {
  std::vector<Fact> facts;
  if (operation.trips != 1)
    facts.push_back({"explained", describeTrips(operation.trips)});
  if (!operation.extentsAreKnown)
    facts.push_back({"", "an extent does not follow from the arguments: "
                         "nothing more is known"});
  if (operation.flops)
    facts.push_back({"work", describeWork(*operation.flops)});
  if (const std::optional<ScoreMatrix> &matrix = operation.matrix) {
    facts.push_back(
        {"queries", count(matrix->numQueries) + " in " + count(matrix->heads) +
                        " heads and a batch of " + count(matrix->batch) +
                        (report.batch || report.head
                             ? "; those of batch entry " + count(report.batch) +
                                   ", head " + count(report.head)
                             : "")});
    for (auto [keys, pairs] : zip_equal(matrix->sequences, operation.pairs))
      facts.push_back({"pairs", describePairs(keys, pairs)});
    for (const ScoreSource &source : matrix->sources)
      facts.push_back({"reads", describeSource(source)});
    if (!operation.neededArguments.empty())
      facts.push_back({"needed", describeNeeded(operation, report)});
    if (!operation.notComputed.empty())
      facts.push_back({"not drawn", operation.notComputed});
  }
  addDecisions(report, operation.number, facts);
  if (const std::optional<TileList> &tiles = operation.tiles)
    facts.push_back({"tiles", count(tiles->numTasks) + " tasks of " +
                                  count(tiles->queries) +
                                  " queries a head, tiles of " +
                                  count(tiles->keys) + " rows"});
  return facts;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

static void writeFacts(ArrayRef<Fact> facts, raw_ostream &os) {
  for (const Fact &fact : facts) {
    if (fact.label.empty())
      os << "  " << fact.text << '\n';
    else
      os << formatv("  {0,-12} {1}\n", fact.label, fact.text);
  }
}

std::string explanation::describeFunction(const Report &report) {
  return "@" + report.trace.name + report.trace.signature.getString() +
         " for " + report.target + ", " + report.trace.cpu;
}

std::string explanation::describePlace(const OperationReport &operation) {
  return operation.name +
         (operation.place.empty() ? "" : " at " + operation.place);
}

void explanation::writeText(const Report &report, raw_ostream &os) {
  os << describeFunction(report) << '\n';
  writeFacts(getFacts(report), os);
  for (const OperationReport &operation : report.operations) {
    os << '\n' << describePlace(operation) << '\n';
    writeFacts(getFacts(operation, report), os);
  }
}
