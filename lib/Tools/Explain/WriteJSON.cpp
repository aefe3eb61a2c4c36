//===- WriteJSON.cpp - An explanation for programs ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Report.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::explanation;

/// Null where it is not known.
template <typename T> static json::Value orNull(const std::optional<T> &value) {
  return value ? json::Value(*value) : json::Value(nullptr);
}

static json::Value makePair(const std::optional<PairCounts::Pair> &pair) {
  if (!pair)
    return nullptr;
  return json::Object{{"query", pair->query}, {"token", pair->token}};
}

/// [first query, queries, first token, tokens, share of the entries] of each.
static json::Array makeRectangles(ArrayRef<Rectangle> rectangles) {
  json::Array drawn;
  for (const Rectangle &part : rectangles)
    drawn.push_back(json::Array{part.query, part.queries, part.token,
                                part.tokens, part.share});
  return drawn;
}

static json::Object makeSequence(const KeySequence &keys,
                                 const std::optional<PairCounts> &pairs,
                                 const Drawing::Faults &faults) {
  json::Object object{
      {"name", keys.name}, {"tokens", keys.length}, {"mask", keys.mask}};
  if (!pairs)
    return object;
  object["pairs"] = pairs->admitted;
  object["twice"] = pairs->twice;
  object["never"] = pairs->never;
  object["ahead"] = pairs->ahead;
  object["first_twice"] = makePair(pairs->firstTwice);
  object["first_never"] = makePair(pairs->firstNever);
  object["first_ahead"] = makePair(pairs->firstAhead);
  object["twice_rectangles"] = makeRectangles(faults.twice);
  object["never_rectangles"] = makeRectangles(faults.never);
  object["ahead_rectangles"] = makeRectangles(faults.ahead);
  return object;
}

static json::Object makeSource(const ScoreSource &source,
                               ArrayRef<Rectangle> rectangles) {
  auto [least, most] = getRowBounds(source);
  return json::Object{{"name", source.name},
                      {"kind", source.kind},
                      {"by_data", source.byData},
                      {"sequence", static_cast<int64_t>(source.sequence)},
                      {"rows", source.numRows},
                      {"tokens_per_row", source.tokensPerRow},
                      {"queries_per_row", source.queriesPerRow},
                      {"entries", source.countEntries()},
                      {"least_rows", least},
                      {"most_rows", most},
                      {"rectangles", makeRectangles(rectangles)}};
}

static json::Array makeDecisions(const Report &report,
                                 std::optional<unsigned> operation) {
  json::Array decisions;
  for (const PassDecision &decision : report.trace.decisions) {
    if (decision.operation != operation)
      continue;
    json::Object values;
    for (const PassDecision::Value &value : decision.values)
      values[value.key] = value.text;
    decisions.push_back(json::Object{{"category", decision.category},
                                     {"name", decision.name},
                                     {"passed", decision.isPassed},
                                     {"values", std::move(values)}});
  }
  return decisions;
}

static json::Object makeTiles(const TileList &list) {
  json::Array tasks;
  for (const TaskTiles &task : list.tasks)
    tasks.push_back(
        json::Object{{"queries", json::Array{task.firstQuery, task.endQuery}},
                     {"source", static_cast<int64_t>(task.source)},
                     {"rows", json::Array{task.rows.begin, task.rows.end}},
                     {"tiles", task.tiles},
                     {"share", task.share}});
  return json::Object{{"task_queries", list.queries},
                      {"tile_rows", list.keys},
                      {"tasks_of_a_head", list.numTasks},
                      {"first_tasks", std::move(tasks)}};
}

static json::Object makeOperation(const OperationReport &operation,
                                  const Report &report) {
  json::Object object{{"operation", operation.name},
                      {"place", operation.place},
                      {"trips", orNull(operation.trips)},
                      {"extents_are_known", operation.extentsAreKnown},
                      {"flop", orNull(operation.flops)},
                      {"decisions", makeDecisions(report, operation.number)}};
  if (const std::optional<ScoreMatrix> &matrix = operation.matrix) {
    object["batch"] = matrix->batch;
    object["heads"] = matrix->heads;
    object["queries"] = matrix->numQueries;
    object["drawn_batch"] = report.batch;
    object["drawn_head"] = report.head;
    object["needed_arguments"] = json::Array(operation.neededArguments);
    object["not_drawn"] = operation.notComputed;
    json::Array sequences, sources;
    for (auto [keys, pairs, faults] : zip_equal(
             matrix->sequences, operation.pairs, operation.drawing.faults))
      sequences.push_back(makeSequence(keys, pairs, faults));
    for (auto [source, rectangles] :
         zip_equal(matrix->sources, operation.drawing.sources))
      sources.push_back(makeSource(source, rectangles));
    object["sequences"] = std::move(sequences);
    object["sources"] = std::move(sources);
    object["cell"] = json::Array{operation.drawing.cellQueries,
                                 operation.drawing.cellTokens};
  }
  if (operation.tiles)
    object["tiles"] = makeTiles(*operation.tiles);
  return object;
}

json::Object explanation::makeJSON(const Report &report) {
  const CompilationTrace &trace = report.trace;
  json::Array arguments, loops, operations;
  for (auto [spec, shape] : zip_equal(trace.signature.arguments, report.shapes))
    arguments.push_back(json::Object{{"name", spec.name},
                                     {"type", spec.getTypeString()},
                                     {"shape", json::Array(shape)}});
  for (const ParallelLoop &loop : trace.loops)
    loops.push_back(
        json::Object{{"body", loop.body}, {"tasks", orNull(loop.tasks)}});
  for (const OperationReport &operation : report.operations)
    operations.push_back(makeOperation(operation, report));
  return json::Object{
      {"entry", trace.name},
      {"signature", trace.signature.getString()},
      {"source", report.source},
      {"target", report.target},
      {"cpu", trace.cpu},
      {"arguments", std::move(arguments)},
      {"flop", orNull(report.flops)},
      {"argument_bytes", report.argumentBytes},
      {"result_bytes", orNull(report.resultBytes)},
      {"allocated_bytes", orNull(trace.workspace.allocatedBytes)},
      {"scratch_bytes_per_thread", trace.workspace.scratchBytes},
      {"parallel_loops", std::move(loops)},
      {"decisions", makeDecisions(report, std::nullopt)},
      {"operations", std::move(operations)}};
}
