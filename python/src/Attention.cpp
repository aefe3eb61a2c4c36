//===- Attention.cpp - dense and fast_multipole in Python -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionReader.h"
#include "Functions.h"
#include "fovea/Functions/FastMultipole.h"
#include "fovea/Functions/Varlen.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

//===----------------------------------------------------------------------===//
// Dense
//===----------------------------------------------------------------------===//

static nb::object callDense(Reader &in) {
  TensorRef q = in.array("q"), k = in.array("k"), v = in.array("v");
  auto options = readDenseOptions<DenseOptions>(in);
  options.returnLse = in.flag("return_lse");
  return giveAttention(in, in.run([&] { return dense(q, k, v, options); }),
                       options.returnLse);
}

static nb::object callDenseBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), q = in.array("q"), k = in.array("k"),
            v = in.array("v"), out = in.array("out"), lse = in.array("lse");
  std::optional<TensorRef> dLse = in.optionalArray("d_lse");
  auto options = readDenseOptions<DenseBackwardOptions>(in);
  options.dLse = dLse;
  options.returnDLogWeight = in.flag("return_d_log_weight");
  options.returnDBias = in.flag("return_d_bias");
  options.returnDCaptures = in.flag("return_d_captures");
  DenseGradients gradients =
      in.run([&] { return dense_backward(dOut, q, k, v, out, lse, options); });
  nb::list found;
  for (OwnedTensor *gradient : {&gradients.q, &gradients.k, &gradients.v})
    found.append(in.give(std::move(*gradient)));
  if (options.logWeight && options.returnDLogWeight)
    found.append(in.give(std::move(gradients.logWeight)));
  if (options.bias && options.returnDBias)
    found.append(in.give(std::move(gradients.bias)));
  if (options.sink)
    found.append(in.give(std::move(gradients.sink)));
  for (OwnedTensor &gradient : gradients.captures)
    found.append(in.give(std::move(gradient)));
  return nb::tuple(found);
}

//===----------------------------------------------------------------------===//
// Packed sequences
//===----------------------------------------------------------------------===//

namespace {
/// Arrays of both functions.
struct VarlenArrays {
  explicit VarlenArrays(Reader &in)
      : q(in.array("q")), k(in.array("k")), v(in.array("v")),
        queryStarts(in.array("cu_seqlens_q")),
        keyStarts(in.array("cu_seqlens_k")) {}

  TensorRef q, k, v, queryStarts, keyStarts;
};
} // namespace

static void readVarlenForm(Reader &in, VarlenFormOptions &options) {
  options.scale = in.optionalNumber("scale");
  options.causal = in.flag("causal");
  options.window = in.optionalInteger("window", 0);
  options.prefix = in.optionalInteger("prefix", 0);
  options.sink = in.optionalArray("sink");
  options.maxQueries = in.optionalInteger("max_q", 1);
  options.maxKeys = in.optionalInteger("max_k", 1);
  options.target = in.getTarget();
}

static nb::object callVarlen(Reader &in) {
  VarlenArrays arrays(in);
  VarlenOptions options;
  readVarlenForm(in, options);
  options.returnLse = in.flag("return_lse");
  options.out = in.getMemory();
  return giveAttention(in, in.run([&] {
    return varlen(arrays.q, arrays.k, arrays.v, arrays.queryStarts,
                  arrays.keyStarts, options);
  }),
                       options.returnLse);
}

static nb::object callVarlenBackward(Reader &in) {
  TensorRef dOut = in.array("d_out");
  VarlenArrays arrays(in);
  TensorRef out = in.array("out"), lse = in.array("lse");
  VarlenBackwardOptions options;
  options.dLse = in.optionalArray("d_lse");
  readVarlenForm(in, options);
  options.gradients = in.getMemory();
  VarlenGradients gradients = in.run([&] {
    return varlen_backward(dOut, arrays.q, arrays.k, arrays.v,
                           arrays.queryStarts, arrays.keyStarts, out, lse,
                           options);
  });
  nb::list found;
  for (OwnedTensor *gradient : {&gradients.q, &gradients.k, &gradients.v})
    found.append(in.give(std::move(*gradient)));
  if (options.sink)
    found.append(in.give(std::move(gradients.sink)));
  return nb::tuple(found);
}

//===----------------------------------------------------------------------===//
// Paged
//===----------------------------------------------------------------------===//

static nb::object callPaged(Reader &in) {
  TensorRef q = in.array("q"), k = in.array("k_pages"), v = in.array("v_pages"),
            table = in.array("block_table"), lengths = in.array("lengths");
  std::optional<int64_t> maxLength = in.optionalInteger("max_length", 0);
  PagedOptions options = readPagedOptions(in);
  options.maxLength = maxLength;
  return giveAttention(
      in, in.run([&] { return paged(q, k, v, table, lengths, options); }),
      options.returnLse);
}

//===----------------------------------------------------------------------===//
// Fast multipole
//===----------------------------------------------------------------------===//

namespace {
/// The arguments of a function of the family, whose weights, biases and
/// summaries are those of q, k and v, or of k and v alone.
struct Multipole {
  Multipole(Reader &in, bool isLinear)
      : isLinear(isLinear), q(in.array("q")), k(in.array("k")),
        v(in.array("v")) {
    group = in.integer("group", 1);
    int64_t levels = q.shape.size() == 4 ? getNumLevels(q.shape[2], group) : 0;
    static constexpr StringLiteral names[] = {"query", "key", "value"};
    auto read = [&](StringRef kind, SmallVectorImpl<Lists> &lists) {
      for (StringRef name : ArrayRef(names).drop_front(isLinear ? 0 : 1))
        lists.push_back(in.optionalArrays((name + kind).str(), levels));
    };
    read("_weights", weights);
    read("_biases", biases);
    read("_summaries", summaries);
    for (auto [index, list] : enumerate(weights)) {
      if (!list && !summaries[index])
        raiseValueError(names[index + (isLinear ? 0 : 1)] +
                        "_weights: found NoneType, needed a list of " +
                        Twine(levels) + " arrays");
      SummaryWeights family{list ? ArrayRef(*list) : ArrayRef<TensorRef>()};
      if (biases[index])
        family.biases = *biases[index];
      if (summaries[index])
        family.summaries = *summaries[index];
      families.push_back(family);
    }
    scale = in.optionalNumber("scale");
    causal = in.flag("causal");
    flag = in.flag(isLinear ? "allow_query_lookahead" : "multiplicity");
    in.readTokens(tokens);
  }
  template <typename Options> Options getOptions(Reader &in) const {
    auto options = in.makeOptions<Options>();
    static_cast<TokenOptions &>(options) = tokens;
    options.scale = scale;
    options.causal = causal;
    return options;
  }
  nb::object giveGradients(Reader &in, FastMultipoleGradients gradients) const;

  bool isLinear;
  TensorRef q, k, v;
  int64_t group;
  using Lists = std::optional<SmallVector<TensorRef>>;
  SmallVector<Lists, 3> weights, biases, summaries;
  SmallVector<SummaryWeights, 3> families;
  std::optional<double> scale;
  bool causal, flag;
  TokenOptions tokens;
};
} // namespace

nb::object Multipole::giveGradients(Reader &in,
                                    FastMultipoleGradients gradients) const {
  nb::list found;
  for (OwnedTensor *gradient : {&gradients.q, &gradients.k, &gradients.v})
    found.append(in.give(std::move(*gradient)));
  auto add = [&](SmallVector<OwnedTensor> &levels) {
    nb::list list;
    for (OwnedTensor &gradient : levels)
      list.append(in.give(std::move(gradient)));
    found.append(list);
  };
  SmallVector<SummaryGradients *, 3> lists{&gradients.key, &gradients.value};
  if (isLinear)
    lists.insert(lists.begin(), &gradients.query);
  auto addGiven = [&](ArrayRef<Lists> given,
                      SmallVector<OwnedTensor> SummaryGradients::*member) {
    for (const auto &[list, array] : zip_equal(lists, given))
      if (array)
        add(list->*member);
  };
  addGiven(weights, &SummaryGradients::weights);
  addGiven(biases, &SummaryGradients::biases);
  addGiven(summaries, &SummaryGradients::summaries);
  return nb::tuple(found);
}

static nb::object callMultipole(Reader &in) {
  Multipole call(in, /*isLinear=*/false);
  auto options = call.getOptions<FastMultipoleOptions>(in);
  options.multiplicity = call.flag;
  options.returnLse = in.flag("return_lse");
  AttentionResult result = in.run([&] {
    return fast_multipole(call.q, call.k, call.v, call.families[0],
                          call.families[1], call.group, options);
  });
  return giveAttention(in, std::move(result), options.returnLse);
}

static nb::object callLinear(Reader &in) {
  Multipole call(in, /*isLinear=*/true);
  auto options = call.getOptions<FastMultipoleLinearOptions>(in);
  options.allowQueryLookahead = call.flag;
  return in.call([&] {
    return fast_multipole_linear(call.q, call.k, call.v, call.families[0],
                                 call.families[1], call.families[2], call.group,
                                 options);
  });
}

static nb::object callMultipoleBackward(Reader &in) {
  TensorRef dOut = in.array("d_out");
  Multipole call(in, /*isLinear=*/false);
  TensorRef out = in.array("out"), lse = in.array("lse");
  auto options = call.getOptions<FastMultipoleBackwardOptions>(in);
  options.multiplicity = call.flag;
  options.dLse = in.optionalArray("d_lse");
  return call.giveGradients(in, in.run([&] {
    return fast_multipole_backward(dOut, call.q, call.k, call.v,
                                   call.families[0], call.families[1], out, lse,
                                   call.group, options);
  }));
}

static nb::object callLinearBackward(Reader &in) {
  TensorRef dOut = in.array("d_out");
  Multipole call(in, /*isLinear=*/true);
  auto options = call.getOptions<FastMultipoleLinearBackwardOptions>(in);
  options.allowQueryLookahead = call.flag;
  return call.giveGradients(in, in.run([&] {
    return fast_multipole_linear_backward(
        dOut, call.q, call.k, call.v, call.families[0], call.families[1],
        call.families[2], call.group, options);
  }));
}

void python::defineAttention(nb::module_ &m) {
  define<callDense>(m, "dense");
  define<callDenseBackward>(m, "dense_backward");
  define<callVarlen>(m, "varlen");
  define<callVarlenBackward>(m, "varlen_backward");
  define<callPaged>(m, "paged");
  define<callMultipole>(m, "fast_multipole");
  define<callMultipoleBackward>(m, "fast_multipole_backward");
  define<callLinear>(m, "fast_multipole_linear");
  define<callLinearBackward>(m, "fast_multipole_linear_backward");
}
