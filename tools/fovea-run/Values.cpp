//===- Values.cpp - Tensors on the command line ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Values.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace llvm;
using namespace fovea;

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

/// SplitMix64, whose state is a counter.
static uint64_t nextRandom(uint64_t &state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

void run::fillRandom(OwnedTensor &tensor, uint64_t seed) {
  uint64_t state = seed * 0x2545f4914f6cdd1d + 1;
  ElementType type = tensor.getElementType();
  int64_t count = tensor.getNumElements();
  if (!isFloat(type)) {
    for (int64_t i = 0; i < count; ++i)
      setElement(tensor.getData(), type, i, nextRandom(state) % 8);
    return;
  }
  // Box and Muller: two uniform numbers make two normal ones.
  for (int64_t i = 0; i < count; i += 2) {
    uint64_t bits = nextRandom(state);
    float u = (uint32_t(bits >> 40) + 1) * 0x1p-24f;
    float angle = uint32_t((bits >> 8) & 0xffffff) * 0x1p-24f * 6.28318531f;
    float radius = std::sqrt(-2.0f * std::log(u));
    setElement(tensor.getData(), type, i, radius * std::cos(angle));
    if (i + 1 < count)
      setElement(tensor.getData(), type, i + 1, radius * std::sin(angle));
  }
}

Expected<OwnedTensor> run::parseScalar(StringRef text, ElementType type) {
  Expected<OwnedTensor> scalar = allocateTensor(type, {});
  if (!scalar)
    return scalar;
  if (isFloat(type)) {
    double value;
    if (text.getAsDouble(value))
      return createStringError("expected a number of type " + getName(type) +
                               ", but got '" + text + "'");
    setElement(scalar->getData(), type, 0, value);
    return scalar;
  }
  int64_t value;
  unsigned bits = type == ElementType::I1 ? 1 : 8 * getByteWidth(type);
  if (text.getAsInteger(0, value) ||
      (type == ElementType::I1 ? value < 0 || value > 1 : !isIntN(bits, value)))
    return createStringError("expected an integer of type " + getName(type) +
                             ", but got '" + text + "'");
  std::memcpy(scalar->getData(), &value, getByteWidth(type));
  return scalar;
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

std::string run::describe(const OwnedTensor &tensor) {
  std::string text = getName(tensor.getElementType()).str();
  if (tensor.getShape().empty())
    return text;
  raw_string_ostream os(text);
  os << '[';
  interleave(tensor.getShape(), os, "x");
  os << ']';
  return text;
}

run::Summary run::summarize(const OwnedTensor &tensor) {
  Summary summary;
  int64_t count = tensor.getNumElements(), numNumbers = 0;
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    double value = getElement(tensor.getData(), tensor.getElementType(), i);
    if (std::isnan(value)) {
      ++summary.numNaN;
      continue;
    }
    if (numNumbers++ == 0)
      summary.min = summary.max = value;
    summary.min = std::min(summary.min, value);
    summary.max = std::max(summary.max, value);
    sum += value;
  }
  if (numNumbers)
    summary.mean = sum / numNumbers;
  return summary;
}

/// The element at `index` of integers, whose 64 bits a double does not hold.
static int64_t getInteger(const OwnedTensor &tensor, int64_t index) {
  int64_t bytes = getByteWidth(tensor.getElementType()), number = 0;
  // Little-endian: the low bytes come first.
  std::memcpy(&number, tensor.getDataAs<char>() + index * bytes, bytes);
  return SignExtend64(number, 8 * bytes);
}

static void printNested(const OwnedTensor &tensor, size_t dim, int64_t &next,
                        raw_ostream &os) {
  if (dim == tensor.getShape().size()) {
    if (!isFloat(tensor.getElementType())) {
      os << getInteger(tensor, next++);
      return;
    }
    os << format("%.6g",
                 getElement(tensor.getData(), tensor.getElementType(), next++));
    return;
  }
  os << '[';
  for (int64_t i = 0; i < tensor.getShape()[dim]; ++i) {
    if (i > 0)
      os << ", ";
    printNested(tensor, dim + 1, next, os);
  }
  os << ']';
}

void run::printElements(const OwnedTensor &tensor, raw_ostream &os) {
  int64_t next = 0;
  // An empty tensor of any shape has no elements to walk over.
  if (tensor.getNumElements() == 0) {
    os << "[]";
    return;
  }
  printNested(tensor, 0, next, os);
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

run::Comparison run::compare(const OwnedTensor &found,
                             const OwnedTensor &expected) {
  Comparison result;
  if (found.getShape() != expected.getShape() ||
      found.getElementType() != expected.getElementType()) {
    result.mismatch =
        "expected " + describe(expected) + ", but got " + describe(found);
    return result;
  }
  double largest = 0;
  bool areIntegers = !isFloat(found.getElementType());
  result.numCompared = found.getNumElements();
  for (int64_t i = 0; i < result.numCompared; ++i) {
    // Which are the same number where doubles are too coarse.
    if (areIntegers && getInteger(found, i) != getInteger(expected, i))
      result.maxAbsolute = std::max(result.maxAbsolute, 1.0);
    double a = getElement(found.getData(), found.getElementType(), i);
    double b = getElement(expected.getData(), expected.getElementType(), i);
    if (std::isfinite(a) && std::isfinite(b)) {
      result.maxAbsolute = std::max(result.maxAbsolute, std::abs(a - b));
      largest = std::max(largest, std::abs(b));
    } else if (!(std::isnan(a) && std::isnan(b)) && a != b) {
      ++result.numUnordered;
    }
  }
  // All expected to be zero: any difference is infinitely large.
  result.maxRelative =
      result.maxAbsolute == 0 ? 0 : result.maxAbsolute / largest;
  return result;
}

double run::getRelativeBound(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return 2e-3;
  case ElementType::BF16:
    return 1e-2;
  case ElementType::F32:
    return 5e-6;
  case ElementType::F64:
    return 1e-12;
  default:
    return 0;
  }
}
