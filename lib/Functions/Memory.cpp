//===- Memory.cpp - Memory of arguments and results -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include <cstdlib>
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

OwnedTensor functions::reserve(ElementType type, ArrayRef<int64_t> shape) {
  constexpr int64_t alignment = 64;
  int64_t bytes = getByteWidth(type);
  bool isTooLarge = false;
  for (int64_t extent : shape)
    isTooLarge |= MulOverflow(bytes, extent, bytes);
  if (!isTooLarge)
    isTooLarge = AddOverflow(bytes, alignment, bytes);
  bytes = bytes / alignment * alignment;
  void *data = isTooLarge ? nullptr : std::aligned_alloc(alignment, bytes);
  return OwnedTensor(data, std::free, data, type, shape);
}

Expected<OwnedTensor> functions::allocate(ElementType type,
                                          ArrayRef<int64_t> shape) {
  OwnedTensor memory = reserve(type, shape);
  if (!memory.getData())
    return createStringError(std::make_error_code(std::errc::not_enough_memory),
                             "no memory for an array of shape " +
                                 toTuple(shape));
  std::memset(memory.getData(), 0, memory.getNumBytes());
  return std::move(memory);
}

/// Copies elements that lie anywhere to `to`, in order.
static void copyElements(const Argument &from, char *to) {
  int64_t width = getByteWidth(from.elementType), run = width, count = 1;
  // Runs of bytes that already lie as they should are copied at once.
  size_t outer = from.shape.size();
  while (outer > 0 &&
         (from.shape[outer - 1] == 1 || from.strides[outer - 1] * width == run))
    run *= from.shape[--outer];
  for (int64_t extent : ArrayRef(from.shape).take_front(outer))
    count *= extent;
  SmallVector<int64_t, 4> position(outer, 0);
  const char *at = static_cast<const char *>(from.data);
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * run, at, run);
    for (size_t dim = outer; dim-- > 0;) {
      at += from.strides[dim] * width;
      if (++position[dim] < from.shape[dim])
        break;
      at -= from.strides[dim] * width * from.shape[dim];
      position[dim] = 0;
    }
  }
}

static Error makeError(const Twine &text) {
  return createStringError(std::make_error_code(std::errc::invalid_argument),
                           text);
}

Expected<TensorRef>
functions::toContiguous(const Argument &argument, OwnedTensor &copy,
                        function_ref<std::string()> getName) {
  size_t rank = argument.shape.size();
  if (!argument.strides.empty() && argument.strides.size() != rank)
    return makeError(argument.name + ": found " +
                     Twine(argument.strides.size()) + " strides, needed " +
                     Twine(rank));
  TensorRef ref = argument.getRef();
  ref.strides = {};
  if (is_contained(argument.shape, 0)) {
    // Whatever the strides: there is nothing to read.
    static char nothing[8];
    if (!ref.data)
      ref.data = nothing;
    return ref;
  }
  if (!argument.data)
    return makeError(argument.name + ": found a null pointer, needed data");
  if (argument.isContiguous())
    return ref;
  copy = reserve(argument.elementType, argument.shape);
  if (!copy.getData())
    return createStringError(std::make_error_code(std::errc::not_enough_memory),
                             getName() +
                                 ": found an array that must be copied, needed "
                                 "memory for that, or a contiguous array");
  Argument from = argument;
  if (from.strides.empty()) {
    from.strides.assign(rank, 1);
    for (size_t dim = rank; dim-- > 1;)
      from.strides[dim - 1] = from.strides[dim] * from.shape[dim];
  }
  copyElements(from, copy.getDataAs<char>());
  return copy.getRef();
}

OwnedTensor functions::getView(const TensorRef &array) {
  return OwnedTensor(
      nullptr, [](void *) {}, array.data, array.elementType, array.shape);
}

bool functions::isOnDevice(const void *data, Target target) {
  int32_t device = -1;
  return target == Target::GPU &&
         fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA, data, &device) == FOVEA_RT_OK &&
         device >= 0;
}

void functions::checkOnHost(Checker &check, StringRef name, const void *data,
                            Target target) {
  if (isOnDevice(data, target))
    check.fail(name + ": found an array on a GPU, needed one in CPU memory");
}

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

bool functions::overlap(const Argument &left, const Argument &right) {
  auto [begin, end] = getSpan(left);
  auto [otherBegin, otherEnd] = getSpan(right);
  return begin != end && otherBegin != otherEnd && end > otherBegin &&
         otherEnd > begin;
}
