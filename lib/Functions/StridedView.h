//===- StridedView.h - Parts of arrays --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_STRIDEDVIEW_H
#define FOVEA_LIB_FUNCTIONS_STRIDEDVIEW_H

#include "fovea/ExecutionEngine/Kernel.h"
#include <utility>

namespace fovea::functions {

/// An array, or a part of it, with shape and strides of its own.
class StridedView {
public:
  explicit StridedView(const TensorRef &array)
      : array(array), shape(array.shape), strides(getStrides(array)) {}

  /// Places `first` to `first + count` along one axis.
  StridedView slice(unsigned axis, int64_t first, int64_t count) const {
    StridedView part = *this;
    part.shape[axis] = count;
    part.array.data = static_cast<char *>(array.data) +
                      first * strides[axis] * getByteWidth(array.elementType);
    return part;
  }
  StridedView swap(unsigned axis, unsigned other) const {
    StridedView swapped = *this;
    std::swap(swapped.shape[axis], swapped.shape[other]);
    std::swap(swapped.strides[axis], swapped.strides[other]);
    return swapped;
  }
  /// With one more axis in front, of extent 1.
  StridedView lead() const {
    StridedView led = *this;
    led.shape.insert(led.shape.begin(), 1);
    led.strides.insert(led.strides.begin(), 0);
    return led;
  }

  /// Valid as long as this object.
  operator TensorRef() const {
    return {array.data, array.elementType, shape, strides, array.isReadOnly};
  }

private:
  TensorRef array;
  llvm::SmallVector<int64_t, 4> shape, strides;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_STRIDEDVIEW_H
