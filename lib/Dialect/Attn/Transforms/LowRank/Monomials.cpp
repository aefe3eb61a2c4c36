//===- Monomials.cpp - Products of columns of a row -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Monomials.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

Value Monomials::overRoot(Value product, Value times) {
  Value root = math::SqrtOp::create(b, b.toNumber(times));
  return arith::DivFOp::create(b, product, root);
}

/// Stores the products of `product` with `missing` more columns from `low` on,
/// the last of which it has `run` times already. Takes and returns where the
/// next feature lies.
Value Monomials::emit(int64_t missing, Value product, Value low, Value run,
                      Value position) {
  if (missing == 1) {
    storeLast(product, low, run, position);
    return b.add(position, b.sub(b.index(width), low));
  }
  return b
      .loop(
          low, b.index(width), 1, position,
          [&](Value column, ValueRange positions) -> Values {
            Value one = b.index(1);
            Value times = b.select(b.equal(column, low), b.add(run, one), one);
            Value next = overRoot(b.fmul(product, loadColumn(column)), times);
            return {emit(missing - 1, next, column, times, positions.front())};
          })
      .front();
}

void Monomials::emitRow(int64_t degree) {
  Value zero = b.index(0), one = b.scalar(1.0), position = b.index(1);
  for (int64_t missing = 1; missing <= degree; ++missing)
    position = emit(missing, one, zero, /*run=*/zero, position);
}
