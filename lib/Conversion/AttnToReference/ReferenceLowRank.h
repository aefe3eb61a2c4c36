//===- ReferenceLowRank.h - Masks of low-rank ops, in f64 -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCELOWRANK_H
#define FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCELOWRANK_H

#include "ReferenceBuilder.h"

namespace fovea::attn {

/// Calls `body` for every row `[b, h, n]` of `rows`.
inline void forEachRow(
    ReferenceBuilder &ref, mlir::Value rows,
    llvm::function_ref<void(mlir::Value, mlir::Value, mlir::Value)> body) {
  ref.forEach(ref.extent(rows, 0), [&](mlir::Value b) {
    ref.forEach(ref.extent(rows, 1), [&](mlir::Value h) {
      ref.forEach(ref.extent(rows, 2), [&](mlir::Value n) { body(b, h, n); });
    });
  });
}

/// Says which columns the rows of one head keep, row after row.
class MaskRows {
public:
  using Value = mlir::Value;

  /// For the operands of attn.low_rank or its gradient.
  template <typename OpTy>
  MaskRows(ReferenceBuilder &ref, OpTy op)
      : ref(ref), mask(op.getMask()), parts(op.getMaskParts()),
        queryMask(op.getQueryMask()), keyMask(op.getKeyMask()),
        numRows(ref.extent(op.getU1(), 2)),
        numColumns(ref.extent(op.getU2(), 2)) {
    if (mask == RowMask::RowChange) {
      auto type = llvm::cast<mlir::MemRefType>(op.getU2().getType());
      llvm::SmallVector<Value> dynamicExtents;
      if (type.isDynamicDim(2))
        dynamicExtents.push_back(numColumns);
      present = ref.allocate({type.getDimSize(2)}, dynamicExtents);
    }
  }

  void beginHead(Value b, Value h) {
    batch = b;
    head = h;
    if (present)
      ref.forEach(numColumns,
                  [&](Value j) { ref.store(ref.number(0.0), present, j); });
  }

  /// Rows begin in their order.
  void beginRow(Value i) {
    row = i;
    if (!present)
      return;
    Value one = ref.index(1), zero = ref.index(0);
    Value before = ref.max(ref.sub(i, one), zero);
    Value begin = ref.select(ref.less(zero, i), loadPart(0, before), zero);
    ref.forEach(begin, loadPart(0, i), [&](Value change) {
      Value column = loadPart(1, change);
      Value old = ref.load(present, column);
      ref.store(ref.subNumbers(ref.number(1.0), old), present, column);
    });
  }

  /// Whether the row that has begun keeps column `j`.
  Value keeps(Value j) {
    Value kept = isInMask(j);
    if (queryMask)
      kept = ref.both(kept, ref.loadCondition(queryMask, {batch, row}));
    if (keyMask)
      kept = ref.both(kept, ref.loadCondition(keyMask, {batch, j}));
    return kept;
  }

private:
  Value isInMask(Value j) {
    switch (mask) {
    case RowMask::Causal:
      return ref.lessOrEqual(ref.add(j, numRows), ref.add(row, numColumns));
    case RowMask::RowChange:
      return ref.lessNumber(ref.number(0.5), ref.load(present, j));
    case RowMask::RowInterval:
      return ref.both(ref.lessOrEqual(loadPart(0, row), j),
                      ref.lessOrEqual(j, loadPart(1, row)));
    case RowMask::DistinctRows:
      return loadEntry(loadPart(0, row), j);
    case RowMask::DistinctColumns:
      return loadEntry(loadPart(0, j), row);
    }
    llvm_unreachable("unknown mask");
  }
  Value loadPart(unsigned part, Value position) {
    Value buffer = parts[part];
    llvm::SmallVector<Value> at =
        ref.broadcastIndices(buffer, mlir::ValueRange{batch, head});
    at.push_back(position);
    return ref.loadIndex(buffer, at);
  }
  Value loadEntry(Value group, Value position) {
    Value buffer = parts[1];
    llvm::SmallVector<Value> at =
        ref.broadcastIndices(buffer, mlir::ValueRange{batch, head});
    at.append({group, position});
    return ref.loadCondition(buffer, at);
  }

  ReferenceBuilder &ref;
  RowMask mask;
  mlir::ValueRange parts;
  /// Of the tokens that are there, or null.
  Value queryMask, keyMask;
  Value numRows, numColumns, batch, head, row;
  /// 1 for every column that is there, under a mask of changes.
  Value present;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOREFERENCE_REFERENCELOWRANK_H
