//===- FoveaC.cpp - C interface of the compiler ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea-c/fovea.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/Version.h"
#include "fovea_rt/fovea_rt.h"
#include <cstring>
#include <type_traits>

using namespace llvm;
using namespace fovea;

struct fovea_kernel {
  Kernel kernel;
};

struct fovea_result {
  OwnedTensor tensor;
};

static_assert(int(ElementType::F16) == FOVEA_F16 &&
                  int(ElementType::BF16) == FOVEA_BF16 &&
                  int(ElementType::F32) == FOVEA_F32 &&
                  int(ElementType::F64) == FOVEA_F64 &&
                  int(ElementType::I1) == FOVEA_I1 &&
                  int(ElementType::I8) == FOVEA_I8 &&
                  int(ElementType::I16) == FOVEA_I16 &&
                  int(ElementType::I32) == FOVEA_I32 &&
                  int(ElementType::I64) == FOVEA_I64 &&
                  int(ElementType::Index) == FOVEA_INDEX,
              "the element types of C and C++ go together");
static_assert(kDynamicExtent == FOVEA_DYNAMIC_EXTENT);

static std::string &getLastError() {
  thread_local std::string text;
  return text;
}

static fovea_status fail(const Twine &message) {
  getLastError() = message.str();
  return FOVEA_FAILURE;
}
static fovea_status fail(Error error) {
  return fail(toString(std::move(error)));
}

const char *fovea_last_error(void) { return getLastError().c_str(); }

const char *fovea_version(void) { return FOVEA_VERSION; }

fovea_status fovea_set_num_threads(int32_t numThreads) {
  if (fovea_rt_set_num_threads(numThreads) != FOVEA_RT_OK)
    return fail(fovea_rt_last_error());
  return FOVEA_SUCCESS;
}

int32_t fovea_num_threads(void) { return fovea_rt_num_threads(); }

void fovea_set_interrupt_check(fovea_interrupt_check check, void *context) {
  fovea_rt_set_interrupt_check(check, context);
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

fovea_status fovea_compile(const char *text, size_t length,
                           const fovea_compile_options *options,
                           fovea_kernel **kernel) {
  if (!text || !kernel)
    return fail("expected text and a place for the kernel, but got null");
  CompileOptions converted;
  if (options && options->target) {
    Expected<Target> target = parseTarget(options->target);
    if (!target)
      return fail(target.takeError());
    converted.target = *target;
  }
  if (options && options->cpu)
    converted.cpu = options->cpu;
  if (options && options->entry)
    converted.entry = options->entry;
  if (options && options->source_name)
    converted.sourceName = options->source_name;
  StringRef source(text, length);
  Expected<Kernel> compiled =
      options && options->use_cache
          ? KernelCache::getGlobal().getOrCompile(source, converted)
          : compile(source, converted);
  if (!compiled)
    return fail(compiled.takeError());
  *kernel = new fovea_kernel{std::move(*compiled)};
  return FOVEA_SUCCESS;
}

fovea_status fovea_kernel_vjp(const fovea_kernel *kernel,
                              const int64_t *arguments, size_t numArguments,
                              int32_t primalResults, fovea_kernel **vjp) {
  if (!kernel || (!arguments && numArguments) || !vjp)
    return fail("expected a kernel, arguments and a place for the kernel, but "
                "got null");
  VJPOptions options;
  options.arguments.assign(arguments, arguments + numArguments);
  options.primalResults = primalResults;
  Expected<Kernel> compiled = compileVJP(kernel->kernel, options);
  if (!compiled)
    return fail(compiled.takeError());
  *vjp = new fovea_kernel{std::move(*compiled)};
  return FOVEA_SUCCESS;
}

void fovea_kernel_destroy(fovea_kernel *kernel) { delete kernel; }

const char *fovea_kernel_name(const fovea_kernel *kernel) {
  // The name is kept in a string of its own, so it ends in a null character.
  return kernel ? kernel->kernel.getName().data() : "";
}

size_t fovea_kernel_num_arguments(const fovea_kernel *kernel) {
  return kernel ? kernel->kernel.getSignature().arguments.size() : 0;
}

size_t fovea_kernel_num_results(const fovea_kernel *kernel) {
  return kernel ? kernel->kernel.getSignature().results.size() : 0;
}

static fovea_status getSpec(const fovea_kernel *kernel, size_t index,
                            bool isResult, fovea_value_spec *spec) {
  if (!kernel || !spec)
    return fail("expected a kernel and a place for the description, but got "
                "null");
  const Signature &signature = kernel->kernel.getSignature();
  ArrayRef<ValueSpec> specs = signature.arguments;
  if (isResult)
    specs = signature.results;
  StringRef what = isResult ? "results" : "arguments";
  if (index >= specs.size())
    return fail("the kernel has " + Twine(specs.size()) + " " + what +
                ", but number " + Twine(index) + " was asked for");
  const ValueSpec &from = specs[index];
  *spec = {from.name.c_str(),
           fovea_element_type(from.elementType),
           from.isScalar,
           from.isWritten,
           int32_t(from.shape.size()),
           from.shape.data(),
           from.strides.empty() ? nullptr : from.strides.data()};
  return FOVEA_SUCCESS;
}

fovea_status fovea_kernel_argument(const fovea_kernel *kernel, size_t index,
                                   fovea_value_spec *spec) {
  return getSpec(kernel, index, /*isResult=*/false, spec);
}

fovea_status fovea_kernel_result(const fovea_kernel *kernel, size_t index,
                                 fovea_value_spec *spec) {
  return getSpec(kernel, index, /*isResult=*/true, spec);
}

//===----------------------------------------------------------------------===//
// Invocation
//===----------------------------------------------------------------------===//

fovea_status fovea_kernel_invoke(const fovea_kernel *kernel,
                                 const fovea_tensor *inputs, size_t numInputs,
                                 fovea_result **results, size_t numResults) {
  if (!kernel || (!inputs && numInputs) || (!results && numResults))
    return fail("expected a kernel, inputs and a place for results, but got "
                "null");
  if (numResults != fovea_kernel_num_results(kernel))
    return fail("@" + kernel->kernel.getName() + " has " +
                Twine(fovea_kernel_num_results(kernel)) +
                " results, but got places for " + Twine(numResults));
  SmallVector<TensorRef, 8> refs;
  for (size_t index = 0; index < numInputs; ++index) {
    const fovea_tensor &input = inputs[index];
    if (input.rank < 0 || (input.rank > 0 && !input.shape))
      return fail("argument " + Twine(index) +
                  ": expected a rank of at least 0 and a shape");
    // Read as a number: a caller may have stored any.
    std::underlying_type_t<fovea_element_type> type;
    std::memcpy(&type, &input.type, sizeof(type));
    if (unsigned(type) > FOVEA_INDEX)
      return fail("argument " + Twine(index) +
                  ": expected an element type, but got the value " +
                  Twine(unsigned(type)));
    TensorRef ref;
    ref.data = input.data;
    ref.elementType = ElementType(type);
    ref.shape = ArrayRef(input.shape, input.rank);
    if (input.strides)
      ref.strides = ArrayRef(input.strides, input.rank);
    ref.isReadOnly = input.is_read_only;
    refs.push_back(ref);
  }
  SmallVector<OwnedTensor, 2> owned;
  if (Error error = kernel->kernel.invoke(refs, owned))
    return fail(std::move(error));
  for (size_t index = 0; index < numResults; ++index)
    results[index] = new fovea_result{std::move(owned[index])};
  return FOVEA_SUCCESS;
}

fovea_tensor fovea_result_tensor(const fovea_result *result) {
  if (!result)
    return {};
  const OwnedTensor &tensor = result->tensor;
  return {tensor.getData(),
          fovea_element_type(tensor.getElementType()),
          int32_t(tensor.getShape().size()),
          tensor.getShape().data(),
          /*strides=*/nullptr,
          /*is_read_only=*/0};
}

void fovea_result_destroy(fovea_result *result) { delete result; }
