//===- Caches.cpp - Caches of tokens in Python ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cache is an object of C++. Its methods take what those of the class in the
// package take, by position, the target last.
//
//===----------------------------------------------------------------------===//

#include "AttentionReader.h"
#include "Functions.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/KVCache.h"
#include "fovea/Functions/MultipoleCache.h"
#include "fovea/Functions/Paged.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/Twine.h"
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

/// The GPU whose memory a cache is.
template <typename Class>
static std::optional<int> findDevice(const Class &cache) {
  return cache.getDevice() < 0 ? std::nullopt
                               : std::optional<int>(cache.getDevice());
}

/// Where work without arrays of the caller is done.
template <typename Class> static Placement placeOf(const Class &self) {
  Placement placement;
  placement.device = findDevice(self);
  placement.stream = getStream().value_or(placement.stream);
  return placement;
}

/// A method of that name.
template <auto call, typename Class>
static void defineMethod(nb::class_<Class> &type, const char *name,
                         bool givesTensors = false) {
  auto run = [name, givesTensors](Class &self, nb::args given,
                                  nb::kwargs named) {
    Reader in(name, given, named, givesTensors);
    in.enterCache(findDevice(self));
    return call(self, in);
  };
  type.def(givesTensors ? (name + Twine("_tensor")).str().c_str() : name, run);
}

/// Two that return arrays, or tensors of the class of the first argument.
template <auto call, typename Class>
static void defineAttend(nb::class_<Class> &type, const char *name) {
  defineMethod<call>(type, name);
  defineMethod<call>(type, name, /*givesTensors=*/true);
}

/// What all caches have.
template <typename Class> static void defineCopies(nb::class_<Class> &type) {
  type.def("fork",
           [](const Class &self) {
             return runKernels(placeOf(self), [&] { return self.fork(); });
           })
      .def("save", [](const Class &self, const std::string &path) {
        runKernels(placeOf(self), [&] { return self.save(path); });
      });
}

//===----------------------------------------------------------------------===//
// Keys and values
//===----------------------------------------------------------------------===//

/// Enters the device that the next argument numbers.
static void enterDevice(Reader &in) {
  int64_t device = in.integer("device", 0);
  if (in.getTarget() != Target::GPU) {
    if (device != 0)
      raiseValueError("device: found " + Twine(device) +
                      ", needed 0 for the target '" + getName(in.getTarget()) +
                      "'");
    return;
  }
  int32_t count = 0;
  if (fovea_rt_gpu_count(FOVEA_RT_GPU_CUDA, &count) != FOVEA_RT_OK)
    throw FoveaError(std::string("cannot use target 'gpu': ") +
                     fovea_rt_last_error());
  if (device >= count)
    raiseValueError("device: found " + Twine(device) + ", needed 0 to " +
                    Twine(count - 1));
  in.enterCache(device);
}

/// What memory of keys and values is like.
template <typename Options> static Options readMemoryOptions(Reader &in) {
  Options options;
  options.valueWidth = in.optionalInteger("value_width", 1);
  static constexpr ElementType types[] = {ElementType::F32, ElementType::F64,
                                          ElementType::F16, ElementType::BF16};
  options.elementType = types[in.choice<size_t>(
      "dtype", {"float32", "float64", "float16", "bfloat16"})];
  options.tokensFirst = in.flag("tokens_first");
  options.valuesAreKeys = in.flag("values_are_keys");
  options.target = in.getTarget();
  enterDevice(in);
  return options;
}

static KVCache createCache(Reader &in, KVCache *) {
  int64_t batch = in.integer("batch", 1), heads = in.integer("heads", 1),
          width = in.integer("width", 1), capacity = in.integer("capacity", 1);
  auto options = readMemoryOptions<KVCacheOptions>(in);
  return in.run(
      [&] { return KVCache::create(batch, heads, width, capacity, options); });
}

static PagedCache createCache(Reader &in, PagedCache *) {
  int64_t pages = in.integer("pages", 1), page = in.integer("page", 1),
          heads = in.integer("heads", 1), width = in.integer("width", 1),
          batch = in.integer("batch", 1);
  auto options = readMemoryOptions<PagedCacheOptions>(in);
  options.batch = batch;
  return in.run(
      [&] { return PagedCache::create(pages, page, heads, width, options); });
}

template <typename Cache>
static nb::object callAppend(Cache &cache, Reader &in) {
  TensorRef k = in.array("k");
  std::optional<TensorRef> v = in.optionalArray("v");
  std::optional<TensorRef> lengths = in.optionalArray("lengths");
  in.run([&] { return cache.append(k, v, lengths); });
  return nb::none();
}

static nb::object callAttend(KVCache &cache, Reader &in) {
  TensorRef q = in.array("q");
  auto options = readDenseOptions<AttendOptions>(in);
  options.returnLse = in.flag("return_lse");
  return giveAttention(in, in.run([&] { return cache.attend(q, options); }),
                       options.returnLse);
}

static nb::object callPagedAttend(PagedCache &cache, Reader &in) {
  TensorRef q = in.array("q");
  PagedOptions options = readPagedOptions(in);
  return giveAttention(in, in.run([&] { return cache.attend(q, options); }),
                       options.returnLse);
}

// These are work of the host alone, wherever the cache is.

template <typename Cache>
static void callTruncate(Cache &cache, nb::args given, nb::kwargs named) {
  Reader in("truncate", given, named, /*givesTensors=*/false);
  int64_t length = in.integer("length", 0);
  in.run([&] { return cache.truncate(length); });
}

template <typename Cache>
static void callTruncateEach(Cache &cache, nb::args given, nb::kwargs named) {
  Reader in("truncate_each", given, named, /*givesTensors=*/false);
  TensorRef lengths = in.array("lengths");
  in.run([&] { return cache.truncate(lengths); });
}

/// What caches of keys and values have.
template <typename Cache>
static void defineTokens(nb::class_<Cache> &type, const char *name) {
  type.def_static("create", [name](nb::args given, nb::kwargs named) {
    Reader in(name, given, named, /*givesTensors=*/false);
    return createCache(in, static_cast<Cache *>(nullptr));
  });
  defineAttend<callAppend<Cache>>(type, "append");
  type.def("truncate", callTruncate<Cache>);
  type.def("truncate_each", callTruncateEach<Cache>);
  defineCopies(type);
  type.def_static("load", [name](nb::args given, nb::kwargs named) {
    Reader in(name, given, named, /*givesTensors=*/false);
    std::string path = nb::cast<std::string>(in.object());
    enterDevice(in);
    return in.run([&] { return Cache::load(path, in.getTarget()); });
  });
  type.def_prop_ro("lengths",
                   [](const Cache &self) {
                     return std::vector<int64_t>(self.getLengths());
                   })
      .def_prop_ro("value_width", &Cache::getValueWidth)
      .def_prop_ro("nbytes", &Cache::getNumBytes)
      .def_prop_ro("tokens_first", &Cache::isTokensFirst)
      .def_prop_ro(
          "target",
          [](const Cache &self) { return getName(self.getTarget()).str(); })
      .def_prop_ro("device", &Cache::getDevice);
}

static void defineKVCache(nb::module_ &m) {
  nb::class_<KVCache> type(m, "KVCache");
  defineTokens(type, "KVCache");
  defineAttend<callAttend>(type, "attend");
  type.def_prop_ro("capacity", &KVCache::getCapacity);
}

static void definePagedCache(nb::module_ &m) {
  nb::class_<PagedCache> type(m, "PagedCache");
  defineTokens(type, "PagedCache");
  defineAttend<callPagedAttend>(type, "attend");
  type.def("fork_sequences",
           [](const PagedCache &self, const std::vector<int64_t> &sequences) {
             return runKernels({}, [&] { return self.fork(sequences); });
           })
      .def_prop_ro("pages", &PagedCache::getNumPages)
      .def_prop_ro("page", &PagedCache::getPage)
      .def_prop_ro("free_pages", &PagedCache::getNumFreePages);
}

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

static MultipoleCache createMultipoleCache(Reader &in) {
  in.enterCache();
  enterDevice(in);
  int64_t batch = in.integer("batch", 1), heads = in.integer("heads", 1),
          group = in.integer("group", 1);
  SmallVector<TensorRef> weights[] = {in.arrays("key_weights", 1),
                                      in.arrays("value_weights", 1)};
  int64_t levels = weights[0].size();
  std::optional<SmallVector<TensorRef>> biases[] = {
      in.optionalArrays("key_biases", levels),
      in.optionalArrays("value_biases", levels)};
  MultipoleCacheOptions options;
  options.scale = in.optionalNumber("scale");
  options.multiplicity = in.flag("multiplicity");
  options.target = in.getTarget();
  auto getFamily = [&](size_t side) {
    return biases[side] ? SummaryWeights(weights[side], *biases[side])
                        : SummaryWeights(weights[side]);
  };
  return in.run([&] {
    return MultipoleCache::create(batch, heads, getFamily(0), getFamily(1),
                                  group, options);
  });
}

static nb::object callMultipoleAppend(MultipoleCache &cache, Reader &in) {
  TensorRef k = in.array("k"), v = in.array("v");
  in.run([&] { return cache.append(k, v); });
  return nb::none();
}

static MultipoleAttendOptions readMultipoleOptions(Reader &in) {
  MultipoleAttendOptions options;
  options.returnLse = in.flag("return_lse");
  options.out = in.getMemory();
  return options;
}

static nb::object callMultipoleAttend(MultipoleCache &cache, Reader &in) {
  TensorRef q = in.array("q");
  MultipoleAttendOptions options = readMultipoleOptions(in);
  return giveAttention(in, in.run([&] { return cache.attend(q, options); }),
                       options.returnLse);
}

static nb::object callMultipoleDecode(MultipoleCache &cache, Reader &in) {
  TensorRef q = in.array("q"), k = in.array("k"), v = in.array("v");
  MultipoleAttendOptions options = readMultipoleOptions(in);
  return giveAttention(in, in.run([&] {
    return fast_multipole_decode(q, k, v, cache, options);
  }),
                       options.returnLse);
}

static void defineMultipoleCache(nb::module_ &m) {
  nb::class_<MultipoleCache> type(m, "MultipoleCache");
  type.def_static("create", [](nb::args given, nb::kwargs named) {
    Reader in("MultipoleCache", given, named, /*givesTensors=*/false);
    return createMultipoleCache(in);
  });
  defineAttend<callMultipoleAppend>(type, "append");
  defineAttend<callMultipoleAttend>(type, "attend");
  defineAttend<callMultipoleDecode>(type, "decode");
  defineCopies(type);
  type.def("restore",
           [](MultipoleCache &self, const std::string &path) {
             runKernels(placeOf(self), [&] { return self.restore(path); });
           })
      .def_prop_ro("target",
                   [](const MultipoleCache &self) {
                     return getName(self.getTarget()).str();
                   })
      .def_prop_ro("device", &MultipoleCache::getDevice)
      .def_prop_ro("length", &MultipoleCache::getLength)
      .def_prop_ro("capacity", &MultipoleCache::getCapacity)
      .def_prop_ro("nbytes", &MultipoleCache::getNumBytes);
}

void python::defineCaches(nb::module_ &m) {
  defineKVCache(m);
  definePagedCache(m);
  defineMultipoleCache(m);
}
