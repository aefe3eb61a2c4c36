//===- products.h - Axes of products of matrices ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What fovea_rt_gpu_multiply is given has any number of axes. Libraries of
// products know a batch of matrices: three axes of each array.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_PRODUCTS_H
#define FOVEA_RT_LIB_GPU_PRODUCTS_H

#include "fovea_rt/gpu_driver.h"

namespace fovea::rt {

enum { Left, Right, Result, Bias, NumArrays };

struct ProductAxis {
  int64_t kind, extent, strides[NumArrays];

  /// Whether the array has the axis.
  bool isIn(int array) const;
};

/// A product as one of matrices for each place of some outer axes.
class ProductPlan {
public:
  ProductPlan(const int64_t *numbers, int rank, const int64_t *elementBytes);

  /// Chooses the axes of the matrices. False if there are none.
  bool choose(bool bias);
  /// Whether there are outer axes along the depth.
  bool hasOuterDepth() const;
  bool isEmpty() const { return empty; }
  /// If the depth is 0, how many zeros stand for either factor; else 0.
  int64_t countZeros() const;
  /// Places of the outer axes.
  int64_t countPlaces() const;
  /// The product at a place, of arrays that begin at `data`; whether it is the
  /// first one that its part of the result gets.
  fovea_rt_gpu_product get(int64_t place, void *const *data,
                           bool *isFirst) const;

private:
  static constexpr int kNumKinds = 4;

  void readZeros();
  void merge();
  bool tryMatrices(bool outerRows, bool outerColumns, bool bias);
  void addOuter(const ProductAxis &axis);

  ProductAxis axes[FOVEA_RT_GPU_MOST_AXES];
  ProductAxis outer[FOVEA_RT_GPU_MOST_AXES];
  /// By kind: the batch, rows, columns and depth of the matrices.
  ProductAxis inner[kNumKinds];
  int64_t bytes[NumArrays];
  int numAxes = 0, numOuter = 0;
  bool empty = false, noDepth = false;
};

} // namespace fovea::rt

#endif // FOVEA_RT_LIB_GPU_PRODUCTS_H
