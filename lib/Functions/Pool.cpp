//===- Pool.cpp - Pooled summaries of arrays, and their choice ------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Pool.h"
#include "Call.h"
#include "RowArguments.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// The most that #attn.mask and the operations take.
static constexpr int64_t kMaxInterval = 65536,
                         kMaxUnit = attn::MaskAttr::kMaxStride;

/// The most numbers of choices beyond the scores, which are -1.
static constexpr int64_t kMaxPadded = 1 << 20;

namespace {
/// The arguments of both, checked.
struct PoolArguments {
  PoolArguments(Checker &check, const TensorRef &x, const TensorRef &gate,
                int64_t interval, const PoolFormOptions &options)
      : x(checkRows(check, "input", "x", x)),
        gate(check.like("gate", gate, this->x.elementType, this->x.shape)),
        interval(check.integer("interval", interval, 1, kMaxInterval)),
        overlap(check.integer("overlap", options.overlap, 0, kMaxInterval)) {
    if (options.positionBias)
      bias = check.operand("position_bias", "position_bias",
                           *options.positionBias);
    summaries = this->x.shape;
    if (!check.hasFailed())
      summaries[2] /= interval;
    if (bias)
      check.match("position_bias", "shape", bias->shape,
                  {interval, this->x.shape[3]});
  }

  void addAttributes(Call &call) const {
    call.attribute("interval", interval);
    if (overlap)
      call.attribute("overlap", overlap);
  }

  Argument x, gate;
  int64_t interval, overlap;
  std::optional<Argument> bias;
  Shape summaries;
};
} // namespace

Expected<OwnedTensor> fovea::pool(const TensorRef &x, const TensorRef &gate,
                                  int64_t interval,
                                  const PoolOptions &options) {
  Checker check("pool");
  PoolArguments arguments(check, x, gate, interval, options);
  Call call("pool", options.target, options.out);
  call.operands({arguments.x, arguments.gate});
  call.operandIf(arguments.bias);
  arguments.addAttributes(call);
  call.result(check, "output", arguments.x.elementType, arguments.summaries);
  return call.runFor<OwnedTensor, 1>(check,
                                     is_contained(arguments.summaries, 0));
}

Expected<PoolGradients>
fovea::pool_backward(const TensorRef &dOut, const TensorRef &x,
                     const TensorRef &gate, int64_t interval,
                     const PoolBackwardOptions &options) {
  Checker check("pool_backward");
  PoolArguments arguments(check, x, gate, interval, options);
  ElementType type = arguments.x.elementType;
  Call call("pool_backward", options.target, options.gradients);
  call.operands({arguments.x, arguments.gate,
                 check.like("d_out", dOut, type, arguments.summaries)});
  call.operandIf(arguments.bias);
  arguments.addAttributes(call);
  call.result(check, "d_x", type, arguments.x.shape);
  call.result(check, "d_gate", type, arguments.x.shape);
  bool hasBias = arguments.bias.has_value();
  call.resultIf(hasBias, check, "d_position_bias",
                hasBias ? arguments.bias->elementType : type,
                hasBias ? arguments.bias->shape : Shape());
  Expected<SmallVector<OwnedTensor>> results =
      call.runChecked(check, is_contained(arguments.summaries, 0));
  if (!results)
    return results.takeError();
  PoolGradients gradients;
  gradients.x = std::move((*results)[0]);
  gradients.gate = std::move((*results)[1]);
  if (hasBias)
    gradients.positionBias = std::move((*results)[2]);
  return gradients;
}

Expected<OwnedTensor> fovea::top_k(const TensorRef &scores, int64_t k,
                                   const TopKOptions &options) {
  Checker check("top_k");
  Argument given = check.operand("scores", "scores", scores);
  check.integer("k", k, 1, std::max(given.shape.back(), kMaxPadded));
  Call call("top_k", options.target, options.out);
  call.operand(given);
  if (options.causalUnit)
    call.attribute("mask",
                   MaskValue{/*causal=*/true, /*window=*/0, /*prefix=*/0,
                             check.integer("causal_unit", *options.causalUnit,
                                           1, kMaxUnit)});
  Shape shape = given.shape;
  shape.back() = k;
  call.result(check, "indices", ElementType::I32, shape);
  return call.runFor<OwnedTensor, 1>(
      check, is_contained(ArrayRef(shape).drop_back(), 0));
}
