//===- StreamRowsState.cpp - What a set of query rows keeps ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "fovea/Kernels/SoftmaxAlgebra.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

int64_t StreamRowsKernel::getRowCapacity() {
  int64_t ofHeads = headBlock == 1 ? 0 : headBlock * headRows;
  return llvm::alignTo(std::max(maxRows, ofHeads),
                       std::max<int64_t>(lanes, kColumnRows));
}

void StreamRowsKernel::allocateState() {
  Type state = b.getStateType();
  int64_t rows = getRowCapacity();
  packed = laneSums = queryOf = Value();
  outputs = b.scratch({rows, paddedValueWidth}, state);
  maxima = b.scratch({rows}, state);
  sums = b.scratch({rows}, state);
}

void StreamRowsKernel::allocateScratch() {
  allocateState();
  Type state = b.getStateType();
  int64_t rows = getRowCapacity();
  bool hasManyRows = maxRows > columnRows;
  int64_t pitch = hasManyRows ? getRowPitch() : rows;
  int64_t planes = isPaged ? 1 : headBlock;
  int64_t tile =
      std::max(kColumnTile * std::max(planes * kColumnRows, columnRows),
               hasManyRows ? rowTile * pitch : 0);
  packed =
      b.scratch({pitch * paddedWidth}, dotsPairs() ? b.getBF16Type() : state);
  if (hasManyRows && !usesPairs)
    outputColumns = b.scratch({paddedValueWidth * pitch}, state);
  scores.memref = b.scratch({tile}, state);
  laneSums =
      b.scratch({std::max(headBlock * headRows, columnRows) * lanes}, state);
  rowFactors = b.scratch({rows}, state);
  if (isMasked)
    queryOf = b.scratch({rows}, b.getI32Type());
  keyTables.clear();
  bool hasBias = false, hasWeight = false, stagesKeys = false,
       stagesValues = false;
  auto isNarrow = [&](Value memref) {
    return hasManyRows && !usesPairs && getElementTypeOrSelf(memref) != state;
  };
  for (const StreamSource &source : op.getSourceList()) {
    hasBias |= source.bias != nullptr;
    hasWeight |= source.logWeight != nullptr;
    stagesKeys |= width % lanes != 0 || isNarrow(source.keys);
    stagesValues |= valueWidth % lanes != 0 || isNarrow(source.values);
    bool isKnown = llvm::any_of(keyTables, [&](const KeyTable &table) {
      return table.operand == source.keys;
    });
    if (!source.codes || isKnown)
      continue;
    int64_t numRows = cast<MemRefType>(source.keys.getType()).getDimSize(2);
    keyTables.push_back(
        {source.keys, b.scratch({padTable(numRows) * rows}, state), numRows});
  }
  if (!op.getRowLists().empty()) {
    listedRows = b.scratch({2 * kColumnTile}, b.getIndexType());
    listedPositions = b.scratch({2 * kColumnTile}, b.getI32Type());
  }
  if (hasBias)
    biases = b.scratch({tile}, state);
  if (!scoreFunctions.empty())
    computed = b.scratch({tile}, state);
  if (hasWeight)
    weights = b.scratch({kColumnTile}, state);
  if (hasWeight && !isSoftmax)
    factors = b.scratch({kColumnTile}, state);
  if (stagesKeys)
    stagedKeys = b.scratch({kColumnTile, paddedWidth}, state);
  if (stagesValues)
    stagedValues = b.scratch({kColumnTile, paddedValueWidth}, state);
  if (usesPairs)
    allocatePairs();
}

void StreamRowsKernel::clearRow(Value memref, Value row) {
  b.overVectors(paddedValueWidth, [&](Value column) {
    b.storeVector(b.splat(0.0), memref, {row, column});
  });
}

/// The state of the rows before the first key. A sink belongs to the first
/// part.
void StreamRowsKernel::startState(Value isFirstPart) {
  // Above a masked score, so that such an entry weighs nothing from the start.
  Value lowest = b.scalar(softmax::kAdmitted), zero = b.scalar(0.0);
  if (usesColumns())
    clearColumns();
  b.loop(b.index(0), paddedRows, 1, [&](Value row) {
    if (!usesColumns())
      clearRow(outputs, row);
    auto [head, query] = locate(rowOfSlot(row));
    Value maximum = lowest, sum = zero;
    if (Value sinks = op.getSink()) {
      Value sink = b.loadScalar(sinks, {b.broadcastIndex(sinks, 0, batch),
                                        b.broadcastIndex(sinks, 1, head)});
      auto [score, weight] = softmax::startWithSink(b, sink);
      maximum = b.select(isFirstPart, score, lowest);
      sum = b.select(isFirstPart, weight, zero);
    }
    b.storeScalar(maximum, maxima, row);
    b.storeScalar(sum, sums, row);
    if (alongColumns)
      b.storeVector(vector::InsertOp::create(b, sum, b.splat(0.0), 0), laneSums,
                    b.mul(row, lanes));
    if (queryOf)
      b.storeIndex(b.sub(query, firstQuery), queryOf, row);
  });
}

/// Rows behind the last one are as that.
std::pair<StreamRowsKernel::Value, StreamRowsKernel::Value>
StreamRowsKernel::locate(Value row) {
  row = b.add(setBegin, b.min(row, b.sub(setRows, b.index(1))));
  return {b.add(b.mul(setHead, group), b.div(row, setQueries)),
          b.add(firstQuery, b.rem(row, setQueries))};
}

/// Of scores as the rows' products give them.
double StreamRowsKernel::getScoreScale() {
  double scale = op.getScale().convertToDouble();
  return isSoftmax && scoreFunctions.empty() ? scale * softmax::kLog2E : scale;
}

/// The rows, scaled, in base 2 unless a region comes between: one after the
/// other, with zeros up to a whole vector, or transposed.
void StreamRowsKernel::packRows() {
  if (multipliesPairs())
    return packRowPairs();
  if (dotsPairs() && !usesLanes)
    return copyNarrowRows();
  if (dotsPairs())
    return b.ifThenElse(
        areEights(), [&] { packLanes(); }, [&] { copyNarrowRows(); });
  double scale = getScoreScale();
  int64_t whole = llvm::alignDown(width, lanes);
  auto at = [&](Value row, Value column) {
    auto [head, query] = locate(rowOfSlot(row));
    return Values{batch, head, query, column};
  };
  auto place = [&](Value row, Value column) {
    return alongColumns ? b.add(b.mul(row, paddedWidth), column)
                        : b.add(b.mul(column, rowPitch), row);
  };
  if (alongColumns)
    b.loop(b.index(0), paddedRows, 1, [&](Value row) {
      int64_t step = getColumnVectors() * lanes;
      b.loop(b.index(0), b.index(whole), step, [&](Value column) {
        for (auto [v, part] :
             llvm::enumerate(loadColumns(op.getQuery(), at(row, column))))
          b.storeVector(b.fmul(part, b.splat(scale)), packed,
                        place(row, b.add(column, v * lanes)));
      });
      b.loop(b.index(width), b.index(paddedWidth), 1, [&](Value column) {
        b.storeScalar(b.scalar(0.0), packed, place(row, column));
      });
    });
  else
    b.loop(b.index(0), paddedRows, lanes, [&](Value row) {
      b.loop(b.index(0), b.index(whole), lanes, [&](Value column) {
        Values square;
        for (int64_t i = 0; i < lanes; ++i)
          square.push_back(
              b.fmul(b.loadVector(op.getQuery(), at(b.add(row, i), column)),
                     b.splat(scale)));
        for (auto [i, vector] : llvm::enumerate(b.transpose(square)))
          b.storeVector(vector, packed, place(row, b.add(column, i)));
      });
    });
  if (whole != width)
    b.loop(b.index(0), paddedRows, 1, [&](Value row) {
      b.loop(b.index(whole), b.index(width), 1, [&](Value column) {
        Value element = b.loadScalar(op.getQuery(), at(row, column));
        b.storeScalar(b.fmul(element, b.scalar(scale)), packed,
                      place(row, column));
      });
    });
  if (usesColumns())
    pairColumns();
}

/// Puts the columns of the outputs in their order.
void StreamRowsKernel::orderColumns() {
  if (!alternates)
    return;
  b.loop(b.index(0), setRows, 1, [&](Value row) {
    b.loop(b.index(0), b.index(valueWidth), 2 * lanes, [&](Value column) {
      Value even = b.loadVector(outputs, {row, column});
      Value odd = b.loadVector(outputs, {row, b.add(column, lanes)});
      b.storePairs(even, odd, outputs, {row, column});
    });
  });
}

void StreamRowsKernel::finishRow(Value row) {
  Value maximum = b.broadcast(b.loadScalar(maxima, row));
  Value sum = b.broadcast(b.loadScalar(sums, row));
  Value zero = b.splat(0.0), factor = b.splat(1.0);
  if (isSoftmax)
    factor = softmax::inverseSum(b, maximum, sum);
  Value isEmpty =
      arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, factor, zero);
  // As for blocks of queries: infinite sums become NaN, empty rows zero.
  b.overVectors(paddedValueWidth, [&](Value column) {
    Value total = b.loadVector(outputs, {row, column});
    Value mean = b.fma(total, zero, b.fmul(total, factor));
    b.storeVector(arith::SelectOp::create(b, isEmpty, zero, mean), outputs,
                  {row, column});
  });
  auto [head, query] = locate(row);
  b.copyRow(outputs, row, op.getOutput(), {batch, head, query}, valueWidth);
  if (!op.getLse())
    return;
  Value logSum = softmax::logSumExp(b, maximum, sum);
  b.storeScalar(vector::ExtractOp::create(b, logSum, 0), op.getLse(),
                {batch, head, query});
}
