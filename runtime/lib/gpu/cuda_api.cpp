//===- cuda_api.cpp - Finds the CUDA driver -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda_api.h"

#include "fovea_rt/gpu_driver.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

using namespace fovea::rt::cuda;

/// Looks up every function; false with a sentence if one is missing.
static bool bind(void *library, const char *path, Api &api, char *text) {
#define FOVEA_CUDA_BIND_REQUIRED(member, symbol, params)                       \
  api.member =                                                                 \
      reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol));         \
  if (!api.member) {                                                           \
    snprintf(                                                                  \
        text, FOVEA_RT_GPU_TEXT,                                               \
        "the CUDA driver in %s is too old: it has no %s, which CUDA 11.2 "     \
        "brought",                                                             \
        path, #symbol);                                                        \
    return false;                                                              \
  }
#define FOVEA_CUDA_BIND_OPTIONAL(member, symbol, params)                       \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol));
  FOVEA_CUDA_REQUIRED(FOVEA_CUDA_BIND_REQUIRED)
  FOVEA_CUDA_OPTIONAL(FOVEA_CUDA_BIND_OPTIONAL)
#undef FOVEA_CUDA_BIND_REQUIRED
#undef FOVEA_CUDA_BIND_OPTIONAL
  return true;
}

const Api *fovea::rt::cuda::getApi(char *text) {
  static std::mutex lock;
  static Api api;
  static bool ready = false;
  std::lock_guard<std::mutex> guard(lock);
  if (ready)
    return &api;
  const char *path = getenv("FOVEA_LIBCUDA");
  if (!path || !*path)
    path = "libcuda.so.1";
  // Never closed: its threads may outlive our use.
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(text, FOVEA_RT_GPU_TEXT,
             "there is no CUDA driver on this machine: %s", dlerror());
    return nullptr;
  }
  if (!bind(library, path, api, text)) {
    dlclose(library);
    return nullptr;
  }
  Result result = api.init(0);
  int count = 0;
  if (result == kSuccess)
    result = api.deviceGetCount(&count);
  if (result == kSuccess && count > 0) {
    ready = true;
    return &api;
  }
  const char *name = "CUDA_ERROR_NO_DEVICE", *reason = "no device is visible";
  if (result != kSuccess) {
    api.getErrorName(result, &name);
    api.getErrorString(result, &reason);
  }
  snprintf(text, FOVEA_RT_GPU_TEXT,
           result == kSuccess || result == kNoDevice
               ? "there is no CUDA device on this machine: %s (%s)"
               : "the CUDA driver cannot start: %s (%s)",
           name ? name : "an unknown error", reason ? reason : "");
  dlclose(library);
  return nullptr;
}
