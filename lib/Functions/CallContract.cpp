//===- CallContract.cpp - Shapes of the arguments of a call ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Arguments are compared with what the operation declares of its operands. A
// kernel that is found in the cache has been asked for with the same shapes
// before, or, if it takes any lengths, compares these itself: only calls
// without a kernel, and those that it refuses, come here.
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "fovea/Dialect/Attn/IR/Contract.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

namespace {
/// Adds operands one group after the other.
class Groups {
public:
  explicit Groups(attn::ContractOperands &operands)
      : operands(operands), specs(operands.getContract().getOperands()) {}

  void next() {
    ++group;
    index = 0;
  }

  /// `declared` is what an element of a list has for its own.
  void add(StringRef name, ArrayRef<int64_t> shape, Declared declared = {}) {
    const attn::OperandSpec &spec = specs[group];
    const attn::OperandSpec &own =
        spec.parts.empty() ? spec : spec.parts[index];
    operands.add(own, name, shape, spec.isList ? index : 0);
    if (declared.spec && spec.isList && !spec.hasExtents)
      operands.add(*declared.spec, name, shape, declared.index);
    ++index;
  }

private:
  attn::ContractOperands &operands;
  ArrayRef<attn::OperandSpec> specs;
  unsigned group = 0, index = 0;
};
} // namespace

/// Fails unless the operands that `addOperands` adds are what `op` declares.
static Error
checkShapes(StringRef op,
            function_ref<std::optional<int64_t>(StringRef)> getAttribute,
            function_ref<void(Groups &)> addOperands) {
  const attn::Contract *contract = attn::findContract(("attn." + op).str());
  if (!contract)
    return Error::success();
  attn::ContractOperands operands(*contract, getAttribute);
  Groups groups(operands);
  addOperands(groups);
  std::optional<attn::Mismatch> mismatch = operands.findMismatch();
  if (!mismatch)
    return Error::success();
  return createStringError(std::make_error_code(std::errc::invalid_argument),
                           mismatch->describeArgument());
}

Error Call::checkTypes() const {
  bool isGPU = target == Target::GPU || target == Target::GPUEmulator;
  // What is computed has the type of the first argument.
  if (!isGPU || arguments.empty() ||
      arguments.front().elementType != ElementType::F64)
    return Error::success();
  return createStringError(
      std::make_error_code(std::errc::invalid_argument),
      arguments.front().name +
          ": found element type float64, needed one of float16, bfloat16, "
          "float32 on a GPU");
}

Error Call::checkShapes() const {
  if (body)
    return Error::success();
  auto noAttribute = [](StringRef) { return std::optional<int64_t>(); };
  for (const Computed &computed : computedValues)
    if (Error error =
            ::checkShapes(computed.producer, noAttribute, [&](Groups &groups) {
              for (unsigned input : computed.inputs) {
                groups.add(arguments[input].name, arguments[input].shape);
                groups.next();
              }
            }))
      return error;

  // Rows that are computed are those of what they are computed from.
  auto addComputed = [&](Groups &groups, const Computed &computed) {
    const Argument &input = arguments[computed.inputs.front()];
    groups.add(input.name,
               ArrayRef(input.shape).take_front(computed.shape.size()));
  };
  auto getAttribute = [&](StringRef name) -> std::optional<int64_t> {
    for (const Attribute &attribute : attributes)
      if (const auto *value = std::get_if<int64_t>(&attribute.value);
          value && attribute.name == name)
        return *value;
    return std::nullopt;
  };
  return ::checkShapes(op, getAttribute, [&](Groups &groups) {
    const int *value = values.begin();
    for (int32_t size : segments) {
      for (int32_t i = 0; i < size; ++i, ++value) {
        if (*value >= 0)
          groups.add(arguments[*value].name, arguments[*value].shape,
                     declarations[*value]);
        else
          addComputed(groups, computedValues[~*value]);
      }
      groups.next();
    }
    const Destination *destination = destinations.begin();
    for (int32_t size : initSegments) {
      for (int32_t i = 0; i < size; ++i, ++destination)
        groups.add(destination->name, destination->shape);
      groups.next();
    }
  });
}
