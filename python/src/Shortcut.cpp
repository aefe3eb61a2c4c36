//===- Shortcut.cpp - Calls that a framework's dispatcher need not see ----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Whether a kernel can read the tensors of a call as they are, and what a node
// of autograd takes where one is needed. In Python, asking takes as long as a
// call of few tokens.
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include "Functions.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

namespace {
class Shortcut {
public:
  /// `inputs` are the numbers of arguments that are tensors, lists of them or
  /// None, and tell which have gradients.
  Shortcut(nb::tuple classes, nb::tuple watchers, nb::object isNegated,
           nb::object isTaping, std::vector<std::pair<size_t, bool>> inputs)
      : classes(std::move(classes)), watchers(std::move(watchers)),
        isNegated(std::move(isNegated)), isTaping(std::move(isTaping)),
        inputs(std::move(inputs)) {}

  /// What a node of autograd takes for a call: its values with the number of
  /// tensors in place of tensors, and these. Nothing where it needs no node,
  /// and None where it has to go through the dispatcher.
  nb::object look(nb::tuple values) const;

private:
  /// Whether memory of the host holds all that `tensor` says.
  bool isPlain(nb::handle tensor) const;
  /// The same for all in `value`, which are added to `tensors`.
  bool arePlain(nb::handle value, SmallVectorImpl<nb::handle> &tensors) const;

  nb::tuple classes, watchers;
  nb::object isNegated, isTaping;
  std::vector<std::pair<size_t, bool>> inputs;
};
} // namespace

static bool isTrue(const nb::object &object) {
  int found = PyObject_IsTrue(object.ptr());
  if (found < 0)
    throw nb::python_error();
  return found;
}

bool Shortcut::isPlain(nb::handle tensor) const {
  bool isKnown = false;
  for (nb::handle each : classes)
    isKnown |= each.is(tensor.type());
  Exchange exchange = isKnown ? Exchange::find(tensor) : Exchange();
  if (!exchange)
    return false;
  nb::dlpack::dltensor found;
  if (!exchange.describe(tensor, found)) {
    PyErr_Clear();
    return false;
  }
  // Memory that a tensor only stands for has no address.
  return found.device.device_type == nb::device::cpu::value &&
         (found.data || is_contained(ArrayRef(found.shape, found.ndim), 0)) &&
         !isTrue(isNegated(tensor));
}

bool Shortcut::arePlain(nb::handle value,
                        SmallVectorImpl<nb::handle> &tensors) const {
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
    for (nb::handle entry : value)
      if (!isPlain(tensors.emplace_back(entry)) && !entry.is_none())
        return false;
    return true;
  }
  return value.is_none() || isPlain(tensors.emplace_back(value));
}

nb::object Shortcut::look(nb::tuple values) const {
  for (nb::handle watcher : watchers)
    if (isTrue(watcher()))
      return nb::none();
  static PyObject *requiresGrad = PyUnicode_InternFromString("requires_grad");
  bool mayTape = isTrue(isTaping()), isTaped = false;
  SmallVector<nb::handle, 8> tensors;
  SmallVector<size_t, 8> counts;
  for (auto [index, hasGradient] : inputs) {
    size_t begin = tensors.size();
    if (!arePlain(values[index], tensors))
      return nb::none();
    counts.push_back(tensors.size() - begin);
    for (nb::handle tensor : ArrayRef(tensors).drop_front(begin)) {
      bool isTrained = mayTape && !tensor.is_none() &&
                       isTrue(nb::getattr(tensor, requiresGrad));
      // Which is an error.
      if (isTrained && !hasGradient)
        return nb::none();
      isTaped |= isTrained;
    }
  }
  if (!isTaped)
    return nb::make_tuple();

  nb::list rest(values);
  for (auto [input, count] : zip_equal(inputs, counts))
    if (!values[input.first].is_none())
      rest[input.first] = count;
  nb::object packed = nb::steal(PyTuple_New(1 + tensors.size()));
  PyTuple_SetItem(packed.ptr(), 0, nb::tuple(rest).release().ptr());
  for (auto [index, tensor] : enumerate(tensors))
    PyTuple_SetItem(packed.ptr(), 1 + index, tensor.inc_ref().ptr());
  return packed;
}

void python::defineShortcut(nb::module_ &m) {
  nb::class_<Shortcut>(m, "Shortcut",
                       "Tells which calls a dispatcher need not see.")
      .def(nb::init<nb::tuple, nb::tuple, nb::object, nb::object,
                    std::vector<std::pair<size_t, bool>>>(),
           nb::arg("classes"), nb::arg("watchers"), nb::arg("is_negated"),
           nb::arg("is_taping"), nb::arg("inputs"))
      .def("look", &Shortcut::look, nb::arg("values"),
           "What a node of autograd takes for a call with these values: a "
           "tuple of them with the number of tensors in place of tensors, and "
           "these. Nothing where it needs no node, and None where it has to go "
           "through the dispatcher.");
}
