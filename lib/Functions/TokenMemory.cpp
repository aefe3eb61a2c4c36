//===- TokenMemory.cpp - Where caches have keys and values ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenFile.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// `error` of memory of a GPU, which may be that there is none.
static Error nameMemory(const Twine &found, Error error) {
  std::string text;
  std::error_code code;
  handleAllErrors(std::move(error), [&](const ErrorInfoBase &info) {
    text = info.message();
    code = info.convertToErrorCode();
  });
  if (code != std::errc::not_enough_memory)
    return createStringError(code, "cannot use target 'gpu': " + text);
  return createStringError(code, found + ", needed memory for them: " + text);
}

Expected<OwnedTensor> functions::allocateFor(const CachePlace &cache,
                                             const Twine &found,
                                             ElementType type,
                                             ArrayRef<int64_t> shape) {
  if (cache.target == Target::GPU) {
    Expected<OwnedTensor> made = allocateOnGPU(type, shape);
    if (!made)
      return nameMemory(found, made.takeError());
    return made;
  }
  Expected<OwnedTensor> made = allocateTensor(type, shape);
  if (!made)
    return createStringError(
        std::make_error_code(std::errc::not_enough_memory),
        found + ", needed memory for them: " + toString(made.takeError()));
  return made;
}

Error functions::allocateTokens(Checker &check, const Twine &found,
                                std::array<int64_t, 3> extents, int64_t width,
                                ElementType type, TokenMemory &memory) {
  check.integer("heads", extents[1], 1);
  check.integer("width", width, 1);
  check.integer("value_width", memory.valueWidth, 1);
  check.check(!memory.valuesAreKeys || memory.valueWidth <= width,
              "value_width: found " + Twine(memory.valueWidth) +
                  ", needed at most the " + Twine(width) +
                  " columns of keys, whose first ones are values");
  check.check(isFloat(type), "dtype: found " + getArrayTypeName(type) +
                                 ", needed a floating-point type");
  bool runsOnGPU =
      memory.target == Target::GPU || memory.target == Target::GPUEmulator;
  check.check(!runsOnGPU || type != ElementType::F64,
              "dtype: found float64, needed one of float16, bfloat16, float32 "
              "on a GPU");
  static_cast<CachePlace &>(memory) = choosePlace(check, memory.target);
  if (check.hasFailed())
    return check.takeError();
  for (auto [side, columns] :
       {std::pair(&memory.keys, width), {&memory.values, memory.valueWidth}}) {
    if (side == &memory.values && memory.valuesAreKeys)
      continue;
    Shape shape{extents[0], extents[1], extents[2], columns};
    if (memory.hasTokensFirst)
      std::swap(shape[1], shape[2]);
    Expected<OwnedTensor> made = allocateFor(memory, found, type, shape);
    if (!made)
      return made.takeError();
    *side = std::move(*made);
  }
  return Error::success();
}

SmallVector<StridedView, 2> functions::getSides(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides{StridedView(memory.keys.getRef())};
  if (!memory.valuesAreKeys)
    sides.emplace_back(memory.values.getRef());
  return sides;
}

SmallVector<StridedView, 2>
functions::getHeadsFirst(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides = getSides(memory);
  if (memory.hasTokensFirst)
    for (StridedView &side : sides)
      side = side.swap(1, 2);
  return sides;
}

std::pair<StridedView, StridedView>
functions::getKeysAndValues(const TokenMemory &memory) {
  SmallVector<StridedView, 2> sides = getHeadsFirst(memory);
  return {sides.front(), sides.back().slice(3, 0, memory.valueWidth)};
}

//===----------------------------------------------------------------------===//
// Memory of a GPU
//===----------------------------------------------------------------------===//

CachePlace functions::choosePlace(Checker &check, Target target) {
  CachePlace place{target, -1};
  if (target == Target::GPU && !check.hasFailed()) {
    place.device = fovea_rt_gpu_get_device();
    checkDevice(check, place);
  }
  return place;
}

void functions::checkDevice(Checker &check, const CachePlace &cache) {
  if (cache.target != Target::GPU || check.hasFailed())
    return;
  int32_t chosen = fovea_rt_gpu_get_device();
  check.check(chosen == cache.device, "device: found GPU " + Twine(chosen) +
                                          " chosen by the thread, needed GPU " +
                                          Twine(cache.device) +
                                          ", where the cache is");
  check.check(!fovea_rt_gpu_is_capturing(FOVEA_RT_GPU_CUDA),
              "cache: the host counts its tokens, which a CUDA graph that is "
              "being captured cannot hold");
}

void functions::checkPlace(Checker &check, const CachePlace &cache,
                           const Argument &array) {
  if (cache.target != Target::GPU || check.hasFailed() ||
      is_contained(array.shape, 0))
    return;
  int32_t device = -1;
  (void)fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA, array.data, &device);
  check.check(
      device == cache.device,
      array.name + ": found an array " +
          (device < 0 ? Twine("in CPU memory") : "on GPU " + Twine(device)) +
          ", needed one on GPU " + Twine(cache.device) +
          ", where the cache is");
}

Argument functions::checkQueries(Checker &check, const TensorRef &q,
                                 StringRef layout, const CachePlace &cache,
                                 ElementType type, int64_t batch, int64_t heads,
                                 int64_t width) {
  Argument query = check.tensor("q", q, 4, layout);
  check.elementType(query, {type});
  check.match("q", "batch", query.shape[0], batch);
  check.check(query.shape[1] % heads == 0,
              "q: found " + Twine(query.shape[1]) +
                  " heads, needed a multiple of the " + Twine(heads) +
                  " of keys");
  check.match("q", "head width", query.shape[3], width);
  checkPlace(check, cache, query);
  return query;
}

Target functions::findTarget(Checker &check, const CachePlace &cache,
                             Target given) {
  if (cache.target == Target::CPU)
    return given;
  check.check(given == Target::CPU || given == cache.target,
              "target: found '" + getName(given) + "', needed '" +
                  getName(cache.target) + "', that of the cache");
  return cache.target;
}

Error functions::waitForTokens(const CachePlace &cache) {
  if (cache.target != Target::GPU ||
      fovea_rt_gpu_wait(FOVEA_RT_GPU_CUDA) == FOVEA_RT_OK)
    return Error::success();
  return createStringError(fovea_rt_last_error());
}

//===----------------------------------------------------------------------===//
// New tokens
//===----------------------------------------------------------------------===//

NewTokens::NewTokens(Checker &check, const TensorRef &k,
                     const std::optional<TensorRef> &v,
                     const TokenMemory &memory, int64_t batch) {
  auto getLike = [&](int64_t width) {
    return Shape{batch, memory.getNumHeads(), 0, width};
  };
  Shape keys = getLike(memory.getWidth()), values = getLike(memory.valueWidth);
  ElementType type = memory.getElementType();
  arrays.push_back(
      checkArray(check, "k", "[B,G,N,D]", k, {nullptr, type, keys}));
  check.check(v.has_value() != memory.valuesAreKeys,
              memory.valuesAreKeys
                  ? "v: found an array, needed none: values are the first " +
                        Twine(memory.valueWidth) + " columns of keys"
                  : "v: found none, needed an array of shape [B,G,N,E]");
  if (v && !check.hasFailed())
    addValues(check, *v, {nullptr, type, values});
  checkMemory(check, memory);
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Error functions::moveToHost(StridedView &side, OwnedTensor &copy,
                            Target target) {
  TensorRef array = side;
  if (!isOnDevice(array.data, target))
    return Error::success();
  Expected<TensorRef> found =
      prepareOnHost(Argument("cache", array), target, copy);
  if (found)
    side = StridedView(*found);
  return found.takeError();
}

Error functions::loadArrays(const ArrayFile &file, ArrayRef<NamedArray> arrays,
                            Target target) {
  SmallVector<OwnedTensor, 2> memory;
  SmallVector<ElementCopy, 2> copies;
  for (const auto &[name, array] : arrays) {
    TensorRef to = array;
    if (isOnDevice(array.data, target)) {
      Expected<OwnedTensor> made = allocate(array.elementType, array.shape);
      if (!made)
        return made.takeError();
      copies.push_back({StridedView(made->getRef()), StridedView(array)});
      memory.push_back(std::move(*made));
      to = memory.back().getRef();
    }
    if (Error error = file.load(name, to))
      return error;
  }
  return copyAll(copies, target);
}
