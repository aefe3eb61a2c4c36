//===- FewRows.cpp - Products of a few rows -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The right operand, such as the weights of a layer that generates text token
// by token, is read once, where it is, at the speed of memory:
//
//   its reduced dimension is contiguous:      its columns are contiguous:
//   for each few columns                      for each few steps of the depth
//     for each tile of rows                     for each tile of rows
//       dot products of vectors                   for each vector of columns
//       sums[rows][columns] += theirs               sums[rows] += left * right
//
// Neither order depends on how tasks share the columns.
//
//===----------------------------------------------------------------------===//

#include "ContractionKernel.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

bool fovea::attn::isReadableInPlace(const Contraction &contraction) {
  const Contraction::Operand &right = contraction.right;
  return contraction.outerDepthLoops.empty() && !right.panelColumns &&
         (right.isContiguousAlong(contraction.columnLoop) ||
          (right.isContiguousAlong(contraction.depthLoop) &&
           contraction.left.isContiguousAlong(contraction.depthLoop)));
}

namespace {
class FewRowsKernel : public ContractionKernel {
public:
  FewRowsKernel(const Contraction &contraction, OpBuilder &builder,
                RegisterFile registers);

private:
  /// Columns of a task of dot products.
  static constexpr int64_t kDotColumns = 32;
  /// Vectors of a row in a task of sums, and of all its rows, which stay in the
  /// first cache: pieces of rows of some kilobytes are read faster than short
  /// ones, as long as there are some tasks.
  static constexpr int64_t kMinVectors = 8, kMaxSums = 256, kMinTasks = 4;
  /// The most dot products of a row at once, as many as hide the latency of
  /// additions, and steps of the depth that are added to sums at once.
  static constexpr int64_t kMaxDots = 8, kSteps = 8;

  void emitProducts() override;
  void emitDots(Value column, int64_t numColumns, Value row, int64_t numRows);
  void emitSteps(Value depth, int64_t steps, Value row, int64_t numRows);
  /// Calls `emit` for all rows of the task, at most `tileRows` at once.
  void forEachTile(int64_t tileRows, function_ref<void(Value, int64_t)> emit);

  RegisterFile registers;
};
} // namespace

FewRowsKernel::FewRowsKernel(const Contraction &contraction, OpBuilder &builder,
                             RegisterFile registers)
    : ContractionKernel(contraction, builder, registers), registers(registers) {
  if (rowLoop)
    taskRows = std::max<int64_t>(
        getConstantIntValue(countRows(b)).value_or(kMaxRowsInPlace), 1);
  int64_t maxVectors = llvm::divideCeil(kDotColumns, lanes);
  if (right.isContiguousAlong(columnLoop)) {
    int64_t columns = getConstantIntValue(extentOf(b, columnLoop)).value_or(0);
    maxVectors = std::clamp(columns / lanes / kMinTasks, kMinVectors,
                            kMaxSums / taskRows);
  }
  setTaskColumns(maxVectors);
}

void FewRowsKernel::forEachTile(int64_t tileRows,
                                function_ref<void(Value, int64_t)> emit) {
  Value whole = b.roundDown(numRows, tileRows);
  b.loop(b.index(0), whole, tileRows, [&](Value row) { emit(row, tileRows); });
  if (std::optional<int64_t> known = getConstantIntValue(numRows)) {
    if (int64_t rest = *known % tileRows)
      emit(whole, rest);
    return;
  }
  b.loop(whole, numRows, 1, [&](Value row) { emit(row, 1); });
}

void FewRowsKernel::emitProducts() {
  if (right.isContiguousAlong(columnLoop)) {
    int64_t tileRows =
        std::min<int64_t>(taskRows, registers.count >= 32 ? 4 : 2);
    auto step = [&](Value depth, int64_t steps) {
      forEachTile(tileRows, [&](Value row, int64_t numRows) {
        emitSteps(depth, steps, row, numRows);
      });
    };
    Value depth = extentOf(b, depthLoop), whole = b.roundDown(depth, kSteps);
    b.loop(b.index(0), whole, kSteps, [&](Value at) { step(at, kSteps); });
    b.loop(whole, depth, 1, [&](Value at) { step(at, 1); });
    return;
  }
  bool isKnown = getConstantIntValue(numRows).has_value();
  int64_t tileRows = isKnown ? taskRows : 4;
  int64_t together = llvm::bit_floor<uint64_t>(
      std::max<int64_t>(registers.getAccumulators() / tileRows, 1));
  together = std::min({together, kMaxDots, lanes});
  auto dots = [&](Value column, int64_t numColumns) {
    forEachTile(tileRows, [&](Value row, int64_t numRows) {
      emitDots(column, numColumns, row, numRows);
    });
  };
  Value whole = b.roundDown(numColumns, together);
  b.loop(b.index(0), whole, together,
         [&](Value column) { dots(column, together); });
  b.loop(whole, numColumns, 1, [&](Value column) { dots(column, 1); });
}

/// Adds the dot products of a tile of columns and rows to the sums.
void FewRowsKernel::emitDots(Value column, int64_t numColumns, Value row,
                             int64_t numRows) {
  Value zero = b.splat(0.0);
  // What whole vectors leave of the depth goes one by one in their first lanes.
  auto load = [&](const Operand &operand, bool whole) -> Value {
    if (whole)
      return b.loadVector(operand.memref, indices(operand));
    Value element = b.loadScalar(operand.memref, indices(operand));
    return vector::InsertOp::create(b, element, zero, 0);
  };
  auto addProducts = [&](bool whole, Value depth, ValueRange running) {
    position[depthLoop] = depth;
    Values columns, next(running);
    for (int64_t c = 0; c < numColumns; ++c) {
      setColumn(b.add(column, c));
      columns.push_back(load(right, whole));
    }
    for (int64_t r = 0; r < numRows; ++r) {
      setRow(b.add(row, r));
      Value factor = load(left, whole);
      for (int64_t c = 0; c < numColumns; ++c) {
        Value &sum = next[r * numColumns + c];
        sum = b.fma(factor, columns[c], sum);
      }
    }
    return next;
  };
  Value depth = extentOf(b, depthLoop), whole = b.roundDown(depth, lanes);
  Values dots(numRows * numColumns, zero);
  dots =
      b.loop(b.index(0), whole, lanes, dots, [&](Value at, ValueRange running) {
        return addProducts(/*whole=*/true, at, running);
      });
  dots = b.loop(whole, depth, 1, dots, [&](Value at, ValueRange running) {
    return addProducts(/*whole=*/false, at, running);
  });
  // As many rows as their sums fit a vector.
  int64_t together = lanes / numColumns;
  Value totals;
  for (int64_t r = 0; r < numRows; ++r) {
    if (r % together == 0)
      totals = b.sumEach(ArrayRef(dots)
                             .drop_front(r * numColumns)
                             .take_front(together * numColumns));
    Value part = vector::ExtractStridedSliceOp::create(
        b, totals, r % together * numColumns, numColumns, /*strides=*/1);
    KernelBuilder::Lanes some(b, numColumns);
    Values at = {b.add(row, r), column};
    b.storeVector(b.fadd(b.loadVector(sums, at), part), sums, at);
  }
}

/// Adds the products of `steps` rows of the right operand to the sums of a tile
/// of rows. They start from zero: many short sums lose less than a long one.
void FewRowsKernel::emitSteps(Value depth, int64_t steps, Value row,
                              int64_t numRows) {
  Values factors;
  for (int64_t r = 0; r < numRows; ++r)
    for (int64_t s = 0; s < steps; ++s) {
      setRow(b.add(row, r));
      position[depthLoop] = b.add(depth, s);
      factors.push_back(b.loadScalar(left.memref, indices(left)));
    }
  auto addColumns = [&](Value low, Value high) {
    Values broadcast;
    for (Value factor : factors)
      broadcast.push_back(b.broadcast(factor));
    int64_t width = std::max<int64_t>(b.getLanes(), 1);
    b.loop(low, high, width, [&](Value column) {
      setColumn(column);
      Values loaded;
      for (int64_t s = 0; s < steps; ++s) {
        position[depthLoop] = b.add(depth, s);
        loaded.push_back(b.loadVector(right.memref, indices(right)));
      }
      for (int64_t r = 0; r < numRows; ++r) {
        Value *factor = &broadcast[r * steps];
        Value sum = b.fmul(factor[0], loaded[0]);
        for (int64_t s = 1; s < steps; ++s)
          sum = b.fma(factor[s], loaded[s], sum);
        Values at = {b.add(row, r), column};
        b.storeVector(b.fadd(b.loadVector(sums, at), sum), sums, at);
      }
    });
  };
  Value whole = b.roundDown(numColumns, lanes);
  addColumns(b.index(0), whole);
  KernelBuilder::Lanes scalars(b, 0);
  addColumns(whole, numColumns);
}

void fovea::attn::emitFewRows(const Contraction &contraction,
                              OpBuilder &builder, RegisterFile registers) {
  FewRowsKernel(contraction, builder, registers).emit();
}
