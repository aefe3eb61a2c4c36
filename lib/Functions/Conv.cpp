//===- Conv.cpp - Attention of arrays by convolutions ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Conv.h"
#include "Call.h"
#include "TokenMask.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static attn::ConvAlgorithm convert(ConvAlgorithm algorithm) {
  switch (algorithm) {
  case ConvAlgorithm::Auto:
    return attn::ConvAlgorithm::Auto;
  case ConvAlgorithm::Toeplitz:
    return attn::ConvAlgorithm::Toeplitz;
  case ConvAlgorithm::Partitioned:
    return attn::ConvAlgorithm::Partitioned;
  case ConvAlgorithm::Single:
    return attn::ConvAlgorithm::Single;
  }
  llvm_unreachable("unknown algorithm");
}

static void addAlgorithm(Call &call, Checker &check, ConvAlgorithm algorithm,
                         int64_t numBases) {
  check.check(algorithm != ConvAlgorithm::Single || numBases == 1,
              "algorithm: found 'single' for " + Twine(numBases) +
                  " bases, needed one basis");
  call.attribute("algorithm", convert(algorithm));
  // There is one transform, which is as long as the sequence.
  if (algorithm == ConvAlgorithm::Single)
    call.fixLengths();
}

static void addBlock(Call &call, Checker &check,
                     const std::optional<int64_t> &given,
                     ConvAlgorithm algorithm) {
  if (!given)
    return;
  int64_t block = check.integer("block", *given, 8);
  check.check(isPowerOf2_64(block) && block <= 1 << 20,
              "block: found " + Twine(block) +
                  ", needed a power of two from 8 to 2^20");
  check.check(algorithm == ConvAlgorithm::Partitioned,
              "block: found " + Twine(block) + " with the algorithm '" +
                  attn::stringifyConvAlgorithm(convert(algorithm)) +
                  "', needed 'partitioned'");
  call.attribute("block", block);
}

/// More make results that no memory holds, and no head has.
static constexpr int64_t kMaxBases = 1 << 20;

static void addSearch(Call &call, Checker &check, const ConvSearch &search,
                      const Argument &q) {
  check.integer("num_basis", search.numBasis, 1, kMaxBases);
  check.integer("window", search.window, 1);
  check.check(search.window <= q.shape[2],
              "window: found " + Twine(search.window) +
                  ", needed at most the " + Twine(q.shape[2]) + " rows of q");
  call.attribute("window", search.window);
  call.attribute("delta", check.number("delta", search.delta, search.delta >= 0,
                                       "of at least 0"));
  call.attribute("epsilon", check.number("epsilon", search.epsilon,
                                         search.epsilon >= 0, "of at least 0"));
  call.attribute("scale", check.scale(search.scale, q.shape[3]));
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Expected<ConvBases> fovea::conv_recover(const TensorRef &queries,
                                        const TensorRef &keys,
                                        const ConvSearch &search,
                                        const ConvRecoverOptions &options) {
  Checker check("conv_recover");
  Argument q = check.operand("query", "q", queries),
           k = check.operand("key", "k", keys);
  check.notEmpty(q);
  Call call("conv_recover", options.target, options.out);
  call.operands({q, k});
  call.operandIf(/*lengths=*/std::nullopt);
  addSearch(call, check, search, q);
  Shape heads(ArrayRef(q.shape).take_front(2));
  Shape sizes = heads;
  sizes.push_back(search.numBasis);
  Shape bases = sizes;
  bases.push_back(q.shape[2]);
  call.result(check, "b", getStateType(q.elementType), bases);
  call.result(check, "sizes", ElementType::I32, sizes);
  call.result(check, "found", ElementType::I32, heads);
  return call.runFor<ConvBases, 3>(check);
}

/// sizes [B,H,R] of bases [B,H,R,N].
static Argument checkSizes(Checker &check, const TensorRef &array,
                           const Argument &bases) {
  Argument sizes = check.operand("sizes", "sizes", array);
  check.match("sizes", "shape", sizes.shape, ArrayRef(bases.shape).drop_back());
  return sizes;
}

/// b [B,H,R,N], sizes [B,H,R] and v [B,G,N,E], checked against each other.
static Checker::Attention checkBases(Checker &check, const TensorRef &b,
                                     const TensorRef &sizes,
                                     const TensorRef &v) {
  Argument values = check.operand("value", "v", v);
  Argument bases = check.operand("basis", "b", b);
  check.check(bases.shape[2] != 0, "b: found no bases, needed at least 1");
  Argument numKeys = checkSizes(check, sizes, bases);
  check.notEmpty(values);
  return {bases, numKeys, values};
}

Expected<ConvApplyResult> fovea::conv_apply(const TensorRef &bases,
                                            const TensorRef &basisSizes,
                                            const TensorRef &values,
                                            const ConvApplyOptions &options) {
  Checker check("conv_apply");
  const auto [b, sizes, v] = checkBases(check, bases, basisSizes, values);
  Call call("conv_apply", options.target, options.out);
  call.operands({b, sizes, v});
  addAlgorithm(call, check, options.algorithm, b.shape[2]);
  addBlock(call, check, options.block, options.algorithm);
  Shape heads(ArrayRef(b.shape).take_front(2));
  call.result(check, "output", v.elementType,
              {heads[0], heads[1], v.shape[2], v.shape[3]});
  call.result(check, "recomputed", ElementType::I32, heads);
  return call.runFor<ConvApplyResult, 2>(check);
}

/// The tokens of q [B,H,N,D] that are present.
template <typename Options>
static TokenMask readMask(Checker &check, const Argument &q,
                          const Options &options) {
  return {check, options, q.shape[0], q.shape[2], options.target, "token_mask"};
}

/// Attributes of the operation and of its gradient.
template <typename Options>
static void addConv(Call &call, Checker &check, const ConvSearch &search,
                    const Argument &q, const Options &options) {
  addSearch(call, check, search, q);
  addAlgorithm(call, check, options.algorithm, search.numBasis);
  call.attribute("num_basis", search.numBasis);
  if (options.slidingGroup) {
    int64_t group = check.integer("group", *options.slidingGroup, 1);
    check.check(search.window <= group,
                "window: found " + Twine(search.window) +
                    ", needed at most the group of " + Twine(group));
    call.attribute("group", group);
    // Pairs of groups are calls of their own, the last one for what is left.
    call.fixLengths();
  }
}

Expected<ConvResult> fovea::conv(const TensorRef &queries,
                                 const TensorRef &keys, const TensorRef &values,
                                 const ConvSearch &search,
                                 const ConvOptions &options) {
  Checker check("conv");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("conv", options.target, options.out);
  call.operands({q, k, v});
  TokenMask mask = readMask(check, q, options);
  call.operandIf(mask.get());
  addConv(call, check, search, q, options);
  ArrayRef<int64_t> heads = ArrayRef(q.shape).take_front(2);
  call.result(check, "output", q.elementType, arguments.output());
  call.result(check, "found", ElementType::I32, heads);
  call.result(check, "recomputed", ElementType::I32, heads);
  return call.runFor<ConvResult, 3>(check);
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

Expected<ConvApplyGradients>
fovea::conv_apply_backward(const TensorRef &dOut, const TensorRef &bases,
                           const TensorRef &basisSizes, const TensorRef &values,
                           const TensorRef &out,
                           const ConvApplyBackwardOptions &options) {
  Checker check("conv_apply_backward");
  const auto [b, sizes, v] = checkBases(check, bases, basisSizes, values);
  Call call("conv_apply_backward", options.target, options.gradients);
  call.operands({b, sizes, v});
  addAlgorithm(call, check, options.algorithm, b.shape[2]);
  addBlock(call, check, options.block, options.algorithm);
  Shape output{b.shape[0], b.shape[1], v.shape[2], v.shape[3]};
  call.operand(check.like("out", out, v.elementType, output));
  call.operand(check.like("d_out", dOut, v.elementType, output));
  call.result(check, "d_b", b.elementType, b.shape);
  call.result(check, "d_v", v.elementType, v.shape);
  return call.runFor<ConvApplyGradients, 2>(check);
}

Expected<ConvGradients>
fovea::conv_recover_backward(const TensorRef &dB, const TensorRef &queries,
                             const TensorRef &keys, const TensorRef &basisSizes,
                             const ConvRecoverBackwardOptions &options) {
  Checker check("conv_recover_backward");
  Argument q = check.operand("query", "q", queries),
           k = check.operand("key", "k", keys);
  check.notEmpty(q);
  Argument gradient = check.operand("d_basis", "d_b", dB);
  check.elementType(gradient, getStateType(q.elementType));
  check.match("d_b", "shape", gradient.shape,
              {q.shape[0], q.shape[1], gradient.shape[2], q.shape[2]});
  Argument sizes = checkSizes(check, basisSizes, gradient);
  Call call("conv_recover_backward", options.target, options.gradients);
  call.operands({q, k, sizes});
  call.operand(gradient);
  call.attribute("scale", check.scale(options.scale, q.shape[3]));
  call.result(check, "d_q", q.elementType, q.shape);
  call.result(check, "d_k", k.elementType, k.shape);
  return call.runFor<ConvGradients, 2>(check);
}

Expected<ConvGradients>
fovea::conv_backward(const TensorRef &dOut, const TensorRef &queries,
                     const TensorRef &keys, const TensorRef &values,
                     const TensorRef &out, const ConvSearch &search,
                     const ConvBackwardOptions &options) {
  Checker check("conv_backward");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("conv_backward", options.target, options.gradients);
  call.operands({q, k, v});
  TokenMask mask = readMask(check, q, options);
  call.operandIf(mask.get());
  addConv(call, check, search, q, options);
  call.operand(check.like("out", out, q.elementType, arguments.output()));
  call.operand(check.like("d_out", dOut, q.elementType, arguments.output()));
  call.result(check, "d_q", q.elementType, q.shape);
  call.result(check, "d_k", k.elementType, k.shape);
  call.result(check, "d_v", v.elementType, v.shape);
  return call.runFor<ConvGradients, 3>(check);
}
