//===- Elements.cpp - Elements of tensors ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/Elements.h"
#include "fovea_rt/half_float.h"
#include "llvm/Support/ErrorHandling.h"
#include <cstring>

using namespace llvm;
using namespace fovea;

static constexpr ElementInfo kElements[] = {
    {ElementType::F16, 2, "f16", "float16", "<f2", "uint16_t"},
    {ElementType::BF16, 2, "bf16", "bfloat16", "|V2", "uint16_t"},
    {ElementType::F32, 4, "f32", "float32", "<f4", "float"},
    {ElementType::F64, 8, "f64", "float64", "<f8", "double"},
    {ElementType::I1, 1, "i1", "bool", "|b1", "int8_t"},
    {ElementType::I8, 1, "i8", "int8", "|i1", "int8_t"},
    {ElementType::I16, 2, "i16", "int16", "<i2", "int16_t"},
    {ElementType::I32, 4, "i32", "int32", "<i4", "int32_t"},
    {ElementType::I64, 8, "i64", "int64", "<i8", "int64_t"},
    {ElementType::Index, 8, "index", "int64", "<i8", "int64_t"},
};

static constexpr bool areInOrder() {
  unsigned number = 0;
  for (const ElementInfo &info : kElements)
    if (static_cast<unsigned>(info.type) != number++)
      return false;
  return true;
}
static_assert(areInOrder(), "the table has the order of the enumeration");

const ElementInfo &fovea::getElementInfo(ElementType type) {
  return kElements[static_cast<unsigned>(type)];
}

unsigned fovea::getByteWidth(ElementType type) {
  return getElementInfo(type).byteWidth;
}

StringRef fovea::getName(ElementType type) { return getElementInfo(type).name; }

bool fovea::isFloat(ElementType type) {
  return type == ElementType::F16 || type == ElementType::BF16 ||
         type == ElementType::F32 || type == ElementType::F64;
}

std::optional<ElementType> fovea::getIntegerType(unsigned bits) {
  switch (bits) {
  case 8:
    return ElementType::I8;
  case 16:
    return ElementType::I16;
  case 32:
    return ElementType::I32;
  case 64:
    return ElementType::I64;
  }
  return std::nullopt;
}

/// Calls visit with a number of the type that elements are stored as, floats of
/// 16 bits as their bits.
template <typename Visit>
static auto visitStorage(ElementType type, Visit visit) {
  switch (type) {
  case ElementType::F32:
    return visit(float());
  case ElementType::F64:
    return visit(double());
  case ElementType::F16:
  case ElementType::BF16:
    return visit(uint16_t());
  case ElementType::I1:
    return visit(uint8_t());
  case ElementType::I8:
    return visit(int8_t());
  case ElementType::I16:
    return visit(int16_t());
  case ElementType::I32:
    return visit(int32_t());
  case ElementType::I64:
  case ElementType::Index:
    return visit(int64_t());
  }
  llvm_unreachable("unknown element type");
}

double fovea::getElement(const void *data, ElementType type, int64_t index) {
  return visitStorage(type, [&](auto value) -> double {
    std::memcpy(&value, static_cast<const char *>(data) + index * sizeof(value),
                sizeof(value));
    if (type == ElementType::F16)
      return extendF16(value);
    if (type == ElementType::BF16)
      return extendBF16(value);
    return type == ElementType::I1 ? value != 0 : value;
  });
}

void fovea::setElement(void *data, ElementType type, int64_t index,
                       double value) {
  visitStorage(type, [&](auto stored) {
    if (type == ElementType::F16)
      stored = truncateToF16(truncateToOdd(value));
    else if (type == ElementType::BF16)
      stored = truncateToBF16(truncateToOdd(value));
    else
      stored = static_cast<decltype(stored)>(
          type == ElementType::I1 ? value != 0 : value);
    std::memcpy(static_cast<char *>(data) + index * sizeof(stored), &stored,
                sizeof(stored));
  });
}
