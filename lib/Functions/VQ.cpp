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

namespace {
/// What a part of the state must be.
struct StatePart {
  const char *name;
  ElementType elementType;
  Shape shape;
  OwnedTensor VQState::*member;
};
} // namespace

static SmallVector<StatePart, 5> getState(const VQArguments &arguments) {
  int64_t batch = arguments.v.shape[0], groups = arguments.v.shape[1],
          width = arguments.v.shape[3], codes = arguments.codebook.shape[1],
          kept = arguments.keptTokens();
  return {
      {"mean",
       getStateType(arguments.q.elementType),
       {batch, groups, codes, width},
       &VQState::mean},
      {"count", ElementType::I32, {batch, groups, codes}, &VQState::count},
      {"codes", ElementType::I32, {batch, groups, kept}, &VQState::codes},
      {"values",
       arguments.v.elementType,
       {batch, groups, kept, width},
       &VQState::values},
      {"position", ElementType::I64, {}, &VQState::position},
  };
}

/// The parts of `state` as arguments.
static SmallVector<Argument>
checkState(Checker &check, ArrayRef<StatePart> parts, const VQState &state) {
  SmallVector<Argument> arguments;
  for (const StatePart &part : parts) {
    Argument argument((std::string("state.") + part.name),
                      (state.*part.member).getRef());
    check.check(argument.elementType == part.elementType,
                argument.name + ": found element type " +
                    fovea::getName(argument.elementType) + ", needed " +
                    fovea::getName(part.elementType));
    check.match(argument.name, "shape", argument.shape, part.shape);
    arguments.push_back(argument);
  }
  if (check.hasFailed())
    return arguments;
  int64_t position = *state.position.getDataAs<int64_t>();
  check.check(position >= 0, "state.position: found " + Twine(position) +
                                 ", needed at least 0");
  return arguments;
}

static Error setZero(ArrayRef<StatePart> parts, VQState &state) {
  for (const StatePart &part : parts) {
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
static Error copyState(ArrayRef<StatePart> parts, const VQState *from,
                       VQState &to) {
  if (Error error = setZero(parts, to))
    return error;
  if (from)
    for (const StatePart &part : parts)
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
  SmallVector<StatePart, 5> parts = getState(arguments);
  if (state)
    call.clause("state", checkState(check, parts, *state));
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
    for (const StatePart &part : parts)
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
    for (const StatePart &part : parts)
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
  SmallVector<StatePart, 5> parts = getState(arguments);
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
         checkState(check, parts, isFirst ? first : state))
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
