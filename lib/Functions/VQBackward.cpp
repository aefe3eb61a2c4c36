//===- VQBackward.cpp - Gradients of quantized attention of arrays --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "VQArguments.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static void checkOptions(Checker &check, const VQBackwardOptions &options) {
  check.check(options.causal || !options.bias,
              "causal: found False, needed True with a bias");
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

Expected<VQGradients> fovea::vq_backward(const TensorRef &dOut,
                                         const TensorRef &q, const TensorRef &k,
                                         const TensorRef &v,
                                         const TensorRef &codebook,
                                         int64_t block,
                                         const VQBackwardOptions &options) {
  Checker check;
  VQArguments arguments =
      checkVQArguments(check, q, k, v, codebook, block, options.bias);
  checkOptions(check, options);
  if (check.hasFailed())
    return check.takeError();
  ElementType type = arguments.q.elementType, state = getStateType(type);
  Shape output = arguments.output();
  ArrayRef<int64_t> rows = ArrayRef(output).drop_back();

  Call call("vq_backward", options.target);
  addVQInputs(call, arguments);
  SmallVector<Argument> gradients{check.like("d_out", dOut, type, output)};
  if (options.out)
    call.clause("forward", {check.like("out", *options.out, type, output),
                            check.like("lse", *options.lse, state, rows)});
  if (options.dLse)
    gradients.push_back(check.like("d_lse", *options.dLse, state, rows));
  call.clause("gradient", gradients);
  addVQAttributes(call, check, arguments.block, options.scale,
                  options.weighting);
  if (options.causal)
    call.attribute("causal");
  Shape keys(ArrayRef(arguments.v.shape).drop_back());
  keys.push_back(arguments.q.shape[3]);
  call.result(check, "outs", "d_q", type, arguments.q.shape, options.dQ);
  call.result(check, "outs", "d_k", type, keys, options.dK);
  call.result(check, "outs", "d_v", type, arguments.v.shape, options.dV);
  if (arguments.bias)
    call.result(check, "d_bias", "d_bias", arguments.bias->elementType,
                arguments.bias->shape);
  if (check.hasFailed())
    return check.takeError();
  Expected<SmallVector<OwnedTensor>> results =
      is_contained(rows, 0) ? call.fill() : call.run();
  if (!results)
    return results.takeError();
  VQGradients found;
  found.q = std::move((*results)[0]);
  found.k = std::move((*results)[1]);
  found.v = std::move((*results)[2]);
  if (arguments.bias)
    found.bias = std::move((*results)[3]);
  return found;
}
