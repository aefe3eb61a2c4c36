//===- PatternsTest.cpp - Patterns of models as lists of sources ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"
#include <functional>

using namespace fovea;
using namespace fovea::test;

namespace {

constexpr int64_t B = 2, H = 4, N = 37, D = 8, R = 5, M = N / R;

/// How often query `i` reads row `j`.
using Count = std::function<int(int64_t i, int64_t j)>;

class PatternsTest : public testing::Test {
protected:
  Array q = makeRandom({B, H, N, D}, 1, ElementType::F64),
        kv = makeRandom({B, 1, N, D}, 2, ElementType::F64),
        summaries = makeRandom({B, 1, M, D}, 3, ElementType::F64),
        sink = makeRandom({1, H}, 4, ElementType::F64),
        rows = makeCodes({1, 1, N, 3}, M, 5);

  void SetUp() override {
    for (int64_t i = 0; i < rows.size(); i += 4)
      rows.set(i, -1);
  }

  /// One soft-max over summaries and tokens.
  std::vector<double> expect(const Count &ofSummary, const Count &ofToken) {
    std::vector<double> output(B * H * N * D);
    for (int64_t bh = 0; bh < B * H; ++bh)
      for (int64_t i = 0; i < N; ++i) {
        double sum = std::exp(sink.get(bh % H));
        double *out = &output[(bh * N + i) * D];
        auto add = [&](const Array &array, const Count &count) {
          int64_t extent = array.shape[2], first = bh / H * extent;
          for (int64_t j = 0; j < extent; ++j) {
            double score = 0;
            for (int64_t d = 0; d < D; ++d)
              score += q.get((bh * N + i) * D + d) *
                       array.get((first + j) * D + d) / std::sqrt(double(D));
            double weight = count(i, j) * std::exp(score);
            sum += weight;
            for (int64_t d = 0; d < D; ++d)
              out[d] += weight * array.get((first + j) * D + d);
          }
        };
        add(summaries, ofSummary);
        add(kv, ofToken);
        for (int64_t d = 0; d < D; ++d)
          out[d] /= sum;
      }
    return output;
  }
  static int isInWindow(int64_t i, int64_t j) { return j <= i && i - j < 6; }
  static int isWhole(int64_t i, int64_t e) { return (e + 1) * R - 1 <= i; }
  int countListed(int64_t i, int64_t e) const {
    int count = 0;
    for (int64_t x = 0; x < 3; ++x)
      count += rows.get(i * 3 + x) == e && isWhole(i, e);
    return count;
  }

  HCAForm hcaForm{6, R, {}};
  SelectedForm getSelectedForm() const {
    SelectedForm form;
    form.stride = R;
    form.local.emplace(kv, kv);
    form.window = 6;
    return form;
  }
  StreamOptions getOptions() const {
    StreamOptions options;
    options.sink = TensorRef(sink);
    options.returnLse = true;
    return options;
  }
  /// The sums of what arrays get as keys and as values are slopes.
  template <typename Run, typename RunBackward>
  void expectGradients(std::vector<Array *> arrays, Run run,
                       RunBackward runBackward) {
    AttentionResult found = get(run());
    Array dOut = makeRandom({B, H, N, D}, 8, ElementType::F64);
    StreamBackwardOptions options;
    options.sink = TensorRef(sink);
    StreamGradients gradients = get(
        runBackward(dOut, found.output.getRef(), found.lse.getRef(), options));
    std::vector<const OwnedTensor *> parts{&gradients.q, &gradients.sink};
    for (SourceGradients &each : gradients.sources) {
      for (int64_t i = 0; i < each.k.getNumElements(); ++i)
        each.k.getDataAs<double>()[i] += each.v.getDataAs<double>()[i];
      parts.push_back(&each.k);
    }
    arrays.insert(arrays.begin(), {&q, &sink});
    expectSlopes(arrays, parts, dOut,
                 [&] { return std::move(get(run()).output); });
  }
};

TEST_F(PatternsTest, HCA) {
  auto run = [&] { return hca(q, kv, summaries, hcaForm, getOptions()); };
  std::vector<double> expected = expect(isWhole, isInWindow);
  expectNear(
      get(run()).output, B * H * N * D, [&](int64_t i) { return expected[i]; },
      1e-12);
  expectGradients({&kv, &summaries}, run,
                  [&](const TensorRef &dOut, const TensorRef &out,
                      const TensorRef &lse, const auto &options) {
                    return hca_backward(dOut, q, kv, summaries, out, lse,
                                        hcaForm, options);
                  });
}

TEST_F(PatternsTest, Selected) {
  auto run = [&] {
    return selected(q, summaries, summaries, rows, getSelectedForm(),
                    getOptions());
  };
  std::vector<double> expected = expect(
      [&](int64_t i, int64_t e) { return countListed(i, e); }, isInWindow);
  expectNear(
      get(run()).output, B * H * N * D, [&](int64_t i) { return expected[i]; },
      1e-12);
  expectGradients({&summaries, &kv}, run,
                  [&](const TensorRef &dOut, const TensorRef &out,
                      const TensorRef &lse, const auto &options) {
                    return selected_backward(dOut, q, summaries, summaries,
                                             rows, out, lse, getSelectedForm(),
                                             options);
                  });
}

TEST_F(PatternsTest, LastQueriesStandAtTheLastTokens) {
  OwnedTensor whole = get(hca(q, kv, summaries, hcaForm, getOptions())).output;
  Array last = takeRows(q, N - 3, N);
  AttentionResult found = get(hca(last, kv, summaries, hcaForm, getOptions()));
  expectNear(
      found.output, B * H * 3 * D,
      [&](int64_t i) {
        int64_t at = (i / (3 * D) * N + N - 3) * D + i % (3 * D);
        return whole.getDataAs<double>()[at];
      },
      1e-12);
}

TEST_F(PatternsTest, ErrorsNameTheArguments) {
  Array narrow = makeRandom({B, 1, N, 3}, 1, ElementType::F64);
  EXPECT_EQ(getText(hca(q, narrow, summaries, hcaForm)),
            "kv: found head width 3, needed 8");
  EXPECT_EQ(getText(hca(q, kv, summaries, {6, 0, {}})),
            "interval: found 0, needed an integer of at least 1");
  SelectedForm form = getSelectedForm();
  form.window.reset();
  EXPECT_EQ(getText(selected(q, kv, kv, rows, form)),
            "local: found it without window, needed both or none");
  EXPECT_EQ(getText(selected(q, kv, kv, kv, getSelectedForm())),
            "rows: found element type float64, needed int32 or int64");
}

} // namespace
