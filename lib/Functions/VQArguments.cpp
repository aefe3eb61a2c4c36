//===- VQArguments.cpp - Arguments of quantized attention -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQArguments.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/ResultScopes.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// Keys are numbers, or codes.
static Argument checkKeys(Checker &check, const TensorRef &k,
                          const Codes &codes, ElementType data) {
  if (!isFloat(k.elementType) && Codes::areCodes(k))
    return codes.get(check, "codes", "k");
  check.check(isFloat(k.elementType),
              "k: found element type " + getArrayTypeName(k.elementType) +
                  ", needed that of q, or int32 or int64 for codes");
  Argument keys = check.tensor("k", k, 4, "[B,G,N,D], or codes [B,G,N]");
  check.elementType(keys, {data});
  return keys;
}

/// The most tokens of blocks that attn.vq takes.
static constexpr int64_t kMaxTokens = 1 << 30;

VQArguments functions::checkVQArguments(Checker &check,
                                        const TensorRef &queries,
                                        const TensorRef &keys,
                                        const TensorRef &values,
                                        const TensorRef &words, int64_t block,
                                        const VQFormOptions &options) {
  Codes codes(check, "k", keys, options.target);
  Argument q = check.operand("query", "q", queries);
  Argument v = check.operand("value", "v", values);
  Argument k = checkKeys(check, keys, codes, q.elementType);
  Argument codebook = check.operand("codebook", "codebook", words);
  check.notEmpty(q);
  check.notEmpty(v);
  check.check(codebook.shape[1] != 0,
              "codebook: found no codewords, needed at least 1");
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  VQArguments arguments{
      std::move(codes),
      q,
      k,
      v,
      codebook,
      std::move(mask),
      std::nullopt,
      check.integer("block", block, 1, kMaxTokens),
      check.integer("memory", options.memory, 0,
                    kMaxTokens / std::max<int64_t>(block, 1))};
  bool areCodes = arguments.keysAreCodes();
  check.check(!options.padded || areCodes,
              "padded: found True with keys, needed codes of quantize, which "
              "are -1 for absent tokens");
  check.check(!arguments.mask.get() || !areCodes,
              Twine(options.lengths ? "lengths" : "mask") +
                  ": found with codes, needed keys: codes are -1 for absent "
                  "tokens");
  if (options.bias)
    arguments.bias = check.scoreTerm(
        "bias", *options.bias, q.elementType,
        {q.shape[0], q.shape[1], q.shape[2], arguments.keptTokens()});
  return arguments;
}

VQDistanceArguments
functions::checkVQDistances(Checker &check, const VQArguments &arguments,
                            const VQDistanceOptions &options) {
  VQDistanceArguments found;
  if (options.relative) {
    found.relativeKeys =
        check.operand("relative_keys", "relative.keys", options.relative->keys);
    found.relativeBias =
        check.operand("relative_bias", "relative.bias", options.relative->bias);
  }
  found.distanceBias =
      check.operandIf("distance_bias", "distance_bias", options.distanceBias);
  for (const std::optional<Argument> &terms :
       {found.relativeKeys, found.distanceBias})
    if (terms)
      check.check(terms->shape[1] >= arguments.keptTokens(),
                  terms->name + ": found " + Twine(terms->shape[1]) +
                      " distances, needed at least " +
                      Twine(arguments.keptTokens()) +
                      ", those of tokens read one by one");
  return found;
}

void functions::addVQInputs(Call &call, const VQArguments &arguments) {
  call.operand(arguments.q);
  if (arguments.keysAreCodes()) {
    call.operands({arguments.k, arguments.v, arguments.codebook});
  } else {
    const std::optional<Argument> &mask = arguments.mask.get();
    SmallVector<unsigned> inputs = {
        call.addArgument(arguments.k, "quantize", "key"),
        call.addArgument(arguments.codebook, "quantize", "codebook")};
    if (mask)
      inputs.push_back(call.addArgument(*mask, "quantize", "mask"));
    call.computed("quantize", inputs, ElementType::I32,
                  ArrayRef(arguments.v.shape).take_front(3),
                  {1, 1, mask ? 1 : 0, 1, 0});
    call.operand(arguments.v);
    call.operand(inputs[1]);
  }
  call.operandIf(arguments.bias);
}

void functions::addVQDistances(Call &call,
                               const VQDistanceArguments &arguments) {
  call.operandIf(arguments.relativeKeys);
  call.operandIf(arguments.relativeBias);
  call.operandIf(arguments.distanceBias);
}

void functions::addVQAttributes(Call &call, Checker &check,
                                const VQArguments &arguments,
                                const VQFormOptions &options) {
  call.attribute("block", arguments.block);
  call.attribute("memory", arguments.memory);
  call.attribute("scale", check.scale(options.scale, 1));
  call.attribute("weighting", options.weighting == VQWeighting::Softmax
                                  ? attn::Weighting::Softmax
                                  : attn::Weighting::SquaredRelu);
  call.flag("padded", options.padded || arguments.mask.get());
}

void functions::checkNewVQState(Checker &check, const VQArguments &arguments) {
  // Memory of more is rather a mistake than wanted.
  constexpr int64_t most = 1 << 24;
  if (!check.hasFailed() && arguments.keptTokens() > most)
    check.fail("block: found " + Twine(arguments.block) + " with a memory of " +
               Twine(arguments.memory) +
               ", needed (memory + 1) block of at most " + Twine(most) +
               " for a state, which keeps as many tokens");
}

SmallVector<VQStatePart, 5>
functions::getVQState(const VQArguments &arguments) {
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

SmallVector<Argument> functions::checkVQState(Checker &check,
                                              ArrayRef<VQStatePart> parts,
                                              const VQState &state,
                                              Target target) {
  SmallVector<Argument> arguments;
  for (const VQStatePart &part : parts) {
    Argument argument((std::string("state.") + part.name),
                      (state.*part.member).getRef());
    check.check(argument.elementType == part.elementType,
                argument.name + ": found element type " +
                    getArrayTypeName(argument.elementType) + ", needed " +
                    getArrayTypeName(part.elementType));
    check.match(argument.name, "shape", argument.shape, part.shape);
    arguments.push_back(argument);
  }
  if (check.hasFailed() || DescribeScope::isActive() ||
      isOnDevice(state.position.getData(), target))
    return arguments;
  int64_t position = *state.position.getDataAs<int64_t>();
  check.check(position >= 0, "state.position: found " + Twine(position) +
                                 ", needed at least 0");
  return arguments;
}
