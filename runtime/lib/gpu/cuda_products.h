//===- cuda_products.h - Products of matrices by cuBLASLt -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_RT_LIB_GPU_CUDA_PRODUCTS_H
#define FOVEA_RT_LIB_GPU_CUDA_PRODUCTS_H

#include "cuda_api.h"
#include "fovea_rt/gpu_driver.h"

#include <mutex>

namespace fovea::rt::cuda {

/// cublasLtMatmulAlgo_t.
struct ProductAlgorithm {
  uint64_t data[8];
};

/// The functions of cuBLASLt that are used; their results are 0 for success.
struct ProductApi;

/// The products of a device, whose context must be current. The library's
/// handle is for all threads and streams; a product has a work area of its own,
/// in the order of its stream.
class Products {
public:
  /// How to compute a product is chosen at the first one of its kind, an error
  /// unless `mayChoose`.
  fovea_rt_status run(void *device, const fovea_rt_gpu_product &product,
                      Stream stream, bool mayChoose, char *text);

private:
  /// What the choice depends on.
  struct Key {
    int64_t numbers[24];
    bool operator==(const Key &other) const;
  };
  struct Choice {
    bool isSet = false;
    Key key;
    ProductAlgorithm algorithm;
    size_t workBytes;
  };
  struct Call;

  fovea_rt_status choose(const ProductApi &api, const Call &call,
                         bool mayChoose, Choice &found, char *text);

  std::mutex lock;
  void *handle = nullptr;
  /// The oldest one goes when there are more.
  Choice choices[256];
  int next = 0;
};

} // namespace fovea::rt::cuda

#endif // FOVEA_RT_LIB_GPU_CUDA_PRODUCTS_H
