//===- Memory.cpp - Memory of arguments and results -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Memory.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
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

/// Calls `visit` with the places of runs of bytes that two arrays of the same
/// shape have in common.
static void forEachRun(const TensorRef &array, const TensorRef &other,
                       function_ref<void(char *, char *, int64_t)> visit) {
  int64_t width = getByteWidth(array.elementType), run = width, count = 1;
  SmallVector<int64_t, 4> strides = getStrides(array),
                          otherStrides = getStrides(other);
  // Bytes that already lie one after the other are visited at once.
  size_t outer = array.shape.size();
  while (outer > 0 && (array.shape[outer - 1] == 1 ||
                       (strides[outer - 1] * width == run &&
                        otherStrides[outer - 1] * width == run)))
    run *= array.shape[--outer];
  for (int64_t extent : array.shape.take_front(outer))
    count *= extent;
  SmallVector<int64_t, 4> position(outer, 0);
  auto *at = static_cast<char *>(array.data),
       *otherAt = static_cast<char *>(other.data);
  for (int64_t i = 0; i < count; ++i) {
    visit(at, otherAt, run);
    for (size_t dim = outer; dim-- > 0;) {
      at += strides[dim] * width;
      otherAt += otherStrides[dim] * width;
      if (++position[dim] < array.shape[dim])
        break;
      at -= strides[dim] * width * array.shape[dim];
      otherAt -= otherStrides[dim] * width * array.shape[dim];
      position[dim] = 0;
    }
  }
}

void functions::copyElements(const TensorRef &from, const TensorRef &to) {
  forEachRun(from, to, [](char *source, char *target, int64_t bytes) {
    std::memcpy(target, source, bytes);
  });
}

Expected<OwnedTensor> functions::copyArray(const TensorRef &array) {
  Expected<OwnedTensor> copy = allocate(array.elementType, array.shape);
  if (copy)
    copyElements(array, copy->getRef());
  return copy;
}

void functions::visitElements(const TensorRef &array,
                              function_ref<void(StringRef)> take) {
  forEachRun(array, array, [&](char *at, char *, int64_t bytes) {
    take(StringRef(at, bytes));
  });
}

void functions::fillElements(const TensorRef &array, double value) {
  int64_t width = getByteWidth(array.elementType);
  forEachRun(array, array, [&](char *at, char *, int64_t bytes) {
    for (int64_t i = 0; i < bytes / width; ++i)
      setElement(at, array.elementType, i, value);
  });
}

static Error makeError(const Twine &text) {
  return createStringError(std::make_error_code(std::errc::invalid_argument),
                           text);
}

Expected<TensorRef> functions::prepare(const Argument &argument,
                                       bool takesStrides, OwnedTensor &copy,
                                       function_ref<std::string()> getName) {
  size_t rank = argument.shape.size();
  if (!argument.strides.empty() && argument.strides.size() != rank)
    return makeError(argument.name + ": found " +
                     Twine(argument.strides.size()) + " strides, needed " +
                     Twine(rank));
  TensorRef ref = argument.getRef();
  if (is_contained(argument.shape, 0)) {
    // Whatever the strides: there is nothing to read.
    static char nothing[8];
    ref.strides = {};
    if (!ref.data)
      ref.data = nothing;
    return ref;
  }
  if (!argument.data)
    return makeError(argument.name + ": found a null pointer, needed data");
  if (takesStrides && argument.hasContiguousRows())
    return ref;
  ref.strides = {};
  if (argument.isContiguous())
    return ref;
  copy = reserve(argument.elementType, argument.shape);
  if (!copy.getData())
    return createStringError(std::make_error_code(std::errc::not_enough_memory),
                             getName() +
                                 ": found an array that must be copied, needed "
                                 "memory for that, or a contiguous array");
  copyElements(argument.getRef(), copy.getRef());
  return copy.getRef();
}

Expected<TensorRef> functions::prepareOnHost(const Argument &argument,
                                             Target target, OwnedTensor &copy) {
  if (!isOnDevice(argument.data, target))
    return prepare(argument, /*takesStrides=*/false, copy,
                   [&] { return argument.name; });
  Expected<OwnedTensor> memory = allocate(argument.elementType, argument.shape);
  if (!memory)
    return memory.takeError();
  copy = std::move(*memory);
  if (Error error = copyAll(
          {{StridedView(argument.getRef()), StridedView(copy.getRef())}},
          target))
    return std::move(error);
  return copy.getRef();
}

//===----------------------------------------------------------------------===//
// Memory of a GPU
//===----------------------------------------------------------------------===//

/// What the runtime said last.
static Error takeStatus(fovea_rt_status status) {
  if (status == FOVEA_RT_OK)
    return Error::success();
  std::error_code code = inconvertibleErrorCode();
  if (status == FOVEA_RT_OUT_OF_MEMORY)
    code = std::make_error_code(std::errc::not_enough_memory);
  if (status == FOVEA_RT_INVALID_ARGUMENT)
    code = std::make_error_code(std::errc::invalid_argument);
  return createStringError(code, fovea_rt_last_error());
}

Expected<OwnedTensor> functions::allocateOnGPU(ElementType type,
                                               ArrayRef<int64_t> shape) {
  int64_t bytes = getByteWidth(type);
  for (int64_t extent : shape)
    if (MulOverflow(bytes, extent, bytes))
      return createStringError(
          std::make_error_code(std::errc::not_enough_memory),
          "an array of shape " + toTuple(shape) +
              " has more bytes than 64 bits can count");
  void *data = nullptr;
  if (Error error =
          takeStatus(fovea_rt_gpu_acquire(FOVEA_RT_GPU_CUDA, bytes, &data)))
    return std::move(error);
  OwnedTensor memory(
      data,
      [](void *pointer) {
        (void)fovea_rt_gpu_release(FOVEA_RT_GPU_CUDA, pointer);
      },
      data, type, shape);
  if (Error error =
          takeStatus(fovea_rt_gpu_clear(FOVEA_RT_GPU_CUDA, data, bytes)))
    return std::move(error);
  return std::move(memory);
}

/// In an invocation.
static void copyByQueue(ArrayRef<ElementCopy> copies, Target target) {
  fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(FOVEA_RT_GPU_CUDA);
  for (const ElementCopy &each : copies) {
    TensorRef from = each.from, to = each.to;
    if (isOnDevice(from.data, target) && isOnDevice(to.data, target)) {
      // No frame here owns memory: a failure abandons it.
      fovea_rt_gpu_copy_array(to.data, to.strides.data(), from.data,
                              from.strides.data(), getByteWidth(to.elementType),
                              to.shape.size(), to.shape.data());
      continue;
    }
    forEachRun(from, to, [&](char *source, char *place, int64_t bytes) {
      fovea_rt_gpu_copy(queue, place, source, bytes);
    });
  }
  fovea_rt_gpu_end(queue);
}

Error functions::copyAll(ArrayRef<ElementCopy> copies, Target target) {
  bool usesDevice = any_of(copies, [&](const ElementCopy &each) {
    return isOnDevice(TensorRef(each.from).data, target) ||
           isOnDevice(TensorRef(each.to).data, target);
  });
  if (!usesDevice) {
    for (const ElementCopy &each : copies)
      copyElements(each.from, each.to);
    return Error::success();
  }
  auto run = [&] { copyByQueue(copies, target); };
  void *arguments[] = {&run};
  return takeStatus(fovea_rt_invoke(
      [](void **given) { (*static_cast<decltype(run) *>(given[0]))(); },
      arguments));
}

std::optional<Argument> functions::getPlace(Checker &check,
                                            const ResultMemory &memory,
                                            size_t place, ElementType type,
                                            ArrayRef<int64_t> shape) {
  if (place >= memory.getPlaces().size() || !memory.getPlaces()[place].array)
    return std::nullopt;
  const auto &[name, array] = memory.getPlaces()[place];
  Argument buffer(name, *array);
  check.elementType(buffer, {type});
  check.match(name, "shape", buffer.shape, shape);
  check.writable(buffer);
  return buffer;
}

void functions::checkPlaces(Checker &check, const ResultMemory &memory,
                            size_t numResults) {
  size_t found = memory.getPlaces().size();
  check.check(found == 0 || found == numResults,
              memory.getName() + ": found " + Twine(found) +
                  (found == 1 ? " array" : " arrays") + ", needed " +
                  Twine(numResults));
}

Error functions::checkSeparate(const Argument &written, const Argument &other) {
  if (!overlap(written.getRef(), other.getRef()))
    return Error::success();
  return makeError(written.name + ": found memory that overlaps " + other.name +
                   ", needed memory of its own");
}

OwnedTensor functions::getView(const TensorRef &array) {
  return OwnedTensor(
      nullptr, [](void *) {}, array.data, array.elementType, array.shape,
      array.strides);
}

bool functions::isOnDevice(const void *data, Target target) {
  int32_t device = -1;
  return target == Target::GPU &&
         fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA, data, &device) == FOVEA_RT_OK &&
         device >= 0;
}

bool functions::isCaptured(const void *data, Target target) {
  return isOnDevice(data, target) &&
         fovea_rt_gpu_is_capturing(FOVEA_RT_GPU_CUDA);
}

bool functions::isNarrowedByKernel(const TensorRef &array, Target target) {
  return array.elementType == ElementType::I64 &&
         Argument("", array).hasContiguousRows() &&
         (target == Target::GPUEmulator || isOnDevice(array.data, target));
}

void functions::checkOnHost(Checker &check, StringRef name, const void *data,
                            Target target) {
  if (isOnDevice(data, target))
    check.fail(name + ": found an array on a GPU, needed one in CPU memory");
}
