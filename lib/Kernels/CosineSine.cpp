//===- CosineSine.cpp - Cosines and sines of small angles -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/CosineSine.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace fovea::attn;

std::pair<Value, Value>
fovea::attn::emitCosineSine(KernelBuilder &k, Value angle, Value quarters) {
  // Of f32 with errors of 1.2e-8 and 6e-10 up to pi / 4; of f64 Taylor, of
  // which the first terms left out are below 5e-17.
  SmallVector<double> sineTerms = {1.0, -0x1.555552p-3, 0x1.110c28p-7,
                                   -0x1.9ac98ep-13};
  SmallVector<double> cosineTerms = {1.0, -0.5, 0x1.555554p-5, -0x1.6c12d2p-10,
                                     0x1.9bd88p-16};
  if (k.getStateType().isF64()) {
    sineTerms = cosineTerms = {1.0};
    for (int n = 1; n <= 8; ++n) {
      sineTerms.push_back(-sineTerms.back() / (2 * n * (2 * n + 1)));
      cosineTerms.push_back(-cosineTerms.back() / ((2 * n - 1) * 2 * n));
    }
  }
  Value square = k.fmul(angle, angle);
  Value sine = k.fmul(angle, k.polynomial(square, sineTerms));
  Value cosine = k.polynomial(square, cosineTerms);

  // Every quarter swaps the two and changes a sign.
  auto integer = [&](int64_t value) -> Value {
    Type type = quarters.getType();
    TypedAttr number = k.getIntegerAttr(getElementTypeOrSelf(type), value);
    if (auto vector = dyn_cast<ShapedType>(type))
      number = DenseElementsAttr::get(vector, Attribute(number));
    return arith::ConstantOp::create(k, number);
  };
  auto isSet = [&](Value bits, int64_t bit) -> Value {
    Value masked = arith::AndIOp::create(k, bits, integer(bit));
    return arith::CmpIOp::create(k, arith::CmpIPredicate::ne, masked,
                                 integer(0));
  };
  Value next = arith::AddIOp::create(k, quarters, integer(1));
  Value swaps = isSet(quarters, 1);
  auto choose = [&](Value condition, Value x, Value y) -> Value {
    return arith::SelectOp::create(k, condition, x, y);
  };
  auto negateIf = [&](Value condition, Value x) {
    return choose(condition, arith::NegFOp::create(k, x), x);
  };
  return {negateIf(isSet(next, 2), choose(swaps, sine, cosine)),
          negateIf(isSet(quarters, 2), choose(swaps, cosine, sine))};
}
