//===- TokenMemory.cpp - Where caches have keys and values ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NewTokens.h"
#include "fovea/ExecutionEngine/Elements.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

Error functions::allocateTokens(Checker &check, const Twine &found,
                                std::array<int64_t, 3> extents, int64_t width,
                                ElementType type, TokenMemory &memory) {
  check.integer("heads", extents[1], 1);
  check.integer("width", width, 1);
  check.integer("value_width", memory.valueWidth, 1);
  check.check(!memory.valuesAreKeys || memory.valueWidth <= width,
              "value_width: found " + Twine(memory.valueWidth) +
                  ", needed at most the " + Twine(width) +
                  " columns of keys, whose first ones are values");
  check.check(isFloat(type), "dtype: found " + getArrayTypeName(type) +
                                 ", needed a floating-point type");
  if (check.hasFailed())
    return check.takeError();
  for (auto [side, columns] :
       {std::pair(&memory.keys, width), {&memory.values, memory.valueWidth}}) {
    if (side == &memory.values && memory.valuesAreKeys)
      continue;
    Shape shape{extents[0], extents[1], extents[2], columns};
    if (memory.hasTokensFirst)
      std::swap(shape[1], shape[2]);
    Expected<OwnedTensor> made = allocateTensor(type, shape);
    if (!made)
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          found + ", needed memory for them: " + toString(made.takeError()));
    *side = std::move(*made);
  }
  return Error::success();
}

SmallVector<StridedView, 2> functions::getSides(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides{StridedView(memory.keys.getRef())};
  if (!memory.valuesAreKeys)
    sides.emplace_back(memory.values.getRef());
  return sides;
}

SmallVector<StridedView, 2>
functions::getHeadsFirst(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides = getSides(memory);
  if (memory.hasTokensFirst)
    for (StridedView &side : sides)
      side = side.swap(1, 2);
  return sides;
}

std::pair<StridedView, StridedView>
functions::getKeysAndValues(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides = getHeadsFirst(memory);
  return {sides.front(), sides.back().slice(3, 0, memory.valueWidth)};
}

NewTokens::NewTokens(Checker &check, const TensorRef &k,
                     const std::optional<TensorRef> &v,
                     const TokenMemory &memory, int64_t batch) {
  auto getLike = [&](int64_t width) {
    return Shape{batch, memory.getNumHeads(), 0, width};
  };
  Shape keys = getLike(memory.getWidth()), values = getLike(memory.valueWidth);
  ElementType type = memory.getElementType();
  arrays.push_back(
      checkArray(check, "k", "[B,G,N,D]", k, {nullptr, type, keys}));
  check.check(v.has_value() != memory.valuesAreKeys,
              memory.valuesAreKeys
                  ? "v: found an array, needed none: values are the first " +
                        Twine(memory.valueWidth) + " columns of keys"
                  : "v: found none, needed an array of shape [B,G,N,E]");
  if (v && !check.hasFailed())
    addValues(check, *v, {nullptr, type, values});
}
