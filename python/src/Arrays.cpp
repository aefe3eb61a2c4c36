//===- Arrays.cpp - Arrays of Python and of kernels -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Running.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MathExtras.h"
#include <cstdlib>
#include <cstring>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static std::string toText(nb::handle object) { return nb::str(object).c_str(); }

std::string python::getTypeName(nb::handle object) {
  return toText(object.type().attr("__name__"));
}

nb::handle python::getBFloat16Type() {
  // Kept for good: the module may be unloaded after the interpreter.
  static PyObject *type = nullptr;
  if (type)
    return type;
  try {
    nb::object scalar = nb::module_::import_("ml_dtypes").attr("bfloat16");
    type = nb::module_::import_("numpy").attr("dtype")(scalar).release().ptr();
  } catch (nb::python_error &error) {
    if (!error.matches(PyExc_ImportError))
      throw;
    throw nb::import_error("NumPy has no bfloat16 of its own: results of that "
                           "type need the package ml_dtypes (pip install "
                           "ml_dtypes)");
  }
  return type;
}

//===----------------------------------------------------------------------===//
// Reading arrays
//===----------------------------------------------------------------------===//

ArrayView::~ArrayView() {
  if (hasBuffer)
    PyBuffer_Release(&buffer);
}

void ArrayView::load(nb::handle object, StringRef name, bool needsWrite,
                     Placement &placement) {
  if (isAbstractArray(object))
    return loadAbstract(object, name);
  if (PyObject_CheckBuffer(object.ptr()) && loadBuffer(object, name))
    return;
  if (nb::isinstance<ForeignArray>(object))
    return loadForeign(*nb::inst_ptr<ForeignArray>(object), name, placement);
  if (loadExchange(object, name, needsWrite, placement) ||
      loadDLPack(object, name, needsWrite, placement))
    return;
  raiseValueError(name + ": found " + getTypeName(object) +
                  ", needed a NumPy array or an object with __dlpack__");
}

/// The class, once `fovea._abstract` has been imported, which has it for good.
static PyObject *abstractArray = nullptr;

void python::setAbstractArray(nb::handle type) {
  abstractArray = type.inc_ref().ptr();
}

bool python::isAbstractArray(nb::handle object) {
  return reinterpret_cast<PyObject *>(Py_TYPE(object.ptr())) == abstractArray;
}

void ArrayView::setDenseStrides() {
  byteStrides.resize(shape.size());
  int64_t stride = getByteWidth(elementType);
  for (size_t dim = shape.size(); dim-- > 0;) {
    byteStrides[dim] = stride;
    stride *= shape[dim];
  }
}

/// The type that NumPy calls `name`. Integers know no signs.
static std::optional<ElementType> findArrayType(StringRef name) {
  if (name.starts_with("uint"))
    name = name.drop_front();
  for (size_t i = 0; i < size_t(ElementType::Index); ++i)
    if (getElementInfo(ElementType(i)).arrayName == name)
      return ElementType(i);
  return std::nullopt;
}

void ArrayView::loadAbstract(nb::handle object, StringRef name) {
  std::string type = toText(object.attr("dtype"));
  std::optional<ElementType> found = findArrayType(type);
  if (!found)
    raiseValueError(name + ": found element type " + type +
                    ", needed bfloat16, float16, float32, float64, bool or an "
                    "integer");
  elementType = *found;
  for (nb::handle extent : object.attr("shape"))
    shape.push_back(nb::cast<int64_t>(extent));
  data = static_cast<char *>(kAbstractData);
  setDenseStrides();
}

void ArrayView::loadForeign(const ForeignArray &array, StringRef name,
                            Placement &placement) {
  if (array.device)
    checkPlace(name, {nb::device::cuda::value, *array.device}, placement);
  elementType = array.elementType;
  shape = array.shape;
  data = static_cast<char *>(array.data);
  isReadOnly = array.isReadOnly;
  setDenseStrides();
}

/// The type that a format of Python's struct module stands for.
static std::optional<ElementType>
parseFormat(StringRef format, int64_t itemSize, bool &isSwapped) {
  isSwapped = format.consume_front(">") || format.consume_front("!");
  if (!isSwapped && !format.consume_front("<") && !format.consume_front("="))
    format.consume_front("@");
  if (format.size() != 1)
    return std::nullopt;
  if (format[0] == '?')
    return ElementType::I1;
  if (StringRef("bBhHiIlLqQnN").contains(format[0]))
    return getIntegerType(8 * itemSize);
  if (format[0] == 'e')
    return ElementType::F16;
  if (format[0] == 'f')
    return ElementType::F32;
  if (format[0] == 'd')
    return ElementType::F64;
  return std::nullopt;
}

/// A masked array exports its numbers alone.
static void refuseMask(nb::handle object, StringRef name) {
  // Kept for good. Nearly all arrays are of this class itself.
  static PyTypeObject *plain = reinterpret_cast<PyTypeObject *>(
      nb::object(nb::module_::import_("numpy").attr("ndarray"))
          .release()
          .ptr());
  if (Py_TYPE(object.ptr()) == plain ||
      !PyObject_TypeCheck(object.ptr(), plain))
    return;
  nb::object masked = nb::module_::import_("numpy.ma").attr("MaskedArray");
  if (nb::isinstance(object, masked))
    raiseValueError(name + ": found a masked array, whose mask would be lost, "
                           "needed one without, such as its filled(0)");
}

bool ArrayView::loadBuffer(nb::handle object, StringRef name) {
  refuseMask(object, name);
  constexpr int flags = PyBUF_STRIDES | PyBUF_FORMAT;
  bool isBFloat16 = false;
  if (PyObject_GetBuffer(object.ptr(), &buffer, flags) == 0) {
    hasBuffer = true;
  } else {
    // NumPy does not export element types that other packages add.
    PyErr_Clear();
    nb::object type = nb::getattr(object, "dtype", nb::none());
    if (type.is_none())
      return false;
    // Asking a type for its name takes as long as all else: one that was found
    // before is kept, for good.
    static PyObject *known = nullptr, *bitsType = nullptr;
    if (type.ptr() != known) {
      if (toText(type) != "bfloat16")
        raiseValueError(name + ": found element type " + toText(type) +
                        ", needed bfloat16, float16, float32, float64, bool or "
                        "an integer");
      if (!known)
        known = type.inc_ref().ptr();
    }
    if (!bitsType)
      bitsType =
          nb::module_::import_("numpy").attr("dtype")("uint16").release().ptr();
    nb::object bits = object.attr("view")(nb::handle(bitsType));
    if (PyObject_GetBuffer(bits.ptr(), &buffer, flags) != 0)
      throw nb::python_error();
    // The buffer keeps `bits` alive, and that its array.
    hasBuffer = isBFloat16 = true;
  }
  std::optional<ElementType> type = parseFormat(
      buffer.format ? buffer.format : "B", buffer.itemsize, isSwapped);
  if (!type) {
    nb::object found = nb::getattr(object, "dtype", nb::str(buffer.format));
    raiseValueError(name + ": found element type " + toText(found) +
                    ", needed bfloat16, float16, float32, float64, bool or an "
                    "integer");
  }
  elementType = isBFloat16 ? ElementType::BF16 : *type;
  data = static_cast<char *>(buffer.buf);
  isReadOnly = buffer.readonly;
  if (buffer.ndim > 0) {
    shape.assign(buffer.shape, buffer.shape + buffer.ndim);
    byteStrides.assign(buffer.strides, buffer.strides + buffer.ndim);
  }
  return true;
}

static std::optional<ElementType> convertType(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1)
    return std::nullopt;
  switch (Code(type.code)) {
  case Code::Bfloat:
    if (type.bits == 16)
      return ElementType::BF16;
    break;
  case Code::Bool:
    if (type.bits == 8)
      return ElementType::I1;
    break;
  case Code::Float:
    switch (type.bits) {
    case 16:
      return ElementType::F16;
    case 32:
      return ElementType::F32;
    case 64:
      return ElementType::F64;
    }
    break;
  case Code::Int:
  case Code::UInt:
    return getIntegerType(type.bits);
  default:
    break;
  }
  return std::nullopt;
}

/// What errors call a type that is none of those.
static std::string describeType(nb::dlpack::dtype type) {
  using Code = nb::dlpack::dtype_code;
  std::string bits = std::to_string(type.bits);
  if (type.lanes == 1 && Code(type.code) == Code::Complex)
    return "element type complex" + bits;
  if (type.lanes == 1 && Code(type.code) == Code::Float)
    return "element type float" + bits;
  return "elements of DLPack type " + std::to_string(type.code) + " with " +
         bits + " bits" +
         (type.lanes == 1 ? ""
                          : " and " + std::to_string(type.lanes) + " lanes");
}

bool python::isGPU(int deviceType) {
  return deviceType == nb::device::cuda::value ||
         deviceType == nb::device::cuda_managed::value;
}

/// The capsule of `object`.
static nb::object exportDLPack(nb::handle object, intptr_t stream) {
  nb::object exporter = object.attr("__dlpack__");
  nb::dict options;
  // Producers on the CPU refuse streams.
  if (nb::hasattr(object, "__dlpack_device__") &&
      isGPU(nb::cast<int>(nb::object(object.attr("__dlpack_device__")()[0]))))
    options["stream"] = stream;
  nb::dict newer;
  newer.update(options);
  newer["max_version"] = nb::make_tuple(1, 0);
  try {
    return exporter(**newer);
  } catch (nb::python_error &error) {
    // Older exporters do not know the argument.
    if (!error.matches(PyExc_TypeError))
      throw;
  }
  return exporter(**options);
}

/// True for a tensor of PyTorch whose gradient would be lost.
static bool requiresGradient(nb::handle object) {
  nb::object answer = nb::getattr(object, "requires_grad", nb::none());
  return answer.ptr() == Py_True;
}

static void refuseGradient(nb::handle object, StringRef name) {
  if (requiresGradient(object))
    raiseValueError(name +
                    ": requires a gradient, which would be lost: pass "
                    "detach() of it, and take gradients by the functions "
                    "whose names end in _backward");
}

/// What an exporter refuses is an argument that does not fit.
template <typename Export>
static auto exportNamed(nb::handle object, StringRef name, Export exportArray) {
  try {
    return exportArray();
  } catch (nb::python_error &error) {
    if (!error.matches(PyExc_Exception) || error.matches(PyExc_MemoryError))
      throw;
    raiseValueError(name + ": found " + getTypeName(object) +
                    " that cannot be read through DLPack: " +
                    getTypeName(error.value()) + ": " + toText(error.value()));
  }
}

void ArrayView::checkPlace(StringRef name, nb::dlpack::device place,
                           Placement &placement) {
  auto [type, device] = place;
  onGPU = isGPU(type);
  auto describe = [](std::optional<int> number) {
    return number ? "on GPU " + std::to_string(*number)
                  : std::string("in CPU memory");
  };
  std::optional<int> found;
  if (onGPU)
    found = device;
  if (placement.isOfCache && found != placement.device)
    raiseValueError(name + ": found an array " + describe(found) +
                    ", needed one " + describe(placement.device) +
                    ", where the cache is");
  if (placement.givesTensors && placement.startsOnGPU.value_or(onGPU) != onGPU)
    raiseValueError(name + ": found a tensor " +
                    (onGPU ? "on GPU " + Twine(device) : Twine("on the CPU")) +
                    ", needed all tensors on the same device");
  placement.startsOnGPU = onGPU;
  if (!onGPU) {
    if (type != nb::device::cpu::value && type != nb::device::cuda_host::value)
      raiseValueError(name + ": found an array on a device of DLPack type " +
                      Twine(type) + ", needed one in CPU memory, type " +
                      Twine(int(nb::device::cpu::value)));
    return;
  }
  if (!placement.allowsGPU)
    raiseValueError(name + ": found an array on GPU " + Twine(device) +
                    ", needed one in CPU memory, or the target 'gpu'");
  if (placement.device.value_or(device) != device)
    raiseValueError(name + ": found an array on GPU " + Twine(device) +
                    ", needed one on GPU " + Twine(*placement.device) +
                    " like those before");
  placement.device = device;
}

bool ArrayView::loadDLPack(nb::handle object, StringRef name, bool needsWrite,
                           Placement &placement) {
  nb::object capsule = nb::borrow(object);
  if (!PyCapsule_CheckExact(object.ptr())) {
    if (!nb::hasattr(object, "__dlpack__"))
      return false;
    refuseGradient(object, name);
    capsule = exportNamed(
        object, name, [&] { return exportDLPack(object, placement.stream); });
  }
  nb::ndarray<> writable;
  isReadOnly = !needsWrite || !nb::try_cast(capsule, writable);
  if (!isReadOnly)
    tensor = nb::ndarray<nb::ro>(writable);
  else if (!nb::try_cast(capsule, tensor))
    raiseValueError(name + ": found " + getTypeName(object) +
                    ", whose __dlpack__ gives no array, or one that was used "
                    "already");
  checkPlace(name, {tensor.device_type(), tensor.device_id()}, placement);
  nb::dlpack::dltensor described;
  described.data = const_cast<void *>(tensor.data());
  described.ndim = tensor.ndim();
  described.dtype = tensor.dtype();
  described.shape = const_cast<int64_t *>(tensor.shape_ptr());
  described.strides = const_cast<int64_t *>(tensor.stride_ptr());
  describe(name, described);
  return true;
}

bool ArrayView::loadExchange(nb::handle object, StringRef name, bool needsWrite,
                             Placement &placement) {
  Exchange exchange = Exchange::find(object);
  if (!exchange)
    return false;
  if (!placement.givesTensors)
    refuseGradient(object, name);
  nb::dlpack::dltensor described =
      exportNamed(object, name, [&] { return exchange.describe(object); });
  bool liesOnGPU = isGPU(described.device.device_type);
  if (liesOnGPU && !placement.givesTensors)
    return false;
  checkPlace(name, described.device, placement);
  if (liesOnGPU)
    placement.stream = exchange.getStream(described.device.device_id);
  placement.exchange = exchange;
  owner = nb::borrow(object);
  isReadOnly = !needsWrite;
  describe(name, described);
  return true;
}

void ArrayView::describe(StringRef name,
                         const nb::dlpack::dltensor &described) {
  std::optional<ElementType> type = convertType(described.dtype);
  if (!type)
    raiseValueError(name + ": found " + describeType(described.dtype) +
                    ", needed bfloat16, float16, float32, float64, bool or an "
                    "integer");
  elementType = *type;
  data = static_cast<char *>(described.data) + described.byte_offset;
  shape.assign(described.shape, described.shape + described.ndim);
  // Before version 1.2, arrays without gaps may have none.
  if (!described.strides)
    return setDenseStrides();
  for (int32_t dim = 0; dim < described.ndim; ++dim)
    byteStrides.push_back(described.strides[dim] * getByteWidth(elementType));
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

bool ArrayView::isKernelLayout() const {
  if (is_contained(shape, 0))
    return true;
  int64_t width = getByteWidth(elementType);
  if (isSwapped || reinterpret_cast<uintptr_t>(data) % width)
    return false;
  int64_t expected = width;
  for (size_t dim = shape.size(); dim-- > 0;) {
    if (shape[dim] != 1 && byteStrides[dim] != expected)
      return false;
    expected *= shape[dim];
  }
  return true;
}

bool ArrayView::copyToKernelLayout() {
  int64_t width = getByteWidth(elementType);
  // Runs of bytes that already lie as they should are copied at once.
  int64_t run = width;
  size_t outer = shape.size();
  while (!isSwapped && outer > 0 &&
         (shape[outer - 1] == 1 || byteStrides[outer - 1] == run))
    run *= shape[--outer];
  int64_t count = 1, bytes = run;
  for (int64_t extent : ArrayRef(shape).take_front(outer)) {
    count *= extent;
    // Broadcast arrays may have more elements than anything can hold.
    if (MulOverflow(bytes, extent, bytes))
      return false;
  }

  // Room to spare at the end, as aligned_alloc wants.
  auto *memory =
      static_cast<char *>(std::aligned_alloc(64, alignTo(uint64_t(bytes), 64)));
  if (!memory)
    return false;
  copy = {memory, std::free};
  SmallVector<int64_t, 4> position(outer, 0);
  const char *from = data;
  for (int64_t i = 0; i < count; ++i) {
    char *to = memory + i * run;
    if (isSwapped)
      std::reverse_copy(from, from + width, to);
    else
      std::memcpy(to, from, run);
    for (size_t dim = outer; dim-- > 0;) {
      from += byteStrides[dim];
      if (++position[dim] < shape[dim])
        break;
      from -= byteStrides[dim] * shape[dim];
      position[dim] = 0;
    }
  }

  data = memory;
  isSwapped = isReadOnly = false;
  setDenseStrides();
  return true;
}

void ArrayView::makeContiguous(StringRef name, bool needsWrite) {
  if (isKernelLayout())
    return;
  if (onGPU)
    raiseValueError(name + ": found an array with gaps, in another order or "
                           "unaligned on a GPU, needed a contiguous one");
  // What a kernel writes to a copy would be lost.
  if (needsWrite)
    raiseValueError(name + ": found an array with gaps, in another order, "
                           "unaligned or of another byte order, needed a "
                           "contiguous one, because the kernel writes to it");
  bool isCopied = [&] {
    nb::gil_scoped_release release;
    return copyToKernelLayout();
  }();
  if (isCopied)
    return;
  std::string text = (name + ": found an array that must be copied, needed "
                             "memory for that, or a contiguous array")
                         .str();
  PyErr_SetString(PyExc_MemoryError, text.c_str());
  throw nb::python_error();
}

bool ArrayView::hasContiguousRows() const {
  return shape.empty() || shape.back() == 1 ||
         byteStrides.back() == getByteWidth(elementType);
}

void ArrayView::makeStrided(StringRef name, bool needsWrite) {
  int64_t width = getByteWidth(elementType);
  bool isDescribed =
      !isSwapped && reinterpret_cast<uintptr_t>(data) % width == 0 &&
      all_of(byteStrides, [&](int64_t stride) { return stride % width == 0; });
  if (isKernelLayout() || !isDescribed)
    return makeContiguous(name, needsWrite);
  for (int64_t stride : byteStrides)
    strides.push_back(stride / width);
}

TensorRef ArrayView::getRef() const {
  TensorRef ref;
  ref.data = data;
  ref.elementType = elementType;
  ref.shape = shape;
  ref.strides = strides;
  ref.isReadOnly = isReadOnly;
  return ref;
}

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

nb::dlpack::dtype python::getDLPackType(ElementType type) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::Int;
  if (type == ElementType::BF16)
    code = Code::Bfloat;
  else if (isFloat(type))
    code = Code::Float;
  else if (type == ElementType::I1)
    code = Code::Bool;
  return {uint8_t(code), uint8_t(8 * getByteWidth(type)), 1};
}

/// NumPy's dtype, kept for good.
static nb::handle getArrayType(ElementType type) {
  static PyObject *types[size_t(ElementType::Index) + 1] = {};
  PyObject *&found = types[size_t(type)];
  if (!found && type == ElementType::BF16)
    found = getBFloat16Type().ptr();
  if (!found)
    found = nb::module_::import_("numpy")
                .attr("dtype")(getElementInfo(type).arrayName.data())
                .release()
                .ptr();
  return found;
}

static nb::object toTuple(ArrayRef<int64_t> shape) {
  nb::object tuple = nb::steal(PyTuple_New(shape.size()));
  for (auto [index, extent] : enumerate(shape))
    PyTuple_SetItem(tuple.ptr(), index, PyLong_FromLongLong(extent));
  return tuple;
}

/// The bytes of a tensor as a buffer of Python.
static int getBuffer(PyObject *self, Py_buffer *view, int flags) {
  auto *tensor = nb::inst_ptr<OwnedTensor>(self);
  return PyBuffer_FillInfo(view, self, tensor->getData(), tensor->getNumBytes(),
                           /*readonly=*/0, flags);
}

static PyType_Slot bufferSlots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void *>(getBuffer)}, {0, nullptr}};

void python::defineMemory(nb::module_ &m) {
  nb::class_<OwnedTensor>(m, "Memory", nb::type_slots(bufferSlots),
                          "The memory of a result, which its array holds.");
  nb::class_<ForeignArray>(m, "ForeignArray",
                           "Memory of a caller from outside of Python.");
}

nb::object python::makeAbstractArray(ElementType type, ArrayRef<int64_t> shape,
                                     nb::handle call, size_t index) {
  return nb::handle(abstractArray)(getArrayType(type), toTuple(shape), call,
                                   index);
}

/// An object with DLPack that owns memory of a GPU.
static nb::object toDeviceArray(OwnedTensor tensor, int device) {
  SmallVector<size_t, 4> shape(tensor.getShape());
  void *data = tensor.getData();
  ElementType type = tensor.getElementType();
  // The capsule takes the tensor, and with it the memory.
  auto owned = std::make_unique<OwnedTensor>(std::move(tensor));
  nb::capsule owner(owned.get(), [](void *pointer) noexcept {
    delete static_cast<OwnedTensor *>(pointer);
  });
  owned.release();
  return nb::cast(nb::ndarray<nb::array_api>(
      data, shape.size(), shape.data(), owner, nullptr, getDLPackType(type),
      nb::device::cuda::value, device));
}

nb::object python::toArray(OwnedTensor tensor, std::optional<int> device) {
  if (device)
    return toDeviceArray(std::move(tensor), *device);
  static PyObject *makeArray =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr();
  nb::object shape = toTuple(tensor.getShape());
  nb::handle type = getArrayType(tensor.getElementType());
  return nb::handle(makeArray)(shape, type, nb::cast(std::move(tensor)));
}

nb::object python::toScalar(const OwnedTensor &tensor) {
  ElementType type = tensor.getElementType();
  if (isFloat(type))
    return nb::float_(getElement(tensor.getData(), type, 0));
  if (type == ElementType::I1)
    return nb::bool_(getElement(tensor.getData(), type, 0) != 0);
  // Little-endian: the low bytes come first.
  int64_t number = 0;
  unsigned bytes = getByteWidth(type);
  std::memcpy(&number, tensor.getData(), bytes);
  return nb::int_(SignExtend64(number, 8 * bytes));
}

//===----------------------------------------------------------------------===//
// Scalar arguments
//===----------------------------------------------------------------------===//

bool python::isNumPyBool(nb::handle object) {
  static PyObject *type =
      nb::object(nb::module_::import_("numpy").attr("bool_")).release().ptr();
  return object.type().ptr() == type;
}

void python::storeScalar(nb::handle object, StringRef name, ElementType type,
                         char *to) {
  auto raise = [&](const Twine &needed) {
    PyErr_Clear();
    raiseValueError(name + ": found " + toText(nb::repr(object)) + ", needed " +
                    needed);
  };
  if (isFloat(type)) {
    double number = PyFloat_AsDouble(object.ptr());
    if (number == -1.0 && PyErr_Occurred())
      raise("a number");
    return setElement(to, type, 0, number);
  }
  nb::object index = type == ElementType::I1 && isNumPyBool(object)
                         ? nb::bool_(object)
                         : nb::steal(PyNumber_Index(object.ptr()));
  int overflow = 0;
  long long number = index.is_valid()
                         ? PyLong_AsLongLongAndOverflow(index.ptr(), &overflow)
                         : 0;
  unsigned bits = type == ElementType::I1 ? 1 : 8 * getByteWidth(type);
  bool fits = type == ElementType::I1 ? isUIntN(1, number)
                                      : bits == 64 || isIntN(bits, number);
  if (!index.is_valid() || overflow || !fits)
    raise("an integer of " + Twine(bits) + (bits == 1 ? " bit" : " bits"));
  // Little-endian: the low bytes come first.
  std::memcpy(to, &number, sizeof(number));
}
