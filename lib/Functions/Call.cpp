//===- Call.cpp - One operation on arrays ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cstdlib>
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Expected<OwnedTensor> functions::allocate(ElementType type,
                                          ArrayRef<int64_t> shape) {
  constexpr int64_t alignment = 64;
  int64_t bytes = getByteWidth(type);
  bool isTooLarge = false;
  for (int64_t extent : shape)
    isTooLarge |= MulOverflow(bytes, extent, bytes);
  if (!isTooLarge)
    isTooLarge = AddOverflow(bytes, alignment, bytes);
  bytes = bytes / alignment * alignment;
  void *data = isTooLarge ? nullptr : std::aligned_alloc(alignment, bytes);
  if (!data)
    return createStringError("no memory for an array of shape " +
                             toTuple(shape));
  std::memset(data, 0, bytes);
  return OwnedTensor(data, std::free, data, type, shape);
}

static int64_t countElements(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

/// Copies rows of the dimensions from `dim` on, and moves `to` behind them.
static void copyRows(const Argument &from, unsigned dim, const char *data,
                     char *&to) {
  int64_t width = getByteWidth(from.elementType);
  if (dim == from.shape.size()) {
    std::memcpy(to, data, width);
    to += width;
    return;
  }
  for (int64_t index = 0; index < from.shape[dim]; ++index)
    copyRows(from, dim + 1, data + index * from.strides[dim] * width, to);
}

Expected<TensorRef> functions::toContiguous(const Argument &argument,
                                            OwnedTensor &copy) {
  size_t rank = argument.shape.size();
  if (!argument.strides.empty() && argument.strides.size() != rank)
    return createStringError(argument.name + ": found " +
                             Twine(argument.strides.size()) +
                             " strides, needed " + Twine(rank));
  TensorRef ref = argument.getRef();
  if (is_contained(argument.shape, 0)) {
    // Whatever the strides: there is nothing to read.
    ref.strides = {};
    static char nothing[8];
    if (!ref.data)
      ref.data = nothing;
    return ref;
  }
  if (!argument.data)
    return createStringError(argument.name +
                             ": found a null pointer, needed data");
  if (argument.isContiguous()) {
    ref.strides = {};
    return ref;
  }
  Expected<OwnedTensor> memory = allocate(argument.elementType, argument.shape);
  if (!memory)
    return memory.takeError();
  copy = std::move(*memory);
  Argument from = argument;
  if (from.strides.empty()) {
    from.strides.assign(rank, 1);
    for (size_t dim = rank; dim-- > 1;)
      from.strides[dim - 1] = from.strides[dim] * from.shape[dim];
  }
  char *to = copy.getDataAs<char>();
  copyRows(from, 0, static_cast<const char *>(argument.data), to);
  return copy.getRef();
}

/// A view of memory that the caller owns.
static OwnedTensor getView(const Argument &array) {
  return OwnedTensor(
      nullptr, [](void *) {}, array.data, array.elementType, array.shape);
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

static std::string getType(StringRef kind, ElementType type,
                           ArrayRef<int64_t> shape) {
  std::string text = (kind + "<").str();
  for (int64_t extent : shape)
    text += std::to_string(extent) + "x";
  return text + fovea::getName(type).str() + ">";
}

/// key_weights[0] is %key_weights_0.
static std::string getValueName(StringRef name) {
  std::string text = "%";
  for (char c : name)
    if (c != ']')
      text += isAlnum(c) ? c : '_';
  return text;
}

Call::Value Call::getValue(StringRef name, ElementType type,
                           ArrayRef<int64_t> shape) {
  return {getValueName(name), getType("tensor", type, shape)};
}

Call::Value Call::add(const Argument &argument) {
  arguments.push_back(argument);
  return getValue(argument.name, argument.elementType, argument.shape);
}

void Call::clause(StringRef name, ArrayRef<Value> values) {
  if (values.empty())
    return;
  raw_string_ostream os(clauses);
  os << ' ' << name << '(';
  interleaveComma(values, os, [&](const Value &value) { os << value.name; });
  os << " : ";
  interleaveComma(values, os, [&](const Value &value) { os << value.type; });
  os << ')';
}

void Call::clause(StringRef name, ArrayRef<Argument> arguments) {
  SmallVector<Value> values;
  for (const Argument &argument : arguments)
    values.push_back(add(argument));
  clause(name, values);
}

void Call::attribute(StringRef name, double value) {
  // All digits, and always the point that IR wants.
  attribute(formatv("{0} = {1} : f64", name, format("%.17e", value)).str());
}

void Call::result(Checker &check, StringRef clause, StringRef name,
                  ElementType type, ArrayRef<int64_t> shape,
                  const std::optional<TensorRef> &given) {
  Destination destination{clause.str(), name.str(), {},
                          false,        type,       Shape(shape)};
  if (given) {
    Argument buffer(name, *given);
    check.elementType(buffer, {type});
    check.match(name, "shape", buffer.shape, shape);
    check.writable(buffer);
    destination.buffer = buffer;
  }
  destinations.push_back(std::move(destination));
}

void Call::update(Checker &check, StringRef clause, const Argument &argument) {
  check.writable(argument);
  destinations.push_back({clause.str(), argument.name, argument, true,
                          argument.elementType, argument.shape});
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

bool Call::writesToBuffers() const {
  return target == Target::CPU || target == Target::Reference;
}

std::string Call::getParameters() const {
  std::string text;
  raw_string_ostream os(text);
  ListSeparator comma;
  for (const Argument &argument : arguments)
    os << comma << getValueName(argument.name) << ": "
       << getType("tensor", argument.elementType, argument.shape);
  for (const Destination &destination : destinations)
    if (isInBuffer(destination))
      os << comma << getValueName(destination.name) << "_buffer: "
         << getType("memref", destination.elementType, destination.shape);
  return text;
}

/// The clauses of destinations, in the order in which they were named.
std::string Call::getDestinations() const {
  std::string text;
  raw_string_ostream os(text);
  for (auto it = destinations.begin(); it != destinations.end();) {
    auto end = std::find_if(it, destinations.end(), [&](const auto &other) {
      return other.clause != it->clause;
    });
    auto range = make_range(it, end);
    os << ' ' << it->clause << '(';
    interleaveComma(range, os, [&](const Destination &destination) {
      os << getValueName(destination.name) << "_init";
    });
    os << " : ";
    interleaveComma(range, os, [&](const Destination &destination) {
      os << getType("tensor", destination.elementType, destination.shape);
    });
    os << ')';
    it = end;
  }
  return text;
}

std::string Call::getText() const {
  std::string inits, stores, returned, returnedTypes, types;
  raw_string_ostream initsOs(inits), storesOs(stores), returnedOs(returned),
      returnedTypesOs(returnedTypes), typesOs(types);
  ListSeparator comma, returnedComma, returnedTypesComma;
  for (auto [index, destination] : enumerate(destinations)) {
    std::string type =
        getType("tensor", destination.elementType, destination.shape);
    std::string name = getValueName(destination.name);
    typesOs << comma << type;
    initsOs << "  " << name << "_init = ";
    if (!isInBuffer(destination)) {
      initsOs << "tensor.empty() : " << type << '\n';
      returnedOs << returnedComma << "%r#" << index;
      returnedTypesOs << returnedTypesComma << type;
      continue;
    }
    std::string memory =
        getType("memref", destination.elementType, destination.shape);
    initsOs << "bufferization.to_tensor " << name
            << "_buffer restrict writable : " << memory << " to " << type
            << '\n';
    storesOs << "  bufferization.materialize_in_destination %r#" << index
             << " in restrict writable " << name << "_buffer : (" << type
             << ", " << memory << ") -> ()\n";
  }
  std::string text;
  raw_string_ostream os(text);
  os << "func.func @" << op << '(' << getParameters() << ") -> ("
     << returnedTypes << ") {\n"
     << definitions << inits << "  %r:" << destinations.size() << " = attn."
     << op << clauses << getDestinations() << "\n      {"
     << join(attributes, ", ") << "} -> " << types << '\n'
     << stores << "  return " << returned
     << (returned.empty() ? "" : " : " + returnedTypes) << "\n}\n";
  return text;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// The bytes from the first element to behind the last one.
static std::pair<uintptr_t, uintptr_t> getSpan(const Argument &array) {
  auto begin = reinterpret_cast<uintptr_t>(array.data);
  uintptr_t width = getByteWidth(array.elementType), end = begin + width;
  int64_t contiguous = 1;
  for (size_t dim = array.shape.size(); dim-- > 0;) {
    if (array.shape[dim] == 0)
      return {begin, begin};
    int64_t stride = array.strides.empty() ? contiguous : array.strides[dim];
    contiguous *= array.shape[dim];
    int64_t reach = (array.shape[dim] - 1) * stride * int64_t(width);
    (reach < 0 ? begin : end) += reach;
  }
  return {begin, end};
}

Error Call::checkOverlaps() const {
  for (auto [index, destination] : enumerate(destinations)) {
    if (!destination.buffer)
      continue;
    auto [begin, end] = getSpan(*destination.buffer);
    auto check = [&, begin = begin, end = end,
                  &name = destination.name](const Argument &other) -> Error {
      auto [otherBegin, otherEnd] = getSpan(other);
      if (begin == end || otherBegin == otherEnd || end <= otherBegin ||
          otherEnd <= begin)
        return Error::success();
      return createStringError(name + ": found memory that overlaps " +
                               other.name + ", needed memory of its own");
    };
    for (const Argument &argument : arguments)
      if (Error error = check(argument))
        return error;
    for (const Destination &other : ArrayRef(destinations).take_front(index))
      if (other.buffer)
        if (Error error = check(*other.buffer))
          return error;
  }
  return Error::success();
}

Expected<SmallVector<OwnedTensor>> Call::run() const {
  if (Error error = checkOverlaps())
    return error;
  CompileOptions options;
  options.target = target;
  Expected<Kernel> kernel =
      KernelCache::getGlobal().getOrCompile(getText(), options);
  if (!kernel)
    return kernel.takeError();

  SmallVector<TensorRef> inputs;
  SmallVector<OwnedTensor> copies(arguments.size());
  for (auto [argument, copy] : zip_equal(arguments, copies)) {
    Expected<TensorRef> input = toContiguous(argument, copy);
    if (!input)
      return input.takeError();
    inputs.push_back(*input);
  }
  for (const Destination &destination : destinations)
    if (isInBuffer(destination))
      inputs.push_back(destination.buffer->getRef());

  SmallVector<OwnedTensor> returned;
  if (Error error = kernel->invoke(inputs, returned))
    return error;

  SmallVector<OwnedTensor> results;
  auto next = returned.begin();
  for (const Destination &destination : destinations) {
    if (destination.isUpdated)
      continue;
    if (!destination.buffer) {
      results.push_back(std::move(*next++));
      continue;
    }
    if (!isInBuffer(destination)) {
      std::memcpy(destination.buffer->data, next->getData(),
                  next->getNumBytes());
      ++next;
    }
    results.push_back(getView(*destination.buffer));
  }
  return results;
}

Expected<SmallVector<OwnedTensor>> Call::fill(ArrayRef<double> values) const {
  SmallVector<OwnedTensor> results;
  for (const Destination &destination : destinations) {
    if (destination.isUpdated)
      continue;
    double value = results.size() < values.size() ? values[results.size()] : 0;
    if (destination.buffer) {
      results.push_back(getView(*destination.buffer));
    } else {
      Expected<OwnedTensor> memory =
          allocate(destination.elementType, destination.shape);
      if (!memory)
        return memory.takeError();
      results.push_back(std::move(*memory));
    }
    for (int64_t i = 0, e = countElements(destination.shape); i < e; ++i)
      setElement(results.back().getData(), destination.elementType, i, value);
  }
  return results;
}
