//===- module.cpp - Kernels by module and device --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "device.h"

#include <atomic>
#include <cstdio>
#include <new>

using namespace fovea::rt;

namespace {

constexpr int kNumSlots = kNumKinds * kMaxDevices;

struct FunctionState {
  fovea_rt_gpu_function *owner;
  FunctionState *next;
  std::atomic<void *> loaded[kNumSlots];
};

struct ModuleState {
  FunctionState *functions;
  void *loaded[kNumSlots];
};

} // namespace

/// Guards states, except that a function that is loaded is found without it.
static std::mutex stateLock;

/// The state that hangs on a module or a function.
template <typename State> static State *getState(void **place) {
  return static_cast<State *>(__atomic_load_n(place, __ATOMIC_ACQUIRE));
}

template <typename State> static State *makeState(void **place) {
  State *state = getState<State>(place);
  if (!state) {
    state = new (std::nothrow) State();
    __atomic_store_n(place, static_cast<void *>(state), __ATOMIC_RELEASE);
  }
  return state;
}

fovea_rt_status fovea::rt::getFunction(GPUDevice &device,
                                       fovea_rt_gpu_function *function,
                                       bool mayLoad, void **found, char *text) {
  int slot = device.slot();
  if (auto *state = getState<FunctionState>(&function->state))
    if ((*found = state->loaded[slot].load(std::memory_order_acquire)))
      return FOVEA_RT_OK;
  if (!mayLoad) {
    snprintf(
        text, FOVEA_RT_GPU_TEXT,
        "kernel '%s' is not loaded, which a CUDA graph that is being "
        "captured cannot do: call the function once before, with arrays of "
        "the same shapes",
        function->name);
    return FOVEA_RT_INVALID_ARGUMENT;
  }

  std::lock_guard<std::mutex> guard(stateLock);
  bool isNew = !function->state;
  auto *module = makeState<ModuleState>(&function->module->state);
  auto *state = makeState<FunctionState>(&function->state);
  if (!module || !state) {
    snprintf(text, FOVEA_RT_GPU_TEXT, "out of memory");
    return FOVEA_RT_OUT_OF_MEMORY;
  }
  if (isNew) {
    state->owner = function;
    state->next = module->functions;
    module->functions = state;
  }
  if ((*found = state->loaded[slot].load()))
    return FOVEA_RT_OK;
  if (!module->loaded[slot])
    if (fovea_rt_status status = device.driver->load(
            device.handle, function->module, &module->loaded[slot], text))
      return status;
  if (fovea_rt_status status = device.driver->find(
          device.handle, module->loaded[slot], function->name, found, text))
    return status;
  state->loaded[slot].store(*found, std::memory_order_release);
  return FOVEA_RT_OK;
}

void fovea_rt_gpu_unload(fovea_rt_gpu_module *module) {
  std::lock_guard<std::mutex> guard(stateLock);
  auto *state = getState<ModuleState>(&module->state);
  if (!state)
    return;
  while (FunctionState *function = state->functions) {
    for (int slot = 0; slot < kNumSlots; ++slot)
      if (void *loaded = function->loaded[slot]) {
        GPUDevice &device = openedDevice(slot);
        device.driver->forget(device.handle, loaded);
      }
    state->functions = function->next;
    function->owner->state = nullptr;
    delete function;
  }
  for (int slot = 0; slot < kNumSlots; ++slot)
    if (void *loaded = state->loaded[slot]) {
      GPUDevice &device = openedDevice(slot);
      device.driver->unload(device.handle, loaded);
    }
  module->state = nullptr;
  delete state;
}
