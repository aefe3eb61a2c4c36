//===- Tools.cpp - The tools as functions ---------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A wheel has LLVM once: in the extension, and so the tools are in it, too.
//
//===----------------------------------------------------------------------===//

#include "Functions.h"
#include "Running.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/ExecutionEngine/InvocationScope.h"
#include "fovea/ExecutionEngine/KernelOrigin.h"
#include "fovea/Functions/ResultScopes.h"
#include "fovea/Tools/Explain/AttentionProbe.h"
#include "fovea/Tools/Explain/Explain.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/Twine.h"
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

#define FOVEA_TOOL(name, main) int main(int argc, char **argv);
#include "Tools.inc"
#undef FOVEA_TOOL

using Main = int(int, char **);

static constexpr std::pair<StringLiteral, Main *> tools[] = {
#define FOVEA_TOOL(name, main) {name, &main},
#include "Tools.inc"
#undef FOVEA_TOOL
};

/// What the program of that name returns when it ends.
static int runTool(std::string name, std::vector<std::string> arguments) {
  for (auto [toolName, main] : tools) {
    if (name != toolName)
      continue;
    std::vector<char *> argv = {name.data()};
    for (std::string &argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    return main(int(argv.size() - 1), argv.data());
  }
  std::string names;
  for (auto [toolName, main] : tools)
    names += (names.empty() ? "" : ", ") + toolName.str();
  raiseValueError("name: found '" + name + "', needed one of " + names);
}

//===----------------------------------------------------------------------===//
// fovea-explain, for kernels
//===----------------------------------------------------------------------===//

/// The kernels that a call runs, the shapes of the arguments of their first
/// runs, those that are arrays of integers, or None, and for each argument the
/// number of the first one that is the same array.
static nb::list recordKernels(nb::callable call) {
  InvocationScope scope;
  call();
  nb::list found;
  SmallPtrSet<const Kernel::Impl *, 4> seen;
  for (InvocationScope::Invocation &invocation : scope.takeInvocations()) {
    if (!seen.insert(&invocation.kernel.getImpl()).second)
      continue;
    nb::list shapes;
    for (const SmallVector<int64_t> &shape : invocation.shapes)
      shapes.append(std::vector<int64_t>(shape.begin(), shape.end()));
    nb::list data;
    for (OwnedTensor &tensor : invocation.data)
      data.append(tensor.getData() ? toArray(std::move(tensor), std::nullopt)
                                   : nb::none());
    found.append(
        nb::make_tuple(invocation.kernel, shapes, data,
                       std::vector<unsigned>(invocation.sameAs.begin(),
                                             invocation.sameAs.end())));
  }
  return found;
}

/// Its text, page and JSON.
static std::vector<std::string>
explainKernel(const Kernel &kernel,
              const std::vector<std::vector<int64_t>> &given,
              const nb::list &data, const std::vector<unsigned> &sameAs,
              int64_t batch, int64_t head) {
  ExplainOptions options;
  options.sameAs.assign(sameAs.begin(), sameAs.end());
  KernelOrigin origin = getOrigin(kernel);
  options.compile = origin.options;
  options.batch = batch;
  options.head = head;
  options.getShapes = [&](const Signature &, auto) {
    ArgumentShapes shapes;
    for (const std::vector<int64_t> &shape : given)
      shapes.emplace_back(shape.begin(), shape.end());
    return Expected<ArgumentShapes>(std::move(shapes));
  };
  ArrayRef<ValueSpec> specs = kernel.getSignature().arguments;
  // Which of them has data is known before Python is left.
  std::vector<ArrayView> views(specs.size());
  std::vector<bool> isKnown(specs.size());
  Placement placement;
  for (size_t index = 0; index < std::min(specs.size(), data.size()); ++index) {
    // Of floating point, something that has a shape and nothing else will do.
    bool mayLackData = isFloat(specs[index].elementType);
    if (kernel.getTarget() == Target::GPU || specs[index].isScalar ||
        data[index].is_none() ||
        (mayLackData && !nb::hasattr(data[index], "__array_interface__")))
      continue;
    std::string name = kernel.describeArgument(index);
    views[index].load(data[index], name, /*needsWrite=*/false, placement);
    views[index].makeContiguous(name, /*needsWrite=*/false);
    isKnown[index] = views[index].getElementType() == specs[index].elementType;
    if (!isKnown[index] && !mayLackData)
      raiseValueError(
          name + ": found " +
          getElementInfo(views[index].getElementType()).arrayName.str() +
          ", needed " + getElementInfo(specs[index].elementType).arrayName);
  }
  options.getData = [&](size_t index) -> std::optional<TensorRef> {
    if (!isKnown[index])
      return std::nullopt;
    return views[index].getRef();
  };
  return runKernels({}, [&] {
    return explain(
        origin.text, options,
        {ExplanationKind::Text, ExplanationKind::HTML, ExplanationKind::JSON});
  });
}

//===----------------------------------------------------------------------===//
// fovea-suggest
//===----------------------------------------------------------------------===//

/// A module that returns what its attention reads, and for each attention its
/// place, the reason why that is left out, whether it is causal, and its scale.
static nb::tuple probeText(const std::string &text,
                           std::optional<std::string> entry) {
  CompileOptions options;
  options.entry = entry.value_or("");
  AttentionProbe probe =
      runKernels({}, [&] { return probeAttention(text, options); });
  nb::list found;
  for (const ProbedAttention &each : probe.attention)
    found.append(
        nb::make_tuple(each.place, each.reason, each.isCausal, each.scale));
  return nb::make_tuple(probe.text, found);
}

static std::optional<double>
countKernelFlops(const Kernel &kernel,
                 const std::vector<std::vector<int64_t>> &given) {
  ArgumentShapes shapes;
  for (const std::vector<int64_t> &shape : given)
    shapes.emplace_back(shape.begin(), shape.end());
  return countFlops(getOrigin(kernel).text, kernel.getName(), shapes);
}

/// Of what `call` describes: its arrays are abstract.
static double countDescribedFlops(nb::callable call) {
  FlopScope scope;
  call();
  return scope.flops;
}

void python::defineTools(nb::module_ &m) {
  m.def("probe_attention", &probeText, nb::arg("text"),
        nb::arg("entry") = nb::none());
  m.def("count_flops", &countKernelFlops, nb::arg("kernel"), nb::arg("shapes"));
  m.def("count_described_flops", &countDescribedFlops, nb::arg("call"));
  m.def("record_kernels", &recordKernels, nb::arg("call"));
  m.def("explain", &explainKernel, nb::arg("kernel"), nb::arg("shapes"),
        nb::arg("data"), nb::arg("same_as"), nb::arg("batch") = 0,
        nb::arg("head") = 0);
  m.def("run_tool", &runTool, nb::arg("name"), nb::arg("arguments"));
}
