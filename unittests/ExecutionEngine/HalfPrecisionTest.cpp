//===- HalfPrecisionTest.cpp - Tests of conversions without hardware ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace fovea;
using namespace fovea::test;
using llvm::APFloat;

namespace {

/// A kernel that converts between two types, element by element, for a CPU that
/// has no instructions for it.
Kernel compileConversion(llvm::StringRef op, llvm::StringRef from,
                         llvm::StringRef to) {
  std::string text = llvm::formatv(R"(
    #id = affine_map<(i) -> (i)>
    func.func @convert(%x: tensor<?x{1}>) -> tensor<?x{2}> {{
      %c0 = arith.constant 0 : index
      %n = tensor.dim %x, %c0 : tensor<?x{1}>
      %init = tensor.empty(%n) : tensor<?x{2}>
      %out = linalg.generic
          {{indexing_maps = [#id, #id], iterator_types = ["parallel"]}
          ins(%x : tensor<?x{1}>) outs(%init : tensor<?x{2}>) {{
        ^bb0(%a: {1}, %b: {2}):
          %c = {0} %a : {1} to {2}
          linalg.yield %c : {2}
      } -> tensor<?x{2}>
      return %out : tensor<?x{2}>
    })",
                                   op, from, to);
  CompileOptions options;
#ifdef __x86_64__
  options.cpu = "x86-64";
#endif
  return compileOrDie(text, options);
}

template <typename To, typename From>
std::vector<To> convert(const Kernel &kernel, std::vector<From> &values) {
  int64_t count = values.size();
  llvm::SmallVector<OwnedTensor> results;
  TensorRef input{values.data(),
                  kernel.getSignature().arguments[0].elementType,
                  count,
                  {},
                  true};
  EXPECT_EQ(getText(kernel.invoke({input}, results)), "");
  const To *data = results[0].getDataAs<To>();
  return std::vector<To>(data, data + count);
}

/// Numbers around every rounding boundary of 16-bit floats.
std::vector<float> makeFloats() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += 0x1000)
    for (uint32_t offset : {0u, 1u, 0xfffu})
      values.push_back(llvm::bit_cast<float>(uint32_t(bits + offset)));
  return values;
}

uint16_t round(APFloat value, const llvm::fltSemantics &semantics) {
  bool losesInfo;
  value.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
  return value.bitcastToAPInt().getZExtValue();
}

bool isNaN(uint16_t bits, const llvm::fltSemantics &semantics) {
  return APFloat(semantics, llvm::APInt(16, bits)).isNaN();
}

template <typename From>
void checkTruncation(llvm::StringRef from, llvm::StringRef to,
                     const llvm::fltSemantics &semantics,
                     std::vector<From> values) {
  Kernel kernel = compileConversion("arith.truncf", from, to);
  ASSERT_TRUE(bool(kernel));
  std::vector<uint16_t> results = convert<uint16_t>(kernel, values);
  int numWrong = 0;
  for (size_t i = 0; i < values.size() && numWrong < 5; ++i) {
    bool isRight = std::isnan(values[i])
                       ? isNaN(results[i], semantics)
                       : results[i] == round(APFloat(values[i]), semantics);
    EXPECT_TRUE(isRight) << values[i] << " became " << results[i];
    numWrong += !isRight;
  }
}

std::vector<double> makeDoubles() {
  std::vector<double> values;
  for (float value : makeFloats()) {
    values.push_back(value);
    // Closer to the boundary than a float can be.
    values.push_back(std::nextafter(double(value), 1e300));
  }
  return values;
}

TEST(HalfPrecisionTest, truncatesF32ToF16) {
  checkTruncation("f32", "f16", APFloat::IEEEhalf(), makeFloats());
}
TEST(HalfPrecisionTest, truncatesF32ToBF16) {
  checkTruncation("f32", "bf16", APFloat::BFloat(), makeFloats());
}
TEST(HalfPrecisionTest, truncatesF64ToF16) {
  checkTruncation("f64", "f16", APFloat::IEEEhalf(), makeDoubles());
}

TEST(HalfPrecisionTest, extendsEveryF16) {
  Kernel kernel = compileConversion("arith.extf", "f16", "f32");
  ASSERT_TRUE(bool(kernel));
  std::vector<uint16_t> values(1 << 16);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i;
  std::vector<float> results = convert<float>(kernel, values);
  for (size_t i = 0; i < values.size(); ++i) {
    APFloat value(APFloat::IEEEhalf(), llvm::APInt(16, values[i]));
    bool losesInfo;
    value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven,
                  &losesInfo);
    if (value.isNaN())
      EXPECT_TRUE(std::isnan(results[i])) << i;
    else
      EXPECT_EQ(results[i], value.convertToFloat()) << i;
  }
}

} // namespace
