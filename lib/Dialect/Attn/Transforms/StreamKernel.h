//===- StreamKernel.h - Vector code of one attn.stream ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.stream on memrefs, vectorised over queries: a vector holds
// one score for each of `lanes` queries, so maxima, exponentials and sums run
// down the keys without crossing lanes, and neither keys nor values need
// packing.
//
//   per block of L = lanes * vectors queries
//     pack      QT[D][L]    = transposed queries times scale * log2(e)
//     score     S[key][L]   = key . QT, with masks, bias and log weight;
//     maximum exponent  S[key][L]   = 2^(S - maximum); sum accumulate OT[E][L]
//     += value^T S finish    output      = transposed OT / sum; lse
//
// Sources whose rows are few (their number bounded at compile time) are scored
// all together, then take one maximum, one exponential and one product with the
// values. Longer ones are streamed in tiles of `key` rows with the running
// maximum of online soft-max.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_STREAMKERNEL_H
#define FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_STREAMKERNEL_H

#include "KernelBuilder.h"
#include "StreamRanges.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::attn {

class StreamKernel {
public:
  using Value = mlir::Value;
  using Values = KernelBuilder::Values;

  /// Rows of an operand that will be read soon: `row + i` is prefetched while
  /// row `i` of the segment is scored.
  struct Lookahead {
    Value memref, row;
    unsigned locality; // 3 keeps it in the first cache level, 2 in the second
  };

  /// Rows of one source that are scored by the same loop.
  struct Segment {
    enum Kind {
      Rows,     // consecutive rows, all admitted
      Masked,   // consecutive rows, a mask cuts single entries
      Diagonal, // consecutive rows from the first query's own position on,
                // causal
      Table,    // rows listed one by one
    };
    Kind kind;
    unsigned source;
    Value keys, values; // 2-d views
    Value base;         // first row in `keys` and `values`
    Value row;          // first row in the source: position, weight and bias
    Value count;        // number of rows
    Value skip;         // leading rows of a diagonal that lie before the source
    Value scoreRow;     // first row of S
    Value table;        // first entry of the row table
    llvm::SmallVector<Lookahead> lookahead;
  };

  struct Options {
    bool manageCache; // add prefetches and streaming stores
    bool bf16Pairs;   // multiply bf16 data by the CPU's dot product of pairs
  };
  StreamKernel(StreamOp op, mlir::OpBuilder &builder, Options options);

  /// Emits the code before the operation.
  void emit();

private:
  /// Running maximum and sum, one vector each per vector of queries.
  struct State {
    Values maximum, sum;
  };

  /// A source's operands for one batch entry and head, as 1-d and 2-d views.
  struct SourceView {
    Value keys, values, logWeight, bias, rows;
    SourceAttr attr;
    bool weightBroadcasts, biasRowBroadcasts, biasKeyBroadcasts;
  };

  void allocateScratch();
  void emitHead(Value batch, Value head);
  void emitQueryBlock(Value query, Value numQueries, Value blockIndex);

  // Stages, in the order they run.
  void packQueries(Value query, Value numQueries);
  void streamLongRanges(llvm::ArrayRef<Segment> segments, State &state);
  void attendTile(Segment tile, State &state);
  void attendShortRanges(llvm::MutableArrayRef<Segment> segments, State &state);
  void scoreSegments(llvm::MutableArrayRef<Segment> segments, Values &maximum);
  void finish(Value query, Value numQueries, const State &state);

  // The same stages on pairs of bf16 (StreamPairs.cpp).
  void packQueryPairs(Value query, Value numQueries);
  void packValuePairs(const Segment &segment);
  Values multiplyPairs(const Segment &segment, mlir::ValueRange rows,
                       unsigned firstVector, mlir::ValueRange initial);
  void exponentiatePairs(const Segment &segment, const Values &maximum,
                         Values &sum);
  void accumulatePairs(const Segment &segment, Value column, int64_t numColumns,
                       Values &accumulators);
  Value broadcastPair(Value memref, mlir::ValueRange indices);

  // Segments.
  void collectSegments(Value blockIndex, llvm::SmallVectorImpl<Segment> &longs,
                       llvm::SmallVectorImpl<Segment> &shorts);
  Segment buildTable(unsigned source, llvm::ArrayRef<unsigned> ranges,
                     Value blockIndex);
  void splitByMask(unsigned source, Value begin, Value end,
                   llvm::SmallVectorImpl<Segment> &segments);
  Segment stage(Segment segment);
  void packBias(const Segment &segment);

  // Prefetching and streaming stores (StreamPrefetch.cpp).
  void lookAhead(Segment &tile);
  void lookAhead(llvm::MutableArrayRef<Segment> segments);
  void prefetch(const Segment &segment, Value offset, Value k, int64_t unroll);
  int64_t getLineElements(const Segment &segment);
  Value canStream(Value view);

  // Parts of a pass over segments.
  void scoreSegment(const Segment &segment, Values &maximum);
  void scoreRows(const Segment &segment, Value low, Value high, int64_t step,
                 unsigned firstVector, bool masked, Values &maximum);
  Values multiply(const Segment &segment, Value offset, mlir::ValueRange rows,
                  unsigned firstVector, mlir::ValueRange initial);
  Value maskScore(const Segment &segment, Value row, unsigned vector,
                  Value score);
  void exponentiate(const Segment &segment, const Values &maximum, Values &sum);
  void accumulate(const Segment &segment, Value column, int64_t numColumns,
                  Values &accumulators);
  /// Sets every output to `combine(old, product with the values, vector)`.
  void
  accumulateColumns(const Segment &segment,
                    llvm::function_ref<Value(Value, Value, int64_t)> combine);

  /// Runs `body(low, high, firstVector)` over the parts of a segment's rows
  /// whose live vectors of queries are the same.
  void forEachTriangle(const Segment &segment,
                       llvm::function_ref<void(Value, Value, unsigned)> body);

  Value tableRow(const Segment &segment, Value entry);

  StreamOp op;
  TilesAttr tiles;
  KernelBuilder b;
  int64_t lanes, vectors, width, valueWidth;
  bool converts; // data is narrower than the soft-max state
  bool hasBias, manageCache;
  bool usesPairs; // products of bf16 pairs instead of converted data
  RangeAnalysis ranges;

  // Scratch.
  Value packedQueries, stagedQueries, scores, outputs, outputRows, factors;
  Value stagedKeys, stagedValues, table, tableWeights, packedBias;
  Value stagedPairs, queryPairs, weightPairs, valuePairs;

  // The present head and query block.
  llvm::SmallVector<SourceView> sources;
  Value queryRows, outputView, lseView;
  Value firstRow, numRows, blockQuery, blockQueries, streamsOutput;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_DIALECT_ATTN_TRANSFORMS_STREAMKERNEL_H
