//===- FastMultipole.cpp - Hierarchical attention of arrays ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/FastMultipole.h"
#include "AttentionCall.h"
#include "SummaryFamilies.h"
#include "TokenMask.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// Operands and attributes of an operation and of its gradient.
template <typename Options>
static void addAttention(Call &call, Checker &check,
                         const Checker::Attention &arguments, int64_t group,
                         const Options &options) {
  const auto &[q, k, v] = arguments;
  call.operands({q, k, v});
  call.attribute("scale", check.scale(options.scale, q.shape[3]));
  call.attribute("group", check.integer("group", group, 1));
  call.flag("causal", options.causal);
}

/// Fails unless the caller knows what `causal` cannot do.
template <typename Options>
static void addLookahead(Call &call, Checker &check, const Options &options) {
  check.check(!options.causal || options.allowQueryLookahead,
              "causal: found True without allow_query_lookahead, needed both: "
              "a summary of queries mixes later queries of its interval into "
              "earlier rows");
  call.flag("allow_query_lookahead", options.causal);
}

Expected<AttentionResult>
fovea::fast_multipole(const TensorRef &queries, const TensorRef &keys,
                      const TensorRef &values, const SummaryWeights &keyWeights,
                      const SummaryWeights &valueWeights, int64_t group,
                      const FastMultipoleOptions &options) {
  Checker check("fast_multipole");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("fast_multipole", options.target, options.out);
  addAttention(call, check, arguments, group, options);
  if (!options.multiplicity)
    call.attribute("multiplicity", false);
  Families families(check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  families.addTo(call);
  call.operandIf(mask.get());
  return runAttention(call, check, arguments, options, /*readsNothing=*/false);
}

Expected<OwnedTensor> fovea::fast_multipole_linear(
    const TensorRef &queries, const TensorRef &keys, const TensorRef &values,
    const SummaryWeights &queryWeights, const SummaryWeights &keyWeights,
    const SummaryWeights &valueWeights, int64_t group,
    const FastMultipoleLinearOptions &options) {
  Checker check("fast_multipole_linear");
  Call call("fast_multipole_linear", options.target, options.out);
  addLookahead(call, check, options);
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  addAttention(call, check, arguments, group, options);
  Families families(check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("query", queryWeights, q);
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  families.addTo(call);
  call.operandIf(mask.get());
  call.result(check, "output", q.elementType, arguments.output());
  return call.runFor<OwnedTensor, 1>(check, is_contained(arguments.rows(), 0));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

static Expected<FastMultipoleGradients>
runBackward(Call &call, Checker &check, const Checker::Attention &arguments,
            Families &families, const TokenMask &mask,
            const Backward &backward) {
  families.addTo(call);
  call.operandIf(mask.get());
  addBackward(call, check, arguments, backward);
  families.addGradientsTo(call);
  Expected<SmallVector<OwnedTensor>> results =
      call.runChecked(check, is_contained(arguments.rows(), 0));
  if (!results)
    return results.takeError();
  FastMultipoleGradients gradients;
  gradients.q = std::move((*results)[0]);
  gradients.k = std::move((*results)[1]);
  gradients.v = std::move((*results)[2]);
  SmallVector<SummaryGradients *> lists{&gradients.key, &gradients.value};
  if (families.size() == 3)
    lists.insert(lists.begin(), &gradients.query);
  families.takeGradients(MutableArrayRef(*results).drop_front(3), lists);
  return gradients;
}

Expected<FastMultipoleGradients> fovea::fast_multipole_backward(
    const TensorRef &dOut, const TensorRef &queries, const TensorRef &keys,
    const TensorRef &values, const SummaryWeights &keyWeights,
    const SummaryWeights &valueWeights, const TensorRef &out,
    const TensorRef &lse, int64_t group,
    const FastMultipoleBackwardOptions &options) {
  Checker check("fast_multipole_backward");
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  Call call("fast_multipole_backward", options.target, options.gradients);
  addAttention(call, check, arguments, group, options);
  if (!options.multiplicity)
    call.attribute("multiplicity", false);
  Families families(check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  return runBackward(call, check, arguments, families, mask,
                     {dOut, options.dLse, &out, &lse});
}

Expected<FastMultipoleGradients> fovea::fast_multipole_linear_backward(
    const TensorRef &dOut, const TensorRef &queries, const TensorRef &keys,
    const TensorRef &values, const SummaryWeights &queryWeights,
    const SummaryWeights &keyWeights, const SummaryWeights &valueWeights,
    int64_t group, const FastMultipoleLinearBackwardOptions &options) {
  Checker check("fast_multipole_linear_backward");
  Call call("fast_multipole_linear_backward", options.target,
            options.gradients);
  addLookahead(call, check, options);
  Checker::Attention arguments = check.attention(queries, keys, values);
  const auto &[q, k, v] = arguments;
  addAttention(call, check, arguments, group, options);
  Families families(check, q.shape[2], std::max<int64_t>(group, 1));
  families.add("query", queryWeights, q);
  families.add("key", keyWeights, k);
  families.add("value", valueWeights, v);
  TokenMask mask(check, options, q.shape[0], q.shape[2], options.target);
  return runBackward(call, check, arguments, families, mask,
                     {dOut, std::nullopt});
}
