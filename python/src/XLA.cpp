//===- XLA.cpp - Calls from programs of XLA -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One handler serves all functions. Attributes of a call say which one it is
// and what its arguments are, with operands of XLA in the places of arrays;
// buffers of XLA are the memory of arguments and of results.
//
//===----------------------------------------------------------------------===//

#include "Functions.h"
#include "XLAInterface.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <thread>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static StringMap<Function> &getFunctions() {
  static StringMap<Function> functions;
  return functions;
}

Function python::findFunction(StringRef name) {
  return getFunctions().lookup(name);
}

void python::addFunction(const char *name, Function function) {
  getFunctions()[name] = function;
}

//===----------------------------------------------------------------------===//
// Frames
//===----------------------------------------------------------------------===//

static ElementType convertType(xla::DataType type) {
  switch (type) {
  case xla::DataType::Pred:
    return ElementType::I1;
  case xla::DataType::S8:
  case xla::DataType::U8:
    return ElementType::I8;
  case xla::DataType::S16:
  case xla::DataType::U16:
    return ElementType::I16;
  case xla::DataType::S32:
  case xla::DataType::U32:
    return ElementType::I32;
  case xla::DataType::S64:
  case xla::DataType::U64:
    return ElementType::I64;
  case xla::DataType::F16:
    return ElementType::F16;
  case xla::DataType::BF16:
    return ElementType::BF16;
  case xla::DataType::F32:
    return ElementType::F32;
  case xla::DataType::F64:
    return ElementType::F64;
  }
  throw FoveaError("found a buffer of XLA's type " +
                   std::to_string(int32_t(type)));
}

static TensorRef toTensor(const void *value) {
  auto *buffer = static_cast<const xla::Buffer *>(value);
  return {buffer->data, convertType(buffer->type),
          ArrayRef(buffer->extents, buffer->rank)};
}

static SmallVector<TensorRef> toTensors(const xla::Buffers &buffers) {
  return map_to_vector(ArrayRef(buffers.values, buffers.count), toTensor);
}

template <typename Value>
static const Value &findAttribute(const xla::Attributes &attributes,
                                  StringRef name, xla::AttributeKind kind) {
  for (int64_t i = 0; i < attributes.count; ++i)
    if (StringRef(attributes.names[i]->data, attributes.names[i]->size) ==
            name &&
        attributes.kinds[i] == kind)
      return *static_cast<const Value *>(attributes.values[i]);
  throw FoveaError("found a call without the attribute " + name.str() +
                   ": it is one of another version of fovea.jax");
}

static StringRef getText(const xla::Attributes &attributes, StringRef name) {
  auto &text =
      findAttribute<xla::Text>(attributes, name, xla::AttributeKind::Text);
  return {text.data, text.size};
}

static ArrayRef<int64_t> getNumbers(const xla::Attributes &attributes,
                                    StringRef name) {
  auto &numbers = findAttribute<xla::Numbers>(attributes, name,
                                              xla::AttributeKind::Numbers);
  return {static_cast<const int64_t *>(numbers.data), numbers.size};
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

namespace {
/// An operand or a result. jax.vmap puts axes in front of its own: those of
/// operands have the extents of those of results, or 1 where all parts share
/// it.
struct Value {
  TensorRef tensor;
  size_t numLeading;

  ArrayRef<int64_t> getLeading() const {
    return tensor.shape.take_front(numLeading);
  }
  ArrayRef<int64_t> getOwn() const {
    return tensor.shape.drop_front(numLeading);
  }
  int64_t getNumParts() const { return getNumElements(getLeading()); }
  TensorRef getPart(ArrayRef<int64_t> position) const;

  static int64_t getNumElements(ArrayRef<int64_t> shape) {
    return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                           std::multiplies<int64_t>());
  }
};

/// What the first of its own axes is: none of a batch, that of a batch, or one
/// that may have extent 1 instead.
enum class BatchAxis : int64_t { None, Batch, Broadcast };

/// A call of a frame.
class XLACall {
public:
  XLACall(const xla::Frame &frame, const Placement &placement, Target target);
  void run();

private:
  /// Whether leading axes can become a part of the batch.
  bool canFold() const;
  void runFolded();
  void runParts();
  void invoke(ArrayRef<TensorRef> arguments, ArrayRef<TensorRef> destinations);
  /// `pattern` with the next arguments in it.
  nb::object fill(nb::handle pattern, ArrayRef<TensorRef> &arguments);
  void takeUpdated(ArrayRef<int64_t> updated);

  const Placement &placement;
  Target target;
  Function function;
  nb::object pattern;
  ArrayRef<int64_t> batchAxes;
  /// Of `operands`, those that the function writes to.
  ArrayRef<int64_t> updated;
  SmallVector<Value> operands, results;
};
} // namespace

TensorRef Value::getPart(ArrayRef<int64_t> position) const {
  int64_t index = 0;
  for (auto [extent, at] : zip_equal(getLeading(), position))
    index = index * extent + (extent == 1 ? 0 : at);
  TensorRef part = tensor;
  part.shape = getOwn();
  part.data =
      static_cast<char *>(tensor.data) +
      index * getNumElements(part.shape) * getByteWidth(tensor.elementType);
  return part;
}

/// The arguments that a text stands for, which is read once.
static nb::object parseArguments(StringRef text) {
  // Kept for good: the module may be unloaded after the interpreter.
  static PyObject *patterns = PyDict_New();
  nb::str key(text.data(), text.size());
  if (PyObject *found = PyDict_GetItemWithError(patterns, key.ptr()))
    return nb::borrow(found);
  nb::object pattern = nb::module_::import_("ast").attr("literal_eval")(key);
  PyDict_SetItem(patterns, key.ptr(), pattern.ptr());
  return pattern;
}

XLACall::XLACall(const xla::Frame &frame, const Placement &placement,
                 Target target)
    : placement(placement), target(target) {
  StringRef name = getText(frame.attributes, "function");
  function = findFunction(name);
  if (!function)
    throw FoveaError("found a call of " + name.str() +
                     ", which this version of the package lacks");
  pattern = parseArguments(getText(frame.attributes, "arguments"));
  batchAxes = getNumbers(frame.attributes, "batch_axes");
  updated = getNumbers(frame.attributes, "updated");
  ArrayRef<int64_t> ranks = getNumbers(frame.attributes, "ranks");
  SmallVector<TensorRef> given = toTensors(frame.arguments);
  size_t numLeading = given.front().shape.size() - ranks.front();
  for (const TensorRef &tensor : given)
    operands.push_back({tensor, numLeading});
  for (const TensorRef &tensor : toTensors(frame.results))
    results.push_back({tensor, numLeading});
  takeUpdated(updated);
}

/// Operands that are updated in place are the last results. XLA gives them the
/// same memory, where it can.
void XLACall::takeUpdated(ArrayRef<int64_t> updated) {
  for (auto [number, result] :
       zip_equal(updated, ArrayRef(results).take_back(updated.size()))) {
    TensorRef &operand = operands[number].tensor;
    int64_t bytes = Value::getNumElements(operand.shape) *
                    getByteWidth(operand.elementType);
    if (operand.data != result.tensor.data)
      copyResult(placement, result.tensor.data, operand.data, bytes);
    operand.data = result.tensor.data;
  }
  results.truncate(results.size() - updated.size());
}

nb::object XLACall::fill(nb::handle pattern, ArrayRef<TensorRef> &arguments) {
  if (pattern.ptr() == Py_Ellipsis) {
    size_t number = operands.size() - arguments.size();
    TensorRef next = arguments.consume_front();
    return nb::cast(ForeignArray{
        next.data, next.elementType,
        SmallVector<int64_t, 4>(next.shape.begin(), next.shape.end()),
        /*isReadOnly=*/!is_contained(updated, int64_t(number)),
        placement.device});
  }
  if (!PyTuple_Check(pattern.ptr()))
    return nb::borrow(pattern);
  Py_ssize_t size = PyTuple_Size(pattern.ptr());
  nb::object filled = nb::steal(PyTuple_New(size));
  for (Py_ssize_t i = 0; i < size; ++i)
    PyTuple_SetItem(
        filled.ptr(), i,
        fill(PyTuple_GetItem(pattern.ptr(), i), arguments).release().ptr());
  return filled;
}

void XLACall::invoke(ArrayRef<TensorRef> arguments,
                     ArrayRef<TensorRef> destinations) {
  nb::object given = fill(pattern, arguments);
  Reader in(nb::borrow<nb::args>(given), placement, target, destinations);
  function(in);
}

bool XLACall::canFold() const {
  int64_t batch = -1, numParts = results.front().getNumParts();
  for (auto [operand, axis] : zip_equal(operands, batchAxes)) {
    bool isWhole = operand.getNumParts() == numParts;
    if (BatchAxis(axis) == BatchAxis::Broadcast && operand.getOwn()[0] == 1 &&
        operand.getNumParts() == 1)
      continue;
    if (BatchAxis(axis) == BatchAxis::None) {
      if (operand.getNumParts() != 1)
        return false;
      continue;
    }
    if (batch < 0)
      batch = operand.getOwn()[0];
    if (!isWhole || operand.getOwn()[0] != batch)
      return false;
  }
  return batch >= 0;
}

void XLACall::runFolded() {
  SmallVector<SmallVector<int64_t, 4>, 8> shapes;
  shapes.reserve(operands.size() + results.size());
  auto fold = [&](const Value &value) {
    ArrayRef<int64_t> own = value.getOwn();
    SmallVector<int64_t, 4> &shape =
        shapes.emplace_back(own.begin(), own.end());
    if (int64_t numParts = value.getNumParts(); numParts != 1)
      shape.front() *= numParts;
    TensorRef folded = value.tensor;
    folded.shape = shape;
    return folded;
  };
  SmallVector<TensorRef> arguments = map_to_vector(operands, fold);
  invoke(arguments, map_to_vector(results, fold));
}

void XLACall::runParts() {
  ArrayRef<int64_t> leading = results.front().getLeading();
  SmallVector<int64_t> position(leading.size(), 0);
  auto getPart = [&](const Value &value) { return value.getPart(position); };
  for (int64_t i = 0, e = results.front().getNumParts(); i < e; ++i) {
    SmallVector<TensorRef> arguments = map_to_vector(operands, getPart);
    invoke(arguments, map_to_vector(results, getPart));
    for (size_t dim = leading.size(); dim-- > 0;) {
      if (++position[dim] < leading[dim])
        break;
      position[dim] = 0;
    }
  }
}

void XLACall::run() {
  if (results.front().getNumParts() != 1 && canFold())
    runFolded();
  else
    runParts();
}

//===----------------------------------------------------------------------===//
// Handlers
//===----------------------------------------------------------------------===//

static xla::Error *makeError(const xla::Frame &frame, xla::ErrorCode code,
                             const std::string &text) {
  xla::ErrorArguments arguments{
      {sizeof(arguments), nullptr}, text.c_str(), code};
  return frame.interface->createError(&arguments);
}

static xla::ErrorCode getCode(const nb::python_error &error) {
  if (error.matches(PyExc_ValueError))
    return xla::ErrorCode::InvalidArgument;
  if (error.matches(PyExc_MemoryError))
    return xla::ErrorCode::ResourceExhausted;
  return error.matches(PyExc_KeyboardInterrupt) ? xla::ErrorCode::Cancelled
                                                : xla::ErrorCode::Internal;
}

/// Says what a handler is, where XLA asks for that.
static bool describeHandler(const xla::Frame &frame) {
  xla::Extension *extension = frame.header.extensions;
  if (!extension || extension->kind != xla::kMetadata)
    return false;
  xla::Metadata &metadata =
      *reinterpret_cast<xla::MetadataExtension *>(extension)->metadata;
  metadata.version.major = xla::kMajorVersion;
  metadata.version.minor = xla::kMinorVersion;
  metadata.traits = 0;
  if (metadata.size >= sizeof(metadata))
    metadata.stateType = 0;
  return true;
}

/// A thread that waits for an interpreter which ends is ended by Python, and
/// the process with it: from then on no call begins, and those that run are
/// waited for.
static std::atomic<bool> isEnding = false;
static std::atomic<unsigned> numRunning = 0;

static void endCalls() {
  isEnding = true;
  nb::gil_scoped_release release;
  while (numRunning)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

/// `function` computes what a frame asks for. No exception passes XLA.
template <typename Function>
static xla::Error *handle(const xla::Frame &frame, Function function) {
  if (describeHandler(frame) || frame.stage != xla::Stage::Execute)
    return nullptr;
  ++numRunning;
  scope_exit end([] { --numRunning; });
  if (isEnding || !nb::is_alive())
    return makeError(frame, xla::ErrorCode::Cancelled,
                     "the interpreter of Python has ended");
  nb::gil_scoped_acquire acquire;
  try {
    function();
    return nullptr;
  } catch (nb::python_error &error) {
    return makeError(frame, getCode(error), nb::str(error.value()).c_str());
  } catch (const nb::builtin_exception &error) {
    return makeError(frame, xla::ErrorCode::InvalidArgument, error.what());
  } catch (const std::exception &error) {
    return makeError(frame, xla::ErrorCode::Internal, error.what());
  }
}

static xla::Error *runOnCPU(xla::Frame *frame) {
  return handle(*frame,
                [&] { XLACall(*frame, Placement(), Target::CPU).run(); });
}

/// Work is queued on the stream of XLA, which does not wait for it.
static xla::Error *runOnGPU(xla::Frame *frame) {
  return handle(*frame, [&] {
    xla::StreamArguments answer{
        {sizeof(answer), nullptr}, frame->context, nullptr};
    Placement placement;
    placement.allowsGPU = true;
    int32_t device = -1;
    if (frame->interface->getStream(&answer) ||
        fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA,
                            toTensor(frame->results.values[0]).data,
                            &device) != FOVEA_RT_OK ||
        device < 0)
      throw FoveaError("found no stream or no device of a call on a GPU");
    placement.device = device;
    placement.stream = reinterpret_cast<intptr_t>(answer.stream);
    std::optional<intptr_t> outer = getStream();
    setStream(placement.stream);
    scope_exit restore([&] { setStream(outer); });
    XLACall(*frame, placement, Target::GPU).run();
  });
}

void python::defineXLA(nb::module_ &m) {
  m.def("xla_end", &endCalls);
  m.def("xla_handlers", [] {
    nb::dict handlers;
    handlers["cpu"] = nb::capsule(reinterpret_cast<void *>(runOnCPU));
    handlers["CUDA"] = nb::capsule(reinterpret_cast<void *>(runOnGPU));
    return handlers;
  });
}
