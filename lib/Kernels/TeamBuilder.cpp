//===- TeamBuilder.cpp - Teams that are threads of a CPU ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/TeamBuilder.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

ThreadTeamBuilder::ThreadTeamBuilder(Location loc, OpBuilder &builder,
                                     FloatType stateType, int64_t vectorBits,
                                     int64_t minTeams)
    : TeamBuilder(loc, builder, stateType, vectorBits / stateType.getWidth()),
      minTeams(minTeams) {}

void ThreadTeamBuilder::forTeams(ArrayRef<Value> grid,
                                 function_ref<void(ValueRange)> body) {
  forAll(grid, [&](ValueRange point) {
    body(point);
    freeScratch();
  });
}

Value ThreadTeamBuilder::teamBuffer(Value extent, Type elementType) {
  if (std::optional<int64_t> known = getConstantIntValue(extent))
    return scratch(*known, elementType);
  return scratch(extent, /*trailing=*/{}, elementType);
}

void ThreadTeamBuilder::forVectors(
    Value begin, Value end, function_ref<void(int64_t, Value, Value)> body) {
  std::optional<int64_t> from = getConstantIntValue(begin),
                         last = getConstantIntValue(end);
  if (!from || !last) {
    Value whole = add(begin, roundDown(sub(end, begin), getLanes()));
    body(getLanes(), begin, whole);
    return body(1, whole, end);
  }
  for (int64_t lanes = getLanes(); *from < *last; lanes /= 2) {
    int64_t to = *from + llvm::alignDown(*last - *from, lanes);
    if (*from < to)
      body(lanes, index(*from), index(to));
    from = to;
  }
}

void ThreadTeamBuilder::forColumns(Value begin, Value end, ColumnBody body) {
  forVectors(begin, end, [&](int64_t lanes, Value from, Value to) {
    loop(from, to, lanes, [&](Value column) {
      KernelBuilder k(getLoc(), *this, getStateType(), lanes);
      body(k, column);
    });
  });
}

void ThreadTeamBuilder::forColumnsOrMore(Value begin, Value end, Value most,
                                         ColumnBody body) {
  Value count = mul(ceilDiv(sub(end, begin), getLanes()), getLanes());
  ifThenElse(
      less(count, add(most, 1)),
      [&] {
        loop(begin, add(begin, count), getLanes(),
             [&](Value column) { body(*this, column); });
      },
      [&] { forColumns(begin, end, body); });
}

void TeamBuilder::forRows(ArrayRef<Value> grid, Value numRows, int64_t many,
                          function_ref<void(ValueRange)> body) {
  int64_t rowsPerTeam = getRowsPerTeam(many);
  Values teams(grid);
  teams.push_back(ceilDiv(numRows, rowsPerTeam));
  if (rowsPerTeam == 1)
    return forTeams(teams, body);
  forTeams(teams, [&](ValueRange point) {
    Value begin = mul(point.back(), rowsPerTeam);
    loop(begin, min(add(begin, rowsPerTeam), numRows), 1, [&](Value row) {
      Values at(point.drop_back());
      at.push_back(row);
      body(at);
    });
  });
}

Value TeamBuilder::sumColumns(Value begin, Value end, ColumnValue body) {
  auto add = [&](KernelBuilder &k, Value column, Value running) {
    return k.fadd(running, body(k, column));
  };
  return foldColumns(vector::CombiningKind::ADD, 0.0, begin, end, add);
}

Value ThreadTeamBuilder::foldColumns(vector::CombiningKind kind, double init,
                                     Value begin, Value end, ColumnStep step) {
  Value total = scalar(init);
  forVectors(begin, end, [&](int64_t lanes, Value from, Value to) {
    KernelBuilder outer(getLoc(), *this, getStateType(), lanes);
    Value parts =
        loop(from, to, lanes, outer.splat(init),
             [&](Value column, ValueRange running) -> Values {
               KernelBuilder k(getLoc(), *this, getStateType(), lanes);
               return {step(k, column, running.front())};
             })
            .front();
    total = vector::makeArithReduction(
        *this, getLoc(), kind, total,
        vector::ReductionOp::create(*this, kind, parts));
  });
  return total;
}

void ThreadTeamBuilder::forColumnTiles(
    int64_t width, int64_t most,
    function_ref<void(KernelBuilder &, ValueRange)> body) {
  forVectors(index(0), index(width), [&](int64_t lanes, Value from, Value to) {
    int64_t end = *getConstantIntValue(to),
            vectors = (end - *getConstantIntValue(from)) / lanes;
    auto emitTile = [&](Value first, int64_t count) {
      KernelBuilder k(getLoc(), *this, getStateType(), lanes);
      Values columns;
      for (int64_t v = 0; v < count; ++v)
        columns.push_back(k.add(first, v * lanes));
      body(k, columns);
    };
    int64_t tile = llvm::divideCeil(vectors, llvm::divideCeil(vectors, most));
    int64_t rest = vectors % tile, whole = end - rest * lanes;
    loop(from, index(whole), tile * lanes,
         [&](Value first) { emitTile(first, tile); });
    if (rest)
      emitTile(index(whole), rest);
  });
}

Value ThreadTeamBuilder::listNumbers(
    Value extent, function_ref<Value(KernelBuilder &, Value)> condition,
    Value list, ValueRange at) {
  return loop(index(0), extent, 1, index(0),
              [&](Value number, ValueRange counted) -> Values {
                Value count = counted.front();
                Values place(at);
                place.push_back(count);
                storeIndex(number, list, place);
                return {select(condition(*this, number), add(count, 1), count)};
              })
      .front();
}

void ThreadTeamBuilder::forRowsOfKey(Value begin, Value end, KeyOfRow getKey,
                                     Value, int64_t, KeyedRowBody body) {
  loop(begin, end, 1, [&](Value row) { body(row, getKey(row)); });
}
