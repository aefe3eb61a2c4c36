//===- copies.cpp - Copies of arrays within a device ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../status.h"
#include "device.h"
#include "fovea_rt/abi.h"
#include "queue.h"
#include "rows.h"

#include <algorithm>

using namespace fovea::rt;

namespace {

/// Strides in bytes.
struct Axis {
  int64_t extent, to, from;
};

/// Axes that lead somewhere, the innermost last: bytes that both arrays have
/// one after the other.
struct Axes {
  Axis axes[Rows::kMaxRank + 1];
  int32_t count = 0;

  void add(const Axis &axis) { axes[count++] = axis; }
  /// In the order in which what is written lies.
  void sort() {
    std::sort(axes, axes + count, [](const Axis &one, const Axis &other) {
      return one.to > other.to;
    });
  }
  /// Makes one axis of two wherever both arrays go on from one to the other.
  void merge() {
    int32_t last = 0;
    for (int32_t i = 1; i < count; ++i) {
      Axis &outer = axes[last], &inner = axes[i];
      bool goesOn = outer.to == inner.to * inner.extent &&
                    outer.from == inner.from * inner.extent;
      if (goesOn)
        outer = {outer.extent * inner.extent, inner.to, inner.from};
      else
        axes[++last] = inner;
    }
    count = last + 1;
  }
};

} // namespace

void fovea_rt_gpu_copy_array(void *to, const int64_t *toStrides,
                             const void *from, const int64_t *fromStrides,
                             int64_t elementBytes, int32_t rank,
                             const int64_t *extents) {
  QueueInfo queue = getQueueInfo("copies of arrays");
  if (rank < 1 || rank > Rows::kMaxRank)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "arrays that are copied have 1 to %d axes on a GPU, but got %d",
         Rows::kMaxRank, rank);
  Axes all;
  for (int32_t axis = 0; axis < rank; ++axis) {
    if (extents[axis] == 0)
      return;
    if (extents[axis] != 1)
      all.add({extents[axis], toStrides[axis] * elementBytes,
               fromStrides[axis] * elementBytes});
  }
  all.sort();
  all.add({elementBytes, 1, 1});
  all.merge();
  Axis run = all.axes[--all.count];

  // One call of the driver copies all rows of an axis: the longest.
  Axis rows = {1, run.extent, run.extent};
  if (all.count > 0) {
    Axis *longest = std::max_element(all.axes, all.axes + all.count,
                                     [](const Axis &one, const Axis &other) {
                                       return one.extent < other.extent;
                                     });
    rows = *longest;
    *longest = all.axes[--all.count];
  }
  int64_t position[Rows::kMaxRank] = {};
  auto *target = static_cast<char *>(to);
  const auto *source = static_cast<const char *>(from);
  const fovea_rt_gpu_driver *driver = queue.device->driver;
  char text[FOVEA_RT_GPU_TEXT] = "";
  for (int32_t axis = 0; axis >= 0;) {
    if (fovea_rt_status status = driver->copy_rows(
            queue.device->handle, target, rows.to, source, rows.from,
            run.extent, rows.extent, queue.stream, text))
      failWith(status, text);
    for (axis = all.count - 1; axis >= 0; --axis) {
      const Axis &outer = all.axes[axis];
      target += outer.to;
      source += outer.from;
      if (++position[axis] < outer.extent)
        break;
      target -= outer.to * outer.extent;
      source -= outer.from * outer.extent;
      position[axis] = 0;
    }
  }
}
