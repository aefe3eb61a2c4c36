//===- Report.h - What explanations are written from ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_TOOLS_EXPLAIN_REPORT_H
#define FOVEA_LIB_TOOLS_EXPLAIN_REPORT_H

#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Tools/Explain/Explain.h"
#include "llvm/Support/JSON.h"

namespace fovea::explanation {

/// A part of the score matrix that is drawn as one: entries of one source.
struct Rectangle {
  int64_t query, queries, token, tokens;
  /// Of the entries in it, how many are read.
  double share;
};

/// The score matrix as rectangles.
struct Drawing {
  /// Queries and tokens of a cell: 1 where every entry is drawn.
  int64_t cellQueries = 1, cellTokens = 1;
  /// Those of each source, in the order of queries.
  std::vector<std::vector<Rectangle>> sources;
  /// Pairs of each sequence that are read never, twice or ahead.
  struct Faults {
    std::vector<Rectangle> never, twice, ahead;
  };
  std::vector<Faults> faults;

  bool isExact() const { return cellQueries == 1 && cellTokens == 1; }
};

Drawing draw(const ScoreMatrix &matrix);

/// What a task of the kernel reads of one source.
struct TaskTiles {
  int64_t firstQuery, endQuery;
  unsigned source;
  /// The rows, from the first to the last, and how many tiles hold those that
  /// are read.
  RowRange rows;
  int64_t tiles;
  /// Of the entries of these rows, how many are read.
  double share;
};

/// The tasks that queries of one head are divided into.
struct TileList {
  int64_t queries, keys;
  int64_t numTasks;
  /// Those of the first tasks, up to a limit.
  std::vector<TaskTiles> tasks;
};

/// With tasks of so many queries, whose tiles have so many rows of keys.
std::optional<TileList> listTiles(const ScoreMatrix &matrix, int64_t queries,
                                  int64_t keys);

/// One operation of the dialect that has scores or costs something.
struct OperationReport {
  unsigned number;
  std::string name, place;
  /// How often loops run it, of which this is the first time; none where that
  /// is not known.
  std::optional<int64_t> trips = 1;
  std::optional<double> flops;
  /// None without scores, and where extents are not known.
  std::optional<ScoreMatrix> matrix;
  bool extentsAreKnown = true;
  /// Arguments whose data would tell more of what is read, and why what decides
  /// on it was not computed; empty where all is known.
  llvm::SmallVector<unsigned> neededArguments;
  std::string notComputed;
  /// For each sequence of keys; none where data decides.
  std::vector<std::optional<PairCounts>> pairs;
  Drawing drawing;
  std::optional<TileList> tiles;
};

struct Report {
  CompilationTrace trace;
  std::string target, source;
  ArgumentShapes shapes;
  /// The batch entry and the head that are drawn.
  int64_t batch = 0, head = 0;
  std::vector<OperationReport> operations;
  std::optional<double> flops;
  int64_t argumentBytes = 0;
  /// None where the shape of a result does not follow from the arguments.
  std::optional<int64_t> resultBytes;
};

/// Compiles and analyses the function.
llvm::Expected<Report> makeReport(llvm::StringRef text,
                                  const ExplainOptions &options,
                                  bool keepsStages);

void writeText(const Report &report, llvm::raw_ostream &os);
llvm::json::Object makeJSON(const Report &report);
/// With `marksFaults`, pairs that are read never, twice or ahead stand out.
void writeSVG(const OperationReport &operation, bool marksFaults,
              llvm::raw_ostream &os);
/// One below the other.
void writeSVG(llvm::ArrayRef<const OperationReport *> operations,
              llvm::raw_ostream &os);
void writeHTML(const Report &report, llvm::raw_ostream &os);
/// What the entries of a source are drawn in.
llvm::StringRef getColour(size_t source);

/// A line that texts and pages share.
struct Fact {
  llvm::StringRef label;
  std::string text;
};
std::vector<Fact> getFacts(const Report &report);
std::vector<Fact> getFacts(const OperationReport &operation,
                           const Report &report);

/// Where the text has an operation, or empty if it is not from a text.
std::string getPlace(mlir::Operation *op);

/// Headings of these, and sentences.
std::string describeFunction(const Report &report);
std::string describePlace(const OperationReport &operation);
std::string describePairs(const KeySequence &keys,
                          const std::optional<PairCounts> &pairs);
std::string describeSource(const ScoreSource &source);
std::string describeDecision(const PassDecision &decision);
/// The least and the most rows that a query reads.
std::pair<int64_t, int64_t> getRowBounds(const ScoreSource &source);

} // namespace fovea::explanation

#endif // FOVEA_LIB_TOOLS_EXPLAIN_REPORT_H
