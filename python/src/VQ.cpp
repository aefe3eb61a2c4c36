//===- VQ.cpp - Attention over quantized keys in Python -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/VQ.h"
#include "Functions.h"
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

//===----------------------------------------------------------------------===//
// Codebooks
//===----------------------------------------------------------------------===//

static nb::object callQuantize(Reader &in) {
  TensorRef k = in.array("k"), codebook = in.array("codebook");
  auto options = in.makeOptions<QuantizeOptions>();
  in.readTokens(options);
  return in.call([&] { return quantize(k, codebook, options); },
                 &QuantizeResult::quantized, &QuantizeResult::codes);
}

static nb::object callUpdate(Reader &in) {
  TensorRef k = in.array("k"), codes = in.array("codes"),
            sums = in.array("sums"), counts = in.array("counts");
  auto options = in.makeOptions<CodebookUpdateOptions>();
  options.rate = in.number("rate", "a number from 0 to 1");
  options.minCount = in.number("min_count");
  options.replaceBelow = in.number("replace_below");
  options.seed = in.integer("seed", 0);
  options.wide = in.flag("wide");
  return in.call([&] { return codebook_step(k, codes, sums, counts, options); },
                 &CodebookStep::codebook, &CodebookStep::sums,
                 &CodebookStep::counts);
}

static nb::object callLoss(Reader &in) {
  TensorRef k = in.array("k"), kHat = in.array("k_hat");
  TokenOptions tokens;
  in.readTokens(tokens);
  const ResultMemory &out = in.getMemory();
  return in.call(
      [&] { return commitment_loss(k, kHat, in.getTarget(), tokens, out); });
}

static nb::object callLossBackward(Reader &in) {
  double dLoss = in.number("d_loss");
  TensorRef k = in.array("k"), kHat = in.array("k_hat");
  TokenOptions tokens;
  in.readTokens(tokens);
  const ResultMemory &out = in.getMemory();
  return in.call([&] {
    return commitment_loss_backward(dLoss, k, kHat, in.getTarget(), tokens,
                                    out);
  });
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

static constexpr OwnedTensor VQState::*kStateParts[] = {
    &VQState::mean, &VQState::count, &VQState::codes, &VQState::values,
    &VQState::position};
static constexpr OwnedTensor VQStateGradient::*kGradientParts[] = {
    &VQStateGradient::mean, &VQStateGradient::keys, &VQStateGradient::values};

/// Views of the arrays of a tuple, whose names are `names`; nothing for None.
template <typename State, size_t count>
static std::optional<State>
readState(Reader &in, StringRef name, OwnedTensor State::*const (&parts)[count],
          ArrayRef<StringRef> names, bool needsWrite = false) {
  std::optional<SmallVector<OwnedTensor>> views =
      in.optionalParts(name, names, needsWrite);
  if (!views)
    return std::nullopt;
  State state;
  for (auto [part, view] : zip_equal(parts, *views))
    state.*part = std::move(view);
  return state;
}

static std::optional<VQState> readVQState(Reader &in, bool needsWrite) {
  return readState(in, "state", kStateParts,
                   {"mean", "count", "codes", "values", "position"},
                   needsWrite);
}

template <typename State, size_t count>
static nb::object giveState(Reader &in, State state,
                            OwnedTensor State::*const (&parts)[count]) {
  nb::list found;
  for (OwnedTensor State::*part : parts)
    found.append(in.give(std::move(state.*part)));
  return nb::tuple(found);
}

namespace {
/// The arguments that all functions have.
struct VQCall {
  explicit VQCall(Reader &in)
      : q(in.array("q")), k(in.array("k")), v(in.array("v")),
        codebook(in.array("codebook")), block(in.integer("block", 1)) {}
  template <typename Options> Options readOptions(Reader &in) {
    auto options = in.makeOptions<Options>();
    options.memory = in.integer("memory", 0);
    in.readTokens(options);
    options.padded = in.flag("padded");
    options.bias = in.optionalArray("bias");
    if constexpr (std::is_base_of_v<VQDistanceOptions, Options>) {
      relative = in.optionalParts("relative", {"keys", "bias"},
                                  /*needsWrite=*/false);
      if (relative)
        options.relative = {(*relative)[0].getRef(), (*relative)[1].getRef()};
      options.distanceBias = in.optionalArray("distance_bias");
    }
    options.scale = in.number("scale");
    options.weighting =
        in.choice<VQWeighting>("weighting", {"softmax", "squared_relu"});
    return options;
  }

  TensorRef q, k, v, codebook;
  std::optional<SmallVector<OwnedTensor>> relative;
  int64_t block;
};
} // namespace

static nb::object callVQ(Reader &in) {
  VQCall call(in);
  auto options = call.readOptions<VQOptions>(in);
  options.causal = in.flag("causal");
  options.reduction = in.choice<VQReduction>(
      "reduction", {"auto", "serial", "matmul", "associative", "input_scan"});
  std::optional<VQState> state = readVQState(in, /*needsWrite=*/false);
  options.state = state ? &*state : nullptr;
  options.returnState = in.flag("return_state");
  options.returnLse = in.flag("return_lse");
  VQResult result = in.run([&] {
    return vq(call.q, call.k, call.v, call.codebook, call.block, options);
  });
  nb::list found;
  found.append(in.give(std::move(result.output)));
  if (options.returnLse)
    found.append(in.give(std::move(result.lse)));
  if (options.returnState)
    found.append(giveState(in, std::move(result.state), kStateParts));
  return nb::tuple(found);
}

/// The output, and the state where none was given.
static nb::object callDecode(Reader &in) {
  VQCall call(in);
  auto options = call.readOptions<VQDecodeOptions>(in);
  std::optional<VQState> state = readVQState(in, /*needsWrite=*/true);
  bool isFirst = !state;
  if (isFirst)
    state.emplace();
  nb::object output = in.call([&] {
    return vq_decode(call.q, call.k, call.v, call.codebook, *state, call.block,
                     options);
  });
  return nb::make_tuple(output,
                        isFirst ? giveState(in, std::move(*state), kStateParts)
                                : nb::none());
}

static nb::object callBackward(Reader &in) {
  TensorRef dOut = in.array("d_out");
  VQCall call(in);
  auto options = call.readOptions<VQBackwardOptions>(in);
  options.causal = in.flag("causal");
  options.out = in.optionalArray("out");
  options.lse = in.optionalArray("lse");
  options.dLse = in.optionalArray("d_lse");
  std::optional<VQState> state = readVQState(in, /*needsWrite=*/false);
  options.state = state ? &*state : nullptr;
  std::optional<VQStateGradient> next =
      readState(in, "d_next_state", kGradientParts, {"mean", "keys", "values"});
  options.dNextState = next ? &*next : nullptr;
  VQGradients gradients = in.run([&] {
    return vq_backward(dOut, call.q, call.k, call.v, call.codebook, call.block,
                       options);
  });
  nb::list found;
  for (OwnedTensor *gradient : {&gradients.q, &gradients.k, &gradients.v})
    found.append(in.give(std::move(*gradient)));
  if (options.bias)
    found.append(in.give(std::move(gradients.bias)));
  if (options.relative)
    found.append(nb::make_tuple(in.give(std::move(gradients.relativeKeys)),
                                in.give(std::move(gradients.relativeBias))));
  if (options.distanceBias)
    found.append(in.give(std::move(gradients.distanceBias)));
  if (state)
    found.append(giveState(in, std::move(gradients.state), kGradientParts));
  return nb::tuple(found);
}

static nb::object callSaveState(Reader &in) {
  std::optional<VQState> state = readVQState(in, /*needsWrite=*/false);
  auto path = nb::cast<std::string>(in.object());
  in.run([&] { return state->save(path); });
  return nb::none();
}

static nb::object callLoadState(Reader &in) {
  auto path = nb::cast<std::string>(in.object());
  return giveState(in, in.run([&] { return VQState::load(path); }),
                   kStateParts);
}

void python::defineVQ(nb::module_ &m) {
  define<callUpdate>(m, "codebook_update");
  define<callLoss>(m, "commitment_loss");
  define<callLossBackward>(m, "commitment_loss_backward");
  define<callQuantize>(m, "quantize");
  define<callVQ>(m, "vq");
  define<callBackward>(m, "vq_backward");
  define<callDecode>(m, "vq_decode");
  define<callSaveState>(m, "save_vq_state");
  define<callLoadState>(m, "load_vq_state");
}
