//===- TestUtils.h - Helpers of the tests of kernels --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_EXECUTIONENGINE_TESTUTILS_H
#define FOVEA_TEST_UNIT_EXECUTIONENGINE_TESTUTILS_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cstdlib>
#include <vector>

namespace fovea::test {

/// Whether FOVEA_QUICK leaves out kernels with one instruction less.
inline bool isQuick() {
  const char *quick = std::getenv("FOVEA_QUICK");
  return quick && llvm::StringRef(quick) != "0";
}

/// The kernel, which the test expects to compile.
inline Kernel compileOrDie(llvm::StringRef text,
                           const CompileOptions &options = {}) {
  llvm::Expected<Kernel> kernel = compile(text, options);
  if (kernel)
    return *kernel;
  ADD_FAILURE() << llvm::toString(kernel.takeError());
  return Kernel();
}

/// The text of an error, empty for success.
inline std::string getText(llvm::Error error) {
  return llvm::toString(std::move(error));
}
template <typename T> std::string getText(llvm::Expected<T> result) {
  return llvm::toString(result.takeError());
}

/// A tensor of f32 with its memory.
struct Floats {
  Floats(std::vector<int64_t> shape, std::vector<float> values)
      : shape(std::move(shape)), values(std::move(values)) {}
  explicit Floats(std::vector<int64_t> shape) : shape(std::move(shape)) {
    int64_t count = 1;
    for (int64_t extent : this->shape)
      count *= extent;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(float(i % 7) - 3);
  }

  operator TensorRef() {
    // An empty vector has no data.
    static float nothing;
    return {values.empty() ? &nothing : values.data(),
            ElementType::F32,
            shape,
            {},
            false};
  }

  std::vector<int64_t> shape;
  std::vector<float> values;
};

inline std::vector<float> toFloats(const OwnedTensor &tensor) {
  const float *data = tensor.getDataAs<float>();
  return std::vector<float>(data, data + tensor.getNumElements());
}

inline constexpr const char *kAdd = R"(
func.func @add(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %init = tensor.empty() : tensor<4xf32>
  %out = linalg.add ins(%x, %y : tensor<4xf32>, tensor<4xf32>)
                    outs(%init : tensor<4xf32>) -> tensor<4xf32>
  return %out : tensor<4xf32>
}
)";

} // namespace fovea::test

#endif // FOVEA_TEST_UNIT_EXECUTIONENGINE_TESTUTILS_H
