//===- GPUDriver.cpp - The emulator as a device of the runtime ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Work of every stream is done at once, so streams and events are numbers.
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/GPUDriver.h"
#include "FourierTransform.h"
#include "MatrixProduct.h"
#include "fovea/Emulator/Module.h"
#include "fovea/Emulator/Runtime/Clocks.h"
#include "fovea/Emulator/Runtime/Memory.h"
#include "fovea/Emulator/Runtime/TensorMap.h"
#include "fovea/ExecutionEngine/GPU.h"
#include "fovea_rt/gpu_driver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <mutex>

using namespace llvm;
using namespace fovea::simt;

/// llvm has a class of the same name.
using DeviceCode = fovea::simt::Module;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

Expected<Options> fovea::simt::parseEmulatorOptions(StringRef list,
                                                    Options options) {
  for (StringRef part : split(list, ',')) {
    if (part.empty())
      continue;
    auto [name, value] = part.split('=');
    bool *flag = StringSwitch<bool *>(name)
                     .Case("eager", &options.eager)
                     .Case("races", &options.races)
                     .Case("banks", &options.bankConflicts)
                     .Case("clocks", &options.clocks)
                     .Case("transforms", &options.transforms)
                     .Case("products", &options.products)
                     .Default(nullptr);
    if (flag) {
      if (part.contains('=') && value != "0" && value != "1")
        return createStringError("option '" + name +
                                 "' of the emulator is 0 or 1, but got '" +
                                 part + "'");
      *flag = value != "0";
    } else if (name == "seed") {
      if (value.getAsInteger(10, options.seed))
        return createStringError("option 'seed' of the emulator is a number "
                                 "of 32 bits, but got '" +
                                 part + "'");
    } else if (name == "chip") {
      options.chip = value.str();
    } else {
      return createStringError(
          "the emulator has no option '" + part +
          "'; expected seed, eager, races, banks, clocks, transforms, products "
          "or chip");
    }
  }
  return options;
}

namespace {
struct Settings {
  Settings() {
    const char *text = getenv("FOVEA_SIMT");
    if (!text)
      return;
    Expected<Options> parsed = parseEmulatorOptions(text);
    if (parsed)
      options = std::move(*parsed);
    else
      mistake = "FOVEA_SIMT: " + toString(parsed.takeError());
  }

  std::mutex lock;
  Options options;
  /// What is wrong with the environment variable.
  std::string mistake;
  LaunchObserver observer;
  ModuleEditor editor;
  /// How many editors there have been, and changes of Options::clocks.
  uint64_t edition = 0;
};
} // namespace

static Settings &getSettings() {
  static auto *settings = new Settings;
  return *settings;
}

void fovea::simt::setEmulatorOptions(const Options &options) {
  std::lock_guard<std::mutex> guard(getSettings().lock);
  getSettings().edition += options.clocks != getSettings().options.clocks;
  getSettings().options = options;
}

Options fovea::simt::getEmulatorOptions() {
  std::lock_guard<std::mutex> guard(getSettings().lock);
  return getSettings().options;
}

void fovea::simt::setLaunchObserver(LaunchObserver observer) {
  std::lock_guard<std::mutex> guard(getSettings().lock);
  getSettings().observer = std::move(observer);
}

void fovea::simt::setModuleEditor(ModuleEditor editor) {
  std::lock_guard<std::mutex> guard(getSettings().lock);
  getSettings().editor = std::move(editor);
  ++getSettings().edition;
}

//===----------------------------------------------------------------------===//
// Driver
//===----------------------------------------------------------------------===//

namespace {
/// What translates modules.
struct Edition {
  ModuleEditor editor;
  bool clocks = false;
  uint64_t number = 0;
};

/// A module that the runtime has loaded.
class LoadedModule {
public:
  explicit LoadedModule(const fovea_rt_gpu_module &source) : source(source) {}

  Error load();
  /// As it was loaded.
  DeviceCode &getCode() const { return *code; }
  /// What runs a kernel, as the last editor would have it.
  Expected<DeviceCode *> getCode(StringRef kernel);

private:
  Expected<std::unique_ptr<DeviceCode>> translate(const Edition &edition);

  const fovea_rt_gpu_module &source;
  std::unique_ptr<DeviceCode> code;
  bool hasClocks = false;
  /// By an editor that came after loading, if there is one, or with clocks or
  /// without, as they were not wanted at loading.
  std::unique_ptr<DeviceCode> edited;
  Edition edition;
  std::mutex lock;
};

/// A kernel that the runtime has looked up.
struct FoundKernel {
  LoadedModule *module;
  std::string name;
};
} // namespace

static Edition getEdition() {
  std::lock_guard<std::mutex> guard(getSettings().lock);
  return {getSettings().editor, getSettings().options.clocks,
          getSettings().edition};
}

Expected<std::unique_ptr<DeviceCode>>
LoadedModule::translate(const Edition &edition) {
  auto translated =
      DeviceCode::create(StringRef(static_cast<const char *>(source.bitcode),
                                   source.bitcode_bytes),
                         source.name, edition.editor, edition.clocks);
  if (translated)
    return translated;
  return createStringError(Twine("the emulator refuses module '") +
                           source.name +
                           "': " + toString(translated.takeError()));
}

Error LoadedModule::load() {
  edition = getEdition();
  hasClocks = edition.clocks;
  return translate(edition).moveInto(code);
}

Expected<DeviceCode *> LoadedModule::getCode(StringRef kernel) {
  Edition current = getEdition();
  std::lock_guard<std::mutex> guard(lock);
  if (edition.number != current.number) {
    edited.reset();
    if (current.editor || current.clocks != hasClocks)
      if (Error error = translate(current).moveInto(edited))
        return std::move(error);
    edition = std::move(current);
  }
  return edited && edited->getNumParams(kernel) >= 0 ? edited.get()
                                                     : code.get();
}

static fovea_rt_status report(char *text, fovea_rt_status status,
                              const Twine &message) {
  snprintf(text, FOVEA_RT_GPU_TEXT, "%s", message.str().c_str());
  return status;
}

static fovea_rt_status countDevices(int32_t *count, char *) {
  *count = 1;
  return FOVEA_RT_OK;
}

static fovea_rt_status openDevice(int32_t, void **device, char *text) {
  if (const std::string &mistake = getSettings().mistake; !mistake.empty())
    return report(text, FOVEA_RT_INVALID_ARGUMENT, mistake);
  static int theDevice;
  *device = &theDevice;
  return FOVEA_RT_OK;
}

static fovea_rt_status getProperties(void *, fovea_rt_gpu_properties *out,
                                     char *) {
  strcpy(out->name, "Fovea SIMT emulator");
  out->capability = 90;
  // So few that blocks of threads which stay have several blocks of queries.
  out->multiprocessors = 2;
  out->shared_bytes = Options().sharedLimit;
  out->total_bytes = out->free_bytes = int64_t(1) << 40;
  return FOVEA_RT_OK;
}

static fovea_rt_status loadModule(void *, const fovea_rt_gpu_module *code,
                                  void **module, char *text) {
  if (!code->bitcode)
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  Twine("module '") + code->name +
                      "' has no bitcode: it was compiled for a GPU only");
  auto loaded = std::make_unique<LoadedModule>(*code);
  if (Error error = loaded->load())
    return report(text, FOVEA_RT_INVALID_ARGUMENT, toString(std::move(error)));
  *module = loaded.release();
  return FOVEA_RT_OK;
}

static void unloadModule(void *, void *module) {
  delete static_cast<LoadedModule *>(module);
}

static fovea_rt_status findKernel(void *, void *module, const char *name,
                                  void **function, char *text) {
  auto *loaded = static_cast<LoadedModule *>(module);
  if (loaded->getCode().getNumParams(name) < 0)
    return report(text, FOVEA_RT_DEVICE,
                  Twine("the module has no kernel '") + name + "'");
  *function = new FoundKernel{loaded, name};
  return FOVEA_RT_OK;
}

static void forgetKernel(void *, void *function) {
  delete static_cast<FoundKernel *>(function);
}

static fovea_rt_status launchKernel(void *, void *function,
                                    const fovea_rt_gpu_launch_info *info,
                                    void *, char *text) {
  auto *kernel = static_cast<FoundKernel *>(function);
  auto code = kernel->module->getCode(kernel->name);
  if (!code)
    return report(text, FOVEA_RT_INVALID_ARGUMENT, toString(code.takeError()));
  Dim3 cluster = (*code)->getCluster(kernel->name);
  const int64_t *given = info->cluster;
  bool isDemanded =
      given[0] == cluster.x && given[1] == cluster.y && given[2] == cluster.z;
  if (given[0] * given[1] * given[2] != 1 && !isDemanded)
    return report(text, FOVEA_RT_UNAVAILABLE,
                  Twine("kernel '") + info->name +
                      "' is launched in clusters of " + Twine(given[0]) +
                      " x " + Twine(given[1]) + " x " + Twine(given[2]) +
                      " blocks, but demands " + Twine(cluster.x) + " x " +
                      Twine(cluster.y) + " x " + Twine(cluster.z) +
                      "; others are not emulated");
  int expected = (*code)->getNumParams(kernel->name);
  if (info->num_params != expected)
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  Twine("kernel '") + info->name + "' has " + Twine(expected) +
                      " parameters, but got " + Twine(info->num_params));
  auto toDim = [](const int64_t *extents) {
    return Dim3{uint32_t(extents[0]), uint32_t(extents[1]),
                uint32_t(extents[2])};
  };
  Counters counters;
  if (Error error = (*code)->launch(
          kernel->name, toDim(info->grid), toDim(info->block),
          info->shared_bytes, info->params, getEmulatorOptions(), &counters))
    return report(text, FOVEA_RT_DEVICE, toString(std::move(error)));
  LaunchObserver observer;
  {
    std::lock_guard<std::mutex> guard(getSettings().lock);
    observer = getSettings().observer;
  }
  if (observer)
    observer(info->name, counters);
  else if (counters.clocks)
    errs() << describeClocks(info->name, *counters.clocks);
  return FOVEA_RT_OK;
}

static fovea_rt_status allocateMemory(void *, int64_t bytes, void *,
                                      void **pointer, char *text) {
  *pointer = allocateDevice(bytes);
  if (*pointer)
    return FOVEA_RT_OK;
  return report(text, FOVEA_RT_OUT_OF_MEMORY,
                "out of memory on the emulated device: " + Twine(bytes) +
                    " bytes asked for");
}

static fovea_rt_status releaseMemory(void *, void *pointer, void *,
                                     char *text) {
  std::string damage = checkDevice();
  if (!freeDevice(pointer))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "a pointer to be freed is no memory of the emulated device");
  if (!damage.empty())
    return report(text, FOVEA_RT_DEVICE, "the host or a kernel " + damage);
  return FOVEA_RT_OK;
}

static fovea_rt_status shareMemory(void *device, int64_t bytes, void **pointer,
                                   char *text) {
  return allocateMemory(device, bytes, nullptr, pointer, text);
}

static int32_t locatePointer(void *, const void *pointer, int32_t *) {
  void *start;
  size_t bytes;
  return findDevice(pointer, &start, &bytes) ? FOVEA_RT_GPU_HERE
                                             : FOVEA_RT_GPU_HOST;
}

/// An error unless device memory [pointer, pointer + bytes) is in one block.
static bool isInBlock(const void *pointer, int32_t place, int64_t bytes) {
  if (place == FOVEA_RT_GPU_HOST)
    return true;
  void *start;
  size_t size;
  return findDevice(pointer, &start, &size) &&
         static_cast<const char *>(pointer) + bytes <=
             static_cast<char *>(start) + size;
}

static fovea_rt_status copyMemory(void *, void *to, int32_t toPlace,
                                  const void *from, int32_t fromPlace,
                                  int64_t bytes, void *, char *text) {
  if (!isInBlock(to, toPlace, bytes) || !isInBlock(from, fromPlace, bytes))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "a copy of " + Twine(bytes) +
                      " bytes reaches beyond its block of device memory");
  memmove(to, from, bytes);
  return FOVEA_RT_OK;
}

static fovea_rt_status copyRows(void *device, void *to, int64_t toPitch,
                                const void *from, int64_t fromPitch,
                                int64_t bytes, int64_t count, void *stream,
                                char *text) {
  for (int64_t row = 0; row < count; ++row)
    if (fovea_rt_status status = copyMemory(
            device, static_cast<char *>(to) + row * toPitch, FOVEA_RT_GPU_HERE,
            static_cast<const char *>(from) + row * fromPitch,
            FOVEA_RT_GPU_HERE, bytes, stream, text))
      return status;
  return FOVEA_RT_OK;
}

static fovea_rt_status fillMemory(void *, void *to, int64_t count,
                                  int32_t elementBytes, uint32_t value, void *,
                                  char *text) {
  if (!isInBlock(to, FOVEA_RT_GPU_HERE, count * elementBytes))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "filling " + Twine(count * elementBytes) +
                      " bytes reaches beyond a block of device memory");
  auto *bytes = static_cast<char *>(to);
  for (int64_t i = 0; i < count; ++i)
    memcpy(bytes + i * elementBytes, &value, elementBytes);
  return FOVEA_RT_OK;
}

static fovea_rt_status encodeTensorMap(void *, void *out,
                                       const fovea_rt_gpu_tensor_map_info *info,
                                       char *text) {
  static constexpr uint8_t sizes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
  if (info->element_type < 0 || info->element_type > FOVEA_RT_GPU_BF16 ||
      info->swizzle < 0 || info->swizzle > FOVEA_RT_GPU_SWIZZLE_128B)
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "tensor maps have no element type " +
                      Twine(info->element_type) + " with swizzle " +
                      Twine(info->swizzle));
  TensorMap map;
  map.rank = info->rank;
  map.elementBytes = sizes[info->element_type];
  map.swizzle = Swizzle(info->swizzle);
  map.base = reinterpret_cast<uintptr_t>(info->address);
  for (int axis = 0; axis < info->rank; ++axis) {
    map.extent[axis] = info->extents[axis];
    map.box[axis] = info->box[axis];
    if (axis)
      map.stride[axis - 1] = info->strides[axis - 1];
  }
  if (const char *problem = checkTensorMap(map))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  Twine("tensor map: ") + problem);
  if (reinterpret_cast<uintptr_t>(out) % 64 != 0)
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "tensor map: its address must be a multiple of 64");
  memcpy(out, &map, sizeof(map));
  return FOVEA_RT_OK;
}

static fovea_rt_status transform(void *, void *data, int64_t length,
                                 int64_t count, int32_t inverse, void *,
                                 char *text) {
  if (!getEmulatorOptions().transforms)
    return report(text, FOVEA_RT_UNAVAILABLE,
                  "Fourier transforms on a GPU need cuFFT, which FOVEA_SIMT "
                  "says is missing");
  if (!data)
    return FOVEA_RT_OK;
  int64_t bytes = count * length * 2 * sizeof(float);
  if (!isInBlock(data, FOVEA_RT_GPU_HERE, bytes))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "a transform of " + Twine(bytes) +
                      " bytes reaches beyond its block of device memory");
  transformLines(static_cast<float *>(data), length, count, inverse != 0);
  return FOVEA_RT_OK;
}

static fovea_rt_status multiply(void *, const fovea_rt_gpu_product *product,
                                void *, char *text) {
  if (!getEmulatorOptions().products)
    return report(text, FOVEA_RT_UNAVAILABLE,
                  "products of matrices on a GPU need cuBLASLt, which "
                  "FOVEA_SIMT says is missing");
  auto isInMemory = [](const void *data, int64_t bytes) {
    return isInBlock(data, FOVEA_RT_GPU_HERE, bytes);
  };
  if (!visitMatrices(*product, isInMemory))
    return report(text, FOVEA_RT_INVALID_ARGUMENT,
                  "a product of matrices reaches beyond its blocks of device "
                  "memory");
  multiplyMatrices(*product);
  return FOVEA_RT_OK;
}

static fovea_rt_status createStream(void *, void **stream, char *) {
  static int theStream;
  *stream = &theStream;
  return FOVEA_RT_OK;
}

static fovea_rt_status destroyStream(void *, void *, char *) {
  return FOVEA_RT_OK;
}

static fovea_rt_status isCapturing(void *, void *, int32_t *answer, char *) {
  *answer = 0;
  return FOVEA_RT_OK;
}

static fovea_rt_status synchronize(void *, void *, int32_t, char *) {
  return FOVEA_RT_OK;
}

using Time = std::chrono::steady_clock::time_point;

static fovea_rt_status createEvent(void *, void **event, char *) {
  *event = new Time(std::chrono::steady_clock::now());
  return FOVEA_RT_OK;
}

static void destroyEvent(void *, void *event) {
  delete static_cast<Time *>(event);
}

static fovea_rt_status recordEvent(void *, void *event, void *, char *) {
  *static_cast<Time *>(event) = std::chrono::steady_clock::now();
  return FOVEA_RT_OK;
}

static fovea_rt_status measure(void *, void *from, void *to,
                               float *milliseconds, char *) {
  *milliseconds = std::chrono::duration<float, std::milli>(
                      *static_cast<Time *>(to) - *static_cast<Time *>(from))
                      .count();
  return FOVEA_RT_OK;
}

void fovea::simt::registerEmulator() {
  static const fovea_rt_gpu_driver driver = {
      FOVEA_RT_GPU_DRIVER_VERSION,
      countDevices,
      openDevice,
      getProperties,
      loadModule,
      unloadModule,
      findKernel,
      forgetKernel,
      launchKernel,
      allocateMemory,
      releaseMemory,
      shareMemory,
      locatePointer,
      copyMemory,
      copyRows,
      fillMemory,
      encodeTensorMap,
      transform,
      multiply,
      createStream,
      destroyStream,
      isCapturing,
      synchronize,
      createEvent,
      destroyEvent,
      recordEvent,
      measure,
  };
  fovea_rt_gpu_register_driver(FOVEA_RT_GPU_EMULATOR, &driver);
  setGPUEmulator([] { return getEmulatorOptions().chip; });
}
