//===- LowRankTest.cpp - Low-rank attention of arrays under masks ---------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, H = 4, G = 2, N = 9, M = 11, r = 5, E = 3, R = 4;

Array makeIntegers(std::vector<int64_t> shape,
                   llvm::function_ref<int64_t(int64_t)> element,
                   ElementType type = ElementType::I32) {
  Array array(std::move(shape), type);
  for (int64_t i = 0; i < array.size(); ++i)
    array.set(i, element(i));
  return array;
}

class LowRank : public testing::Test {
protected:
  /// Expects rows that keep column j if `keeps(head, i, j)`.
  void expectKept(const RowMask &mask,
                  llvm::function_ref<bool(int64_t, int64_t, int64_t)> keeps,
                  const LowRankOptions &options = {}) {
    OwnedTensor found = get(low_rank(u1, u2, v, mask, options));
    expectNear(
        found, B * H * N * E,
        [&](int64_t at) {
          int64_t e = at % E, i = at / E % N, bh = at / E / N;
          int64_t bg = bh / H * G + bh % H / (H / G);
          double sum = 0, weights = 0;
          for (int64_t j = 0; j < M; ++j) {
            if (!keeps(bh % H, i, j))
              continue;
            double weight = 0;
            for (int64_t d = 0; d < r; ++d)
              weight +=
                  u1.get((bh * N + i) * r + d) * u2.get((bg * M + j) * r + d);
            weights += weight;
            sum += weight * v.get((bg * M + j) * E + e);
          }
          return weights == 0 ? 0 : sum / weights;
        },
        5e-6);
  }

  /// Weights of one sign, so that nothing cancels.
  static Array makePositive(std::vector<int64_t> shape, unsigned seed) {
    Array array = makeRandom(std::move(shape), seed);
    for (int64_t i = 0; i < array.size(); ++i)
      array.set(i, std::abs(array.get(i)) + 0.1);
    return array;
  }

  Array u1 = makePositive({B, H, N, r}, 1), u2 = makePositive({B, G, M, r}, 2),
        v = makeRandom({B, G, M, E}, 3);
};

TEST_F(LowRank, Masks) {
  expectKept(RowMask::causal(),
             [](int64_t, int64_t i, int64_t j) { return j <= i + M - N; });
  Array first = makeIntegers({N}, [](int64_t i) { return i / 2; }),
        last = makeIntegers({N}, [](int64_t i) { return i / 2 + i % 3; });
  expectKept(RowMask::rowInterval(first, last),
             [](int64_t, int64_t i, int64_t j) {
               return i / 2 <= j && j <= i / 2 + i % 3;
             });
  // Column i enters at row i and leaves two rows later.
  Array ends =
            makeIntegers({N}, [](int64_t i) { return i < 2 ? i + 1 : 2 * i; }),
        columns = makeIntegers({2 * N}, [](int64_t c) {
          return c < 2 ? c : c % 2 ? c / 2 + 1 : c / 2 - 1;
        });
  expectKept(RowMask::rowChange(ends, columns),
             [](int64_t, int64_t i, int64_t j) { return i - 2 < j && j <= i; });
  // Heads of their own.
  auto isSet = [](int64_t at) { return at * 7 % 3 != 0; };
  Array rowGroup = makeIntegers({H, N}, [](int64_t at) { return at % R; }),
        rows = makeIntegers({R, M}, isSet, ElementType::I1);
  expectKept(RowMask::distinctRows(rowGroup, rows),
             [&](int64_t h, int64_t i, int64_t j) {
               return isSet((h * N + i) % R * M + j);
             });
  Array columnGroup = makeIntegers({M}, [](int64_t j) { return j % R; }),
        entries = makeIntegers({R, N}, isSet, ElementType::I1);
  expectKept(
      RowMask::distinctColumns(columnGroup, entries),
      [&](int64_t, int64_t i, int64_t j) { return isSet(j % R * N + i); });
}

TEST_F(LowRank, AbsentTokensHaveNoWeight) {
  auto isThere = [](int64_t row) { return row % 4 != 2; };
  Array queries({B, N}, ElementType::I1), lengths({B}, ElementType::I32);
  for (int64_t row = 0; row < B * N; ++row)
    queries.set(row, isThere(row % N));
  for (int64_t entry = 0; entry < B; ++entry)
    lengths.set(entry, M - 3);
  LowRankOptions options;
  options.queries.mask = TensorRef(queries);
  options.keys.lengths = TensorRef(lengths);
  expectKept(
      RowMask::causal(),
      [&](int64_t, int64_t i, int64_t j) {
        return isThere(i) && j < M - 3 && j <= i + M - N;
      },
      options);
  lengths.set(1, M + 1);
  EXPECT_EQ(getText(low_rank(u1, u2, v, RowMask::causal(), options)),
            "lengths: found " + std::to_string(M + 1) +
                " for batch entry 1, needed 0 to " + std::to_string(M));
}

TEST_F(LowRank, RopeTurnsPairsOfColumns) {
  constexpr int64_t width = 6;
  Array x = makeRandom({B, H, N, width}, 4, ElementType::F64),
        positions = makeIntegers({N}, [](int64_t i) { return 3 * i + 5; });
  RopeOptions options;
  options.base = 100;
  expectNear(
      get(rope(x, positions, options)), x.size(),
      [&](int64_t at) {
        int64_t column = at % width, even = at - column % 2;
        double angle = positions.get(at / width % N) *
                       std::pow(100.0, -double(column / 2 * 2) / width);
        return column % 2 ? x.get(even) * std::sin(angle) +
                                x.get(even + 1) * std::cos(angle)
                          : x.get(even) * std::cos(angle) -
                                x.get(even + 1) * std::sin(angle);
      },
      1e-12);
}

TEST_F(LowRank, ProductsOfFeaturesArePolynomials) {
  constexpr int64_t degree = 3, features = 56;
  double scale = 0.3;
  Array x = makeRandom({1, 1, N, r}, 5, ElementType::F64),
        output({1, 1, N, features}, ElementType::F64);
  PolynomialFeaturesOptions options;
  options.out = TensorRef(output);
  OwnedTensor phi = get(polynomial_features(x, degree, scale, options));
  EXPECT_EQ(phi.getData(), output.bytes.data());
  for (int64_t i = 0; i < N; ++i)
    for (int64_t j = 0; j < N; ++j) {
      double found = 0, product = 0;
      for (int64_t f = 0; f < features; ++f)
        found += output.get(i * features + f) * output.get(j * features + f);
      for (int64_t d = 0; d < r; ++d)
        product += scale * x.get(i * r + d) * x.get(j * r + d);
      double expected =
          1 + product + product * product / 2 + product * product * product / 6;
      EXPECT_NEAR(found, expected, 1e-12 * (1 + std::abs(expected)));
    }
}

TEST_F(LowRank, GradientIsTheSlope) {
  constexpr ElementType type = ElementType::F64;
  auto makeWide = [](const Array &narrow) {
    Array wide(narrow.shape, type);
    for (int64_t i = 0; i < wide.size(); ++i)
      wide.set(i, narrow.get(i));
    return wide;
  };
  Array u1 = makeWide(this->u1), u2 = makeWide(this->u2), v = makeWide(this->v),
        dOut = makeRandom({B, H, N, E}, 4, type), dU1({B, H, N, r}, type);
  auto run = [&] { return get(low_rank(u1, u2, v, RowMask::causal())); };
  OwnedTensor out = run();
  LowRankBackwardOptions options;
  options.gradients = {TensorRef(dU1), std::nullopt, std::nullopt};
  LowRankGradients found = get(low_rank_backward(dOut, u1, u2, v, out.getRef(),
                                                 RowMask::causal(), options));
  EXPECT_EQ(found.u1.getData(), dU1.bytes.data());
  expectSlopes({&u1, &u2, &v}, {&found.u1, &found.u2, &found.v}, dOut, run);
}

TEST_F(LowRank, OperandGradientsAreTheSlopes) {
  constexpr ElementType type = ElementType::F64;
  Array x = makeRandom({B, H, N, 4}, 5, type),
        dTurned = makeRandom({B, H, N, 4}, 6, type),
        dFeatures = makeRandom({B, H, N, 15}, 7, type),
        positions = makeIntegers({N}, [](int64_t i) { return 2 * i; });
  OwnedTensor turned = get(rope_backward(dTurned, positions)),
              features =
                  get(polynomial_features_backward(dFeatures, x, 2, 0.3));
  expectSlopes({&x}, {&turned}, dTurned,
               [&] { return get(rope(x, positions)); });
  expectSlopes({&x}, {&features}, dFeatures,
               [&] { return get(polynomial_features(x, 2, 0.3)); });
}

TEST_F(LowRank, Errors) {
  EXPECT_EQ(getText(low_rank(u1, makeRandom({B, 3, M, r}, 1),
                             makeRandom({B, 3, M, E}, 2), RowMask::causal())),
            "u2: found 3 heads, needed a divisor of the 4 heads of u1");
  EXPECT_EQ(getText(low_rank(u1, makeRandom({B, G, M, r + 1}, 1), v,
                             RowMask::causal())),
            "u2: found extent 6 in dimension 3, needed 5");
  Array first({N + 1}, ElementType::I32), last({N}, ElementType::I32);
  EXPECT_EQ(getText(low_rank(u1, u2, v, RowMask::rowInterval(first, last))),
            "first: found extent 10 in dimension 2, needed 9");
  Array rows({R, M}), group({N}, ElementType::I32);
  EXPECT_EQ(getText(low_rank(u1, u2, v, RowMask::distinctRows(group, rows))),
            "rows: found element type float32, needed bool");
  Array threeHeads({3, N}, ElementType::I32), entries({R, M}, ElementType::I1);
  EXPECT_EQ(
      getText(low_rank(u1, u2, v, RowMask::distinctRows(threeHeads, entries))),
      "group: found extent 3 in dimension 1, needed 4 or 1");
  group.set(3, R);
  EXPECT_THAT(
      getText(low_rank(u1, u2, v, RowMask::distinctRows(group, entries))),
      testing::HasSubstr("group"));
  Array backwards = makeIntegers({N}, [](int64_t) { return 5; });
  EXPECT_THAT(
      getText(low_rank(u1, u2, v, RowMask::rowInterval(backwards, last))),
      testing::HasSubstr("interval"));

  EXPECT_EQ(getText(rope(u1, last)), "x: found width 5, needed an even width");
  RopeOptions options;
  options.base = 0;
  EXPECT_EQ(getText(rope(makeRandom({1, 1, N, 4}, 1), last, options)),
            "base: found 0, needed a finite number above 0");
  EXPECT_EQ(
      getText(polynomial_features(u1, 17, 1)),
      "degree: found 17, needed at most 16 and at most 2**31 - 1 features");
  EXPECT_EQ(getText(polynomial_features(u1, 2, -1)),
            "scale: found -1, needed a finite number of at least 0");
}

} // namespace
