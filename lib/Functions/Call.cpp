//===- Call.cpp - One operation on arrays ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Call.h"
#include "fovea/Dialect/Attn/IR/SourceContract.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

void Call::addToKey(const void *data, size_t size) {
  key.append(StringRef(static_cast<const char *>(data), size));
}

template <typename T>
static void addNumber(SmallVectorImpl<char> &key, T value) {
  const char *bytes = reinterpret_cast<const char *>(&value);
  key.append(bytes, bytes + sizeof(value));
}

void Call::addShapes(SmallVectorImpl<char> &complete, bool isOpen) const {
  auto add = [&](Declared declared, ElementType type, ArrayRef<int64_t> shape) {
    addNumber(complete, char(type));
    addNumber(complete, char(shape.size()));
    for (auto [dim, extent] : enumerate(shape))
      addNumber(complete, leavesOpen(isOpen, declared, shape, dim)
                              ? kDynamicExtent
                              : extent);
  };
  for (auto [argument, declared] : zip_equal(arguments, declarations))
    add(declared, argument.elementType, argument.shape);
  for (const Computed &computed : computedValues)
    add(computed.declared, computed.elementType, computed.shape);
  for (const Destination &destination : destinations)
    add(destination.declared, destination.elementType, destination.shape);
}

bool Call::leavesAnyOpen() const {
  return !hasFixedLengths &&
         (!onlyOpen.empty() || leavesLengthsOpen(op, target));
}

bool Call::leavesOpen(bool isOpen, Declared declared, ArrayRef<int64_t> shape,
                      size_t dim) const {
  auto [spec, index] = declared;
  // What a score region captures is read by bounds that are checked.
  if (spec && StringRef(spec->name) == "captures")
    return true;
  // The type tells whether a list is for all heads, and for all blocks.
  static const attn::OperandSpec *const rows =
      attn::getSourceContract().find("rows");
  if (spec == rows && dim >= 1)
    return isOpen && (dim == 3 || (dim == 2 && shape[dim] != 1));
  ArrayRef<attn::ExtentSpec> extents;
  if (isOpen && spec)
    extents = spec->getExtents(shape.size());
  if (extents.size() != shape.size() || extents.empty())
    return false;
  const attn::ExtentSpec &extent = extents[dim];
  // It may be anything.
  if (extent.symbol.empty() && !extent.factor)
    return true;
  if (!extent.isLength() || extent.isStatic ||
      (!onlyOpen.empty() && !onlyOpen.contains(extent.symbol)))
    return false;
  // The type tells which extents broadcast.
  if (!extent.mayBroadcast || shape[dim] != 1)
    return true;
  auto length = findLength(extent, index, [](Dimension) { return true; });
  return length && arguments[length->argument].shape[length->dim] == 1;
}

std::optional<Call::Dimension>
Call::findLength(const attn::ExtentSpec &extent, unsigned index,
                 function_ref<bool(Dimension)> holds) const {
  for (auto [number, declared] : enumerate(declarations)) {
    if (!declared.spec || (extent.isLocal() && declared.index != index))
      continue;
    size_t rank = arguments[number].shape.size();
    for (auto [dim, other] : enumerate(declared.spec->getExtents(rank))) {
      Dimension found{unsigned(number), unsigned(dim)};
      if (other.symbol == extent.symbol && !other.mayBroadcast && holds(found))
        return found;
    }
  }
  return std::nullopt;
}

Call::Call(StringRef op, const attn::Contract *contract, Target target,
           const ResultMemory &memory)
    : op(op), contract(contract), target(target), memory(memory) {
  // What no text begins with that compiles.
  key += '\1';
  key += op;
}

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Declared Call::getDeclared(unsigned group, unsigned index) const {
  if (!contract || group >= contract->getOperands().size())
    return {};
  const attn::OperandSpec *spec = &contract->getOperands()[group];
  if (!spec->parts.empty())
    spec = &spec->parts[index];
  while (!spec->like.empty())
    spec = contract->find(spec->like);
  return {spec, spec->isList ? index : 0};
}

unsigned Call::addArgument(const Argument &argument, Declared declared) {
  addToKey(takesStrides(argument));
  arguments.push_back(argument);
  declarations.push_back(declared);
  return arguments.size() - 1;
}

unsigned Call::addArgument(const Argument &argument, StringRef reader,
                           StringRef name) {
  return addArgument(
      argument,
      Declared{attn::findContract(("attn." + reader).str())->find(name)});
}

void Call::leaveOutBefore(StringRef name) {
  while (contract->getOperands()[segments.size()].name != name)
    operand(ArrayRef<Argument>());
}

void Call::operand(ArrayRef<Argument> given) {
  addToKey(char(given.size()));
  for (auto [index, argument] : enumerate(given))
    values.push_back(
        addArgument(argument, getDeclared(segments.size(), index)));
  segments.push_back(given.size());
}

void Call::operand(ArrayRef<Element> given) {
  addToKey(char(given.size()));
  for (const auto &[argument, declared] : given)
    values.push_back(addArgument(argument, declared));
  segments.push_back(given.size());
}

void Call::operandIf(const std::optional<Argument> &argument) {
  operand(argument ? ArrayRef(*argument) : ArrayRef<Argument>());
}

void Call::operands(std::initializer_list<Argument> given) {
  for (const Argument &argument : given)
    operand(argument);
}

void Call::operand(unsigned argument) {
  addToKey(char(argument));
  segments.push_back(1);
  values.push_back(argument);
}

void Call::computed(StringRef producer, ArrayRef<unsigned> inputs,
                    ElementType type, ArrayRef<int64_t> shape,
                    ArrayRef<int32_t> ofProducer) {
  key += producer;
  addToKey(inputs.data(), inputs.size() * sizeof(unsigned));
  Declared declared = getDeclared(segments.size());
  segments.push_back(1);
  values.push_back(~int(computedValues.size()));
  computedValues.push_back({producer.str(), SmallVector<unsigned, 2>(inputs),
                            type, Shape(shape),
                            SmallVector<int32_t, 5>(ofProducer), declared});
}

void Call::scoreRegions(ArrayRef<RegionPart> parts) {
  scoreParts.append(parts.begin(), parts.end());
  firstCapture = values.size() - segments.back();
  for (const RegionPart &part : parts) {
    addToKey(part.isScore);
    addToKey(part.numCaptures);
    addToKey(part.source.value_or(~0U));
    addToKey(part.body.size());
    key += part.body;
  }
}

void Call::addMaskToKey(const MaskValue &mask) {
  addToKey(mask.causal);
  addToKey(mask.window);
  addToKey(mask.prefix);
  addToKey(mask.stride);
}

void Call::addSourceToKey(const SourceValue &source) {
  for (bool flag : {source.hasLogWeight, source.hasBias, source.hasLengths,
                    source.hasScore})
    addToKey(flag);
  addToKey(source.unit);
  addToKey(source.hasListedPositions);
  addMaskToKey(source.mask);
  addToKey(source.ranges.size());
  for (const std::string &range : source.ranges) {
    addToKey(range.size());
    key += range;
  }
}

void Call::attribute(StringLiteral name, AttributeValue value) {
  key += name;
  addToKey(char(value.index()));
  std::visit(
      [&](const auto &found) {
        using Found = std::decay_t<decltype(found)>;
        if constexpr (std::is_same_v<Found, MaskValue>) {
          addMaskToKey(found);
        } else if constexpr (std::is_same_v<Found, SmallVector<double>>) {
          addToKey(found.size());
          addToKey(found.data(), found.size() * sizeof(double));
        } else if constexpr (std::is_same_v<Found,
                                            SmallVector<SourceValue, 0>>) {
          for (const SourceValue &source : found)
            addSourceToKey(source);
        } else if constexpr (!std::is_same_v<Found, Present>) {
          addToKey(found);
        }
      },
      value);
  attributes.push_back({name, value});
}

void Call::flag(StringLiteral name, bool isSet) {
  if (isSet)
    attribute(name, Present());
}

void Call::addDestination(Declared declared, Checker &check, StringRef name,
                          ElementType type, ArrayRef<int64_t> shape,
                          std::optional<unsigned> place) {
  Destination destination{name.str(), type, Shape(shape)};
  destination.declared = declared;
  destination.buffer =
      getPlace(check, memory, place.value_or(numResults), type, shape);
  ++numResults;
  destinations.push_back(std::move(destination));
}

void Call::resultIf(bool isWanted, Checker &check, StringRef name,
                    ElementType type, ArrayRef<int64_t> shape,
                    std::optional<unsigned> place) {
  addToKey(isWanted);
  if (isWanted)
    addDestination(getNextDestination(), check, name, type, shape, place);
  initSegments.push_back(isWanted);
}

void Call::results(Checker &check, StringRef prefix, ArrayRef<Argument> like) {
  addToKey(char(like.size()));
  for (auto [index, argument] : enumerate(like))
    addDestination(getNextDestination(index), check,
                   (prefix + argument.name).str(), argument.elementType,
                   argument.shape, /*place=*/{});
  initSegments.push_back(like.size());
}

void Call::results(Checker &check, StringRef prefix, ArrayRef<Element> like) {
  addToKey(char(like.size()));
  for (const Element &each : like)
    addDestination(each.declared, check, (prefix + each.argument.name).str(),
                   each.argument.elementType, each.argument.shape,
                   /*place=*/{});
  initSegments.push_back(like.size());
}

void Call::update(Checker &check, ArrayRef<Argument> given, bool inPlace) {
  addToKey(char(given.size()));
  addToKey(inPlace);
  for (auto [index, argument] : enumerate(given)) {
    Declared declared = getNextDestination(index);
    Destination destination{argument.name, argument.elementType,
                            argument.shape};
    destination.declared = declared;
    if (inPlace) {
      check.writable(argument);
      destination.buffer = argument;
      destination.isUpdated = true;
    } else {
      destination.from = addArgument(argument, declared);
      destination.buffer = getPlace(check, memory, numResults++,
                                    argument.elementType, argument.shape);
    }
    destinations.push_back(std::move(destination));
  }
  initSegments.push_back(given.size());
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

bool Call::takesStrides(const Argument &argument) {
  return !argument.isContiguous() && argument.hasContiguousRows();
}

Error Call::checkOverlaps(ArrayRef<Destination> written,
                          ArrayRef<Argument> more) const {
  for (auto [index, destination] : enumerate(written)) {
    if (!destination.buffer)
      continue;
    for (const Argument &argument : concat<const Argument>(arguments, more))
      if (Error error = checkSeparate(*destination.buffer, argument))
        return error;
    for (const Destination &other : written.take_front(index))
      if (other.buffer)
        if (Error error = checkSeparate(*destination.buffer, *other.buffer))
          return error;
  }
  return Error::success();
}

Error Call::place(bool isOpen) {
  // Whether no argument has an open extent of a result.
  auto isUnknown = [&](const Destination &destination) {
    return any_of(seq(destination.shape.size()), [&](size_t dim) {
      return leavesOpen(isOpen, destination.declared, destination.shape, dim) &&
             !findLength(destination.declared.spec->extents[dim],
                         destination.declared.index,
                         [](Dimension) { return true; });
    });
  };
  for (Destination &destination : destinations) {
    if (destination.buffer)
      continue;
    if (std::optional<TensorRef> place = DestinationScope::take(
            destination.elementType, destination.shape)) {
      destination.buffer = Argument(destination.name, *place);
      continue;
    }
    if (destination.from || !isUnknown(destination))
      continue;
    destination.memory = reserve(destination.elementType, destination.shape);
    if (!destination.memory.getData())
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          "no memory for a result of shape " + toTuple(destination.shape));
    destination.buffer =
        Argument(destination.name, destination.memory.getRef());
  }
  return Error::success();
}

Expected<SmallVector<OwnedTensor>> Call::describe() const {
  if (Error error = checkShapes())
    return error;
  if (FlopScope *scope = FlopScope::getActive()) {
    Expected<double> flops = countFlops();
    if (!flops)
      return flops.takeError();
    scope->flops += *flops;
  }
  SmallVector<OwnedTensor> results;
  for (const Destination &destination : destinations)
    if (!destination.isUpdated)
      results.push_back(DescribeScope::makeAbstract(destination.elementType,
                                                    destination.shape));
  return results;
}

Expected<Kernel> Call::getKernel(const CompileOptions &options,
                                 bool isOpen) const {
  SmallString<768> complete(key);
  for (const Destination &destination : destinations)
    complete += destination.buffer
                    ? takesStrides(*destination.buffer) ? 's' : 'b'
                    : 'r';
  complete += char(isOpen);
  addShapes(complete, isOpen);
  Expected<Kernel> kernel = KernelCache::getGlobal().getOrCompile(
      complete, options, [&]() -> Expected<Kernel> {
        if (Error error = checkShapes())
          return error;
        return compileFunction(options, isOpen);
      });
  if (kernel)
    return kernel;
  // Of an error, the cache keeps the text only.
  Error error = checkShapes();
  if (!error)
    error = checkTypes();
  if (!error)
    return kernel;
  consumeError(kernel.takeError());
  return error;
}

Error Call::invoke(const Kernel &kernel, ArrayRef<Argument> more,
                   SmallVectorImpl<OwnedTensor> &returned) const {
  SmallVector<TensorRef, 8> inputs;
  SmallVector<OwnedTensor, 0> copies;
  copies.reserve(arguments.size() + more.size());
  for (const Argument &argument : concat<const Argument>(arguments, more)) {
    copies.emplace_back();
    const ValueSpec &spec = kernel.getSignature().arguments[inputs.size()];
    if (target == Target::GPU &&
        !(spec.strides.empty() ? argument.isContiguous()
                               : argument.hasContiguousRows()) &&
        isOnDevice(argument.data, target))
      return createStringError(
          std::make_error_code(std::errc::invalid_argument),
          argument.name +
              ": found an array on a GPU that must be copied, "
              "needed one whose last axis is contiguous" +
              (argument.hasContiguousRows() ? ", and all others" : ""));
    Expected<TensorRef> input =
        prepare(argument, !spec.strides.empty(), copies.back(),
                [&] { return kernel.describeArgument(inputs.size()); });
    if (!input)
      return input.takeError();
    inputs.push_back(*input);
  }
  for (const Destination &destination : destinations)
    if (destination.buffer)
      inputs.push_back(destination.buffer->getRef());
  Error error = kernel.invoke(inputs, returned);
  if (!error)
    return error;
  Error inputError = kernel.checkInputs(inputs);
  bool isInputError(inputError);
  consumeError(std::move(inputError));
  return isInputError ? toArgumentError(std::move(error)) : std::move(error);
}

SmallVector<OwnedTensor> Call::collect(MutableArrayRef<Destination> written,
                                       bool isInPlace,
                                       MutableArrayRef<OwnedTensor> returned) {
  SmallVector<OwnedTensor> results;
  auto *next = returned.begin();
  for (Destination &destination : written) {
    if (destination.isUpdated)
      continue;
    if (destination.memory.getData()) {
      results.push_back(std::move(destination.memory));
      continue;
    }
    if (!destination.buffer) {
      results.push_back(std::move(*next++));
      continue;
    }
    if (!isInPlace)
      copyElements((next++)->getRef(), destination.buffer->getRef());
    results.push_back(getView(destination.buffer->getRef()));
  }
  return results;
}

Expected<SmallVector<OwnedTensor>> Call::run() {
  if (DescribeScope::isActive())
    return describe();
  bool isOpen = leavesAnyOpen();
  if (Error error = place(isOpen))
    return error;
  if (Error error = checkOverlaps(destinations))
    return error;
  CompileOptions options;
  options.target = target;
  Expected<Kernel> kernel = getKernel(options, isOpen);
  if (!kernel)
    return kernel.takeError();
  SmallVector<OwnedTensor, 4> returned;
  if (Error error = invoke(*kernel, {}, returned)) {
    // A kernel for any lengths is the first to compare those of this call.
    if (Error mismatch = isOpen ? checkShapes() : Error::success()) {
      consumeError(std::move(error));
      return mismatch;
    }
    return error;
  }
  return collect(destinations, /*isInPlace=*/true, returned);
}

Expected<SmallVector<OwnedTensor>>
Call::runGradient(Checker &check, const ResultMemory &places,
                  ArrayRef<int64_t> wanted, const Argument &gradient) const {
  SmallVector<Destination, 2> gradients;
  checkPlaces(check, places, wanted.size());
  for (auto [place, index] : enumerate(wanted)) {
    const Argument &argument = arguments[index];
    Destination destination{argument.name, argument.elementType,
                            argument.shape};
    destination.buffer =
        getPlace(check, places, place, argument.elementType, argument.shape);
    // Differentiated functions return what they compute.
    if (destination.buffer && !check.hasFailed())
      checkOnHost(check, destination.buffer->name, destination.buffer->data,
                  target);
    gradients.push_back(std::move(destination));
  }
  if (check.hasFailed())
    return check.takeError();
  if (DescribeScope::isActive()) {
    if (Error error = checkShapes())
      return error;
    SmallVector<OwnedTensor> described;
    for (const Destination &each : gradients)
      described.push_back(
          DescribeScope::makeAbstract(each.elementType, each.shape));
    return described;
  }
  if (Error error = checkOverlaps(gradients, gradient))
    return error;
  SmallVector<OwnedTensor> returned;
  // Kernels for one length are made for some elements.
  if (all_of(gradients, [](const Destination &each) {
        return is_contained(each.shape, 0);
      })) {
    if (Error error = checkShapes())
      return error;
    for (const Destination &each : gradients)
      returned.push_back(reserve(each.elementType, each.shape));
    return collect(gradients, /*isInPlace=*/false, returned);
  }
  CompileOptions options;
  options.target = target;
  options.vjps.emplace_back().arguments.assign(wanted.begin(), wanted.end());
  bool isOpen = leavesAnyOpen();
  Expected<Kernel> kernel = getKernel(options, isOpen);
  if (!kernel)
    return kernel.takeError();
  if (Error error = invoke(*kernel, gradient, returned))
    return error;
  return collect(gradients, /*isInPlace=*/false, returned);
}

Expected<SmallVector<OwnedTensor>> Call::fill(ArrayRef<double> values) const {
  SmallVector<OwnedTensor> results;
  auto isHere = [&](const Argument &argument) {
    return isOnDevice(argument.data, target);
  };
  for (const Destination &destination : destinations) {
    if (destination.isUpdated)
      continue;
    double value = results.size() < values.size() ? values[results.size()] : 0;
    if (destination.buffer) {
      results.push_back(getView(destination.buffer->getRef()));
    } else {
      auto make = any_of(arguments, isHere) ? allocateOnGPU : allocate;
      Expected<OwnedTensor> memory =
          make(destination.elementType, destination.shape);
      if (!memory)
        return memory.takeError();
      results.push_back(std::move(*memory));
    }
    TensorRef result = results.back().getRef();
    if (!isOnDevice(result.data, target)) {
      fillElements(result, value);
      continue;
    }
    Expected<OwnedTensor> filled = allocate(result.elementType, result.shape);
    if (!filled)
      return filled.takeError();
    fillElements(filled->getRef(), value);
    if (Error error = copyAll(
            {{StridedView(filled->getRef()), StridedView(result)}}, target))
      return std::move(error);
  }
  return results;
}

Expected<SmallVector<OwnedTensor>>
Call::runChecked(Checker &check, bool isEmpty, ArrayRef<double> values) {
  checkPlaces(check, memory, numResults);
  if (check.hasFailed())
    return check.takeError();
  if (!isEmpty || DescribeScope::isActive())
    return run();
  if (Error error = checkShapes())
    return error;
  if (Error error = place(/*isOpen=*/false))
    return error;
  if (Error error = checkOverlaps(destinations))
    return error;
  return fill(values);
}
