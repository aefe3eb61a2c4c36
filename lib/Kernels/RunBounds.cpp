//===- RunBounds.cpp - Bounds of elements of integers ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/RunBounds.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/InferIntRangeInterface.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

RunBounds RunBounds::create(KernelBuilder &b, Value memref) {
  auto type = cast<MemRefType>(memref.getType());
  unsigned dim = type.getRank() - 1;
  Values extents;
  for (int64_t i = 0; i <= dim; ++i)
    extents.push_back(b.extent(memref, i));
  Value length = extents.back();
  extents.back() = b.ceilDiv(length, kLength);
  auto allocate = [&] {
    return b.allocate(extents, /*trailing=*/{}, type.getElementType());
  };
  RunBounds runs = {allocate(), allocate()};
  auto forEach = [&](auto &self, Values at) -> void {
    b.loop(b.index(0), extents[at.size()], 1, [&](Value index) {
      at.push_back(index);
      if (at.size() <= dim) {
        self(self, at);
      } else {
        Value low = b.mul(index, kLength);
        auto [least, greatest] = RunBounds{memref, memref}.reduce(
            b, at, dim, low, b.min(b.add(low, kLength), length));
        memref::StoreOp::create(b, least, runs.least, at);
        memref::StoreOp::create(b, greatest, runs.greatest, at);
      }
      at.pop_back();
    });
  };
  forEach(forEach, {});
  return runs;
}

std::pair<Value, Value> RunBounds::reduce(KernelBuilder &b, Values at,
                                          unsigned dim, Value low,
                                          Value high) const {
  auto type = cast<MemRefType>(least.getType());
  Type element = type.getElementType();
  auto limit = [&](bool isHighest) -> Value {
    unsigned bits = ConstantIntRanges::getStorageBitwidth(element);
    APInt value = isHighest ? APInt::getSignedMaxValue(bits)
                            : APInt::getSignedMinValue(bits);
    return arith::ConstantOp::create(b, b.getIntegerAttr(element, value));
  };
  Values bounds = {limit(/*isHighest=*/true), limit(/*isHighest=*/false)};
  auto add = [&](ValueRange running, function_ref<Value(Value)> load) {
    return Values{arith::MinSIOp::create(b, running[0], load(least)),
                  arith::MaxSIOp::create(b, running[1], load(greatest))};
  };
  auto addElement = [&](Value index, ValueRange running) {
    at[dim] = index;
    return add(running, [&](Value memref) -> Value {
      return memref::LoadOp::create(b, memref, at);
    });
  };
  Value begin = low;
  int64_t lanes = b.getLanes();
  if (lanes && dim + 1 == at.size() && type.isLastDimUnitStride() &&
      !element.isIndex()) {
    auto vector = VectorType::get({lanes}, element);
    Value length = b.max(b.sub(high, low), b.index(0));
    Value end = b.add(low, b.roundDown(length, lanes));
    Values vectors = llvm::map_to_vector(bounds, [&](Value bound) -> Value {
      return vector::BroadcastOp::create(b, vector, bound);
    });
    auto addVector = [&](Value index, ValueRange running) {
      at[dim] = index;
      return add(running, [&](Value memref) -> Value {
        return vector::LoadOp::create(b, vector, memref, at);
      });
    };
    // Chains of their own: one would be waited for.
    Value paired = b.add(low, b.roundDown(length, 2 * lanes));
    Values both = vectors;
    both.append(vectors);
    both = b.loop(
        begin, paired, 2 * lanes, both, [&](Value index, ValueRange running) {
          Values next = addVector(index, running.take_front(2));
          next.append(addVector(b.add(index, lanes), running.drop_front(2)));
          return next;
        });
    vectors = {arith::MinSIOp::create(b, both[0], both[2]),
               arith::MaxSIOp::create(b, both[1], both[3])};
    vectors = b.loop(paired, end, lanes, vectors, addVector);
    bounds = {vector::ReductionOp::create(b, vector::CombiningKind::MINSI,
                                          vectors[0]),
              vector::ReductionOp::create(b, vector::CombiningKind::MAXSI,
                                          vectors[1])};
    begin = end;
  }
  bounds = b.loop(begin, high, 1, bounds, addElement);
  return {bounds[0], bounds[1]};
}
