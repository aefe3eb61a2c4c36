//===- Functions.h - The functions of C++ in Python -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each takes what its function in the package takes, by position, the target
// last.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_FUNCTIONS_H
#define FOVEA_PYTHON_SRC_FUNCTIONS_H

#include "Reader.h"

namespace fovea::python {

using Function = nanobind::object (*)(Reader &);
/// The function of that name, or null.
Function findFunction(llvm::StringRef name);
void addFunction(const char *name, Function function);

/// The function `name` of the module: `call` reads its arguments, which are
/// given by position but for where results go, `out` or `gradients`. The module
/// `tensors` in it has one of the same name that returns tensors of the class
/// of its arguments.
template <auto call> void define(nanobind::module_ &m, const char *name) {
  addFunction(name, call);
  m.def(name, [name](nanobind::args given, nanobind::kwargs named) {
    Reader in(name, given, named, /*givesTensors=*/false);
    return call(in);
  });
  auto tensors = nanobind::cast<nanobind::module_>(m.attr("tensors"));
  tensors.def(name, [name](nanobind::args given, nanobind::kwargs named) {
    Reader in(name, given, named, /*givesTensors=*/true);
    return call(in);
  });
}

void defineAttention(nanobind::module_ &m);
void defineCaches(nanobind::module_ &m);
void defineConv(nanobind::module_ &m);
void defineLowRank(nanobind::module_ &m);
void definePool(nanobind::module_ &m);
void defineRope(nanobind::module_ &m);
void defineStream(nanobind::module_ &m);
void defineTools(nanobind::module_ &m);
void defineTree(nanobind::module_ &m);
void defineVQ(nanobind::module_ &m);

/// Adds calls from XLA to all of these.
void defineXLA(nanobind::module_ &m);
/// Adds what frameworks ask before they call them.
void defineShortcut(nanobind::module_ &m);

inline void defineFunctions(nanobind::module_ &m) {
  m.def_submodule("tensors");
  defineAttention(m);
  defineCaches(m);
  defineConv(m);
  defineLowRank(m);
  definePool(m);
  defineRope(m);
  defineStream(m);
  defineTools(m);
  defineTree(m);
  defineVQ(m);
  defineXLA(m);
  defineShortcut(m);
}

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_FUNCTIONS_H
