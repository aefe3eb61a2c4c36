//===- arguments.cpp - Checks of what a host passes -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For code in files, which hosts call without the compiler's library. That has
// the same checks in Kernel::checkInputs.
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/fovea_rt.h"
#include "status.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

using namespace fovea::rt;

void fovea_rt_check_address(const char *name, const void *address,
                            int64_t alignment) {
  if (!address)
    fail(FOVEA_RT_INVALID_ARGUMENT, "%s: expected an address, but got null",
         name);
  if (reinterpret_cast<uintptr_t>(address) % static_cast<uint64_t>(alignment))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s: expected an address aligned to %" PRId64 " bytes, but got %p",
         name, alignment, address);
}

void fovea_rt_check_tensor(const char *name, const void *descriptor,
                           int64_t rank, const int64_t *extents,
                           const int64_t *strides, int64_t element_bytes,
                           int64_t is_written) {
  fovea_rt_check_address(name, descriptor, alignof(int64_t));
  struct {
    const void *base, *data;
    int64_t offset;
  } head;
  std::memcpy(&head, descriptor, sizeof(head));
  const auto *found = reinterpret_cast<const int64_t *>(
      static_cast<const char *>(descriptor) + sizeof(head));
  const int64_t *foundStrides = found + rank;

  bool isEmpty = false;
  for (int64_t dim = 0; dim < rank; ++dim) {
    if (found[dim] < 0)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: expected extents of at least 0, but got %" PRId64
           " in dimension %" PRId64,
           name, found[dim], dim);
    if (extents[dim] != INT64_MIN && extents[dim] != found[dim])
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: expected extent %" PRId64 " in dimension %" PRId64
           ", but got %" PRId64,
           name, extents[dim], dim, found[dim]);
    isEmpty |= found[dim] == 0;
  }
  // Strides of a tensor without elements are products, too.
  int64_t bytes = element_bytes;
  for (int64_t dim = rank - 1; dim >= 0; --dim) {
    int64_t stride = strides ? strides[dim] : bytes / element_bytes;
    if (!isEmpty && found[dim] != 1 && stride != INT64_MIN &&
        foundStrides[dim] != stride)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: expected %sstride %" PRId64 " in dimension %" PRId64
           ", but got %" PRId64,
           name, strides ? "" : "a contiguous tensor, ", stride, dim,
           foundStrides[dim]);
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(found[dim], 1),
                               &bytes) ||
        bytes > FOVEA_RT_MAX_TENSOR_BYTES)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: the extents from dimension %" PRId64
           " on, which begin with %" PRId64
           ", make more bytes than an address space has",
           name, dim, found[dim]);
  }
  if (is_written && fovea_rt_shares_elements(descriptor, rank))
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s: expected memory of its own for each element, because the kernel "
         "writes to it, but got strides by which elements share memory",
         name);
  if (!isEmpty)
    fovea_rt_check_address(name, head.data, element_bytes);
}
