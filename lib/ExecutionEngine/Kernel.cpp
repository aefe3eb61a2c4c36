//===- Kernel.cpp - Calling compiled functions ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/Kernel.h"
#include "KernelImpl.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/ExecutionEngine/InvocationScope.h"
#include "fovea/ExecutionEngine/KernelOrigin.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

using namespace llvm;
using namespace fovea;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

std::string ValueSpec::getTypeString() const {
  if (isScalar)
    return getName(elementType).str();
  auto toText = [](int64_t number) {
    return number == kDynamicExtent ? "?" : std::to_string(number);
  };
  std::string text = strides.empty() ? "tensor<" : "memref<";
  for (int64_t extent : shape)
    text += toText(extent) + "x";
  text += getName(elementType);
  if (!strides.empty())
    text += ", strided<[" + join(map_range(strides, toText), ", ") + "]>";
  return text + ">";
}

std::string Signature::getString() const {
  std::string text;
  raw_string_ostream os(text);
  os << '(';
  interleaveComma(arguments, os, [&](const ValueSpec &spec) {
    if (!spec.name.empty())
      os << spec.name << ": ";
    os << spec.getTypeString();
  });
  os << ") -> (";
  interleaveComma(results, os,
                  [&](const ValueSpec &spec) { os << spec.getTypeString(); });
  os << ')';
  return text;
}

int64_t OwnedTensor::getNumElements() const {
  int64_t count = elements ? 1 : 0;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

OwnedTensor::Released OwnedTensor::release() {
  Released released{nullptr, base.get_deleter()};
  released.base = base.release();
  elements = nullptr;
  return released;
}

static constexpr int64_t kHugePageBytes = int64_t(2) << 20;

Expected<OwnedTensor> fovea::allocateTensor(ElementType type,
                                            ArrayRef<int64_t> shape) {
  int64_t bytes = getByteWidth(type);
  for (int64_t extent : shape)
    if (MulOverflow(bytes, extent, bytes))
      return createStringError("a tensor of this shape has more bytes than 64 "
                               "bits can count");
  bool isLarge = bytes >= 2 * kHugePageBytes;
  size_t alignment = isLarge ? kHugePageBytes : 64;
  size_t rounded = alignTo(std::max<int64_t>(bytes, 1), alignment);
  void *memory = std::aligned_alloc(alignment, rounded);
  if (!memory)
    return createStringError("out of memory: needs " + Twine(bytes) + " bytes");
#ifdef MADV_HUGEPAGE
  if (isLarge)
    madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  std::memset(memory, 0, rounded);
  return OwnedTensor(memory, std::free, memory, type, shape);
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

/// Writes the strides of `tensor`, and returns what follows them.
static int64_t *writeStrides(const TensorRef &tensor, int64_t *to) {
  if (!tensor.strides.empty())
    return llvm::copy(tensor.strides, to);
  size_t rank = tensor.shape.size();
  int64_t stride = 1;
  for (size_t dim = rank; dim-- > 0;) {
    to[dim] = stride;
    stride *= tensor.shape[dim];
  }
  return to + rank;
}

SmallVector<int64_t, 4> fovea::getStrides(const TensorRef &tensor) {
  SmallVector<int64_t, 4> strides(
      tensor.strides.empty() ? tensor.shape.size() : tensor.strides.size());
  writeStrides(tensor, strides.data());
  return strides;
}

/// Writes the descriptor of `tensor`: pointer, pointer, offset, extents,
/// strides. Returns what follows it.
static int64_t *describe(const TensorRef &tensor, int64_t *to) {
  *to++ = reinterpret_cast<intptr_t>(tensor.data);
  *to++ = reinterpret_cast<intptr_t>(tensor.data);
  *to++ = 0;
  to = writeStrides(tensor, llvm::copy(tensor.shape, to));
  // That of a single row or column says nothing, and kernels know the last one.
  if (!tensor.shape.empty() && tensor.shape.back() == 1)
    to[-1] = 1;
  return to;
}

static SmallVector<int64_t, 16> describe(const TensorRef &tensor) {
  SmallVector<int64_t, 16> words(3 + 2 * tensor.shape.size());
  describe(tensor, words.data());
  return words;
}

bool fovea::overlap(const TensorRef &left, const TensorRef &right) {
  return fovea_rt_overlap(describe(left).data(), left.shape.size(),
                          getByteWidth(left.elementType),
                          describe(right).data(), right.shape.size(),
                          getByteWidth(right.elementType));
}

bool fovea::sharesElements(const TensorRef &tensor) {
  return fovea_rt_shares_elements(describe(tensor).data(), tensor.shape.size());
}

//===----------------------------------------------------------------------===//
// Input checks
//===----------------------------------------------------------------------===//

static std::string toText(ArrayRef<int64_t> numbers) {
  std::string text = "[";
  raw_string_ostream os(text);
  interleaveComma(numbers, os);
  return text + "]";
}

std::string Kernel::Impl::describeArgument(size_t index) const {
  const ValueSpec &spec = signature.arguments[index];
  std::string text = "argument " + std::to_string(index);
  if (!spec.name.empty())
    text += " (" + spec.name + ")";
  return text + " of @" + name;
}

std::string Kernel::describeArgument(size_t index) const {
  return impl->describeArgument(index);
}

/// Checks that elements lie at the strides of `spec` and are few enough to
/// address.
static Error checkLayout(const Kernel::Impl &impl, size_t index,
                         const TensorRef &input, const ValueSpec &spec) {
  int64_t count = 1;
  bool isEmpty = is_contained(input.shape, 0);
  for (size_t dim = input.shape.size(); dim-- > 0;)
    // Strides of a tensor without elements are products, too.
    if (MulOverflow(count, std::max<int64_t>(input.shape[dim], 1), count) ||
        count > FOVEA_RT_MAX_TENSOR_BYTES /
                    int64_t(getByteWidth(input.elementType)))
      return createStringError(impl.describeArgument(index) +
                               ": the extents of shape " + toText(input.shape) +
                               " make more bytes than an address space has");
  if (isEmpty)
    return Error::success();
  if (!input.strides.empty() && input.strides.size() != input.shape.size())
    return createStringError(
        impl.describeArgument(index) +
        ": expected one stride for each of the " + Twine(input.shape.size()) +
        " dimensions, but got " + Twine(input.strides.size()));
  ArrayRef<int64_t> found = input.strides, expected = spec.strides;
  SmallVector<int64_t, 4> contiguous;
  if (found.empty() || expected.empty())
    contiguous = getStrides({nullptr, {}, input.shape});
  if (found.empty())
    found = contiguous;
  if (expected.empty())
    expected = contiguous;
  for (auto [extent, stride, expectedStride] :
       llvm::zip_equal(input.shape, found, expected))
    if (extent != 1 && expectedStride != kDynamicExtent &&
        stride != expectedStride)
      return createStringError(
          impl.describeArgument(index) + ": expected " +
          (spec.strides.empty()
               ? "a contiguous tensor in row-major order, strides " +
                     toText(expected)
               : spec.getTypeString()) +
          ", but got strides " + toText(found));
  if (spec.isWritten && !spec.strides.empty() && sharesElements(input))
    return createStringError(
        impl.describeArgument(index) +
        ": expected memory of its own for each element, because the kernel "
        "writes to it, but got strides " +
        toText(found) + " for shape " + toText(input.shape));
  if (!input.data)
    return createStringError(impl.describeArgument(index) +
                             ": expected data, but got a null pointer");
  if (reinterpret_cast<uintptr_t>(input.data) % getByteWidth(input.elementType))
    return createStringError(impl.describeArgument(index) +
                             ": expected data aligned to " +
                             Twine(getByteWidth(input.elementType)) +
                             " bytes, as elements of type " +
                             fovea::getName(input.elementType) + " need");
  return Error::success();
}

static Error checkInput(const Kernel::Impl &impl, size_t index,
                        const TensorRef &input) {
  const ValueSpec &spec = impl.signature.arguments[index];
  // An index is a 64-bit integer to the host.
  auto normalize = [](ElementType type) {
    return type == ElementType::Index ? ElementType::I64 : type;
  };
  if (normalize(input.elementType) != normalize(spec.elementType))
    return createStringError(impl.describeArgument(index) +
                             ": expected elements of type " +
                             fovea::getName(spec.elementType) + ", but got " +
                             fovea::getName(input.elementType));
  if (input.shape.size() != spec.shape.size())
    return createStringError(
        impl.describeArgument(index) + ": expected " + spec.getTypeString() +
        " of rank " + Twine(spec.shape.size()) + ", but got rank " +
        Twine(input.shape.size()) + " with shape " + toText(input.shape));
  for (auto [dim, extent, expected] :
       llvm::enumerate(input.shape, spec.shape)) {
    if (extent < 0)
      return createStringError(impl.describeArgument(index) +
                               ": expected extents of at least 0, but got " +
                               Twine(extent) + " in dimension " + Twine(dim));
    if (expected != kDynamicExtent && extent != expected)
      return createStringError(
          impl.describeArgument(index) + ": expected extent " +
          Twine(expected) + " in dimension " + Twine(dim) + ", but got " +
          Twine(extent) + " (shape " + toText(input.shape) + ", needed " +
          spec.getTypeString() + ")");
  }
  if (input.isReadOnly && spec.isWritten)
    return createStringError(impl.describeArgument(index) +
                             ": expected writable memory, because the kernel "
                             "writes to it, but got read-only memory");
  return checkLayout(impl, index, input, spec);
}

Error Kernel::checkInputs(ArrayRef<TensorRef> inputs) const {
  if (!impl)
    return createStringError("expected a compiled kernel, but got none");
  if (inputs.size() != impl->signature.arguments.size())
    return createStringError("@" + impl->name + " expects " +
                             Twine(impl->signature.arguments.size()) +
                             " arguments, but got " + Twine(inputs.size()) +
                             "; its type is " + impl->signature.getString());
  for (size_t index = 0; index < inputs.size(); ++index)
    if (Error error = checkInput(*impl, index, inputs[index]))
      return error;
  auto describe = [&](unsigned index) { return impl->describeArgument(index); };
  for (const detail::ShapeConstraint &constraint : impl->constraints)
    if (Error error = constraint.check(inputs, describe))
      return error;
  for (const detail::SeparateArguments &pair : impl->separateArguments)
    if (Error error = pair.check(inputs, describe))
      return error;
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Invocation
//===----------------------------------------------------------------------===//

namespace {
/// The memref descriptor of generated code, at any place in memory.
struct Descriptor {
  char *allocated;
  char *aligned;
  int64_t offset;
  SmallVector<int64_t, 4> sizes, strides;

  static Descriptor read(const char *from, size_t rank) {
    Descriptor descriptor;
    descriptor.sizes.resize(rank);
    descriptor.strides.resize(rank);
    auto take = [&](void *to, size_t bytes) {
      std::memcpy(to, from, bytes);
      from += bytes;
    };
    take(&descriptor.allocated, sizeof(char *));
    take(&descriptor.aligned, sizeof(char *));
    take(&descriptor.offset, sizeof(int64_t));
    take(descriptor.sizes.data(), rank * sizeof(int64_t));
    take(descriptor.strides.data(), rank * sizeof(int64_t));
    return descriptor;
  }

  bool isContiguous() const {
    int64_t expected = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      if (sizes[dim] != 1 && strides[dim] != expected)
        return false;
      expected *= sizes[dim];
    }
    return true;
  }
};
} // namespace

/// The value MLIR gives to the allocated pointer of a constant's descriptor.
static bool isConstantMarker(const char *pointer) {
  return reinterpret_cast<uintptr_t>(pointer) == 0xdeadbeef;
}

static Expected<OwnedTensor> copyTensor(const TensorRef &from) {
  Expected<OwnedTensor> copy = allocateTensor(from.elementType, from.shape);
  if (!copy)
    return copy;
  int64_t width = getByteWidth(from.elementType);
  int64_t count = copy->getNumElements();
  char *to = copy->getDataAs<char>();
  SmallVector<int64_t, 4> position(from.shape.size(), 0);
  SmallVector<int64_t, 4> strides = getStrides(from);
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = 0;
    for (auto [index, stride] : llvm::zip_equal(position, strides))
      offset += index * stride;
    std::memcpy(to + i * width,
                static_cast<const char *>(from.data) + offset * width, width);
    for (size_t dim = position.size(); dim-- > 0;) {
      if (++position[dim] < from.shape[dim])
        break;
      position[dim] = 0;
    }
  }
  return copy;
}

/// Copies a result that does not own memory of its own, or is not contiguous.
static Expected<OwnedTensor> copyResult(const Descriptor &from,
                                        const ValueSpec &spec) {
  int64_t width = getByteWidth(spec.elementType);
  return copyTensor({from.aligned + from.offset * width, spec.elementType,
                     from.sizes, from.strides});
}

static Expected<OwnedTensor> copyScalar(const char *from,
                                        const ValueSpec &spec) {
  Expected<OwnedTensor> copy = allocateTensor(spec.elementType, {});
  if (copy)
    std::memcpy(copy->getData(), from, getByteWidth(spec.elementType));
  return copy;
}

/// Makes tensors of the struct of results. Every block that the kernel left to
/// us ends up in exactly one of them or is freed.
static Error takeResults(const Kernel::Impl &impl, ArrayRef<TensorRef> inputs,
                         const char *raw,
                         SmallVectorImpl<OwnedTensor> &results) {
  SmallVector<char *, 2> owned;
  SmallVector<OwnedTensor, 2> taken, unused;
  Error failure = Error::success();
  for (size_t index = 0; index < impl.resultOffsets.size(); ++index) {
    const ValueSpec &spec = impl.signature.results[index];
    uint64_t offset = impl.resultOffsets[index];
    Expected<OwnedTensor> result = [&]() -> Expected<OwnedTensor> {
      if (spec.isScalar)
        return copyScalar(raw + offset, spec);
      Descriptor from = Descriptor::read(raw + offset, spec.shape.size());
      bool isFresh = !isConstantMarker(from.allocated) &&
                     !is_contained(owned, from.allocated) &&
                     none_of(inputs, [&](const TensorRef &input) {
                       return input.data == from.allocated;
                     });
      if (!isFresh)
        return copyResult(from, spec);
      owned.push_back(from.allocated);
      char *data = from.aligned + from.offset * getByteWidth(spec.elementType);
      OwnedTensor tensor(from.allocated, fovea_rt_free, data, spec.elementType,
                         from.sizes);
      if (from.isContiguous())
        return std::move(tensor);
      unused.push_back(std::move(tensor));
      return copyResult(from, spec);
    }();
    if (result)
      taken.push_back(std::move(*result));
    else
      failure = joinErrors(std::move(failure), result.takeError());
  }
  if (failure)
    return failure;
  results.assign(std::make_move_iterator(taken.begin()),
                 std::make_move_iterator(taken.end()));
  return Error::success();
}

Error Kernel::invoke(ArrayRef<TensorRef> inputs,
                     SmallVectorImpl<OwnedTensor> &results) const {
  if (Error error = checkInputs(inputs))
    return error;
  InvocationScope::add(*this, inputs);

  // All descriptors in one block: pointer, pointer, offset, sizes, strides.
  size_t words = 0;
  for (const TensorRef &input : inputs)
    words += 3 + 2 * input.shape.size();
  SmallVector<int64_t, 64> descriptors(words);
  SmallVector<uint64_t, 64> raw(divideCeil(impl->resultBytes, 8));
  SmallVector<void *, 16> packed;
  if (!impl->signature.results.empty())
    packed.push_back(raw.data());
  int64_t *next = descriptors.data();
  for (auto [input, spec] :
       llvm::zip_equal(inputs, impl->signature.arguments)) {
    if (spec.isScalar) {
      packed.push_back(input.data);
      continue;
    }
    packed.push_back(next);
    next = describe(input, next);
  }

  fovea_rt_status status = fovea_rt_invoke(impl->packed, packed.data());
  if (status != FOVEA_RT_OK)
    return createStringError("@" + impl->name +
                             " failed: " + fovea_rt_last_error());
  return takeResults(*impl, inputs, reinterpret_cast<const char *>(raw.data()),
                     results);
}

KernelOrigin fovea::getOrigin(const Kernel &kernel) {
  return {kernel.getImpl().text, kernel.getImpl().options};
}

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

static thread_local InvocationScope *currentScope = nullptr;

InvocationScope::InvocationScope() : outer(currentScope) {
  currentScope = this;
}

InvocationScope::~InvocationScope() { currentScope = outer; }

/// For each input the first one that has the same elements at the same place.
static SmallVector<unsigned> findSame(ArrayRef<TensorRef> inputs) {
  SmallVector<unsigned> found;
  for (const TensorRef &input : inputs) {
    const auto *first = llvm::find_if(inputs, [&](const TensorRef &other) {
      return other.data == input.data && other.shape == input.shape &&
             other.elementType == input.elementType &&
             getStrides(other) == getStrides(input);
    });
    found.push_back(first - inputs.begin());
  }
  return found;
}

void InvocationScope::add(const Kernel &kernel, ArrayRef<TensorRef> inputs) {
  if (!currentScope)
    return;
  Invocation &invocation = currentScope->invocations.emplace_back();
  invocation.kernel = kernel;
  invocation.sameAs = findSame(inputs);
  bool isOnHost = kernel.getTarget() != Target::GPU;
  for (auto [input, spec] :
       llvm::zip_equal(inputs, kernel.getSignature().arguments)) {
    invocation.shapes.emplace_back(input.shape);
    OwnedTensor &data = invocation.data.emplace_back();
    if (!isOnHost || spec.isScalar || isFloat(spec.elementType))
      continue;
    // Without memory, nothing is known of it.
    if (Expected<OwnedTensor> copy = copyTensor(input))
      data = std::move(*copy);
    else
      consumeError(copy.takeError());
  }
}

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

StringRef Kernel::getName() const { return impl->name; }
const Signature &Kernel::getSignature() const { return impl->signature; }
fovea::Target Kernel::getTarget() const { return impl->options.target; }

StringRef Kernel::getCPU() const { return impl->cpu; }
const CompileTimes &Kernel::getCompileTimes() const { return impl->times; }
StringRef Kernel::getDiagnostics() const { return impl->diagnostics; }
