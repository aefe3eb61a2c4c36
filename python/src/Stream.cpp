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

/// Affine maps, with semicolons between them.
static SmallVector<std::string, 1> readRanges(Reader &in) {
  std::string text = nb::str(in.object()).c_str();
  SmallVector<StringRef> maps;
  StringRef(text).split(maps, "; ", /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  return SmallVector<std::string, 1>(maps.begin(), maps.end());
}

/// Each property is a list for all sources.
static SmallVector<Source, 2> readSources(Reader &in) {
  SmallVector<Source, 2> sources(nb::len(in.peek()));
  auto read = [&](StringRef property, auto set) {
    in.list(property, sources.size(), [&](size_t i) {
      set(sources[i], ("sources[" + Twine(i) + "]." + property).str());
    });
  };
  read("k", [&](Source &to, StringRef name) { to.k = in.array(name); });
  read("v", [&](Source &to, StringRef name) { to.v = in.array(name); });
  read("causal",
       [&](Source &to, StringRef name) { to.causal = in.flag(name); });
  read("window", [&](Source &to, StringRef name) {
    to.window = in.optionalInteger(name, 0);
  });
  read("prefix", [&](Source &to, StringRef name) {
    to.prefix = in.optionalInteger(name, 0);
  });
  read("stride",
       [&](Source &to, StringRef name) { to.stride = in.integer(name, 1); });
  read("log_weight", [&](Source &to, StringRef name) {
    to.logWeight = in.optionalArray(name);
  });
  read("bias",
       [&](Source &to, StringRef name) { to.bias = in.optionalArray(name); });
  read("lengths", [&](Source &to, StringRef name) {
    to.lengths = in.optionalArray(name);
  });
  read("rows",
       [&](Source &to, StringRef name) { to.rows = in.optionalArray(name); });
  read("unit",
       [&](Source &to, StringRef name) { to.unit = in.integer(name, 1); });
  read("positions", [&](Source &to, StringRef name) {
    to.hasListedPositions = in.choice<bool>(name, {"stored", "listed"});
  });
  read("ranges", [&](Source &to, StringRef) { to.ranges = readRanges(in); });
  // A text that is empty where there is none.
  read("source_score", [&](Source &to, StringRef) {
    nb::str body(in.object());
    if (nb::len(body) != 0)
      to.score = ScoreFunction{body.c_str(), {}};
  });
  return sources;
}

/// Behind the sources. The arrays that functions read are one list, those of
/// sources first, so many of each.
template <typename Options>
static Options readForm(Reader &in, MutableArrayRef<Source> sources) {
  SmallVector<size_t> counts;
  in.list("source_captures", sources.size(), [&](size_t i) {
    counts.push_back(
        in.integer(("sources[" + Twine(i) + "].source_captures").str(), 0));
  });
  auto options = in.makeOptions<Options>();
  options.block = in.integer("block", 0);
  options.scale = in.optionalNumber("scale");
  options.sink = in.optionalArray("sink");
  options.queryLengths = in.optionalArray("query_lengths");
  nb::handle body = in.object();
  SmallVector<TensorRef> captures = in.captures();
  ArrayRef<TensorRef> rest(captures);
  for (auto [source, count] : zip_equal(sources, counts)) {
    size_t own = std::min(count, rest.size());
    if (source.score)
      source.score->captures.assign(rest.begin(), rest.begin() + own);
    rest = rest.drop_front(own);
  }
  if (!body.is_none())
    options.score =
        ScoreFunction{nb::str(body).c_str(), SmallVector<TensorRef>(rest)};
  return options;
}

static nb::object callStream(Reader &in) {
  TensorRef q = in.array("q");
  SmallVector<Source, 2> sources = readSources(in);
  auto options = readForm<StreamOptions>(in, sources);
  options.returnLse = in.flag("return_lse");
  return giveAttention(in, in.run([&] { return stream(q, sources, options); }),
                       options.returnLse);
}

static nb::object callStreamBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), q = in.array("q"), out = in.array("out"),
            lse = in.array("lse");
  std::optional<TensorRef> dLse = in.optionalArray("d_lse");
  SmallVector<Source, 2> sources = readSources(in);
  auto options = readForm<StreamBackwardOptions>(in, sources);
  options.dLse = dLse;
  options.returnDLogWeight = in.flag("return_d_log_weight");
  options.returnDBias = in.flag("return_d_bias");
  options.returnDCaptures = in.flag("return_d_captures");
  StreamGradients gradients = in.run(
      [&] { return stream_backward(dOut, q, sources, out, lse, options); });
  nb::list found;
  found.append(in.give(std::move(gradients.q)));
  auto add = [&](OwnedTensor SourceGradients::*member, auto isThere) {
    for (auto [source, each] : zip_equal(sources, gradients.sources))
      if (isThere(source))
        found.append(in.give(std::move(each.*member)));
  };
  auto always = [](const Source &) { return true; };
  add(&SourceGradients::k, always);
  add(&SourceGradients::v, always);
  add(&SourceGradients::logWeight, [&](const Source &source) {
    return source.logWeight && options.returnDLogWeight;
  });
  add(&SourceGradients::bias,
      [&](const Source &source) { return source.bias && options.returnDBias; });
  if (options.sink)
    found.append(in.give(std::move(gradients.sink)));
  auto addCaptures = [&](std::vector<OwnedTensor> &captures) {
    for (OwnedTensor &gradient : captures)
      found.append(in.give(std::move(gradient)));
  };
  for (SourceGradients &source : gradients.sources)
    addCaptures(source.captures);
  addCaptures(gradients.captures);
  return nb::tuple(found);
}

void python::defineStream(nb::module_ &m) {
  define<callStream>(m, "stream");
  define<callStreamBackward>(m, "stream_backward");
}
