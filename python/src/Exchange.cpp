//===- Exchange.cpp - Tensors that need no calls of Python ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include "Arrays.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

//===----------------------------------------------------------------------===//
// The binary interface of DLPack 1.2
//===----------------------------------------------------------------------===//

namespace {
struct Version {
  uint32_t major, minor;
};

/// A tensor and what frees it.
struct ManagedTensor {
  Version version;
  void *context;
  void (*deleter)(ManagedTensor *self);
  uint64_t flags;
  nb::dlpack::dltensor tensor;
};

constexpr Version kVersion = {1, 2};
} // namespace

/// All functions return 0, or -1 with an exception of Python set.
struct python::ExchangeTable {
  Version version;
  /// Of an earlier major version.
  const ExchangeTable *previous;
  void *allocate;
  void *share;
  int (*give)(ManagedTensor *tensor, void **object);
  /// Null where the class has none.
  int (*describe)(void *object, nb::dlpack::dltensor *tensor);
  int (*getStream)(int32_t deviceType, int32_t device, void **stream);
};

//===----------------------------------------------------------------------===//
// Classes
//===----------------------------------------------------------------------===//

static const ExchangeTable *findTable(nb::handle type) {
  static PyObject *name =
      PyUnicode_InternFromString("__dlpack_c_exchange_api__");
  nb::object capsule = nb::steal(PyObject_GetAttr(type.ptr(), name));
  if (!capsule.is_valid()) {
    PyErr_Clear();
    return nullptr;
  }
  constexpr const char *kind = "dlpack_exchange_api";
  if (!PyCapsule_IsValid(capsule.ptr(), kind))
    return nullptr;
  const auto *table = static_cast<const ExchangeTable *>(
      PyCapsule_GetPointer(capsule.ptr(), kind));
  while (table && table->version.major != kVersion.major)
    table = table->previous;
  return table && table->describe ? table : nullptr;
}

Exchange Exchange::find(nb::handle object) {
  // Arguments of a call are of one class, as a rule. It is kept for good, so
  // that no other comes to lie at its address.
  static nb::handle last;
  static const ExchangeTable *table = nullptr;
  nb::handle type = object.type();
  if (!type.is(last)) {
    table = findTable(type);
    type.inc_ref();
    last.dec_ref();
    last = type;
  }
  return Exchange(table);
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

bool Exchange::describe(nb::handle object, nb::dlpack::dltensor &tensor) const {
  return table->describe(object.ptr(), &tensor) == 0;
}

nb::dlpack::dltensor Exchange::describe(nb::handle object) const {
  nb::dlpack::dltensor tensor;
  if (!describe(object, tensor))
    throw nb::python_error();
  return tensor;
}

namespace {
/// The memory of a result, which a tensor of a framework owns.
struct Given : ManagedTensor {
  OwnedTensor owner;
  SmallVector<int64_t, 4> strides;
};
} // namespace

nb::object Exchange::give(OwnedTensor tensor, std::optional<int> device) const {
  auto given = std::make_unique<Given>();
  given->owner = std::move(tensor);
  ArrayRef<int64_t> shape = given->owner.getShape();
  given->strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    given->strides[dim] = stride;
    stride *= shape[dim];
  }
  given->version = kVersion;
  given->context = nullptr;
  given->deleter = [](ManagedTensor *self) {
    delete static_cast<Given *>(self);
  };
  given->flags = 0;
  nb::dlpack::dltensor &described = given->tensor;
  described.data = given->owner.getData();
  described.device = {device ? int(nb::device::cuda::value)
                             : int(nb::device::cpu::value),
                      device.value_or(0)};
  described.ndim = shape.size();
  described.dtype = getDLPackType(given->owner.getElementType());
  described.shape = const_cast<int64_t *>(shape.data());
  described.strides = given->strides.data();
  void *object = nullptr;
  // It takes the memory, and may have freed it where it fails.
  if (table->give(given.release(), &object) != 0)
    throw nb::python_error();
  return nb::steal(static_cast<PyObject *>(object));
}

intptr_t Exchange::getStream(int device) const {
  void *stream = nullptr;
  if (table->getStream(nb::device::cuda::value, device, &stream) != 0)
    throw nb::python_error();
  // Null is the default one, which DLPack calls 1.
  return stream ? reinterpret_cast<intptr_t>(stream) : 1;
}
