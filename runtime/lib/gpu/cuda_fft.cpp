//===- cuda_fft.cpp - Fourier transforms by cuFFT -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda_fft.h"
#include "cuda_driver.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <type_traits>

using namespace fovea::rt::cuda;

/// CUFFT_C2C, and the signs of the exponent.
static constexpr int kComplexToComplex = 0x29, kForward = -1, kInverse = 1;
/// Numbers of a call: cuFFT counts with 32 bits, and wants memory besides.
static constexpr int64_t kMaxNumbers = int64_t(1) << 27;

/// What cuFFT calls a result.
static const char *getName(int result) {
  static const char *names[] = {
      "CUFFT_SUCCESS",        "CUFFT_INVALID_PLAN",   "CUFFT_ALLOC_FAILED",
      "CUFFT_INVALID_TYPE",   "CUFFT_INVALID_VALUE",  "CUFFT_INTERNAL_ERROR",
      "CUFFT_EXEC_FAILED",    "CUFFT_SETUP_FAILED",   "CUFFT_INVALID_SIZE",
      "CUFFT_UNALIGNED_DATA", "CUFFT_INVALID_DEVICE", "CUFFT_NO_WORKSPACE"};
  int count = sizeof(names) / sizeof(*names);
  return result >= 0 && result < count ? names[result] : "an unknown error";
}

static void *openLibrary(const char **name) {
  *name = getenv("FOVEA_LIBCUFFT");
  if (*name && **name)
    return dlopen(*name, RTLD_NOW | RTLD_LOCAL);
  for (const char *each : {"libcufft.so.12", "libcufft.so.11", "libcufft.so"}) {
    *name = each;
    if (void *library = dlopen(each, RTLD_NOW | RTLD_LOCAL))
      return library;
  }
  return nullptr;
}

const FFTApi *fovea::rt::cuda::getFFTApi(char *text) {
  static std::mutex lock;
  static FFTApi api;
  static bool ready = false;
  std::lock_guard<std::mutex> guard(lock);
  if (ready)
    return &api;
  const char *name;
  // Never closed: plans outlive our use.
  void *library = openLibrary(&name);
  if (!library) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "Fourier transforms on a GPU need cuFFT, which is not on this "
             "machine: %s",
             dlerror());
    return nullptr;
  }
  auto bind = [&](auto &member, const char *symbol) {
    using Function = std::remove_reference_t<decltype(member)>;
    member = reinterpret_cast<Function>(dlsym(library, symbol));
    if (!member)
      snprintf(text, FOVEA_RT_GPU_TEXT, "%s is no cuFFT: it has no %s", name,
               symbol);
    return member != nullptr;
  };
  ready = bind(api.create, "cufftCreate") &&
          bind(api.setAutoAllocation, "cufftSetAutoAllocation") &&
          bind(api.makePlanMany, "cufftMakePlanMany") &&
          bind(api.setWorkArea, "cufftSetWorkArea") &&
          bind(api.setStream, "cufftSetStream") &&
          bind(api.executeC2C, "cufftExecC2C") &&
          bind(api.destroy, "cufftDestroy");
  if (ready)
    return &api;
  dlclose(library);
  return nullptr;
}

static fovea_rt_status report(const char *what, int64_t length, int64_t count,
                              int result, char *text) {
  snprintf(text, FOVEA_RT_GPU_TEXT,
           "cuFFT cannot %s %" PRId64 " transforms of %" PRId64 " numbers: %s",
           what, count, length, getName(result));
  constexpr int allocFailed = 2;
  return result == allocFailed ? FOVEA_RT_OUT_OF_MEMORY : FOVEA_RT_DEVICE;
}

fovea_rt_status Transforms::getPlan(const FFTApi &api, int64_t length,
                                    int64_t count, bool mayPlan, Plan &found,
                                    char *text) {
  for (const Plan &plan : plans)
    if (plan.length == length && plan.count == count) {
      found = plan;
      return FOVEA_RT_OK;
    }
  if (!mayPlan) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "%" PRId64 " transforms of %" PRId64
             " numbers have no plan, which "
             "a CUDA graph that is being captured cannot make: call the "
             "function once before, with arrays of the same shapes",
             count, length);
    return FOVEA_RT_INVALID_ARGUMENT;
  }
  Plan plan;
  plan.length = length;
  plan.count = count;
  int result = api.create(&plan.handle);
  if (result)
    return report("plan", length, count, result, text);
  int extent = static_cast<int>(length);
  result = api.setAutoAllocation(plan.handle, 0);
  if (!result)
    result = api.makePlanMany(plan.handle, 1, &extent, nullptr, 1, extent,
                              nullptr, 1, extent, kComplexToComplex,
                              static_cast<int>(count), &plan.workBytes);
  if (result) {
    api.destroy(plan.handle);
    return report("plan", length, count, result, text);
  }
  Plan &oldest = plans[next];
  next = (next + 1) % (sizeof(plans) / sizeof(*plans));
  if (oldest.count)
    api.destroy(oldest.handle);
  found = oldest = plan;
  return FOVEA_RT_OK;
}

fovea_rt_status Transforms::run(const FFTApi &api, void *device,
                                const Plan &plan, void *lines, bool inverse,
                                Stream stream, char *text) {
  void *area = nullptr;
  if (plan.workBytes)
    if (fovea_rt_status status = cudaDriver.allocate(
            device, static_cast<int64_t>(plan.workBytes), stream, &area, text))
      return status;
  int result = api.setStream(plan.handle, stream);
  if (!result && area)
    result = api.setWorkArea(plan.handle, area);
  if (!result)
    result = api.executeC2C(plan.handle, lines, lines,
                            inverse ? kInverse : kForward);
  fovea_rt_status status = FOVEA_RT_OK;
  if (area)
    status = cudaDriver.release(device, area, stream, text);
  return result ? report("run", plan.length, plan.count, result, text) : status;
}

fovea_rt_status Transforms::run(void *device, void *data, int64_t length,
                                int64_t count, bool inverse, Stream stream,
                                bool mayPlan, char *text) {
  const FFTApi *api = getFFTApi(text);
  if (!api)
    return FOVEA_RT_UNAVAILABLE;
  int64_t most = kMaxNumbers / length;
  if (most == 0)
    return report("plan", length, count, /*CUFFT_INVALID_SIZE*/ 8, text);
  std::lock_guard<std::mutex> guard(lock);
  for (int64_t first = 0; first < count; first += most) {
    int64_t part = count - first < most ? count - first : most;
    Plan plan;
    if (fovea_rt_status status =
            getPlan(*api, length, part, mayPlan, plan, text))
      return status;
    void *lines = static_cast<float *>(data) + 2 * first * length;
    if (fovea_rt_status status =
            run(*api, device, plan, lines, inverse, stream, text))
      return status;
  }
  return FOVEA_RT_OK;
}
