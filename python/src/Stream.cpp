//===- Stream.cpp - stream in Python --------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Stream.h"
#include "AttentionReader.h"
#include "Functions.h"
#include <nanobind/stl/string.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

/// Two arrays behind each other, either both or none.
static std::optional<Segments> readSegments(Reader &in, StringRef name) {
  std::optional<TensorRef> queries = in.optionalArray((name + "[0]").str()),
                           keys = in.optionalArray((name + "[1]").str());
  if (!queries || !keys)
    return std::nullopt;
  return Segments{*queries, *keys};
}

/// All sources are arguments one after the other, behind their number.
static SmallVector<Source, 2> readSources(Reader &in) {
  SmallVector<Source, 2> sources;
  for (int64_t i = 0, count = in.integer("sources", 0); i < count; ++i) {
    std::string name = ("sources[" + Twine(i) + "].").str();
    Source source;
    source.k = in.array(name + "k");
    source.v = in.array(name + "v");
    source.causal = in.flag(name + "causal");
    source.window = in.optionalInteger(name + "window", 0);
    source.prefix = in.optionalInteger(name + "prefix", 0);
    source.logWeight = in.optionalArray(name + "log_weight");
    source.bias = in.optionalArray(name + "bias");
    source.lengths = in.optionalArray(name + "lengths");
    source.segments = readSegments(in, name + "segments");
    for (nb::handle range : in.object())
      source.ranges.push_back(nb::cast<std::string>(range));
    sources.push_back(std::move(source));
  }
  return sources;
}

template <typename Options> static Options readForm(Reader &in) {
  auto options = in.makeOptions<Options>();
  options.block = in.integer("block", 0);
  options.scale = in.optionalNumber("scale");
  options.sink = in.optionalArray("sink");
  options.queryLengths = in.optionalArray("query_lengths");
  options.score = in.score();
  return options;
}

static nb::object callStream(Reader &in) {
  TensorRef q = in.array("q");
  auto options = readForm<StreamOptions>(in);
  options.returnLse = in.flag("return_lse");
  SmallVector<Source, 2> sources = readSources(in);
  return giveAttention(in, in.run([&] { return stream(q, sources, options); }),
                       options.returnLse);
}

static nb::object callStreamBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), q = in.array("q"), out = in.array("out"),
            lse = in.array("lse");
  std::optional<TensorRef> dLse = in.optionalArray("d_lse");
  auto options = readForm<StreamBackwardOptions>(in);
  options.dLse = dLse;
  options.returnDLogWeight = in.flag("return_d_log_weight");
  options.returnDBias = in.flag("return_d_bias");
  SmallVector<Source, 2> sources = readSources(in);
  StreamGradients gradients = in.run(
      [&] { return stream_backward(dOut, q, sources, out, lse, options); });
  nb::list found;
  auto add = [&](bool isThere, OwnedTensor &gradient) {
    if (isThere)
      found.append(in.give(std::move(gradient)));
  };
  add(true, gradients.q);
  for (auto [source, each] : zip_equal(sources, gradients.sources)) {
    add(true, each.k);
    add(true, each.v);
    add(source.logWeight && options.returnDLogWeight, each.logWeight);
    add(source.bias && options.returnDBias, each.bias);
  }
  add(options.sink.has_value(), gradients.sink);
  return nb::tuple(found);
}

void python::defineStream(nb::module_ &m) {
  define<callStream>(m, "stream");
  define<callStreamBackward>(m, "stream_backward");
}
