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

#include <nanobind/nanobind.h>

namespace fovea::python {

void defineAttention(nanobind::module_ &m);
void defineConv(nanobind::module_ &m);
void defineLowRank(nanobind::module_ &m);
void defineTree(nanobind::module_ &m);
void defineVQ(nanobind::module_ &m);

inline void defineFunctions(nanobind::module_ &m) {
  defineAttention(m);
  defineConv(m);
  defineLowRank(m);
  defineTree(m);
  defineVQ(m);
}

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_FUNCTIONS_H
