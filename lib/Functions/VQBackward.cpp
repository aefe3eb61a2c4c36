//===- VQBackward.cpp - Gradients of quantized attention of arrays --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQArguments.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static void checkOptions(Checker &check, const VQBackwardOptions &options) {
  check.check(options.causal ||
                  !(options.bias || options.relative || options.distanceBias),
              "causal: found False, needed True with a bias or terms by "
              "distance");
  check.check(options.causal || !(options.state || options.dNextState),
              "causal: found False, needed True with a state");
  bool isSoftmax = options.weighting == VQWeighting::Softmax;
  for (const auto &[name, array] :
       {std::pair<const char *, const std::optional<TensorRef> *>("out",
                                                                  &options.out),
        {"lse", &options.lse},
        {"d_lse", &options.dLse}}) {
    check.check(isSoftmax || !*array,
                Twine(name) + ": found one, needed none without a soft-max");
    check.check(!isSoftmax || *array || array == &options.dLse,
                Twine(name) + ": found none, needed that of vq");
  }
}

namespace {
/// A part of the gradient of a state.
struct Part {
  const char *name;
  ElementType elementType;
  Shape shape;
  OwnedTensor VQStateGradient::*member;
};
} // namespace

static SmallVector<Part, 3> getParts(const VQArguments &arguments) {
  SmallVector<VQStatePart, 5> state = getVQState(arguments);
  Shape keys = state[2].shape;
  keys.push_back(arguments.q.shape[3]);
  return {
      {"mean", state[0].elementType, state[0].shape, &VQStateGradient::mean},
      {"keys", state[3].elementType, keys, &VQStateGradient::keys},
      {"values", state[3].elementType, state[3].shape,
       &VQStateGradient::values}};
}

Expected<VQGradients> fovea::vq_backward(const TensorRef &dOut,
                                         const TensorRef &q, const TensorRef &k,
                                         const TensorRef &v,
                                         const TensorRef &codebook,
                                         int64_t block,
                                         const VQBackwardOptions &options) {
  Checker check("vq_backward");
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options);
  VQDistanceArguments distances = checkVQDistances(check, arguments, options);
  checkOptions(check, options);
  if (check.hasFailed())
    return check.takeError();
  ElementType type = arguments.q.elementType, state = getStateType(type);
  Shape output = arguments.output();
  ArrayRef<int64_t> rows = ArrayRef(output).drop_back();

  Call call("vq_backward", options.target, options.gradients);
  addVQInputs(call, arguments);
  addVQDistances(call, distances);
  const VQState *before =
      options.state && !options.state->isEmpty() ? options.state : nullptr;
  call.operand(before ? checkVQState(check, getVQState(arguments), *before,
                                     options.target)
                      : SmallVector<Argument>());
  call.operandIf(check.likeIf("out", options.out, type, output));
  call.operandIf(check.likeIf("lse", options.lse, state, rows));
  call.operand(check.like("d_out", dOut, type, output));
  call.operandIf(check.likeIf("d_lse", options.dLse, state, rows));
  SmallVector<Part, 3> parts = getParts(arguments);
  SmallVector<Argument> nextState, stateGradients;
  if (const VQStateGradient *next = options.dNextState)
    for (const Part &part : parts)
      nextState.push_back(check.like(std::string("d_next_state.") + part.name,
                                     (next->*part.member).getRef(),
                                     part.elementType, part.shape));
  call.operand(nextState);
  addVQAttributes(call, check, arguments, options);
  call.flag("causal", options.causal);
  Shape keys(ArrayRef(arguments.v.shape).drop_back());
  keys.push_back(arguments.q.shape[3]);
  call.result(check, "d_q", type, arguments.q.shape);
  call.result(check, "d_k", type, keys);
  call.result(check, "d_v", type, arguments.v.shape);
  call.results(check, "d_",
               arguments.bias ? ArrayRef(*arguments.bias)
                              : ArrayRef<Argument>());
  for (const std::optional<Argument> &terms :
       {distances.relativeKeys, distances.relativeBias, distances.distanceBias})
    call.results(check, "d_", terms ? ArrayRef(*terms) : ArrayRef<Argument>());
  if (before)
    for (const Part &part : parts)
      stateGradients.emplace_back(
          part.name, TensorRef{nullptr, part.elementType, part.shape});
  call.results(check, "d_state_", stateGradients);
  bool isEmpty = is_contained(rows, 0);
  // The host passes the gradient on.
  if (isEmpty && before && options.dNextState)
    for (const Part &part : parts)
      checkOnHost(check, part.name,
                  (options.dNextState->*part.member).getData(), options.target);
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check, isEmpty);
  if (!results)
    return results.takeError();
  VQGradients found;
  found.q = std::move((*results)[0]);
  found.k = std::move((*results)[1]);
  found.v = std::move((*results)[2]);
  auto *next = results->begin() + 3;
  if (arguments.bias)
    found.bias = std::move(*next++);
  if (distances.relativeKeys) {
    found.relativeKeys = std::move(*next++);
    found.relativeBias = std::move(*next++);
  }
  if (distances.distanceBias)
    found.distanceBias = std::move(*next++);
  if (!before)
    return found;
  auto *last = results->end() - 3;
  for (const Part &part : parts) {
    OwnedTensor &gradient = found.state.*part.member;
    gradient = std::move(*last++);
    // A window of nothing passes on what the next one gives.
    if (isEmpty && options.dNextState && !DescribeScope::isActive())
      copyElements((options.dNextState->*part.member).getRef(),
                   gradient.getRef());
  }
  return found;
}
