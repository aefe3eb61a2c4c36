//===- Reader.cpp - Arguments of one call from Python ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Reader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include <limits>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static constexpr Target kTargets[] = {Target::CPU, Target::Reference,
                                      Target::GPU, Target::GPUEmulator};

static bool isAbstract(nb::handle object);

template <typename Sequence> static bool anyIsAbstract(nb::handle object) {
  for (nb::handle entry : nb::borrow<Sequence>(object))
    if (isAbstract(entry))
      return true;
  return false;
}

/// Whether it is an abstract array, or holds one.
static bool isAbstract(nb::handle object) {
  if (PyTuple_Check(object.ptr()))
    return anyIsAbstract<nb::tuple>(object);
  if (PyList_Check(object.ptr()))
    return anyIsAbstract<nb::list>(object);
  return isAbstractArray(object);
}

Reader::Reader(const char *name, nb::args given, nb::kwargs named,
               bool givesTensors)
    : given(given), named(named) {
  if (isAbstract(given))
    described = nb::make_tuple(
        name, nb::steal(PyTuple_GetSlice(given.ptr(), 0, given.size() - 1)));
  placement.givesTensors = givesTensors;
  target = findTarget(given[given.size() - 1]);
  placement.allowsGPU = target == Target::GPU;
  if (std::optional<intptr_t> stream = getStream())
    placement.stream = *stream;
}

Target Reader::findTarget(nb::handle object) const {
  if (placement.givesTensors && object.is_none()) {
    for (nb::handle each : given)
      if (Exchange exchange = Exchange::find(each))
        return isGPU(exchange.describe(each).device.device_type) ? Target::GPU
                                                                 : Target::CPU;
    return Target::CPU;
  }
  SmallVector<StringRef, 4> names;
  for (Target each : kTargets)
    names.push_back(fovea::getName(each));
  return kTargets[find("target", object, names)];
}

Reader::Reader(nb::args given, const Placement &placement, Target target,
               ArrayRef<TensorRef> destinations)
    : given(given), target(target), placement(placement),
      destinations(destinations) {}

[[noreturn]] static void raiseFound(StringRef name, nb::handle found,
                                    const Twine &needed) {
  PyErr_Clear();
  raiseValueError(name + ": found " + nb::repr(found).c_str() + ", needed " +
                  needed);
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

bool Reader::flag(StringRef name) {
  nb::handle found = object();
  if (found.ptr() == Py_True || found.ptr() == Py_False)
    return found.ptr() == Py_True;
  if (!isNumPyBool(found))
    raiseFound(name, found, "True or False");
  return PyObject_IsTrue(found.ptr()) == 1;
}

int64_t Reader::toInteger(nb::handle found, StringRef name, int64_t least) {
  nb::object index;
  if (!PyBool_Check(found.ptr()))
    index = nb::steal(PyNumber_Index(found.ptr()));
  if (!index.is_valid())
    raiseFound(name, found, "an integer of at least " + Twine(least));
  int overflow = 0;
  int64_t number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow < 0 || (!overflow && number < least))
    raiseFound(name, found, "an integer of at least " + Twine(least));
  // No extent is as large.
  return overflow ? std::numeric_limits<int64_t>::max() : number;
}

double Reader::number(StringRef name, StringRef kind) {
  nb::handle found = object();
  if (PyFloat_CheckExact(found.ptr()))
    return PyFloat_AsDouble(found.ptr());
  nb::object number;
  if (!PyBool_Check(found.ptr()) && !PyUnicode_Check(found.ptr()) &&
      !PyBytes_Check(found.ptr()) && !isNumPyBool(found))
    number = nb::steal(PyNumber_Float(found.ptr()));
  if (!number.is_valid())
    raiseFound(name, found, kind);
  return PyFloat_AsDouble(number.ptr());
}

std::optional<int64_t> Reader::optionalInteger(StringRef name, int64_t least) {
  if (!nextIsNone())
    return integer(name, least);
  ++next;
  return std::nullopt;
}

std::optional<double> Reader::optionalNumber(StringRef name) {
  if (!nextIsNone())
    return number(name);
  ++next;
  return std::nullopt;
}

size_t Reader::find(StringRef name, nb::handle object,
                    ArrayRef<StringRef> choices) {
  Py_ssize_t size = 0;
  const char *text = PyUnicode_Check(object.ptr())
                         ? PyUnicode_AsUTF8AndSize(object.ptr(), &size)
                         : nullptr;
  const auto *choice = llvm::find(choices, StringRef(text, size));
  if (text && choice != choices.end())
    return choice - choices.begin();
  std::string needed = "'" + join(choices.drop_back(), "', '") + "' or '" +
                       choices.back().str() + "'";
  raiseFound(name, object, needed);
}

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

std::optional<ScoreFunction> Reader::score() {
  nb::handle body = object();
  SmallVector<TensorRef> reads = captures();
  if (body.is_none())
    return std::nullopt;
  return ScoreFunction{nb::str(body).c_str(), std::move(reads)};
}

SmallVector<TensorRef> Reader::captures() {
  SmallVector<TensorRef> found;
  if (nb::handle arrays = object(); !arrays.is_none())
    for (nb::handle array : arrays)
      found.push_back(
          load(array, ("captures[" + Twine(found.size()) + "]").str()));
  return found;
}

ArrayView &Reader::loadArray(nb::handle object, StringRef name,
                             bool needsWrite) {
  views.emplace_front();
  ArrayView &array = views.front();
  array.load(object, name, needsWrite, placement);
  // Before the work, rather than after: results will have the type.
  if (array.getElementType() == ElementType::BF16 && !placement.givesTensors)
    getBFloat16Type();
  return array;
}

TensorRef Reader::load(nb::handle object, StringRef name) {
  ArrayView &array = loadArray(object, name, /*needsWrite=*/false);
  array.makeStrided(name, /*needsWrite=*/false);
  return array.getRef();
}

OwnedTensor Reader::loadView(nb::handle object, StringRef name,
                             bool needsWrite) {
  ArrayView &array = loadArray(object, name, needsWrite);
  // The host cannot copy what lies on a GPU, nor does it read that.
  if (array.isOnGPU())
    array.makeStrided(name, needsWrite);
  else
    array.makeContiguous(name, needsWrite);
  TensorRef ref = array.getRef();
  if (needsWrite && ref.isReadOnly)
    raiseValueError(name + ": found a read-only array, needed a writable one");
  return OwnedTensor(
      nullptr, [](void *) {}, ref.data, ref.elementType, ref.shape,
      ref.strides);
}

TensorRef Reader::array(StringRef name) { return load(object(), name); }

std::optional<TensorRef> Reader::optionalArray(StringRef name) {
  if (!nextIsNone())
    return array(name);
  ++next;
  return std::nullopt;
}

void Reader::readTokens(TokenOptions &options, StringRef mask) {
  options.mask = optionalArray(mask);
  options.lengths = optionalArray("lengths");
}

SmallVector<TensorRef> Reader::arrays(StringRef name, int64_t needed) {
  nb::handle list = object();
  nb::object iterator = nb::steal(PyObject_GetIter(list.ptr()));
  if (!iterator.is_valid()) {
    PyErr_Clear();
    raiseValueError(name + ": found " + nb::inst_name(list).c_str() +
                    ", needed a list of " + Twine(needed) + " arrays");
  }
  SmallVector<TensorRef> found;
  while (nb::object entry = nb::steal(PyIter_Next(iterator.ptr())))
    found.push_back(
        load(entry, (name + "[" + Twine(found.size()) + "]").str()));
  if (PyErr_Occurred())
    throw nb::python_error();
  return found;
}

std::optional<SmallVector<TensorRef>> Reader::optionalArrays(StringRef name,
                                                             int64_t needed) {
  if (!nextIsNone())
    return arrays(name, needed);
  ++next;
  return std::nullopt;
}

nb::args Reader::enter(StringRef name, size_t count) {
  nb::object entries = nb::steal(PySequence_Tuple(object().ptr()));
  if (!entries.is_valid())
    throw nb::python_error();
  if (size_t size = nb::len(entries); size != count)
    raiseValueError(name + ": found " + Twine(size) + " entries, needed " +
                    Twine(count));
  return std::exchange(given, nb::borrow<nb::args>(entries));
}

OwnedTensor Reader::view(StringRef name) {
  return loadView(object(), name, /*needsWrite=*/false);
}

OwnedTensor Reader::optionalView(StringRef name) {
  if (!nextIsNone())
    return view(name);
  ++next;
  return OwnedTensor();
}

std::optional<SmallVector<OwnedTensor>>
Reader::optionalParts(StringRef name, ArrayRef<StringRef> names,
                      bool needsWrite) {
  nb::handle tuple = object();
  if (tuple.is_none())
    return std::nullopt;
  if (!nb::isinstance<nb::tuple>(tuple) && !nb::isinstance<nb::list>(tuple))
    raiseValueError(name + ": found " + getTypeName(tuple) +
                    ", needed a tuple of " + Twine(names.size()) + " arrays");
  size_t size = nb::len(tuple);
  if (size != names.size())
    raiseValueError(name + ": found " + Twine(size) + " parts, needed " +
                    Twine(names.size()));
  SmallVector<OwnedTensor> found;
  for (auto [index, part] : enumerate(names))
    found.push_back(
        loadView(tuple[index], (name + "." + part).str(), needsWrite));
  return found;
}

void Reader::readMemory(nb::handle object, const std::string &name) {
  if (object.is_none())
    return memory->add(name, std::nullopt);
  if (nb::isinstance<nb::tuple>(object) || nb::isinstance<nb::list>(object)) {
    size_t index = 0;
    for (nb::handle entry : object)
      readMemory(entry, name + "[" + std::to_string(index++) + "]");
    return;
  }
  ArrayView &array = loadArray(object, name, /*needsWrite=*/true);
  array.makeStrided(name, /*needsWrite=*/true);
  TensorRef ref = array.getRef();
  memory->add(name, ref);
  places.emplace_back(ref, object);
}

const ResultMemory &Reader::getMemory() {
  if (memory)
    return *memory;
  memory.emplace();
  // None are for calls from outside of Python.
  if (!named.is_valid())
    return *memory;
  for (auto [key, object] : named) {
    std::string name = nb::str(key).c_str();
    memory.emplace(StringRef(name));
    if (object.is_none())
      continue;
    if (described.is_valid())
      raiseValueError(name + ": found memory for results of a call that is "
                             "traced, needed none");
    readMemory(object, name);
    // Else results would be new arrays, without a word.
    if (memory->getPlaces().empty())
      raiseValueError(name + ": found no array, needed one for each result");
  }
  return *memory;
}

void Reader::place(const OwnedTensor &result) {
  if (numGiven == destinations->size())
    throw FoveaError("found more results than destinations");
  const TensorRef &destination = (*destinations)[numGiven++];
  if (result.getShape() != destination.shape ||
      result.getElementType() != destination.elementType)
    throw FoveaError("found a result that its destination is not made for");
  if (result.getData() != destination.data)
    copyResult(placement, destination.data, result.getData(),
               result.getNumBytes());
}

nb::object Reader::give(OwnedTensor tensor) {
  if (described.is_valid())
    return makeAbstractArray(tensor.getElementType(), tensor.getShape(),
                             described, numGiven++);
  if (destinations) {
    place(tensor);
    return nb::none();
  }
  auto *taken = find_if(places, [&](const auto &entry) {
    const TensorRef &array = entry.first;
    return array.data == tensor.getData() && array.shape == tensor.getShape();
  });
  if (taken != places.end()) {
    nb::object object = nb::borrow(taken->second);
    places.erase(taken);
    return object;
  }
  std::optional<int> place = findGPU(placement, tensor);
  if (placement.givesTensors && placement.exchange)
    return placement.exchange.give(std::move(tensor), place);
  return toArray(std::move(tensor), place);
}
