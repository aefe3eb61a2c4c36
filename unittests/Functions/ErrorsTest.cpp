//===- ErrorsTest.cpp - Bad arguments of functions ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The texts are those of python/tests/test_errors.py and its siblings.
//
//===----------------------------------------------------------------------===//

#include "FunctionsTestUtils.h"

using namespace fovea;
using namespace fovea::test;

namespace {

//===----------------------------------------------------------------------===//
// Dense
//===----------------------------------------------------------------------===//

struct DenseCase {
  std::vector<int64_t> q{1, 4, 12, 16}, k{1, 2, 20, 16}, v{1, 2, 20, 8};
  ElementType type = ElementType::F32, keyType = ElementType::F32;
};
} // namespace

static std::string runDense(const DenseCase &shapes,
                            const DenseOptions &options = {}) {
  Array q(shapes.q, shapes.type), k(shapes.k, shapes.keyType),
      v(shapes.v, shapes.type);
  // Again: nothing of a call that failed is kept.
  std::string text = getText(dense(q, k, v, options));
  EXPECT_EQ(getText(dense(q, k, v, options)), text);
  return text;
}

namespace {
TEST(DenseErrors, Shapes) {
  DenseCase shapes;
  shapes.q = {4, 12, 16};
  EXPECT_EQ(runDense(shapes), "q: found rank 3, needed rank 4 [B,H,N,D]");
  shapes = {};
  shapes.k[0] = 2;
  EXPECT_EQ(runDense(shapes), "k: found batch 2, needed 1");
  shapes = {};
  shapes.k[1] = shapes.v[1] = 3;
  EXPECT_EQ(runDense(shapes),
            "k: found 3 heads, needed a divisor of the 4 heads of q");
  shapes.k[1] = shapes.v[1] = 0;
  EXPECT_EQ(runDense(shapes),
            "k: found 0 heads, needed a divisor of the 4 heads of q");
  shapes = {};
  shapes.v[1] = 1;
  EXPECT_EQ(runDense(shapes), "v: found head count 1, needed 2");
  shapes = {};
  shapes.k[3] = 15;
  EXPECT_EQ(runDense(shapes), "k: found head width 15, needed 16");
  shapes = {};
  shapes.q[3] = shapes.k[3] = 0;
  EXPECT_EQ(runDense(shapes), "q: found width 0, needed at least 1");
  shapes = {};
  shapes.v[2] = 19;
  EXPECT_EQ(runDense(shapes), "v: found length 19, needed 20");
}

TEST(DenseErrors, Types) {
  DenseCase shapes;
  shapes.keyType = ElementType::F64;
  EXPECT_EQ(runDense(shapes), "k: found element type float64, needed float32");
  shapes.type = ElementType::I32;
  EXPECT_EQ(runDense(shapes),
            "q: found element type int32, needed one of float16, "
            "bfloat16, float32, float64");
}

TEST(DenseErrors, Options) {
  DenseOptions options;
  options.scale = NAN;
  EXPECT_EQ(runDense({}, options), "scale: found nan, needed a finite number");
  options.scale = INFINITY;
  EXPECT_EQ(runDense({}, options), "scale: found inf, needed a finite number");
  options = {};
  options.window = -1;
  EXPECT_EQ(runDense({}, options),
            "window: found -1, needed an integer of at least 0");
  options = {};
  Array weight({1, 2, 19});
  options.logWeight = TensorRef(weight);
  EXPECT_EQ(runDense({}, options),
            "log_weight: found shape [1, 2, 19], needed one that broadcasts to "
            "[1, 2, 20]");
  Array doubles({20}, ElementType::F64);
  options.logWeight = TensorRef(doubles);
  EXPECT_EQ(runDense({}, options),
            "log_weight: found element type float64, needed float32");
  options = {};
  Array bias({20, 12});
  options.bias = TensorRef(bias);
  EXPECT_EQ(
      runDense({}, options),
      "bias: found shape [1, 1, 20, 12], needed one that broadcasts to [1, "
      "4, 12, 20]");
  DenseCase halves;
  halves.type = halves.keyType = ElementType::F16;
  options = {};
  options.bias = TensorRef(doubles);
  EXPECT_EQ(runDense(halves, options),
            "bias: found element type float64, needed float16 or float32");
}

TEST(DenseErrors, Memory) {
  Array q({1, 4, 12, 16}), k({1, 2, 20, 16}), v({1, 2, 20, 8});
  TensorRef missing = q;
  missing.data = nullptr;
  EXPECT_EQ(getText(dense(missing, k, v)),
            "q: found a null pointer, needed data");
  TensorRef strided = q;
  int64_t strides[] = {1, 1, 1};
  strided.strides = strides;
  EXPECT_EQ(getText(dense(strided, k, v)), "q: found 3 strides, needed 4");

  DenseOptions options;
  Array output({1, 4, 12, 9});
  options.out = TensorRef(output);
  EXPECT_EQ(getText(dense(q, k, v, options)),
            "out: found shape (1, 4, 12, 9), needed (1, 4, 12, 8)");
  Array right({1, 4, 12, 8});
  TensorRef memory = right;
  memory.isReadOnly = true;
  options.out = memory;
  EXPECT_EQ(getText(dense(q, k, v, options)),
            "out: found a read-only array, needed a writable one");
  int64_t columns[] = {384, 96, 1, 12};
  memory.isReadOnly = false;
  memory.strides = columns;
  options.out = memory;
  EXPECT_EQ(getText(dense(q, k, v, options)),
            "out: found an array that is unaligned or has gaps or another "
            "order along its last axis, needed one that is contiguous there, "
            "because it is written to");
  int64_t shared[] = {384, 0, 8, 1};
  memory.strides = shared;
  options.out = memory;
  EXPECT_EQ(getText(dense(q, k, v, options)),
            "out: found strides (384, 0, 8, 1), by which elements share "
            "memory, needed memory of its own for each, because it is written "
            "to");
  memory.strides = {};
  options.out = {memory, std::nullopt};
  EXPECT_EQ(getText(dense(q, k, v, options)), "out: found 2 arrays, needed 1");
  options.out = memory;
  options.returnLse = true;
  EXPECT_EQ(getText(dense(q, k, v, options)), "out: found 1 array, needed 2");
}

TEST(DenseErrors, Overlaps) {
  Array q({1, 4, 12, 8}), k({1, 2, 20, 8});
  DenseOptions options;
  options.out = TensorRef(q);
  EXPECT_EQ(getText(dense(q, k, k, options)),
            "out: found memory that overlaps q, needed memory of its own");
  // The last row of lse is the first of the output.
  Array memory({1, 4, 12, 9});
  TensorRef output = memory, lse = memory;
  int64_t shape[] = {1, 4, 12, 8}, rows[] = {1, 4, 12};
  output.shape = shape;
  output.data = static_cast<float *>(output.data) + 47;
  lse.shape = rows;
  options.out = {output, lse};
  options.returnLse = true;
  EXPECT_EQ(
      getText(dense(q, k, k, options)),
      "out[1]: found memory that overlaps out[0], needed memory of its own");
  output.data = static_cast<float *>(output.data) + 1;
  options.out = {output, lse};
  EXPECT_EQ(getText(dense(q, k, k, options)), "");
}

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

TEST(FastMultipoleErrors, Levels) {
  Array q({1, 2, 64, 4}), weight({1, 2, 8, 4}), coarse({1, 2, 16, 4}),
      wide({1, 2, 16, 5}), other({1, 4, 16, 4}), sets({3, 2, 8, 4});
  auto run = [&](std::vector<TensorRef> weights, int64_t group = 8) {
    return getText(fast_multipole(q, q, q, llvm::ArrayRef(weights),
                                  llvm::ArrayRef(weights), group));
  };
  EXPECT_EQ(run({weight}),
            "key_weights: found 1 levels, needed 2 for 64 tokens "
            "in groups of 8");
  EXPECT_EQ(run({weight, weight}),
            "key_weights[1]: found interval 8, needed 16");
  EXPECT_EQ(run({weight, wide}), "key_weights[1]: found width 5, needed 4");
  EXPECT_EQ(run({weight, other}), "key_weights[1]: found rank p = 4, needed 2");
  EXPECT_EQ(run({sets, coarse}),
            "key_weights[0]: found W = 3, needed 1 or a divisor of the 2 heads "
            "of k");
  EXPECT_EQ(run({weight, coarse}, 0),
            "group: found 0, needed an integer of at least 1");
  FastMultipoleLinearOptions options;
  options.causal = true;
  std::vector<TensorRef> weights{weight, coarse};
  llvm::ArrayRef<TensorRef> list(weights);
  EXPECT_EQ(
      getText(fast_multipole_linear(q, q, q, list, list, list, 8, options)),
      "causal: found True without allow_query_lookahead, needed both: a "
      "summary of queries mixes later queries of its interval into earlier "
      "rows");
}

//===----------------------------------------------------------------------===//
// Quantized
//===----------------------------------------------------------------------===//

TEST(VQErrors, Arguments) {
  Array q({1, 4, 12, 8}), k({1, 2, 12, 8}), v({1, 2, 12, 5}),
      codebook({2, 6, 8});
  auto run = [&](const Array &keys, const Array &words, int64_t block = 4,
                 const VQOptions &options = {}) {
    return getText(vq(q, keys, v, words, block, options));
  };
  EXPECT_EQ(run(k, Array({3, 6, 8})),
            "codebook: found head count 3, needed 2 or 1");
  EXPECT_EQ(run(k, Array({2, 0, 8})),
            "codebook: found no codewords, needed at least 1");
  EXPECT_EQ(run(k, Array({2, 6, 7})), "codebook: found head width 7, needed 8");
  EXPECT_EQ(run(k, codebook, 0),
            "block: found 0, needed an integer of at least 1");
  EXPECT_EQ(
      run(Array({1, 2, 12, 8}, ElementType::I8), codebook),
      "k: found element type int8, needed that of q, or int32 or int64 for "
      "codes");
  EXPECT_EQ(run(Array({1, 2, 12, 8}, ElementType::I32), codebook),
            "k: found rank 4, needed rank 3 [B,G,N]");
  EXPECT_EQ(run(Array({1, 2, 11, 8}), codebook),
            "k: found length 11, needed 12");
  VQOptions options;
  Array bias({1, 1, 12, 7});
  options.bias = TensorRef(bias);
  EXPECT_EQ(
      run(k, codebook, 4, options),
      "bias: found shape [1, 1, 12, 7], needed one that broadcasts to [1, "
      "4, 12, 8]");
  options = {};
  options.causal = false;
  options.returnState = true;
  EXPECT_EQ(run(k, codebook, 4, options),
            "causal: found False, needed True with a bias, terms by distance "
            "or a state");
  options = {};
  options.weighting = VQWeighting::SquaredReLU;
  options.returnLse = true;
  EXPECT_EQ(run(k, codebook, 4, options),
            "return_lse: found True, needed False without a soft-max");
}

TEST(VQErrors, CodesAndStates) {
  Array q({1, 4, 12, 8}), v({1, 2, 12, 5}), codebook({2, 6, 8}),
      codes({1, 2, 12}, ElementType::I32);
  codes.set(17, 6);
  EXPECT_EQ(
      getText(vq(q, codes, v, codebook, 4)),
      "@vq failed: attn.vq: codes[0, 1, 5] must be at least 0 and below 6, "
      "but got 6");

  Array token({1, 4, 1, 8}), code({1, 2, 1}, ElementType::I32),
      value({1, 2, 1, 5});
  VQState state;
  EXPECT_EQ(getText(vq_decode(q, codes, v, codebook, state, 4)),
            "q: found length 12, needed 1");
  EXPECT_TRUE(state.isEmpty());
  get(vq_decode(token, code, value, codebook, state, 4));
  EXPECT_EQ(*state.position.getDataAs<int64_t>(), 1);
  EXPECT_EQ(getText(vq_decode(token, code, value, codebook, state, 5)),
            "state.codes: found shape (1, 2, 8), needed (1, 2, 10)");
  *state.position.getDataAs<int64_t>() = -3;
  EXPECT_EQ(getText(vq_decode(token, code, value, codebook, state, 4)),
            "state.position: found -3, needed at least 0");
}

TEST(VQErrors, Codebooks) {
  Array k({1, 2, 12, 8}), codes({1, 2, 12}, ElementType::I32), sums({2, 6, 8}),
      counts({2, 6});
  EXPECT_EQ(
      getText(quantize(k, Array({3, 6, 8}))),
      "codebook: found 3 sets, needed 1 or one for each of the 2 heads of "
      "k");
  EXPECT_EQ(getText(codebook_update(k, k, sums, counts)),
            "codes: found element type float32, needed int32");
  EXPECT_EQ(getText(codebook_update(k, codes, sums, Array({2, 5}))),
            "counts: found shape (2, 5), needed (2, 6)");
  CodebookUpdateOptions options;
  options.rate = 1.5;
  EXPECT_EQ(getText(codebook_update(k, codes, sums, counts, options)),
            "rate: found 1.5, needed a number from 0 to 1");
  TensorRef readOnly = sums;
  readOnly.isReadOnly = true;
  EXPECT_EQ(getText(codebook_update(k, codes, readOnly, counts)),
            "sums: found a read-only array, needed a writable one");
}

} // namespace
