//===- Module.cpp - The extension module fovea._fovea ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Nothing of Fovea or LLVM throws, and what it calls back must not: exceptions
// of nanobind stay within this folder, on the side of Python.
//
//===----------------------------------------------------------------------===//

#include "Arrays.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Version.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include <cstdlib>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static nb::str toPython(StringRef text) {
  return nb::str(text.data(), text.size());
}

/// What a call that failed raises: ValueError for bad inputs.
[[noreturn]] static void raise(Error error, bool isInputError) {
  std::string text = llvm::toString(std::move(error));
  if (isInputError)
    throw nb::value_error(text.c_str());
  throw FoveaError(text);
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

/// Compiles while other threads of Python go on.
static Kernel waitFor(function_ref<Expected<Kernel>()> compile) {
  Expected<Kernel> kernel = [&] {
    nb::gil_scoped_release release;
    return compile();
  }();
  if (!kernel)
    raise(kernel.takeError(), /*isInputError=*/false);
  return std::move(*kernel);
}

static Kernel compileKernel(std::string_view text, std::string_view target,
                            std::string_view cpu,
                            std::optional<std::string_view> entry) {
  CompileOptions options;
  Expected<Target> parsed = parseTarget(StringRef(target));
  if (!parsed)
    raise(parsed.takeError(), /*isInputError=*/true);
  options.target = *parsed;
  options.cpu = cpu;
  options.entry = entry.value_or("");
  return waitFor([&] {
    return KernelCache::getGlobal().getOrCompile(StringRef(text), options);
  });
}

static Kernel
differentiateKernel(const Kernel &kernel,
                    const std::optional<std::vector<int64_t>> &arguments,
                    bool primalResults) {
  if (arguments && arguments->empty())
    raise(createStringError("arguments: found none, needed at least one"),
          /*isInputError=*/true);
  VJPOptions options;
  if (arguments)
    options.arguments.assign(arguments->begin(), arguments->end());
  options.primalResults = primalResults;
  return waitFor([&] { return compileVJP(kernel, options); });
}

//===----------------------------------------------------------------------===//
// Calling
//===----------------------------------------------------------------------===//

/// The CUDA stream that kernels of this thread run on, if it has chosen one.
static thread_local std::optional<intptr_t> chosenStream;

namespace {
/// The arguments of one call.
struct Arguments {
  Arguments(const Kernel &kernel, size_t count)
      : arrays(new ArrayView[count]), scalars(count), refs(count) {
    placement.allowsGPU = kernel.getTarget() == Target::GPU;
    if (chosenStream)
      placement.stream = *chosenStream;
  }

  std::unique_ptr<ArrayView[]> arrays;
  SmallVector<std::array<char, 8>, 8> scalars;
  SmallVector<TensorRef, 8> refs;
  Placement placement;
};

/// Runs kernels where the arrays of a call lie, while it lives.
class PlaceScope {
public:
  explicit PlaceScope(const Placement &placement)
      : isActive(placement.device.has_value()) {
    if (!isActive)
      return;
    // It exists: there is an array on it.
    (void)fovea_rt_gpu_set_device(*placement.device);
    fovea_rt_gpu_set_stream(reinterpret_cast<void *>(placement.stream));
  }
  ~PlaceScope() {
    if (!isActive)
      return;
    // Whoever reads the results knows the stream only if it chose it.
    if (!chosenStream)
      (void)fovea_rt_gpu_wait(FOVEA_RT_GPU_CUDA);
    (void)fovea_rt_gpu_set_device(0);
    fovea_rt_gpu_set_stream(reinterpret_cast<void *>(chosenStream.value_or(0)));
  }

private:
  bool isActive;
};
} // namespace

static void loadArgument(const Kernel &kernel, size_t index, nb::handle object,
                         Arguments &arguments) {
  const ValueSpec &spec = kernel.getSignature().arguments[index];
  TensorRef &ref = arguments.refs[index];
  if (spec.isScalar) {
    ref.data = arguments.scalars[index].data();
    ref.elementType = spec.elementType;
    storeScalar(object, kernel.describeArgument(index), spec.elementType,
                arguments.scalars[index].data());
    return;
  }
  ArrayView &array = arguments.arrays[index];
  array.load(object, kernel.describeArgument(index), spec.isWritten,
             arguments.placement);
  if (!array.isKernelLayout()) {
    if (array.isOnGPU())
      raise(createStringError(kernel.describeArgument(index) +
                              ": found an array with gaps, in another order or "
                              "unaligned on a GPU, needed a contiguous one"),
            /*isInputError=*/true);
    // What the kernel writes to a copy would be lost.
    if (spec.isWritten)
      raise(createStringError(
                kernel.describeArgument(index) +
                ": found an array with gaps, in another order, unaligned or of "
                "another byte order, needed a contiguous one, because the "
                "kernel writes to it"),
            /*isInputError=*/true);
    bool isCopied = [&] {
      nb::gil_scoped_release release;
      return array.copyToKernelLayout();
    }();
    if (!isCopied) {
      std::string text = kernel.describeArgument(index) +
                         ": found an array that must be copied, needed memory "
                         "for that, or a contiguous array";
      PyErr_SetString(PyExc_MemoryError, text.c_str());
      throw nb::python_error();
    }
  }
  ref = array.getRef();
}

namespace {
/// Lets handlers of signals run while a kernel does, and end it by an
/// exception, as Ctrl-C does.
class SignalScope {
public:
  SignalScope() { fovea_rt_set_interrupt_check(checkSignals, nullptr); }
  ~SignalScope() { fovea_rt_set_interrupt_check(nullptr, nullptr); }

private:
  static int32_t checkSignals(void *) {
    // Python runs handlers on its main thread, which alone need not go on
    // without its lock.
    if (gettid() != getpid())
      return 0;
    nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
  }
};
} // namespace

/// The GPU that each result lies on, if it does.
static SmallVector<std::optional<int>, 2>
findGPUs(const Placement &placement, ArrayRef<OwnedTensor> results) {
  SmallVector<std::optional<int>, 2> places(results.size());
  if (!placement.device)
    return places;
  for (auto [result, place] : zip_equal(results, places)) {
    int32_t device;
    if (fovea_rt_gpu_locate(FOVEA_RT_GPU_CUDA, result.getData(), &device) !=
        FOVEA_RT_OK)
      throw FoveaError(fovea_rt_last_error());
    if (device >= 0)
      place = device;
  }
  return places;
}

static nb::object callKernel(const Kernel &kernel, nb::args inputs) {
  const Signature &signature = kernel.getSignature();
  if (inputs.size() != signature.arguments.size())
    raise(createStringError("@" + kernel.getName() + " expects " +
                            Twine(signature.arguments.size()) +
                            " arguments, but got " + Twine(inputs.size()) +
                            "; its type is " + signature.getString()),
          /*isInputError=*/true);
  // Before the work, rather than after.
  if (any_of(signature.results, [](const ValueSpec &spec) {
        return spec.elementType == ElementType::BF16 && !spec.isScalar;
      }))
    getBFloat16Type();

  Arguments arguments(kernel, inputs.size());
  for (size_t index = 0; index < inputs.size(); ++index)
    loadArgument(kernel, index, inputs[index], arguments);

  SmallVector<OwnedTensor, 2> results;
  Error error = [&] {
    nb::gil_scoped_release release;
    PlaceScope scope(arguments.placement);
    SignalScope signals;
    return kernel.invoke(arguments.refs, results);
  }();
  if (PyErr_Occurred()) {
    consumeError(std::move(error));
    throw nb::python_error();
  }
  if (error) {
    Error inputError = kernel.checkInputs(arguments.refs);
    bool isInputError(inputError);
    consumeError(std::move(inputError));
    raise(std::move(error), isInputError);
  }

  SmallVector<std::optional<int>, 2> places =
      findGPUs(arguments.placement, results);
  auto convert = [&](size_t index) {
    return signature.results[index].isScalar
               ? toScalar(results[index])
               : toArray(std::move(results[index]), places[index]);
  };
  if (results.empty())
    return nb::none();
  if (results.size() == 1)
    return convert(0);
  nb::list values;
  for (size_t index = 0; index < results.size(); ++index)
    values.append(convert(index));
  return nb::tuple(values);
}

/// Element type and shape of an array, as the functions of ops.py need them.
static nb::tuple describeArray(std::string_view name, nb::handle object) {
  ArrayView array;
  Placement anywhere;
  anywhere.allowsGPU = true;
  array.load(object, StringRef(name), /*needsWrite=*/false, anywhere);
  nb::list shape;
  for (int64_t extent : array.getShape())
    shape.append(extent);
  return nb::make_tuple(toPython(fovea::getName(array.getElementType())),
                        nb::tuple(shape));
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

static void setNumThreads(int32_t count) {
  if (fovea_rt_set_num_threads(count) != FOVEA_RT_OK)
    throw nb::value_error(fovea_rt_last_error());
}

static void setStream(std::optional<intptr_t> stream) {
  chosenStream = stream;
  fovea_rt_gpu_set_stream(reinterpret_cast<void *>(stream.value_or(0)));
}

static void clearCache() {
  KernelCache::getGlobal().clear();
  fovea_rt_release_cache();
  fovea_rt_release_scratch();
}

static std::string getRepr(const Kernel &kernel) {
  return ("<fovea.Kernel @" + kernel.getName() +
          kernel.getSignature().getString() + ">")
      .str();
}

NB_MODULE(_fovea, m) {
  simt::registerEmulator();
  // What others still hold when the interpreter ends, such as the graph of a
  // framework that never frees it, keeps the package and with it the types and
  // kernels here alive: no fault of this module, and nothing to tell users.
  // Nothing in it holds objects of Python beyond a call, so that it has no part
  // in cycles either; tests set the variable to see real leaks.
  nb::set_leak_warnings(std::getenv("FOVEA_LEAK_WARNINGS") != nullptr);
  m.doc() = "The compiler and the runtime of Fovea.";
  m.attr("VERSION") = FOVEA_VERSION;
  auto error = nb::exception<FoveaError>(m, "FoveaError", PyExc_RuntimeError);
  error.attr("__module__") = "fovea";
  error.attr("__doc__") = "A failure of the compiler, with its diagnostics, or "
                          "of a running kernel.";

  nb::class_<Kernel>(m, "Kernel",
                     "A compiled function, as `fovea.compile` returns it: "
                     "arrays in, arrays out.")
      .def("__call__", &callKernel, nb::arg("inputs"))
      .def("__repr__", &getRepr)
      .def("vjp", &differentiateKernel, nb::arg("arguments") = nb::none(),
           nb::arg("primal_results") = false,
           "Compiles the vector-Jacobian product.")
      .def_prop_ro(
          "name", [](const Kernel &self) { return toPython(self.getName()); },
          "Name of the function, without '@'.")
      .def_prop_ro(
          "signature",
          [](const Kernel &self) { return self.getSignature().getString(); },
          "Names and types of the arguments, and types of the results.")
      .def_prop_ro(
          "cpu", [](const Kernel &self) { return toPython(self.getCPU()); },
          "The CPU that the code was generated for, as LLVM names it.")
      .def_prop_ro(
          "diagnostics",
          [](const Kernel &self) { return toPython(self.getDiagnostics()); },
          "Warnings and remarks of the compilation.")
      .def_prop_ro(
          "compile_seconds",
          [](const Kernel &self) { return self.getCompileTimes().getTotal(); },
          "How long the compilation took.");
  m.attr("Kernel").attr("__module__") = "fovea";

  nb::list targets;
  for (Target target :
       {Target::CPU, Target::Reference, Target::GPU, Target::GPUEmulator})
    targets.append(toPython(fovea::getName(target)));
  m.attr("TARGETS") = nb::tuple(targets);

  m.def("compile", &compileKernel, nb::arg("text"), nb::arg("target"),
        nb::arg("cpu"), nb::arg("entry").none());
  m.def("describe", &describeArray, nb::arg("name"), nb::arg("array").none());
  m.def("bfloat16", [] { return nb::borrow(getBFloat16Type()); });
  m.def("set_num_threads", &setNumThreads, nb::arg("count"));
  m.def("num_threads", &fovea_rt_num_threads);
  m.def("set_stream", &setStream, nb::arg("stream").none());
  m.def("stream", [] { return chosenStream; });
  m.def("clear_cache", &clearCache);
  m.def("cache_statistics", [] {
    KernelCache::Statistics statistics =
        KernelCache::getGlobal().getStatistics();
    return nb::make_tuple(statistics.size, statistics.hits, statistics.misses);
  });
}
