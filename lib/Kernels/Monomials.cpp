//===- Monomials.cpp - Products of columns of a row -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/Monomials.h"
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
Values Monomials::emit(int64_t missing, Value product, Value low, Value run,
                       ValueRange carried) {
  if (missing == 1)
    return emitLast(product, low, run, carried);
  return b.loop(
      low, b.index(width), 1, carried,
      [&](Value column, ValueRange carried) -> Values {
        Value one = b.index(1);
        Value times = b.select(b.equal(column, low), b.add(run, one), one);
        Value next = overRoot(b.fmul(product, loadColumn(column)), times);
        Values inner = emit(missing - 1, next, column, times, before(carried));
        return after(product, column, times, carried, inner);
      });
}

void Monomials::emitRow(int64_t degree, ValueRange others) {
  Value zero = b.index(0), one = b.scalar(1.0), position = b.index(1);
  for (int64_t missing = 1; missing <= degree; ++missing) {
    Values carried = {position};
    llvm::append_range(carried, others);
    position = emit(missing, one, zero, /*run=*/zero, carried).front();
  }
}
