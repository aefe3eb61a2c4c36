//===- Running.cpp - Where and how kernels run ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Running.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/Twine.h"
#include <cstring>
#include <unistd.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

void python::raiseValueError(const Twine &text) {
  throw nb::value_error(text.str().c_str());
}

void python::raise(Error error) {
  std::string text;
  std::error_code code;
  handleAllErrors(std::move(error), [&](const ErrorInfoBase &info) {
    text = info.message();
    code = info.convertToErrorCode();
  });
  if (code == std::errc::invalid_argument)
    throw nb::value_error(text.c_str());
  if (code != std::errc::not_enough_memory)
    throw FoveaError(text);
  PyErr_SetString(PyExc_MemoryError, text.c_str());
  throw nb::python_error();
}

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

static thread_local std::optional<intptr_t> chosenStream;

std::optional<intptr_t> python::getStream() { return chosenStream; }

void python::setStream(std::optional<intptr_t> stream) {
  chosenStream = stream;
  fovea_rt_gpu_set_stream(reinterpret_cast<void *>(stream.value_or(0)));
}

/// Where the innermost call of this thread runs that has arrays on a GPU.
static thread_local const Placement *current = nullptr;

static void choose(int device, intptr_t stream) {
  // It exists: there is an array on it.
  (void)fovea_rt_gpu_set_device(device);
  fovea_rt_gpu_set_stream(reinterpret_cast<void *>(stream));
}

PlaceScope::PlaceScope(const Placement &placement)
    : isActive(placement.device.has_value()), outer(current) {
  if (!isActive)
    return;
  current = &placement;
  choose(*placement.device, placement.stream);
}

PlaceScope::~PlaceScope() {
  if (!isActive)
    return;
  // Whoever reads the results knows the stream only if it chose it.
  if (!chosenStream && !current->givesTensors)
    (void)fovea_rt_gpu_wait(FOVEA_RT_GPU_CUDA);
  current = outer;
  choose(outer ? *outer->device : 0,
         outer ? outer->stream : chosenStream.value_or(0));
}

void python::copyResult(const Placement &placement, void *to, const void *from,
                        int64_t bytes) {
  if (!placement.device)
    std::memcpy(to, from, bytes);
  else if (fovea_rt_gpu_transfer(FOVEA_RT_GPU_CUDA, to, from, bytes) !=
           FOVEA_RT_OK)
    throw FoveaError(fovea_rt_last_error());
}

std::optional<int> python::findGPU(const Placement &placement,
                                   const OwnedTensor &result) {
  if (!placement.device)
    return std::nullopt;
  int32_t device;
  if (fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA, result.getData(), &device) !=
      FOVEA_RT_OK)
    throw FoveaError(fovea_rt_last_error());
  return device >= 0 ? std::optional<int>(device) : std::nullopt;
}

//===----------------------------------------------------------------------===//
// Signals
//===----------------------------------------------------------------------===//

static int32_t checkSignals(void *) {
  // Python runs handlers on its main thread, which alone need not go on without
  // its lock.
  if (gettid() != getpid())
    return 0;
  nb::gil_scoped_acquire acquire;
  return PyErr_CheckSignals() != 0;
}

static thread_local bool hasSignals = false;

SignalScope::SignalScope() : isOuter(!hasSignals) {
  hasSignals = true;
  fovea_rt_set_interrupt_check(checkSignals, nullptr);
}

SignalScope::~SignalScope() {
  if (!isOuter)
    return;
  hasSignals = false;
  fovea_rt_set_interrupt_check(nullptr, nullptr);
}
