//===- ChangeList.cpp - Where transposed masks change ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/ChangeList.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Sorts by row, by counting: columns of a row stay in their order.
ChangeList ChangeList::sort(KernelBuilder &b, const LowRankSum &sum,
                            Value numEntries, ForEachEntry forEach) {
  ChangeList list;
  Value batches = b.extent(sum.right.rows, 0),
        heads = b.extent(sum.right.rows, 1), rows = b.extent(sum.left.rows, 2);
  list.ends = b.allocate({batches, heads, rows}, {}, b.getI32Type());
  list.entries = b.allocate({batches, heads, numEntries}, {}, b.getI32Type());
  b.forAll({batches, heads}, [&](ValueRange ivs) {
    Value zero = b.index(0);
    auto at = [&](Value position) {
      return KernelBuilder::Values{ivs[0], ivs[1], position};
    };
    auto next = [&](Value row) {
      Value end = b.loadIndex(list.ends, at(row));
      b.storeIndex(b.add(end, 1), list.ends, at(row));
      return end;
    };
    b.loop(zero, rows, 1,
           [&](Value row) { b.storeIndex(zero, list.ends, at(row)); });
    forEach(ivs[0], ivs[1], [&](Value row, Value) { next(row); });
    // Where lists begin; every entry moves the end of its list.
    b.loop(zero, rows, 1, zero,
           [&](Value row, ValueRange begin) -> KernelBuilder::Values {
             Value count = b.loadIndex(list.ends, at(row));
             b.storeIndex(begin.front(), list.ends, at(row));
             return {b.add(begin.front(), count)};
           });
    forEach(ivs[0], ivs[1], [&](Value row, Value column) {
      b.storeIndex(column, list.entries, at(next(row)));
    });
  });
  return list;
}

ChangeList ChangeList::fromIntervals(KernelBuilder &b, const LowRankSum &sum) {
  Value columns = b.extent(sum.right.rows, 2);
  return sort(
      b, sum, b.mul(columns, 2), [&](Value batch, Value head, AddEntry add) {
        Value rows = b.extent(sum.left.rows, 2);
        b.loop(b.index(0), columns, 1, [&](Value column) {
          add(sum.loadPart(b, 0, batch, head, column), column);
          Value after = b.add(sum.loadPart(b, 1, batch, head, column), 1);
          b.ifThen(b.less(after, rows), [&] { add(after, column); });
        });
      });
}

ChangeList ChangeList::fromChanges(KernelBuilder &b, const LowRankSum &sum) {
  return sort(b, sum, b.extent(sum.parts[1], 2),
              [&](Value batch, Value head, AddEntry add) {
                Value zero = b.index(0);
                b.loop(zero, b.extent(sum.right.rows, 2), 1, zero,
                       [&](Value column, ValueRange begin) {
                         Value end = sum.loadPart(b, 0, batch, head, column);
                         b.loop(begin.front(), end, 1, [&](Value change) {
                           add(sum.loadPart(b, 1, batch, head, change), column);
                         });
                         return KernelBuilder::Values{end};
                       });
              });
}

std::pair<Value, Value> ChangeList::getRange(KernelBuilder &b, Value batch,
                                             Value head, Value row) const {
  Value zero = b.index(0), before = b.max(b.sub(row, b.index(1)), 0);
  Value begin = b.loadIndex(ends, {batch, head, before});
  return {b.select(b.equal(row, zero), zero, begin),
          b.loadIndex(ends, {batch, head, row})};
}

void ChangeList::free(KernelBuilder &b) {
  if (!ends)
    return;
  memref::DeallocOp::create(b, ends);
  memref::DeallocOp::create(b, entries);
}
