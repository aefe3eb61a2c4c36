//===- Dense.cpp - Dense attention of arrays ------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Dense.h"
#include "AttentionCall.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

Expected<AttentionResult> fovea::dense(const TensorRef &queries,
                                       const TensorRef &keys,
                                       const TensorRef &values,
                                       const DenseOptions &options) {
  Checker check;
  Checker::Attention arguments =
      check.attention(queries, keys, values, /*sameLength=*/false);
  const auto &[q, k, v] = arguments;
  int64_t length = q.shape[2], numKeys = k.shape[2];

  Call call("dense", options.target);
  call.clause("ins", {q, k, v});
  call.attribute("scale", check.scale(options.scale, q.shape[3]));
  SmallVector<std::string> masks;
  if (options.causal)
    masks.push_back("causal");
  if (options.window) {
    // A window that reaches everything is one whatever its size.
    int64_t window =
        std::min(check.integer("window", *options.window, 0), length + numKeys);
    masks.push_back("window = " + std::to_string(window));
  }
  if (!masks.empty())
    call.attribute("mask = #attn.mask<" + join(masks, ", ") + ">");
  if (options.logWeight)
    call.clause("log_weight",
                check.scoreTerm("log_weight", *options.logWeight, q.elementType,
                                {q.shape[0], k.shape[1], numKeys}));
  if (options.bias)
    call.clause("bias",
                check.scoreTerm("bias", *options.bias, q.elementType,
                                {q.shape[0], q.shape[1], length, numKeys}));
  return runAttention(call, check, arguments, options,
                      /*readsNothing=*/numKeys == 0 || options.window == 0);
}
