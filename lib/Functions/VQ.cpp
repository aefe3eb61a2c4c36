//===- VQ.cpp - Attention of arrays over quantized keys -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/VQ.h"
#include "Call.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static StringRef getKeyword(VQWeighting weighting) {
  return weighting == VQWeighting::Softmax ? "softmax" : "squared_relu";
}

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
/// The arguments that both functions have.
struct VQArguments {
  Argument q, k, v, codebook;
  std::optional<Argument> bias;
  int64_t block;

  bool keysAreCodes() const { return k.elementType == ElementType::I32; }
  Shape output() const {
    return {q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
  }
};

/// What a part of the state must be.
struct StatePart {
  const char *name;
  ElementType elementType;
  Shape shape;
  OwnedTensor VQState::*member;
};
} // namespace

/// Keys are numbers, or codes.
static Argument checkKeys(Checker &check, const TensorRef &k,
                          ElementType data) {
  if (k.elementType == ElementType::I32) {
    check.check(k.shape.size() == 3, "k: found rank " + Twine(k.shape.size()) +
                                         ", needed rank 3 [B,G,N] of codes");
    Argument codes("k", k);
    codes.shape.resize(3);
    return codes;
  }
  bool isFloat = getArrayTypeName(k.elementType) != getName(k.elementType);
  check.check(isFloat, "k: found element type " +
                           fovea::getName(k.elementType) +
                           ", needed that of q, or int32 for codes");
  Argument keys = check.tensor("k", k, 4, "[B,G,N,D], or codes [B,G,N]");
  check.elementType(keys, {data});
  return keys;
}

static VQArguments checkArguments(Checker &check, const TensorRef &queries,
                                  const TensorRef &keys,
                                  const TensorRef &values,
                                  const TensorRef &words, int64_t block,
                                  const std::optional<TensorRef> &bias) {
  Argument q = check.tensor("q", queries, 4, "[B,H,N,D]");
  Argument v = check.tensor("v", values, 4, "[B,G,N,E]");
  Argument k = checkKeys(check, keys, q.elementType);
  Argument codebook = check.tensor("codebook", words, 3, "[G,S,D] or [1,S,D]");
  check.elementType(v, {q.elementType});
  check.elementType(codebook, {q.elementType});
  check.match("v", "batch", v.shape[0], q.shape[0]);
  check.heads(v, q);
  check.match("v", "length", v.shape[2], q.shape[2]);
  check.match("k", "batch, heads and length", ArrayRef(k.shape).take_front(3),
              ArrayRef(v.shape).take_front(3));
  if (k.elementType != ElementType::I32)
    check.match("k", "head width", k.shape[3], q.shape[3]);
  check.notEmpty(q);
  check.notEmpty(v);
  check.check(codebook.shape[0] == 1 || codebook.shape[0] == v.shape[1],
              "codebook: found " + Twine(codebook.shape[0]) +
                  " heads, needed 1 or the " + Twine(v.shape[1]) + " of v");
  check.check(codebook.shape[1] != 0,
              "codebook: found no codewords, needed at least 1");
  check.match("codebook", "width", codebook.shape[2], q.shape[3]);
  VQArguments arguments{q,        k,  v,
                        codebook, {}, check.integer("block", block, 1)};
  if (bias) {
    arguments.bias = check.scoreTerm(
        "bias", *bias, q.elementType,
        {q.shape[0], q.shape[1], q.shape[2], 2 * arguments.block});
    check.match("bias", "width", arguments.bias->shape[3], 2 * arguments.block);
  }
  return arguments;
}

static SmallVector<StatePart, 5> getState(const VQArguments &arguments) {
  int64_t batch = arguments.v.shape[0], groups = arguments.v.shape[1],
          width = arguments.v.shape[3], codes = arguments.codebook.shape[1],
          kept = 2 * arguments.block;
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

/// Adds the operands, turning keys into codes where they are none yet.
static void addInputs(Call &call, const VQArguments &arguments) {
  Call::Value q = call.add(arguments.q), codes = call.add(arguments.k);
  Call::Value v = call.add(arguments.v), words = call.add(arguments.codebook);
  if (!arguments.keysAreCodes()) {
    Call::Value keys = codes;
    codes = call.getValue("codes", ElementType::I32,
                          ArrayRef(arguments.v.shape).take_front(3));
    call.define("  %codes_init = tensor.empty() : " + codes.type +
                "\n  %codes = attn.quantize ins(" + keys.name + ", " +
                words.name + " : " + keys.type + ", " + words.type +
                ") outs(%codes_init : " + codes.type + ") -> " + codes.type +
                "\n");
  }
  call.clause("ins", {q, codes, v, words});
  if (arguments.bias)
    call.clause("bias", *arguments.bias);
}

static void addAttributes(Call &call, Checker &check, int64_t block,
                          double scale, VQWeighting weighting) {
  call.attribute("block = " + Twine(block) + " : i64");
  call.attribute("scale", check.scale(scale, 1));
  call.attribute("weighting = #attn.weighting<" + getKeyword(weighting) + ">");
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
      checkArguments(check, q, k, v, codebook, block, options.bias);
  const VQState *state =
      options.state && !options.state->isEmpty() ? options.state : nullptr;
  check.check(options.causal || !(options.bias || state || options.returnState),
              "causal: found False, needed True with a bias or a state");
  check.check(!options.returnLse || options.weighting == VQWeighting::Softmax,
              "return_lse: found True, needed False without a soft-max");

  Call call("vq", options.target);
  addInputs(call, arguments);
  SmallVector<StatePart, 5> parts = getState(arguments);
  if (state)
    call.clause("state", checkState(check, parts, *state));
  addAttributes(call, check, arguments.block, options.scale, options.weighting);
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
      checkArguments(check, q, k, v, codebook, block, options.bias);
  check.match("q", "length", arguments.q.shape[2], 1);
  SmallVector<StatePart, 5> parts = getState(arguments);
  // Kept only when everything went well.
  VQState first;
  bool isFirst = state.isEmpty();
  if (isFirst && !check.hasFailed())
    if (Error error = setZero(parts, first))
      return error;
  Call call("vq_decode", options.target);
  addInputs(call, arguments);
  addAttributes(call, check, arguments.block, options.scale, options.weighting);
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
