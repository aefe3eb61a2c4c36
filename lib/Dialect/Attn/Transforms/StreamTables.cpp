//===- StreamTables.cpp - Keys that are rows of a table -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys that are given by codes are rows of a table, and so are the keys of
// every source that has this table as its keys. The scores of all rows of the
// table are computed once for a query block,
//
//   R[row][L] = table[row] . QT
//
// and the scores of a key are the row R[code]: consecutive, like any other row
// of scores. A source of many rows then costs a copy for each instead of a
// product.
//
//===----------------------------------------------------------------------===//

#include "StreamKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea::attn;

void StreamKernel::collectKeyTables() {
  for (const StreamOp::Source &source : op.getSourceList()) {
    if (!source.codes || findKeyTable(source.keys))
      continue;
    KeyTable table;
    table.operand = source.keys;
    table.numRows = cast<MemRefType>(source.keys.getType()).getDimSize(2);
    keyTables.push_back(table);
  }
}

const StreamKernel::KeyTable *StreamKernel::findKeyTable(Value keys) {
  auto *found = llvm::find_if(
      keyTables, [&](const KeyTable &table) { return table.operand == keys; });
  return found == keyTables.end() ? nullptr : found;
}

/// Fixes batch and head of the tables.
void StreamKernel::viewKeyTables(Value batch, Value keyHead) {
  for (KeyTable &table : keyTables) {
    auto type = cast<MemRefType>(table.operand.getType());
    Value zero = b.index(0);
    table.keys =
        rowView(table.operand, {type.getDimSize(0) == 1 ? zero : batch,
                                type.getDimSize(1) == 1 ? zero : keyHead});
  }
}

/// Scores all rows of the tables for the present queries. `segments` are what
/// the block reads: what the next block reads is prefetched meanwhile.
void StreamKernel::scoreTables(ArrayRef<Segment> segments) {
  int64_t queries = tiles.getQueryLanes(), step = tiles.getKeys();
  for (const KeyTable &table : keyTables) {
    auto *first = llvm::find_if(sources, [&](const SourceView &source) {
      return source.keyTable == &table;
    });
    Segment rows;
    rows.kind = Segment::Rows;
    rows.source = first - sources.begin();
    rows.keys = table.keys;
    if (table.staged) {
      b.loop(b.index(0), b.index(table.numRows), 1, [&](Value row) {
        int64_t column = 0;
        for (; column + lanes <= width; column += lanes)
          b.storeVector(b.loadVector(table.keys, {row, b.index(column)}),
                        table.staged, {row, b.index(column)});
        b.loop(b.index(column), b.index(width), 1, [&](Value tail) {
          b.storeScalar(b.loadScalar(table.keys, {row, tail}), table.staged,
                        {row, tail});
        });
      });
      rows.keys = table.staged;
    }
    auto score = [&](int64_t low, int64_t high, int64_t numRows) {
      b.loop(b.index(low), b.index(high), numRows, [&](Value offset) {
        Values at;
        for (int64_t i = 0; i < numRows; ++i)
          at.push_back(b.add(offset, i));
        Values products = multiply(rows, offset, at, /*firstVector=*/0);
        for (int64_t i = 0; i < numRows; ++i)
          for (int64_t v = 0; v < vectors; ++v)
            b.storeVector(products[i * vectors + v], table.scores,
                          {at[i], b.index(v * lanes)});
      });
    };
    // The next block needs as many new rows of queries and values as it has
    // queries.
    int64_t whole = table.numRows / step * step;
    int64_t ahead = std::min(whole, queries / step * step);
    if (manageCache && op.getBlock() != 0) {
      rows.lookahead.push_back({queryRows, b.add(blockQuery, queries), 2});
      for (const Segment &segment : segments)
        if (segment.kind == Segment::Diagonal)
          rows.lookahead.push_back({sources[segment.source].values,
                                    b.add(segment.row, segment.count), 2});
      score(0, ahead, step);
      rows.lookahead.clear();
    } else {
      ahead = 0;
    }
    score(ahead, whole, step);
    score(whole, table.numRows, 1);
  }
}

/// The scores of `numRows` rows of a segment from `offset` on.
StreamKernel::Values StreamKernel::lookUp(const Segment &segment, Value offset,
                                          int64_t numRows,
                                          unsigned firstVector) {
  const SourceView &source = sources[segment.source];
  Values result;
  for (int64_t i = 0; i < numRows; ++i) {
    Value row = sourceRow(segment, b.add(offset, i));
    if (source.codes) {
      Value code = memref::LoadOp::create(b, source.codes, row);
      row = arith::IndexCastOp::create(b, b.getIndexType(), code);
    }
    for (int64_t v = firstVector; v < vectors; ++v)
      result.push_back(
          b.loadVector(source.keyTable->scores, {row, b.index(v * lanes)}));
  }
  return result;
}
