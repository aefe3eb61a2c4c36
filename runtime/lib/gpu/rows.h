//===- rows.h - Arrays whose rows lie anywhere ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_ROWS_H
#define FOVEA_RT_LIB_GPU_ROWS_H

#include <cstdint>
#include <cstring>

namespace fovea::rt {

/// The shape of an array, whose last axis is contiguous.
struct Rows {
  static constexpr int32_t kMaxRank = 8;

  int64_t elementBytes = 1;
  int32_t rank = 0;
  int64_t extents[kMaxRank] = {};
  /// In elements.
  int64_t strides[kMaxRank] = {};

  bool operator==(const Rows &other) const {
    return elementBytes == other.elementBytes && rank == other.rank &&
           memcmp(extents, other.extents, sizeof(extents)) == 0 &&
           memcmp(strides, other.strides, sizeof(strides)) == 0;
  }

  /// Bytes of all elements.
  int64_t getBytes() const {
    int64_t bytes = elementBytes;
    for (int32_t axis = 0; axis < rank; ++axis)
      bytes *= extents[axis];
    return bytes;
  }

  /// The same elements without gaps, in row-major order.
  Rows pack() const {
    Rows packed = *this;
    int64_t stride = 1;
    for (int32_t axis = rank; axis-- > 0; stride *= extents[axis])
      packed.strides[axis] = stride;
    return packed;
  }

  /// Gives axes of one index, whose strides lead nowhere, such as follow from
  /// those behind.
  void settle() {
    for (int32_t axis = rank; axis-- > 0;)
      if (extents[axis] == 1)
        strides[axis] =
            axis + 1 == rank ? 1 : extents[axis + 1] * strides[axis + 1];
  }

  /// Whether all rows of the array at `pointer` begin at multiples of
  /// `alignment`; with `forBoxes`, also one after the other, as tensor maps
  /// demand.
  bool areAligned(const void *pointer, int64_t alignment, bool forBoxes) const {
    bool aligned = reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
    for (int32_t axis = 0; axis + 1 < rank; ++axis)
      aligned &= strides[axis] * elementBytes % alignment == 0 &&
                 (!forBoxes || strides[axis] > 0);
    return aligned;
  }

  /// Calls visit(at, packed, pitch, bytes, count) for `count` runs of `bytes`
  /// bytes that lie `pitch` bytes apart from byte `at` of the array on, and one
  /// after the other from byte `packed` of the packed array on, until one
  /// returns another status than 0.
  template <typename Visit> int32_t visitRuns(Visit visit) const {
    int64_t run = elementBytes;
    int32_t outer = rank;
    while (outer > 0 && (extents[outer - 1] == 1 ||
                         strides[outer - 1] * elementBytes == run))
      run *= extents[--outer];
    int64_t count = outer > 0 ? extents[outer - 1] : 1;
    int64_t pitch = outer > 0 ? strides[outer - 1] * elementBytes : run;
    int64_t position[kMaxRank] = {}, at = 0, total = getBytes();
    for (int64_t packed = 0; packed < total; packed += count * run) {
      if (int32_t status = visit(at, packed, pitch, run, count))
        return status;
      for (int32_t axis = outer - 1; axis-- > 0;) {
        int64_t step = strides[axis] * elementBytes;
        at += step;
        if (++position[axis] < extents[axis])
          break;
        at -= step * extents[axis];
        position[axis] = 0;
      }
    }
    return 0;
  }
};

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_ROWS_H
