//===- GPUListBackward.cpp - Gradients of listed rows on a GPU ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   queries  a block of threads for 64 readers of a list: dQ += scale dS K,
//            over the rows of its entries
//   rows     one for 64 stored rows: it looks up which lists name them, and
//            adds scale dS^T Q and P^T dO of these, in order
//
// So every sum has one order.
//
//===----------------------------------------------------------------------===//

#include "GPUListBackward.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPUUnbounded.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

ListGradientTile::ListGradientTile(GPUKernelBuilder &builder,
                                   StreamBackwardOp op,
                                   const StreamSource &source, Value deltas,
                                   const ScoreDerivatives *score, F32Math math,
                                   bool sharesHeads)
    : SquareTile(builder, math), op(op), source(source), deltas(deltas),
      unit(source.attr.getUnit()),
      hasListedPositions(source.attr.getHasListedPositions()),
      weigher(builder, op, source, score) {
  keyGroup =
      b.div(b.extent(op.getQuery(), 1), b.max(b.extent(source.values, 1), 1));
  keyGroup = b.max(keyGroup, 1);
  group = sharesHeads ? keyGroup : b.index(1);
  int64_t offset = SquareTile::getSharedBytes();
  rows = b.sharedBuffer(offset, {kSize}, b.getI32Type());
  positions = b.sharedBuffer(offset + kSize * 4, {kSize}, b.getI32Type());
}

bool ListGradientTile::canShareHeads(StreamBackwardOp op,
                                     const StreamSource &source) {
  // A region is computed for one head.
  if (!op.getScores().empty())
    return false;
  int64_t lists = getMemRefType(source.rowList).getDimSize(1);
  int64_t keyHeads = getMemRefType(source.values).getDimSize(1);
  return lists == 1 || (!ShapedType::isDynamic(lists) && lists == keyHeads);
}

Value ListGradientTile::getBlockQueries(KernelBuilder &b, StreamBackwardOp op) {
  Value all = b.extent(op.getQuery(), 2);
  int64_t block = op.getBlock();
  return block ? b.min(all, block) : all;
}

Value ListGradientTile::countBlocks(KernelBuilder &b, StreamBackwardOp op) {
  int64_t block = op.getBlock();
  return block ? b.ceilDiv(b.extent(op.getQuery(), 2), block) : b.index(1);
}

//===----------------------------------------------------------------------===//
// Lists
//===----------------------------------------------------------------------===//

void ListGradientTile::enter(Value batch, Value head, Value block) {
  this->batch = batch;
  this->head = head;
  this->block = block;
  keyHead = b.div(head, keyGroup);
  keyBatch = b.broadcastIndex(source.keys, 0, batch);
  list = getListOf(b, op, source.rowList, batch, head, block);
  numQueries =
      b.lengthOf(op.getQueryLengths(), batch, b.extent(op.getQuery(), 2));
  length = emitLength(b, source, batch, numQueries);
  int64_t size = op.getBlock();
  firstQuery = b.mul(block, size);
  Value queries = b.max(b.sub(numQueries, firstQuery), 0);
  numReaders = b.mul(size ? b.min(queries, size) : queries, group);
}

/// Runs `body` for each range that listed rows are to be in, too.
Values ListGradientTile::overRanges(ValueRange sums,
                                    function_ref<Values(ValueRange)> body) {
  Values running(sums);
  MaskAttr mask = source.attr.getMask();
  Value last = b.add(firstQuery, b.sub(b.div(numReaders, group), b.index(1)));
  for (AffineMap map : source.attr.getRanges()) {
    range = emitRangeBounds(b, map, block, length.rows, numQueries);
    begin =
        b.max(range.low,
              emitAdmittedRows(b, mask, firstQuery, numQueries, length).first);
    end = b.min(range.high,
                emitAdmittedRows(b, mask, last, numQueries, length).second);
    running = body(running);
  }
  return running;
}

/// Whether some reader may read a row that stands there.
Value ListGradientTile::isIn(Value position) {
  return b.both(b.less(b.sub(begin, b.index(1)), position),
                b.less(position, end));
}

/// Where row `row`, number `number` of the list, stands.
Value ListGradientTile::positionOf(Value number, Value row) {
  return hasListedPositions ? number : row;
}

// All threads have read the rows before: products and weights have barriers.
void ListGradientTile::storeRow(Value number, Value row, Value position) {
  b.ifThen(b.less(number, b.index(kSize)), [&] {
    b.storeIndex(row, rows, number);
    b.storeIndex(position, positions, number);
  });
}

Values ListGradientTile::overEntries(ValueRange sums,
                                     function_ref<Values(ValueRange)> body) {
  Value none = b.index(-1), stored = b.extent(source.keys, 2);
  return overRanges(sums, [&](ValueRange sums) {
    Value all = b.mul(b.extent(list, 0), unit);
    Value low = hasListedPositions ? begin : b.index(0);
    Value high = hasListedPositions ? b.min(all, end) : all;
    return b.loop(low, high, kSize, sums, [&](Value first, ValueRange sums) {
      Value thread = b.toIndex(b.thread()), number = b.add(first, thread);
      Value exists =
          b.both(b.less(thread, b.index(kSize)), b.less(number, high));
      Value row = b.select(
          exists, b.getIndexType(),
          [&] {
            Value listed = b.loadIndex(list, b.div(number, unit));
            Value row = b.add(b.mul(listed, unit), b.rem(number, unit));
            Value isRead = b.both(b.less(none, listed), b.less(row, stored));
            isRead = b.both(isRead, isIn(positionOf(number, row)));
            return b.select(isRead, row, none);
          },
          [&] { return none; });
      storeRow(thread, row, positionOf(number, row));
      Value isAny = b.anyThread(b.less(none, row));
      return changeIf(b, isAny, sums, [&] { return body(sums); });
    });
  });
}

/// Finds the next entry of the list, from `next` on, that names the thread's
/// row of those stored from `firstRow` on, where it is read. Returns whether
/// any thread has found one.
Value ListGradientTile::findNext(Value firstRow, Value &next) {
  Value none = b.index(-1), thread = b.toIndex(b.thread());
  Value row = b.add(firstRow, thread), entries = b.extent(list, 0);
  Value entry = b.div(row, unit), offset = b.rem(row, unit);
  Value exists = b.both(b.less(thread, b.index(kSize)),
                        b.less(row, b.extent(source.keys, 2)));
  Values found = b.loopWhile(
      {b.select(exists, next, entries), none},
      [&](ValueRange state) {
        return b.both(b.less(state[0], entries), b.equal(state[1], none));
      },
      [&](ValueRange state) -> Values {
        Value listed = b.loadIndex(list, state[0]);
        Value position = positionOf(b.add(b.mul(state[0], unit), offset), row);
        Value isNext = b.both(b.equal(listed, entry), isIn(position));
        return {b.add(state[0], 1), b.select(isNext, position, none)};
      });
  next = found[0];
  Value isFound = b.less(none, found[1]);
  storeRow(thread, b.select(isFound, row, none), found[1]);
  return b.anyThread(isFound);
}

/// Whether the list names some of the 64 rows: all threads look at entries.
Value ListGradientTile::isNamed(Value firstRow) {
  Value isOfThread =
      b.loop(b.toIndex(b.thread()), b.extent(list, 0), kNumThreads,
             {b.i1(false)}, [&](Value number, ValueRange isNamed) -> Values {
               Value row = b.mul(b.loadIndex(list, number), unit);
               Value isHere = b.both(b.less(row, b.add(firstRow, kSize)),
                                     b.less(firstRow, b.add(row, unit)));
               return {b.either(isNamed[0], isHere)};
             })[0];
  return b.anyThread(isOfThread);
}

Values ListGradientTile::overStored(Value firstRow, ValueRange sums,
                                    function_ref<Values(ValueRange)> body,
                                    bool isListed) {
  return overRanges(sums, [&](ValueRange sums) {
    Value next = b.index(0);
    // Most lists name none of the rows.
    if (!isListed)
      next = b.select(isNamed(firstRow), next, b.extent(list, 0));
    Value isFound = findNext(firstRow, next);
    Values running(sums);
    running.append({next, isFound});
    running = b.loopWhile(
        running, [&](ValueRange running) { return running.back(); },
        [&](ValueRange running) {
          Values changed = body(running.drop_back(2));
          Value next = running.drop_back().back();
          Value isFound = findNext(firstRow, next);
          changed.append({next, isFound});
          return changed;
        });
    return Values(ValueRange(running).drop_back(2));
  });
}

Values
ListGradientTile::overReaders(const ListsOfRows &listsOfRows, Value batch,
                              Value head, Value firstRow, ValueRange sums,
                              function_ref<Values(Value, ValueRange)> body) {
  return listsOfRows.forBlocks(
      b, batch, head, firstRow, sums, [&](Value block, ValueRange sums) {
        enter(batch, head, block);
        return overStored(
            firstRow, sums,
            [&](ValueRange sums) {
              return b.loop(b.index(0), numReaders, kSize, sums, body);
            },
            /*isListed=*/true);
      });
}

//===----------------------------------------------------------------------===//
// Readers and rows
//===----------------------------------------------------------------------===//

ListGradientTile::Reader ListGradientTile::findReader(Value firstReader,
                                                      Value number) {
  Reader reader;
  Value index = b.add(firstReader, number), zero = b.index(0);
  reader.exists = b.both(b.less(b.index(-1), index), b.less(index, numReaders));
  // Threads without a reader repeat another one.
  index = b.max(b.min(index, b.sub(numReaders, b.index(1))), zero);
  std::tie(reader.head, reader.query) = findPlace(index);
  return reader;
}

/// The head and the query of a reader, by its number.
std::pair<Value, Value> ListGradientTile::findPlace(Value index) {
  return {b.add(head, b.rem(index, group)),
          b.add(firstQuery, b.div(index, group))};
}

ListGradientTile::Reader ListGradientTile::loadReader(Value firstReader,
                                                      Value number) {
  Reader reader = findReader(firstReader, b.toIndex(number));
  Value at[] = {batch, reader.head, reader.query};
  reader.lse = b.loadScalar(op.getLse(), at);
  reader.delta = b.loadScalar(deltas, at);
  auto [low, high] = emitAdmittedRows(b, source.attr.getMask(), reader.query,
                                      numQueries, length);
  reader.begin = b.max(range.low, low);
  reader.end = b.min(range.high, high);
  return reader;
}

Value ListGradientTile::positionOfQuery(Value query) {
  return b.add(query, b.sub(length.tokens, numQueries));
}

ListGradientTile::Positions
ListGradientTile::findPositions(Value firstReader, Value reader, Value row) {
  Reader found = findReader(firstReader, reader);
  Value isRow = b.less(b.index(-1), b.loadIndex(rows, row));
  return {positionOfQuery(found.query),
          emitPosition(b, source.attr.getMask(), b.loadIndex(positions, row)),
          b.both(found.exists, isRow)};
}

ListGradientTile::Row ListGradientTile::loadRow(Value number) {
  Row row;
  number = b.toIndex(number);
  Value index = b.loadIndex(rows, number);
  row.exists = b.less(b.index(-1), index);
  row.index = b.max(index, 0);
  row.position = b.loadIndex(positions, number);
  if (Value weight = source.logWeight)
    row.logWeight =
        b.loadScalar(weight, {b.broadcastIndex(weight, 0, batch),
                              b.broadcastIndex(weight, 1, keyHead),
                              b.broadcastIndex(weight, 2, row.index)});
  return row;
}

Value ListGradientTile::loadOfReader(Value memref, Value firstReader,
                                     Value number, Value column) {
  Reader reader = findReader(firstReader, number);
  Value exists =
      b.both(reader.exists, b.less(column, b.index(getWidth(memref))));
  return loadOr0(exists, [&] {
    return b.loadScalar(memref, {batch, reader.head, reader.query, column});
  });
}

Value ListGradientTile::loadOfRow(Value memref, Value number, Value column) {
  Value row = b.loadIndex(rows, number);
  Value exists = b.both(b.less(b.index(-1), row),
                        b.less(column, b.index(getWidth(memref))));
  return loadOr0(exists, [&] {
    return b.loadScalar(memref, {keyBatch, keyHead, row, column});
  });
}

void ListGradientTile::compute(Value firstReader, bool rowsAreQueries,
                               Of gradients, double factor) {
  weigher.enterHead(batch, head);
  auto multiply = [&](Value ofReaders, Value ofRows) {
    return multiplyPairs(
        rowsAreQueries, getWidth(ofRows),
        [&](Value number, Value k) {
          return loadOfReader(ofReaders, firstReader, number, k);
        },
        [&](Value number, Value k) { return loadOfRow(ofRows, number, k); });
  };
  put(Kept::Weights, multiply(op.getQuery(), source.keys));
  bool hasGradients = gradients != Of::Nothing;
  if (hasGradients)
    put(Kept::Gradients, multiply(op.getDOutput(), source.values));
  weighPairs(
      rowsAreQueries, hasGradients, factor,
      [&](Value number) { return loadReader(firstReader, number); },
      [&](Value number) { return loadRow(number); },
      [&](const Reader &reader, const Row &row, Value score, Value product) {
        EntryWeigher::Entry entry;
        entry.batch = batch;
        entry.head = reader.head;
        entry.query = reader.query;
        entry.row = row.index;
        entry.queryPosition = positionOfQuery(reader.query);
        entry.keyPosition =
            emitPosition(b, source.attr.getMask(), row.position);
        entry.lse = reader.lse;
        entry.delta = reader.delta;
        entry.logWeight = row.logWeight;
        Value isRead =
            b.both(b.less(b.sub(reader.begin, b.index(1)), row.position),
                   b.less(row.position, reader.end));
        isRead = b.both(isRead, b.both(reader.exists, row.exists));
        entry.isNone = b.equal(isRead, b.i1(false));
        return weigher.weigh(entry, score, product, gradients);
      });
}

Values ListGradientTile::addKeptRows(ValueRange sums, Value memref,
                                     Value column) {
  return addKept(Kept::Gradients, sums, [&](Value number, Value k) {
    return loadOfRow(memref, k, b.add(number, column));
  });
}

Values ListGradientTile::addKeptReaders(Kept kept, ValueRange sums,
                                        Value memref, Value firstReader,
                                        Value column) {
  return addKept(kept, sums, [&](Value number, Value k) {
    return loadOfReader(memref, firstReader, k, b.add(number, column));
  });
}

// Queries that do not exist have gradients, too: zeros.
void ListGradientTile::forEachOfReaders(
    ValueRange sums, Value memref, Value firstReader, Value column,
    function_ref<void(ValueRange, Value)> body) {
  Value most = b.extent(memref, 2);
  if (int64_t size = op.getBlock())
    most = b.min(most, b.add(firstQuery, size));
  forEach(sums, [&](Value row, Value place, Value sum) {
    Value index = b.add(firstReader, row);
    auto [head, query] = findPlace(index);
    Value to[] = {batch, head, query, b.add(column, place)};
    Value isThere =
        b.both(b.less(to[2], most), b.less(to[3], b.index(getWidth(memref))));
    Value total = b.select(b.less(index, numReaders), sum, b.scalar(0));
    b.ifThen(isThere, [&] { body(to, total); });
  });
}

/// The sums of 64 queries of one head, whose blocks may have several lists.
Values ListGradientTile::addScores(Place place, ValueRange sums) {
  Value last =
      b.min(b.add(place.firstQuery, kSize), b.extent(op.getQuery(), 2));
  int64_t size = op.getBlock();
  Value zero = b.index(0), one = b.index(1);
  Value firstBlock = size ? b.div(place.firstQuery, size) : zero;
  Value endBlock = size ? b.add(b.div(b.sub(last, one), size), 1) : one;
  return b.loop(firstBlock, endBlock, 1, sums,
                [&](Value block, ValueRange sums) {
                  enter(place.batch, place.head, block);
                  Value firstReader = b.sub(place.firstQuery, firstQuery);
                  return overStored(place.firstRow, sums, [&](ValueRange sums) {
                    compute(firstReader, /*rowsAreQueries=*/true, Of::Scores);
                    return addAll(b, sums, loadKept(Kept::Gradients));
                  });
                });
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

void fovea::attn::emitListQueries(RowBuilder &b, StreamBackwardOp op,
                                  const StreamSource &source, Value deltas,
                                  const ScoreDerivatives *score, F32Math math,
                                  Value sums, bool isFirst) {
  bool sharesHeads = ListGradientTile::canShareHeads(op, source);
  Value heads = b.extent(op.getQuery(), 1);
  Value lists = sharesHeads ? b.extent(source.values, 1) : heads;
  Value headsOfList = b.div(heads, b.max(lists, 1));
  Value readers = b.mul(ListGradientTile::getBlockQueries(b, op), headsOfList);
  GPUKernelBuilder k(op.getLoc(), b, ListGradientTile::kNumThreads);
  GradientTile::Columns columns =
      GradientTile::divideColumns(getWidth(op.getQuery()));
  Values at = beginBlocks(
      k,
      {b.extent(op.getQuery(), 0), lists, ListGradientTile::countBlocks(b, op),
       b.ceilDiv(readers, kGradientTile), b.index(columns.numBlocks)},
      ListGradientTile::getSharedBytes());
  ListGradientTile tile(k, op, source, deltas, score, math, sharesHeads);
  tile.enter(at[0], k.mul(at[1], headsOfList), at[2]);
  Value firstReader = k.mul(at[3], kGradientTile);
  Value firstColumn = k.mul(at[4], columns.getStep());
  auto columnOf = [&](int64_t part) {
    return k.add(firstColumn, part * kGradientTile);
  };
  int64_t numParts = columns.numParts;
  Values carried;
  for (int64_t part = 0; part < numParts; ++part)
    carried.append(tile.makeSums());
  size_t size = carried.size() / numParts;
  carried = tile.overEntries(carried, [&](ValueRange running) {
    tile.compute(firstReader, /*rowsAreQueries=*/true,
                 ListGradientTile::Of::Products,
                 op.getScale().convertToDouble());
    Values next;
    for (int64_t part = 0; part < numParts; ++part)
      next.append(tile.addKeptRows(running.slice(part * size, size),
                                   source.keys, columnOf(part)));
    return next;
  });
  for (int64_t part = 0; part < numParts; ++part)
    tile.forEachOfReaders(
        ValueRange(carried).slice(part * size, size), sums, firstReader,
        columnOf(part), [&](ValueRange to, Value sum) {
          Value total = isFirst ? sum : k.fadd(k.loadScalar(sums, to), sum);
          k.storeScalar(total, sums, to);
        });
}

void fovea::attn::emitListRows(RowBuilder &b, StreamBackwardOp op,
                               const StreamSource &source, Value deltas,
                               const ListsOfRows &listsOfRows,
                               const ScoreDerivatives *score, F32Math math,
                               Value keySums, Value valueSums) {
  bool sharesHeads = ListGradientTile::canShareHeads(op, source);
  auto divide = [](Value memref) {
    return memref ? GradientTile::divideColumns(getWidth(memref))
                  : GradientTile::Columns();
  };
  // Keys have all of their columns beside values.
  GradientTile::Columns columns = divide(valueSums ? valueSums : keySums);
  Value sums = keySums ? keySums : valueSums;
  Value heads = b.extent(op.getQuery(), 1), keyHeads = b.extent(sums, 1);
  Value headsOfKey = b.max(b.div(heads, b.max(keyHeads, 1)), 1);
  GPUKernelBuilder k(op.getLoc(), b, ListGradientTile::kNumThreads);
  Values at = beginBlocks(k,
                          {b.extent(sums, 0), keyHeads,
                           b.ceilDiv(b.extent(sums, 2), kGradientTile),
                           b.index(columns.numBlocks)},
                          ListGradientTile::getSharedBytes());
  ListGradientTile tile(k, op, source, deltas, score, math, sharesHeads);
  Value firstRow = k.mul(at[2], kGradientTile);
  Value firstColumn = k.mul(at[3], columns.getStep());
  Value firstKeyColumn = valueSums ? k.index(0) : firstColumn;
  int64_t keyParts = divide(keySums).numParts,
          valueParts = divide(valueSums).numParts;
  Values carried;
  for (int64_t part = 0; part < keyParts + valueParts; ++part)
    carried.append(tile.makeSums());
  size_t size = carried.size() / (keyParts + valueParts);

  auto addTile = [&](Value reader, ValueRange running) {
    tile.compute(reader, /*rowsAreQueries=*/false,
                 keyParts > 0 ? ListGradientTile::Of::Products
                              : ListGradientTile::Of::Nothing,
                 op.getScale().convertToDouble());
    Values next;
    auto addParts = [&](ListGradientTile::Kept kept, int64_t first,
                        int64_t numParts, Value memref, Value column) {
      for (int64_t part = 0; part < numParts; ++part)
        next.append(tile.addKeptReaders(
            kept, running.slice((first + part) * size, size), memref, reader,
            k.add(column, part * kGradientTile)));
    };
    addParts(ListGradientTile::Kept::Gradients, 0, keyParts, op.getQuery(),
             firstKeyColumn);
    addParts(ListGradientTile::Kept::Weights, keyParts, valueParts,
             op.getDOutput(), firstColumn);
    return next;
  };
  // One head stands for all that share lists.
  Value firstHead = k.mul(at[1], headsOfKey);
  Value endHead =
      sharesHeads ? k.add(firstHead, 1) : k.add(firstHead, headsOfKey);
  carried = k.loop(firstHead, k.min(endHead, heads), 1, carried,
                   [&](Value head, ValueRange running) {
                     return tile.overReaders(listsOfRows, at[0], head, firstRow,
                                             running, addTile);
                   });
  for (int64_t part = 0; part < keyParts + valueParts; ++part) {
    bool isKey = part < keyParts;
    Value memref = isKey ? keySums : valueSums;
    Value column = isKey
                       ? k.add(firstKeyColumn, part * kGradientTile)
                       : k.add(firstColumn, (part - keyParts) * kGradientTile);
    tile.forEach(ValueRange(carried).slice(part * size, size), [&](Value row,
                                                                   Value place,
                                                                   Value sum) {
      Value to[] = {at[0], at[1], k.add(firstRow, row), k.add(place, column)};
      Value exists = k.both(k.less(to[2], k.extent(memref, 2)),
                            k.less(to[3], k.index(getWidth(memref))));
      k.ifThen(exists, [&] { k.storeScalar(sum, memref, to); });
    });
  }
}
