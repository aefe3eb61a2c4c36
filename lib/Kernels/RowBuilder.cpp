//===- RowBuilder.cpp - Loops over rows of any width ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/RowBuilder.h"
#include "fovea/Kernels/SumLanes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace fovea::attn;

void RowBuilder::forColumns(
    Value begin, Value end,
    llvm::function_ref<void(KernelBuilder &, Value)> body) {
  Value whole = add(begin, roundDown(sub(end, begin), getLanes()));
  loop(begin, whole, getLanes(), [&](Value column) { body(*this, column); });
  if (isEqualConstantIntOrValue(whole, end))
    return;
  loop(whole, end, 1, [&](Value column) {
    KernelBuilder single(getLoc(), *this, getStateType(), /*lanes=*/1);
    body(single, column);
  });
}

void RowBuilder::packRow(Value source, ValueRange at, Value first, Value target,
                         Value row, int64_t columns) {
  int64_t width = cast<MemRefType>(source.getType()).getShape().back();
  int64_t lanes = getLanes();
  Value available = sub(index(width), first);
  auto from = [&](Value column) {
    Values indices(at);
    indices.push_back(add(first, column));
    return indices;
  };
  auto packVector = [&](Value begin, bool isFirst) {
    ifThenElse(
        less(add(begin, lanes - 1), available),
        [&] {
          storeVector(loadVector(source, from(begin)), target, {row, begin});
        },
        [&] {
          storeVector(splat(0.0), target, {row, begin});
          if (isFirst)
            return loop(begin, min(available, lanes), 1, [&](Value i) {
              storeScalar(loadScalar(source, from(i)), target, {row, i});
            });
          // The last vector of the row, of which a part is there already.
          ifThen(less(begin, available), [&] {
            Value last = sub(available, index(lanes));
            storeVector(loadVector(source, from(last)), target, {row, last});
          });
        });
  };
  if (columns == 0)
    return;
  packVector(index(0), /*isFirst=*/true);
  overVectors(columns - lanes, [&](Value column) {
    packVector(add(column, lanes), /*isFirst=*/false);
  });
}

Value RowBuilder::dotPacked(Value a, Value aRow, Value b, Value bRow,
                            int64_t columns) {
  Value sums = loop(index(0), index(columns), getLanes(), splat(0.0),
                    [&](Value column, ValueRange sums) -> Values {
                      return {fma(loadVector(a, {aRow, column}),
                                  loadVector(b, {bRow, column}), sums.front())};
                    })
                   .front();
  return sumLanes(*this, sums);
}
