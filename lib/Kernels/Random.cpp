//===- Random.cpp - Numbers that a seed chooses ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/Random.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

Value fovea::attn::emitRandomBelow(ImplicitLocOpBuilder &b, Value seed,
                                   Value number, Value limit) {
  Type i64 = b.getI64Type();
  auto constant = [&](uint64_t value) -> Value {
    return arith::ConstantOp::create(
        b, b.getIntegerAttr(i64, static_cast<int64_t>(value)));
  };
  auto toI64 = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, i64, index);
  };
  // Any two numbers of the generator are independent of their order: number i
  // is a hash of seed + (i + 1) step.
  Value count = arith::AddIOp::create(b, toI64(number), constant(1));
  Value x = arith::AddIOp::create(
      b, memref::LoadOp::create(b, seed, ValueRange()),
      arith::MulIOp::create(b, count, constant(0x9e3779b97f4a7c15)));
  auto mix = [&](uint64_t shift) {
    x = arith::XOrIOp::create(b, x,
                              arith::ShRUIOp::create(b, x, constant(shift)));
  };
  auto multiply = [&](uint64_t factor) {
    x = arith::MulIOp::create(b, x, constant(factor));
  };
  mix(30);
  multiply(0xbf58476d1ce4e5b9);
  mix(27);
  multiply(0x94d049bb133111eb);
  mix(31);
  Value below = arith::RemUIOp::create(b, x, toI64(limit));
  return arith::IndexCastOp::create(b, b.getIndexType(), below);
}
