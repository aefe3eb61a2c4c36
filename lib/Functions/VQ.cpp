//===- VQ.cpp - Attention of arrays over quantized keys -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/VQ.h"
#include "VQArguments.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static StringRef getKeyword(VQReduction reduction) {
  switch (reduction) {
  case VQReduction::Auto:
    return "auto";
  case VQReduction::Serial:
    return "serial";
  case VQReduction::MatMul:
    return "matmul";
  case VQReduction::Associative:
    return "associative";
  case VQReduction::InputScan:
    return "input_scan";
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

/// The state after no token more.
static Error copyState(ArrayRef<VQStatePart> parts, const VQState *from,
                       VQState &to) {
  if (Error error = setZero(parts, to))
    return error;
  if (from)
    for (const VQStatePart &part : parts)
      std::memcpy((to.*part.member).getData(), (from->*part.member).getData(),
                  (to.*part.member).getNumBytes());
  return Error::success();
}

Expected<VQResult> fovea::vq(const TensorRef &q, const TensorRef &k,
                             const TensorRef &v, const TensorRef &codebook,
                             int64_t block, const VQOptions &options) {
  Checker check;
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options.bias);
  const VQState *state =
      options.state && !options.state->isEmpty() ? options.state : nullptr;
  check.check(options.causal || !(options.bias || state || options.returnState),
              "causal: found False, needed True with a bias or a state");
  check.check(!options.returnLse || options.weighting == VQWeighting::Softmax,
              "return_lse: found True, needed False without a soft-max");

  Call call("vq", options.target);
  addVQInputs(call, arguments);
  SmallVector<VQStatePart, 5> parts = getVQState(arguments);
  if (state)
    call.clause("state", checkVQState(check, parts, *state));
  addVQAttributes(call, check, arguments.block, options.scale,
                  options.weighting);
  call.attribute("reduction = #attn.reduction<" +
                 getKeyword(options.reduction) + ">");
  if (options.causal)
    call.attribute("causal");
  ElementType type = arguments.q.elementType;
  Shape output = arguments.output();
  call.result(check, "outs", "output", type, output, options.output);
  if (options.returnLse)
    call.result(check, "outs", "lse", getStateType(type),
                ArrayRef(output).drop_back(), options.lse);
  bool isEmpty = is_contained(ArrayRef(output).drop_back(), 0);
  if (options.returnState && !isEmpty)
    for (const VQStatePart &part : parts)
      call.result(check, "next_state", std::string("next_") + part.name,
                  part.elementType, part.shape);
  if (check.hasFailed())
    return check.takeError();

  Expected<SmallVector<OwnedTensor>> results =
      isEmpty ? call.fill() : call.run();
  if (!results)
    return results.takeError();
  VQResult result;
  auto next = results->begin();
  result.output = std::move(*next++);
  if (options.returnLse)
    result.lse = std::move(*next++);
  if (options.returnState && isEmpty) {
    if (Error error = copyState(parts, state, result.state))
      return error;
  } else if (options.returnState) {
    for (const VQStatePart &part : parts)
      result.state.*part.member = std::move(*next++);
  }
  return result;
}

Expected<OwnedTensor> fovea::vq_decode(const TensorRef &q, const TensorRef &k,
                                       const TensorRef &v,
                                       const TensorRef &codebook,
                                       VQState &state, int64_t block,
                                       const VQDecodeOptions &options) {
  Checker check;
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options.bias);
  check.match("q", "length", arguments.q.shape[2], 1);
  SmallVector<VQStatePart, 5> parts = getVQState(arguments);
  // Kept only when everything went well.
  VQState first;
  bool isFirst = state.isEmpty();
  if (isFirst && !check.hasFailed())
    if (Error error = setZero(parts, first))
      return error;
  Call call("vq_decode", options.target);
  addVQInputs(call, arguments);
  addVQAttributes(call, check, arguments.block, options.scale,
                  options.weighting);
  call.result(check, "outs", "output", arguments.q.elementType,
              arguments.output(), options.output);
  if (!check.hasFailed())
    for (const Argument &part :
         checkVQState(check, parts, isFirst ? first : state))
      call.update(check, "state", part);
  if (check.hasFailed())
    return check.takeError();
  Expected<SmallVector<OwnedTensor>> results = call.run();
  if (!results)
    return results.takeError();
  if (isFirst)
    state = std::move(first);
  return std::move((*results)[0]);
}
