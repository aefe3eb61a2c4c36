//===- AttentionReader.h - What attention takes and gives -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_ATTENTIONREADER_H
#define FOVEA_PYTHON_SRC_ATTENTIONREADER_H

#include "Reader.h"
#include "fovea/Functions/Dense.h"
#include "fovea/Functions/Paged.h"

namespace fovea::python {

/// The options that `dense`, its gradient and caches have in common.
template <typename Options> Options readDenseOptions(Reader &in) {
  auto options = in.makeOptions<Options>();
  options.scale = in.optionalNumber("scale");
  options.causal = in.flag("causal");
  options.window = in.optionalInteger("window", 0);
  options.logWeight = in.optionalArray("log_weight");
  options.bias = in.optionalArray("bias");
  options.sink = in.optionalArray("sink");
  options.prefix = in.optionalInteger("prefix", 0);
  options.lengths = in.optionalArray("lengths");
  options.queryLengths = in.optionalArray("query_lengths");
  options.score = in.score();
  return options;
}

/// Those of `paged` and its cache.
inline PagedOptions readPagedOptions(Reader &in) {
  auto options = in.makeOptions<PagedOptions>();
  options.scale = in.optionalNumber("scale");
  options.causal = in.flag("causal");
  options.window = in.optionalInteger("window", 0);
  options.sink = in.optionalArray("sink");
  options.queryLengths = in.optionalArray("query_lengths");
  options.returnLse = in.flag("return_lse");
  return options;
}

inline nanobind::object giveAttention(Reader &in, AttentionResult result,
                                      bool returnLse) {
  nanobind::object output = in.give(std::move(result.output));
  return returnLse
             ? nanobind::make_tuple(output, in.give(std::move(result.lse)))
             : output;
}

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_ATTENTIONREADER_H
