//===- Elements.cpp - Elements of tensors ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/bit.h"
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

static double decodeHalf(uint16_t bits, const fltSemantics &semantics) {
  APFloat value(semantics, APInt(16, bits));
  bool losesInfo;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven,
                &losesInfo);
  return value.convertToDouble();
}

static uint16_t encodeHalf(double number, const fltSemantics &semantics) {
  APFloat value(number);
  bool losesInfo;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return value.bitcastToAPInt().getZExtValue();
}

double fovea::getElement(const void *data, ElementType type, int64_t index) {
  auto load = [&](auto sample) {
    decltype(sample) value;
    std::memcpy(&value, static_cast<const char *>(data) + index * sizeof(value),
                sizeof(value));
    return value;
  };
  switch (type) {
  case ElementType::F16:
    return decodeHalf(load(uint16_t()), APFloat::IEEEhalf());
  case ElementType::BF16:
    return bit_cast<float>(uint32_t(load(uint16_t())) << 16);
  case ElementType::F32:
    return load(float());
  case ElementType::F64:
    return load(double());
  case ElementType::I1:
    return load(uint8_t()) != 0;
  case ElementType::I8:
    return load(int8_t());
  case ElementType::I16:
    return load(int16_t());
  case ElementType::I32:
    return load(int32_t());
  case ElementType::I64:
  case ElementType::Index:
    return load(int64_t());
  }
  llvm_unreachable("unknown element type");
}

void fovea::setElement(void *data, ElementType type, int64_t index,
                       double value) {
  auto store = [&](auto converted) {
    std::memcpy(static_cast<char *>(data) + index * sizeof(converted),
                &converted, sizeof(converted));
  };
  switch (type) {
  case ElementType::F16:
    return store(encodeHalf(value, APFloat::IEEEhalf()));
  case ElementType::BF16:
    return store(encodeHalf(value, APFloat::BFloat()));
  case ElementType::F32:
    return store(static_cast<float>(value));
  case ElementType::F64:
    return store(value);
  case ElementType::I1:
    return store(static_cast<uint8_t>(value != 0));
  case ElementType::I8:
    return store(static_cast<int8_t>(value));
  case ElementType::I16:
    return store(static_cast<int16_t>(value));
  case ElementType::I32:
    return store(static_cast<int32_t>(value));
  case ElementType::I64:
  case ElementType::Index:
    return store(static_cast<int64_t>(value));
  }
  llvm_unreachable("unknown element type");
}
