//===- Pool.cpp - pool and top_k in Python --------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Pool.h"
#include "Functions.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

template <typename Options>
static Options readPoolOptions(Reader &in, int64_t &interval) {
  auto options = in.makeOptions<Options>();
  interval = in.integer("interval", 1);
  options.overlap = in.integer("overlap", 0);
  options.positionBias = in.optionalArray("position_bias");
  return options;
}

static nb::object callPool(Reader &in) {
  TensorRef x = in.array("x"), gate = in.array("gate");
  int64_t interval;
  auto options = readPoolOptions<PoolOptions>(in, interval);
  return in.call([&] { return pool(x, gate, interval, options); });
}

static nb::object callPoolBackward(Reader &in) {
  TensorRef dOut = in.array("d_out"), x = in.array("x"),
            gate = in.array("gate");
  int64_t interval;
  auto options = readPoolOptions<PoolBackwardOptions>(in, interval);
  PoolGradients gradients =
      in.run([&] { return pool_backward(dOut, x, gate, interval, options); });
  nb::list found;
  found.append(in.give(std::move(gradients.x)));
  found.append(in.give(std::move(gradients.gate)));
  if (options.positionBias)
    found.append(in.give(std::move(gradients.positionBias)));
  return nb::tuple(found);
}

static nb::object callTopK(Reader &in) {
  TensorRef scores = in.array("scores");
  auto options = in.makeOptions<TopKOptions>();
  int64_t k = in.integer("k", 1);
  options.causalUnit = in.optionalInteger("causal_unit", 1);
  return in.call([&] { return top_k(scores, k, options); });
}

void python::definePool(nb::module_ &m) {
  define<callPool>(m, "pool");
  define<callPoolBackward>(m, "pool_backward");
  define<callTopK>(m, "top_k");
}
