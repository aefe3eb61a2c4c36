//===- Patterns.cpp - Patterns of models as lists of sources --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Patterns.h"
#include "Arguments.h"
#include "RenameArguments.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

/// Errors name arguments as the caller does.
static constexpr ArgumentName kHCANames[] = {
    {"sources[0].k", "kv"},           {"sources[0].v", "kv"},
    {"sources[0].window", "window"},  {"sources[0].lengths", "lengths"},
    {"sources[1].k", "summaries"},    {"sources[1].v", "summaries"},
    {"sources[1].stride", "interval"}};
static constexpr ArgumentName kSelectedNames[] = {
    {"sources[0].k", "k"},           {"sources[0].v", "v"},
    {"sources[0].rows", "rows"},     {"sources[0].unit", "unit"},
    {"sources[0].stride", "stride"}, {"sources[0].lengths", "lengths"},
    {"sources[1].k", "local[0]"},    {"sources[1].v", "local[1]"},
    {"sources[1].window", "window"}};

template <typename T>
static Expected<T> rename(Expected<T> result, ArrayRef<ArgumentName> names) {
  if (!result)
    return renameArguments(result.takeError(), names);
  return result;
}

namespace {
/// A list of sources, and what it refers to.
class Sources {
public:
  /// Lengths of sources beside `tokens` [B,G,M,D]: where there are fewer
  /// queries, tokens that make no summary yet are known from these alone.
  void setLengths(const TensorRef &q, const TensorRef &tokens,
                  const std::optional<TensorRef> &given) {
    lengths = given;
    if (given || q.shape.size() != 4 || tokens.shape.size() != 4 ||
        q.shape[2] == tokens.shape[2])
      return;
    numbers.assign(q.shape[0], tokens.shape[2]);
    shape[0] = q.shape[0];
    lengths = TensorRef{numbers.data(), ElementType::I64, shape};
  }
  void add(Source source) {
    source.lengths = lengths;
    list.push_back(std::move(source));
  }

  SmallVector<Source, 2> list;

private:
  std::optional<TensorRef> lengths;
  SmallVector<int64_t> numbers;
  int64_t shape[1] = {0};
};

struct HCASources : Sources {
  HCASources(const TensorRef &q, const TensorRef &kv,
             const TensorRef &summaries, const HCAForm &form) {
    setLengths(q, kv, form.lengths);
    add({kv, kv, /*causal=*/true, form.window});
    Source far{summaries, summaries, /*causal=*/true};
    far.stride = form.interval;
    add(far);
  }
};

struct SelectedSources : Sources {
  SelectedSources(const TensorRef &q, const TensorRef &k, const TensorRef &v,
                  const TensorRef &rows, const SelectedForm &form) {
    setLengths(q, form.local && form.stride != 1 ? form.local->first : q,
               form.lengths);
    Source chosen{k, v, form.causal};
    chosen.stride = form.stride;
    chosen.rows = rows;
    chosen.unit = form.unit;
    add(chosen);
    if (form.local)
      add({form.local->first, form.local->second, form.causal, form.window});
  }
};
} // namespace

static Error check(const SelectedForm &form) {
  if (form.local.has_value() == form.window.has_value())
    return Error::success();
  Checker check;
  check.fail(form.local
                 ? "local: found it without window, needed both or none"
                 : "window: found it without local, needed both or none");
  return check.takeError();
}

/// Every query has a list of its own unless blocks of them have.
template <typename Options> static Options withBlock(Options options) {
  if (options.block == 0)
    options.block = 1;
  return options;
}

Expected<AttentionResult> fovea::hca(const TensorRef &q, const TensorRef &kv,
                                     const TensorRef &summaries,
                                     const HCAForm &form,
                                     const StreamOptions &options) {
  HCASources sources(q, kv, summaries, form);
  return rename(stream(q, sources.list, options), kHCANames);
}

Expected<StreamGradients>
fovea::hca_backward(const TensorRef &dOut, const TensorRef &q,
                    const TensorRef &kv, const TensorRef &summaries,
                    const TensorRef &out, const TensorRef &lse,
                    const HCAForm &form, const StreamBackwardOptions &options) {
  HCASources sources(q, kv, summaries, form);
  return rename(stream_backward(dOut, q, sources.list, out, lse, options),
                kHCANames);
}

Expected<AttentionResult>
fovea::selected(const TensorRef &q, const TensorRef &k, const TensorRef &v,
                const TensorRef &rows, const SelectedForm &form,
                const StreamOptions &options) {
  if (Error error = check(form))
    return std::move(error);
  SelectedSources sources(q, k, v, rows, form);
  return rename(stream(q, sources.list, withBlock(options)), kSelectedNames);
}

Expected<StreamGradients>
fovea::selected_backward(const TensorRef &dOut, const TensorRef &q,
                         const TensorRef &k, const TensorRef &v,
                         const TensorRef &rows, const TensorRef &out,
                         const TensorRef &lse, const SelectedForm &form,
                         const StreamBackwardOptions &options) {
  if (Error error = check(form))
    return std::move(error);
  SelectedSources sources(q, k, v, rows, form);
  return rename(
      stream_backward(dOut, q, sources.list, out, lse, withBlock(options)),
      kSelectedNames);
}
