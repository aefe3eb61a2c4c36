//===- MatrixProduct.cpp - Products for the emulated device ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixProduct.h"
#include "fovea_rt/half_float.h"

#include <vector>

using namespace fovea;
using namespace fovea::simt;

int64_t fovea::simt::getElementBytes(int32_t type) {
  return type == FOVEA_RT_GPU_F32 ? sizeof(float) : sizeof(uint16_t);
}

static float load(const void *data, int64_t at, int32_t type) {
  if (type == FOVEA_RT_GPU_F32)
    return static_cast<const float *>(data)[at];
  uint16_t bits = static_cast<const uint16_t *>(data)[at];
  return type == FOVEA_RT_GPU_F16 ? extendF16(bits) : extendBF16(bits);
}

static void store(float value, void *data, int64_t at, int32_t type) {
  if (type == FOVEA_RT_GPU_F32)
    static_cast<float *>(data)[at] = value;
  else
    static_cast<uint16_t *>(data)[at] =
        type == FOVEA_RT_GPU_F16 ? truncateToF16(value) : truncateToBF16(value);
}

void fovea::simt::multiplyMatrices(const fovea_rt_gpu_product &product) {
  const auto &[factorType, resultType, flags, batch, rows, columns, depth, left,
               right, result, bias] = product;
  std::vector<float> sums(columns);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < rows; ++i) {
      sums.assign(columns, 0.0f);
      for (int64_t k = 0; k < depth; ++k) {
        float factor = load(left.data,
                            b * left.batch_stride + i * left.row_stride +
                                k * left.column_stride,
                            factorType);
        for (int64_t j = 0; j < columns; ++j)
          sums[j] +=
              factor * load(right.data,
                            b * right.batch_stride + k * right.row_stride +
                                j * right.column_stride,
                            factorType);
      }
      for (int64_t j = 0; j < columns; ++j) {
        int64_t at = b * result.batch_stride + i * result.row_stride +
                     j * result.column_stride;
        if (flags & FOVEA_RT_GPU_ADD)
          sums[j] += load(result.data, at, resultType);
        if (bias)
          sums[j] += load(bias, j, resultType);
        store(sums[j], result.data, at, resultType);
      }
    }
}
