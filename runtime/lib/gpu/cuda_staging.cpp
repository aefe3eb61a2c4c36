//===- cuda_staging.cpp - Copies between host and device ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "cuda_staging.h"

#include <algorithm>
#include <cstring>

using namespace fovea::rt::cuda;

/// CU_EVENT_DISABLE_TIMING.
static constexpr unsigned kWithoutTime = 2;

Result Staging::prepare(const Api &api) {
  for (int i = 0; i < 2; ++i) {
    Result result = kSuccess;
    if (!pieces[i]) {
      result = api.memHostAlloc(&pieces[i], kBytes, 0);
      if (result != kSuccess)
        pieces[i] = nullptr;
    }
    if (result == kSuccess && !done[i])
      result = api.eventCreate(&done[i], kWithoutTime);
    if (result != kSuccess)
      return result;
  }
  return kSuccess;
}

Result Staging::copyToDevice(const Api &api, Address to, const char *from,
                             size_t bytes, Stream stream) {
  std::lock_guard<std::mutex> guard(lock);
  Result result = prepare(api);
  for (int i = 0; bytes > 0 && result == kSuccess; i ^= 1) {
    size_t part = std::min(bytes, kBytes);
    result = api.eventSynchronize(done[i]);
    if (result == kSuccess) {
      memcpy(pieces[i], from, part);
      result = api.copyToDevice(to, pieces[i], part, stream);
    }
    if (result == kSuccess)
      result = api.eventRecord(done[i], stream);
    to += part;
    from += part;
    bytes -= part;
  }
  return result;
}

Result Staging::copyToHost(const Api &api, char *to, Address from, size_t bytes,
                           Stream stream) {
  std::lock_guard<std::mutex> guard(lock);
  Result result = prepare(api);
  size_t asked = 0, got = 0;
  for (int i = 0; got < bytes && result == kSuccess; i ^= 1) {
    // The device is up to two pieces ahead.
    while (asked < bytes && asked < got + 2 * kBytes && result == kSuccess) {
      size_t part = std::min(bytes - asked, kBytes);
      int piece = int(asked / kBytes) & 1;
      result = api.eventSynchronize(done[piece]);
      if (result == kSuccess)
        result = api.copyToHost(pieces[piece], from + asked, part, stream);
      if (result == kSuccess)
        result = api.eventRecord(done[piece], stream);
      asked += part;
    }
    if (result == kSuccess)
      result = api.eventSynchronize(done[i]);
    if (result != kSuccess)
      break;
    size_t part = std::min(bytes - got, kBytes);
    memcpy(to + got, pieces[i], part);
    got += part;
  }
  return result;
}
