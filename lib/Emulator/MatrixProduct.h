//===- MatrixProduct.h - Products for the emulated device -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EMULATOR_MATRIXPRODUCT_H
#define FOVEA_LIB_EMULATOR_MATRIXPRODUCT_H

#include "fovea_rt/gpu_driver.h"

namespace fovea::simt {

/// Computes `product` on the CPU, with sums in f32 in the order of the depth.
void multiplyMatrices(const fovea_rt_gpu_product &product);

/// Calls visit(first, bytes) for the memory from the first to the last element
/// of each array of `product`, until one call returns false; returns that.
template <typename Visit>
bool visitMatrices(const fovea_rt_gpu_product &product, Visit visit);

int64_t getElementBytes(int32_t type);

template <typename Visit>
bool visitMatrices(const fovea_rt_gpu_product &product, Visit visit) {
  auto reach = [&](const fovea_rt_gpu_matrix &matrix, int64_t rows,
                   int64_t columns, int32_t type) {
    int64_t last = (product.batch - 1) * matrix.batch_stride +
                   (rows - 1) * matrix.row_stride +
                   (columns - 1) * matrix.column_stride;
    return visit(matrix.data, (last + 1) * getElementBytes(type));
  };
  return reach(product.left, product.rows, product.depth,
               product.factor_type) &&
         reach(product.right, product.depth, product.columns,
               product.factor_type) &&
         reach(product.result, product.rows, product.columns,
               product.result_type) &&
         (!product.bias ||
          visit(product.bias,
                product.columns * getElementBytes(product.result_type)));
}

} // namespace fovea::simt

#endif // FOVEA_LIB_EMULATOR_MATRIXPRODUCT_H
