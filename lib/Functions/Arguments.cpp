//===- Arguments.cpp - Checks of the arguments of functions ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <charconv>
#include <cmath>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static constexpr ElementType kDataTypes[] = {
    ElementType::F16, ElementType::BF16, ElementType::F32, ElementType::F64};

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

std::string functions::toList(ArrayRef<int64_t> extents) {
  std::string text = "[";
  raw_string_ostream os(text);
  interleaveComma(extents, os);
  return text + "]";
}

std::string functions::toTuple(ArrayRef<int64_t> extents) {
  std::string text = "(";
  raw_string_ostream os(text);
  interleaveComma(extents, os);
  return text + (extents.size() == 1 ? ",)" : ")");
}

/// The fewest digits that tell the number.
static std::string toText(double number) {
  char text[32];
  return std::string(text,
                     std::to_chars(text, std::end(text), number).ptr - text);
}

std::string functions::getArrayTypeName(ElementType type) {
  return getElementInfo(type).arrayName.str();
}

ElementType functions::getStateType(ElementType type) {
  return type == ElementType::F64 ? ElementType::F64 : ElementType::F32;
}

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

Error functions::toArgumentError(Error error) {
  return createStringError(std::make_error_code(std::errc::invalid_argument),
                           toString(std::move(error)));
}

void Checker::fail(const Twine &text) {
  if (failed)
    return;
  failed = true;
  error = createStringError(std::make_error_code(std::errc::invalid_argument),
                            text);
}

void Checker::fail(Error reason) {
  if (failed)
    return consumeError(std::move(reason));
  failed = true;
  error = std::move(reason);
}

void Checker::match(StringRef name, StringRef what, int64_t found,
                    int64_t needed) {
  check(found == needed, name + ": found " + what + " " + Twine(found) +
                             ", needed " + Twine(needed));
}

void Checker::match(StringRef name, StringRef what, ArrayRef<int64_t> found,
                    ArrayRef<int64_t> needed) {
  if (found != needed)
    fail(name + ": found " + what + " " + toTuple(found) + ", needed " +
         toTuple(needed));
}

int64_t Checker::integer(StringRef name, int64_t value, int64_t least,
                         int64_t most) {
  check(value >= least, name + ": found " + Twine(value) +
                            ", needed an integer of at least " + Twine(least));
  check(value <= most,
        name + ": found " + Twine(value) + ", needed at most " + Twine(most));
  return value;
}

double Checker::scale(std::optional<double> value, int64_t width) {
  double number = value.value_or(1.0 / std::sqrt(double(width)));
  if (!std::isfinite(number))
    fail("scale: found " + toText(number) + ", needed a finite number");
  return number;
}

double Checker::number(StringRef name, double value, bool holds,
                       StringRef least) {
  if (!std::isfinite(value) || !holds)
    fail(name + ": found " + toText(value) + ", needed a finite number" +
         (least.empty() ? "" : " ") + least);
  return value;
}

void Checker::rate(StringRef name, double value) {
  if (!(value >= 0 && value <= 1))
    fail(name + ": found " + toText(value) + ", needed a number from 0 to 1");
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

Argument::Argument(StringRef name, const TensorRef &array)
    : name(name), elementType(array.elementType), shape(array.shape),
      strides(array.strides), data(array.data), isReadOnly(array.isReadOnly) {}

void Argument::extendTo(unsigned rank) {
  while (shape.size() < rank) {
    shape.insert(shape.begin(), 1);
    if (!strides.empty())
      strides.insert(strides.begin(), 0);
  }
}

void Checker::elementType(const Argument &argument,
                          ArrayRef<ElementType> needed) {
  if (is_contained(needed, argument.elementType))
    return;
  SmallVector<std::string> names;
  for (ElementType type : needed)
    if (!is_contained(names, getArrayTypeName(type)))
      names.push_back(getArrayTypeName(type));
  fail(argument.name + ": found element type " +
       getArrayTypeName(argument.elementType) + ", needed " +
       join(names, " or "));
}

Argument Checker::tensor(StringRef name, const TensorRef &array, unsigned rank,
                         StringRef layout) {
  Argument argument(name, array);
  if (!isFloat(argument.elementType))
    fail(name + ": found element type " +
         getArrayTypeName(argument.elementType) + ", needed one of " +
         join(map_range(kDataTypes, getArrayTypeName), ", "));
  checkRank(argument, rank, layout);
  return argument;
}

void Checker::checkRank(Argument &argument, unsigned rank, StringRef layout) {
  check(argument.shape.size() == rank,
        argument.name + ": found rank " + Twine(argument.shape.size()) +
            ", needed rank " + Twine(rank) + " " + layout);
  if (any_of(argument.shape, [](int64_t extent) { return extent < 0; }))
    fail(argument.name + ": found shape " + toList(argument.shape) +
         ", needed extents of at least 0");
  if (failed)
    argument.shape.assign(rank, 1);
}

Checker::Checker(StringRef op)
    : contract(attn::findContract(("attn." + op).str())) {}

SmallVector<ElementType, 4> Checker::getTypes(attn::ElementRule rule) const {
  switch (rule) {
  case attn::ElementRule::I32:
    return {ElementType::I32};
  case attn::ElementRule::I64:
    return {ElementType::I64};
  default:
    break;
  }
  if (!data)
    return {};
  ElementType sum = getStateType(*data);
  switch (rule) {
  case attn::ElementRule::Data:
    return {*data};
  case attn::ElementRule::Sum:
    return {sum};
  case attn::ElementRule::DataOrSum:
    return {*data, sum};
  case attn::ElementRule::SameSum:
    if (sum == ElementType::F64)
      return {sum};
    return {ElementType::F16, ElementType::BF16, ElementType::F32};
  default:
    return {};
  }
}

static std::string describe(const attn::ExtentSpec &extent) {
  return extent.getText() + (extent.mayBroadcast ? " or 1" : "");
}

Argument Checker::operand(const attn::OperandSpec &spec, StringRef name,
                          const TensorRef &array) {
  const attn::OperandSpec *shape = &spec;
  while (!shape->like.empty())
    shape = contract->find(shape->like);
  ArrayRef<attn::ExtentSpec> extents = shape->getExtents(array.shape.size());
  unsigned rank = extents.size();
  std::string layout;
  if (array.shape.size() != rank)
    layout = "[" + join(map_range(extents, describe), ",") + "]";
  SmallVector<ElementType, 4> types = getTypes(spec.elements);
  if (is_contained({attn::ElementRule::I32, attn::ElementRule::I64},
                   spec.elements)) {
    Argument argument(name, array);
    elementType(argument, types);
    checkRank(argument, rank, layout);
    return argument;
  }
  Argument argument = tensor(name, array, rank, layout);
  if (!types.empty())
    elementType(argument, types);
  else if (!data && spec.elements == attn::ElementRule::Data)
    data = argument.elementType;
  return argument;
}

void Checker::notEmpty(const Argument &argument) {
  check(argument.shape.back() != 0,
        argument.name + ": found width 0, needed at least 1");
}

Argument Checker::like(StringRef name, const TensorRef &array, ElementType type,
                       ArrayRef<int64_t> shape) {
  Argument argument = tensor(name, array, shape.size(), toList(shape));
  elementType(argument, {type});
  match(name, "shape", argument.shape, shape);
  return argument;
}

Checker::Attention Checker::attention(const TensorRef &queries,
                                      const TensorRef &keys,
                                      const TensorRef &values) {
  Attention arguments{operand("query", "q", queries), operand("key", "k", keys),
                      operand("value", "v", values)};
  const auto &[q, k, v] = arguments;
  notEmpty(q);
  notEmpty(v);
  return arguments;
}

static bool isAligned(const Argument &argument) {
  auto address = reinterpret_cast<uintptr_t>(argument.data);
  return address % getByteWidth(argument.elementType) == 0;
}

bool Argument::isContiguous() const {
  if (!isAligned(*this))
    return false;
  if (strides.empty() || is_contained(shape, 0))
    return true;
  if (strides.size() != shape.size())
    return false;
  int64_t expected = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] != 1 && strides[dim] != expected)
      return false;
    expected *= shape[dim];
  }
  return true;
}

bool Argument::hasContiguousRows() const {
  if (strides.empty() || strides.size() != shape.size())
    return isContiguous();
  return isAligned(*this) && (shape.back() == 1 || strides.back() == 1);
}

void Checker::writable(const Argument &argument) {
  check(!argument.isReadOnly,
        argument.name + ": found a read-only array, needed a writable one");
  check(argument.strides.empty() ||
            argument.strides.size() == argument.shape.size(),
        argument.name + ": found " + Twine(argument.strides.size()) +
            " strides, needed " + Twine(argument.shape.size()));
  if (!failed)
    check(argument.hasContiguousRows(),
          argument.name + ": found an array that is unaligned or has gaps or "
                          "another order along its last axis, needed one "
                          "that is contiguous there, because it is written to");
  if (!failed)
    check(!sharesElements(argument.getRef()),
          argument.name + ": found strides " + toTuple(argument.strides) +
              ", by which elements share memory, needed memory of its own for "
              "each, because it is written to");
}

Argument Checker::scoreTerm(StringRef name, const TensorRef &array,
                            ElementType data, ArrayRef<int64_t> shape) {
  Argument full(name, array);
  full.extendTo(shape.size());
  Argument argument = tensor(name, full.getRef(), shape.size(),
                             "that broadcasts to " + toList(shape));
  elementType(argument, {data, getStateType(data)});
  if (!failed)
    check(all_of_zip(argument.shape, shape,
                     [](int64_t found, int64_t extent) {
                       return found == 1 || found == extent;
                     }),
          name + ": found shape " + toList(argument.shape) +
              ", needed one that broadcasts to " + toList(shape));
  return argument;
}

void Checker::broadcasts(const Argument &argument, ArrayRef<int64_t> shape,
                         unsigned numFree) {
  check(argument.shape.size() == shape.size(),
        argument.name + ": found rank " + Twine(argument.shape.size()) +
            ", needed at most " + Twine(shape.size()));
  if (failed)
    return;
  for (unsigned dim = 0; dim < shape.size(); ++dim) {
    int64_t found = argument.shape[dim];
    bool isFree = dim < numFree;
    check(shape[dim] < 0 || found == shape[dim] || (isFree && found == 1),
          argument.name + ": found extent " + Twine(found) + " in dimension " +
              Twine(dim) + ", needed " + Twine(shape[dim]) +
              (isFree ? " or 1" : ""));
  }
}
