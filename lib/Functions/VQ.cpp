//===- VQ.cpp - Attention of arrays over quantized keys -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/VQ.h"
#include "VQArguments.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static attn::Reduction convert(VQReduction reduction) {
  switch (reduction) {
  case VQReduction::Auto:
    return attn::Reduction::Auto;
  case VQReduction::Serial:
    return attn::Reduction::Serial;
  case VQReduction::MatMul:
    return attn::Reduction::Matmul;
  case VQReduction::Associative:
    return attn::Reduction::Associative;
  case VQReduction::InputScan:
    return attn::Reduction::InputScan;
  }
  llvm_unreachable("unknown reduction");
}

static Error setZero(ArrayRef<VQStatePart> parts, VQState &state) {
  for (const VQStatePart &part : parts) {
    Expected<OwnedTensor> memory = allocate(part.elementType, part.shape);
    if (!memory)
      return memory.takeError();
    state.*part.member = std::move(*memory);
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

Expected<VQResult> fovea::vq(const TensorRef &q, const TensorRef &k,
                             const TensorRef &v, const TensorRef &codebook,
                             int64_t block, const VQOptions &options) {
  Checker check("vq");
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options);
  VQDistanceArguments distances = checkVQDistances(check, arguments, options);
  const VQState *state =
      options.state && !options.state->isEmpty() ? options.state : nullptr;
  check.check(options.causal || !(options.bias || distances.any() || state ||
                                  options.returnState),
              "causal: found False, needed True with a bias, terms by distance "
              "or a state");
  check.check(!options.returnLse || options.weighting == VQWeighting::Softmax,
              "return_lse: found True, needed False without a soft-max");

  if (options.returnState)
    checkNewVQState(check, arguments);

  Call call("vq", options.target, options.out);
  addVQInputs(call, arguments);
  addVQDistances(call, distances);
  SmallVector<VQStatePart, 5> parts = getVQState(arguments);
  call.operand(state ? checkVQState(check, parts, *state, options.target)
                     : SmallVector<Argument>());
  addVQAttributes(call, check, arguments, options);
  call.attribute("reduction", convert(options.reduction));
  call.flag("causal", options.causal);
  ElementType type = arguments.q.elementType;
  Shape output = arguments.output();
  call.result(check, "output", type, output);
  call.resultIf(options.returnLse, check, "lse", getStateType(type),
                ArrayRef(output).drop_back());
  bool isEmpty = is_contained(ArrayRef(output).drop_back(), 0);
  // The host passes the state on.
  if (isEmpty && options.returnState && state)
    for (const VQStatePart &part : parts)
      checkOnHost(check, part.name, (state->*part.member).getData(),
                  options.target);
  SmallVector<Argument> following;
  if (options.returnState)
    for (const VQStatePart &part : parts)
      following.push_back(part.getArgument());
  call.results(check, "next_", following);
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check, isEmpty);
  if (!results)
    return results.takeError();
  VQResult result;
  auto *next = results->begin();
  result.output = std::move(*next++);
  if (options.returnLse)
    result.lse = std::move(*next++);
  if (!options.returnState)
    return result;
  for (const VQStatePart &part : parts) {
    OwnedTensor &after = result.state.*part.member;
    after = std::move(*next++);
    // No token more is no other state.
    if (isEmpty && state && !DescribeScope::isActive())
      copyElements((state->*part.member).getRef(), after.getRef());
  }
  return result;
}

Expected<OwnedTensor> fovea::vq_decode(const TensorRef &q, const TensorRef &k,
                                       const TensorRef &v,
                                       const TensorRef &codebook,
                                       VQState &state, int64_t block,
                                       const VQDecodeOptions &options) {
  Checker check("vq_decode");
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options);
  VQDistanceArguments distances = checkVQDistances(check, arguments, options);
  check.match("q", "length", arguments.q.shape[2], 1);
  SmallVector<VQStatePart, 5> parts = getVQState(arguments);
  // Kept only when everything went well.
  VQState first;
  bool isFirst = state.isEmpty();
  if (isFirst)
    checkNewVQState(check, arguments);
  if (isFirst && !check.hasFailed())
    if (Error error = setZero(parts, first))
      return error;
  Call call("vq_decode", options.target, options.out);
  addVQInputs(call, arguments);
  addVQDistances(call, distances);
  addVQAttributes(call, check, arguments, options);
  call.result(check, "output", arguments.q.elementType, arguments.output());
  if (!check.hasFailed())
    call.update(check, checkVQState(check, parts, isFirst ? first : state,
                                    options.target));
  Expected<OwnedTensor> output = call.runFor<OwnedTensor, 1>(check);
  if (output && isFirst)
    state = std::move(first);
  return output;
}
