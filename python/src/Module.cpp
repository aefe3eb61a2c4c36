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

#include "Functions.h"
#include "Running.h"
#include "fovea/Emulator/GPUDriver.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/ExecutionEngine/KernelOrigin.h"
#include "fovea/Functions/Shapes.h"
#include "fovea/Version.h"
#include "fovea_rt/fovea_rt.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include <cstdlib>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

static nb::str toPython(StringRef text) {
  return nb::str(text.data(), text.size());
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

static Kernel compileKernel(std::string_view text, std::string_view target,
                            std::string_view cpu,
                            std::optional<std::string_view> entry) {
  CompileOptions options;
  // The package has checked it.
  options.target = cantFail(parseTarget(StringRef(target)));
  options.cpu = cpu;
  options.entry = entry.value_or("");
  return runKernels({}, [&] {
    return KernelCache::getGlobal().getOrCompile(StringRef(text), options);
  });
}

static Kernel
differentiateKernel(const Kernel &kernel,
                    const std::optional<std::vector<int64_t>> &arguments,
                    bool primalResults) {
  if (arguments && arguments->empty())
    raiseValueError("arguments: found none, needed at least one");
  VJPOptions options;
  if (arguments)
    options.arguments.assign(arguments->begin(), arguments->end());
  options.primalResults = primalResults;
  return runKernels({}, [&] { return compileVJP(kernel, options); });
}

//===----------------------------------------------------------------------===//
// Calling
//===----------------------------------------------------------------------===//

namespace {
/// The arguments of one call.
struct Arguments {
  Arguments(const Kernel &kernel, size_t count)
      : arrays(new ArrayView[count]), scalars(count), refs(count) {
    placement.allowsGPU = kernel.getTarget() == Target::GPU;
    if (std::optional<intptr_t> stream = getStream())
      placement.stream = *stream;
  }

  std::unique_ptr<ArrayView[]> arrays;
  SmallVector<std::array<char, 8>, 8> scalars;
  SmallVector<TensorRef, 8> refs;
  Placement placement;
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
  std::string name = kernel.describeArgument(index);
  array.load(object, name, spec.isWritten, arguments.placement);
  if (spec.strides.empty() || !array.hasContiguousRows())
    array.makeContiguous(name, spec.isWritten);
  else
    array.makeStrided(name, spec.isWritten);
  ref = array.getRef();
}

static nb::object callKernel(const Kernel &kernel, nb::args inputs) {
  const Signature &signature = kernel.getSignature();
  if (inputs.size() != signature.arguments.size())
    raiseValueError("@" + kernel.getName() + " expects " +
                    Twine(signature.arguments.size()) + " arguments, but got " +
                    Twine(inputs.size()) + "; its type is " +
                    signature.getString());
  // Before the work, rather than after.
  if (any_of(signature.results, [](const ValueSpec &spec) {
        return spec.elementType == ElementType::BF16 && !spec.isScalar;
      }))
    getBFloat16Type();

  Arguments arguments(kernel, inputs.size());
  for (size_t index = 0; index < inputs.size(); ++index)
    loadArgument(kernel, index, inputs[index], arguments);

  SmallVector<OwnedTensor, 2> results;
  runKernels(arguments.placement, [&]() -> Error {
    Error error = kernel.invoke(arguments.refs, results);
    if (!error)
      return error;
    Error inputError = kernel.checkInputs(arguments.refs);
    if (!inputError)
      return error;
    consumeError(std::move(inputError));
    return createStringError(std::make_error_code(std::errc::invalid_argument),
                             toString(std::move(error)));
  });

  auto convert = [&](size_t index) {
    return signature.results[index].isScalar
               ? toScalar(results[index])
               : toArray(std::move(results[index]),
                         findGPU(arguments.placement, results[index]));
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

/// The names of ways to choose shapes, in the order of the enumeration.
static constexpr const char *kShapesNames[] = {"auto", "static", "dynamic"};

static Shapes findShapes(std::string_view name) {
  const auto *found = find(kShapesNames, name);
  if (found == std::end(kShapesNames))
    raiseValueError("shapes: found '" + Twine(StringRef(name)) +
                    "', needed 'auto', 'static' or 'dynamic'");
  return Shapes(found - std::begin(kShapesNames));
}

static nb::object callWithShapes(std::string_view name, nb::callable call) {
  ThreadShapesScope scope(findShapes(name));
  return call();
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
  // Nothing in it holds objects of Python beyond a call, but for a shortcut
  // those of a framework, so that it has no part in cycles either; tests set
  // the variable to see real leaks.
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
          "text",
          [](const Kernel &self) { return toPython(getOrigin(self).text); },
          "The module that it was compiled from.")
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

  defineMemory(m);
  defineFunctions(m);
  m.def("set_abstract_array", &setAbstractArray);
  m.def("compile", &compileKernel, nb::arg("text"), nb::arg("target"),
        nb::arg("cpu"), nb::arg("entry").none());
  m.def("describe", &describeArray, nb::arg("name"), nb::arg("array").none());
  m.def("bfloat16", [] { return nb::borrow(getBFloat16Type()); });
  m.def("set_num_threads", &setNumThreads, nb::arg("count"));
  m.def("num_threads", &fovea_rt_num_threads);
  m.def(
      "set_shapes", [](std::string_view name) { setShapes(findShapes(name)); },
      nb::arg("shapes"));
  m.def("shapes", [] { return kShapesNames[size_t(getShapes())]; });
  m.def("call_with_shapes", &callWithShapes, nb::arg("shapes"),
        nb::arg("call"));
  m.def("set_stream", &setStream, nb::arg("stream").none());
  m.def("get_stream", &getStream);
  m.def("clear_cache", &clearCache);
  m.def("cache_statistics", [] {
    KernelCache::Statistics statistics =
        KernelCache::getGlobal().getStatistics();
    return nb::make_tuple(statistics.size, statistics.hits, statistics.misses,
                          statistics.loads);
  });
}
