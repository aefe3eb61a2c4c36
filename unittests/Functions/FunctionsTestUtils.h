//===- FunctionsTestUtils.h - Helpers of the tests of functions -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TEST_UNIT_FUNCTIONS_FUNCTIONSTESTUTILS_H
#define FOVEA_TEST_UNIT_FUNCTIONS_FUNCTIONSTESTUTILS_H

#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/Functions.h"
#include "llvm/ADT/STLExtras.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cmath>
#include <random>
#include <vector>

namespace fovea::test {

/// An array with its memory.
struct Array {
  explicit Array(std::vector<int64_t> shape,
                 ElementType type = ElementType::F32)
      : type(type), shape(std::move(shape)) {
    bytes.resize(size() * getByteWidth(type));
  }

  int64_t size() const {
    int64_t count = 1;
    for (int64_t extent : shape)
      count *= extent;
    return count;
  }
  double get(int64_t i) const { return getElement(bytes.data(), type, i); }
  void set(int64_t i, double value) {
    setElement(bytes.data(), type, i, value);
  }
  operator TensorRef() const {
    // An empty vector has no data.
    static char nothing[8];
    return {bytes.empty() ? nothing : const_cast<char *>(bytes.data()),
            type,
            shape,
            {},
            false};
  }

  ElementType type;
  std::vector<int64_t> shape;
  std::vector<char> bytes;
};

inline Array makeRandom(std::vector<int64_t> shape, unsigned seed,
                        ElementType type = ElementType::F32) {
  Array array(std::move(shape), type);
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, normal(generator));
  return array;
}

inline Array makeCodes(std::vector<int64_t> shape, int codes, unsigned seed) {
  Array array(std::move(shape), ElementType::I32);
  std::mt19937 generator(seed);
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, int(generator() % codes));
  return array;
}

/// Rows `begin .. end` of the third axis.
inline Array takeRows(const Array &array, int64_t begin, int64_t end) {
  std::vector<int64_t> shape = array.shape;
  shape[2] = end - begin;
  Array part(shape, array.type);
  int64_t outer = shape[0] * shape[1], all = array.size() / outer,
          size = part.size() / outer, first = all / array.shape[2] * begin;
  for (int64_t i = 0; i < part.size(); ++i)
    part.set(i, array.get(i / size * all + first + i % size));
  return part;
}

/// The result, which the test expects to be there.
template <typename T> T get(llvm::Expected<T> result) {
  if (result)
    return std::move(*result);
  ADD_FAILURE() << llvm::toString(result.takeError());
  return T();
}

/// The text of an error, empty for success.
inline std::string getText(llvm::Error error) {
  return llvm::toString(std::move(error));
}
template <typename T> std::string getText(llvm::Expected<T> result) {
  return llvm::toString(result.takeError());
}

/// Expects `max|found - expected| <= bound max|expected|`.
template <typename Expected>
void expectNear(const OwnedTensor &found, int64_t size, Expected expected,
                double bound) {
  ASSERT_EQ(found.getNumElements(), size);
  ASSERT_GT(size, 0);
  double largest = 0, error = 0;
  for (int64_t i = 0; i < size; ++i) {
    double value = expected(i);
    double difference = std::abs(
        getElement(found.getData(), found.getElementType(), i) - value);
    // NaN is no match.
    error = difference <= error ? error : difference;
    largest = std::max(largest, std::abs(value));
  }
  EXPECT_LE(error, bound * largest);
}
inline void expectNear(const OwnedTensor &found, const OwnedTensor &expected,
                       double bound) {
  expectNear(
      found, expected.getNumElements(),
      [&](int64_t i) {
        return getElement(expected.getData(), expected.getElementType(), i);
      },
      bound);
}

/// Expects `gradients` of f64 to be the slopes, with respect to `arguments`, of
/// the sum of what `run` returns, weighted by `dOut`. Along one direction.
template <typename Run>
void expectSlopes(llvm::ArrayRef<Array *> arguments,
                  llvm::ArrayRef<const OwnedTensor *> gradients,
                  const Array &dOut, Run run) {
  ASSERT_EQ(arguments.size(), gradients.size());
  double step = 1e-5;
  auto move = [&](double distance) {
    for (Array *array : arguments)
      for (int64_t i = 0; i < array->size(); ++i)
        array->set(i, array->get(i) + distance * std::sin(double(i)));
  };
  auto sum = [&] {
    OwnedTensor output = run();
    double total = 0;
    for (int64_t i = 0; i < dOut.size(); ++i)
      total += dOut.get(i) * output.template getDataAs<double>()[i];
    return total;
  };
  double slope = 0;
  for (auto [array, gradient] : llvm::zip_equal(arguments, gradients)) {
    EXPECT_EQ(gradient->getShape(), llvm::ArrayRef(array->shape));
    for (int64_t i = 0; i < gradient->getNumElements(); ++i)
      slope += gradient->template getDataAs<double>()[i] * std::sin(double(i));
  }
  move(step);
  double ahead = sum();
  move(-2 * step);
  double behind = sum();
  move(step);
  EXPECT_NEAR(slope, (ahead - behind) / (2 * step), 1e-6 * std::abs(slope));
}

/// The bound of the specification for the type.
inline double getBound(ElementType type) {
  switch (type) {
  case ElementType::F64:
    return 1e-12;
  case ElementType::BF16:
    return 1e-2;
  case ElementType::F16:
    return 2e-3;
  default:
    return 5e-6;
  }
}

} // namespace fovea::test

#endif // FOVEA_TEST_UNIT_FUNCTIONS_FUNCTIONSTESTUTILS_H
