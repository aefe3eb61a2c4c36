//===- Compiler.cpp - From IR to kernels ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/Compiler.h"
#include "Compilation.h"
#include "CompilerThread.h"
#include "ModuleConstants.h"
#include "PackedEntry.h"
#include "fovea/Differentiate/Passes.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/ExecutionEngine/GPU.h"
#include "fovea/ExecutionEngine/KernelCache.h"
#include "fovea/InitAllDialects.h"
#include "fovea/Pipelines/Pipelines.h"
#include "fovea/Support/Clock.h"
#include "fovea/Target/CPU/CPUInfo.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "fovea/Target/NVVM/GPUInfo.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/AsmParser/AsmParserState.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SourceMgr.h"
#include <atomic>
#include <cstdlib>

using namespace mlir;
using namespace fovea;
using fovea::detail::Compilation;

static constexpr std::pair<Target, StringLiteral> kTargets[] = {
    {Target::CPU, "cpu"},
    {Target::Reference, "reference"},
    {Target::GPU, "gpu"},
    {Target::GPUEmulator, "gpu-sim"}};

StringRef fovea::getName(Target target) {
  return llvm::find_if(kTargets,
                       [&](auto &entry) { return entry.first == target; })
      ->second;
}

llvm::Expected<Target> fovea::parseTarget(StringRef name) {
  for (auto [target, targetName] : kTargets)
    if (name == targetName)
      return target;
  return llvm::createStringError(
      "unknown target '" + name +
      "'; expected 'cpu', 'reference', 'gpu' or 'gpu-sim'");
}

/// What every compilation registers, collected once.
static const DialectRegistry &getRegistry() {
  static const DialectRegistry *registry = [] {
    auto *registry = new DialectRegistry();
    registerAllDialects(*registry);
    return registry;
  }();
  return *registry;
}

//===----------------------------------------------------------------------===//
// Signature
//===----------------------------------------------------------------------===//

static std::optional<ElementType> convertElementType(Type type) {
  if (type.isF16())
    return ElementType::F16;
  if (type.isBF16())
    return ElementType::BF16;
  if (type.isF32())
    return ElementType::F32;
  if (type.isF64())
    return ElementType::F64;
  if (type.isIndex())
    return ElementType::Index;
  if (type.isSignlessInteger(1))
    return ElementType::I1;
  if (type.isSignlessInteger())
    return getIntegerType(type.getIntOrFloatBitWidth());
  return std::nullopt;
}

/// The strides of `type` if rows are contiguous and the first element is the
/// first one in memory, which the host can see to.
static std::optional<SmallVector<int64_t>> convertLayout(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset;
  if (type.getMemorySpace() ||
      failed(type.getStridesAndOffset(strides, offset)) || offset != 0 ||
      (!strides.empty() && strides.back() != 1))
    return std::nullopt;
  for (int64_t &stride : strides)
    if (ShapedType::isDynamic(stride))
      stride = kDynamicExtent;
  return strides;
}

/// `layout` is that of the buffer of a tensor, if it has one.
static std::optional<ValueSpec>
convertType(Type type, MemRefLayoutAttrInterface layout = {}) {
  ValueSpec spec;
  std::optional<ElementType> elementType;
  if (isa<RankedTensorType, MemRefType>(type)) {
    auto shaped = cast<ShapedType>(type);
    auto memref = dyn_cast<MemRefType>(type);
    if (!memref)
      memref =
          MemRefType::get(shaped.getShape(), shaped.getElementType(), layout);
    std::optional<SmallVector<int64_t>> strides = convertLayout(memref);
    if (!strides)
      return std::nullopt;
    if (!memref.getLayout().isIdentity())
      spec.strides.assign(*strides);
    elementType = convertElementType(shaped.getElementType());
    for (int64_t extent : shaped.getShape())
      spec.shape.push_back(ShapedType::isDynamic(extent) ? kDynamicExtent
                                                         : extent);
  } else {
    elementType = convertElementType(type);
    spec.isScalar = true;
  }
  if (!elementType)
    return std::nullopt;
  spec.elementType = *elementType;
  return spec;
}

static LogicalResult convertSignature(func::FuncOp function,
                                      Signature &signature) {
  StringRef writable = bufferization::BufferizationDialect::kWritableAttrName;
  StringRef layout = bufferization::BufferizationDialect::kBufferLayoutAttrName;
  for (auto [index, type] : llvm::enumerate(function.getArgumentTypes())) {
    std::optional<ValueSpec> spec = convertType(
        type,
        function.getArgAttrOfType<MemRefLayoutAttrInterface>(index, layout));
    if (!spec)
      return function.emitOpError()
             << "has argument " << index << " of type " << type
             << ", but an entry function takes ranked tensors, memrefs whose "
                "last stride is 1 and offset 0, and scalars";
    if (isa<MemRefType>(type))
      spec->isWritten = true;
    if (auto attribute = function.getArgAttrOfType<BoolAttr>(index, writable))
      spec->isWritten = attribute.getValue();
    else if (isa<RankedTensorType>(type))
      function.setArgAttr(index, writable,
                          BoolAttr::get(function.getContext(), false));
    signature.arguments.push_back(std::move(*spec));
  }
  for (auto [index, type] : llvm::enumerate(function.getResultTypes())) {
    std::optional<ValueSpec> spec = convertType(type);
    if (!spec || !spec->strides.empty())
      return function.emitOpError()
             << "has result " << index << " of type " << type
             << ", but an entry function returns ranked tensors, memrefs "
                "without layout, and scalars";
    signature.results.push_back(std::move(*spec));
  }
  return success();
}

/// The function to compile: `name`, or the first public one with a body.
static llvm::Expected<func::FuncOp> findEntry(ModuleOp module, StringRef name) {
  name.consume_front("@");
  SmallVector<std::string> candidates;
  for (auto function : module.getOps<func::FuncOp>())
    if (function.isPublic() && !function.isExternal()) {
      if (name.empty() || function.getSymName() == name)
        return function;
      candidates.push_back(("@" + function.getSymName()).str());
    }
  std::string found = candidates.empty() ? std::string("none with a body")
                                         : llvm::join(candidates, ", ");
  if (name.empty())
    return llvm::createStringError(
        "no function to compile: expected a public function with a body");
  if (auto function = module.lookupSymbol<func::FuncOp>(name))
    return llvm::createStringError(
        "entry function '@" + name + "' " +
        (function.isExternal() ? "has no body" : "is private") +
        "; public functions of the module: " + found);
  return llvm::createStringError("no entry function '@" + name +
                                 "'; public functions of the module: " + found);
}

/// The names that the arguments of `function` have in the text.
static SmallVector<std::string> getArgumentNames(func::FuncOp function,
                                                 const AsmParserState &state) {
  SmallVector<std::string> names(function.getNumArguments());
  const AsmParserState::BlockDefinition *block =
      state.getBlockDef(&function.getBody().front());
  if (!block)
    return names;
  for (auto [name, definition] : llvm::zip(names, block->arguments))
    if (definition.loc.isValid())
      name = std::string(definition.loc.Start.getPointer(),
                         definition.loc.End.getPointer());
  return names;
}

/// The vector-Jacobian product of `entry`; null if there was an error. Extends
/// the names of its arguments by those of the cotangents, `cotangent` and a
/// number.
static func::FuncOp differentiate(func::FuncOp entry, const VJPOptions &options,
                                  StringRef cotangent,
                                  SmallVectorImpl<std::string> &names) {
  auto module = entry->getParentOfType<ModuleOp>();
  attn::DifferentiatePassOptions pass;
  pass.function = entry.getSymName().str();
  pass.arguments.assign(options.arguments);
  pass.primalResults = options.primalResults;
  pass.name = pass.function + "_vjp";
  PassManager pm(module.getContext());
  pm.addPass(attn::createDifferentiatePass(pass));
  if (failed(pm.run(module)))
    return {};
  for (auto [index, type] : llvm::enumerate(entry.getResultTypes()))
    if (isa<FloatType>(getElementTypeOrSelf(type)))
      names.push_back((cotangent + Twine(index)).str());
  return module.lookupSymbol<func::FuncOp>(pass.name);
}

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

/// Everything the entry does not reach goes away first.
static void dropOtherEntries(ModuleOp module, func::FuncOp entry) {
  for (auto function : module.getOps<func::FuncOp>())
    if (function != entry)
      function.setPrivate();
}

static std::atomic<std::string (*)()> getEmulatedChip = nullptr;

void fovea::setGPUEmulator(std::string (*getChip)()) {
  getEmulatedChip = getChip;
}

llvm::Expected<GPUInfo> fovea::findGPU(const CompileOptions &options) {
  bool emulates = options.target == Target::GPUEmulator;
  if (emulates && !getEmulatedChip)
    return llvm::createStringError(
        "cannot use target 'gpu-sim': this program has no emulator");
  if (options.chip != "native")
    return getGPUInfo(options.chip);
  if (emulates)
    return getGPUInfo(getEmulatedChip.load()());
  fovea_rt_gpu_properties properties;
  if (fovea_rt_gpu_get_properties(FOVEA_RT_GPU_CUDA, /*device=*/0,
                                  &properties) != FOVEA_RT_OK)
    return llvm::createStringError("cannot use target 'gpu': " +
                                   Twine(fovea_rt_last_error()));
  // Code for just this GPU where that can do more.
  return getGPUInfo("sm_" + std::to_string(properties.capability) +
                    (properties.capability == 90 ? "a" : ""));
}

/// What multiplies matrices around attention, the same for all of the process.
static StringRef getProducts() {
  static const std::string products = [] {
    const char *value = std::getenv("FOVEA_GPU_PRODUCTS");
    return std::string(value && *value ? value : "library");
  }();
  return products;
}

/// How many blocks of threads may share tiles of keys, likewise.
static StringRef getCluster() {
  static const std::string cluster = [] {
    const char *value = std::getenv("FOVEA_GPU_CLUSTER");
    return std::string(value && *value ? value : "1");
  }();
  return cluster;
}

static llvm::Error buildPipeline(OpPassManager &pm,
                                 const CompileOptions &options,
                                 bool stopAtKernels) {
  pm.addPass(createSymbolDCEPass());
  if (options.target == Target::Reference) {
    buildReferencePipeline(pm);
    return llvm::Error::success();
  }
  if (options.target != Target::CPU) {
    llvm::Expected<GPUInfo> gpu = findGPU(options);
    if (!gpu)
      return gpu.takeError();
    std::optional<attn::F32Math> f32 = attn::symbolizeF32Math(options.f32);
    if (!f32)
      return llvm::createStringError("unknown products of f32 data '" +
                                     options.f32 +
                                     "'; expected 'tf32x3', 'tf32' or 'exact'");
    std::optional<attn::MatrixProducts> products =
        attn::symbolizeMatrixProducts(getProducts());
    if (!products)
      return llvm::createStringError("unknown FOVEA_GPU_PRODUCTS '" +
                                     getProducts() +
                                     "'; expected 'library' or 'loops'");
    if (getCluster() != "1" && getCluster() != "2")
      return llvm::createStringError(
          "FOVEA_GPU_CLUSTER must be 1 or 2, but got '" + getCluster() + "'");
    NVVMPipelineOptions pipeline;
    pipeline.cluster = getCluster() == "2" ? 2 : 1;
    pipeline.f32 = *f32;
    pipeline.products = *products;
    pipeline.raise = options.raise;
    pipeline.emulate = options.target == Target::GPUEmulator;
    pipeline.host = !stopAtKernels;
    buildNVVMPipeline(pm, *gpu, pipeline);
    return llvm::Error::success();
  }
  llvm::Expected<CPUInfo> cpu = getCPUInfo(options.cpu);
  if (!cpu)
    return cpu.takeError();
  buildCPUPipeline(pm, *cpu, options.raise);
  return llvm::Error::success();
}

Compilation::Compilation(const CompileOptions &options)
    : options(options),
      context(getRegistry(), MLIRContext::Threading::DISABLED) {
  handler.emplace(sources, &context, diagnosticStream);
}

/// Whether brackets are nested so deeply that the parser, which calls itself
/// for each, could run out of stack.
static bool isTooDeep(StringRef text) {
  constexpr int64_t kMostDeep = 1000;
  int64_t depth = 0;
  for (size_t i = 0; i < text.size() && depth <= kMostDeep; ++i) {
    char c = text[i];
    StringRef next = text.substr(i + 1, 1);
    if (c == '"') {
      while (++i < text.size() && text[i] != '"')
        i += text[i] == '\\';
    } else if (c == '/' && next == "/") {
      i = std::min(text.find('\n', i), text.size());
    } else if (StringRef("({[").contains(c) || (c == '<' && next != "=")) {
      ++depth;
    } else if (StringRef(")}]").contains(c) ||
               (c == '>' && next != "=" && text[i > 0 ? i - 1 : i] != '-')) {
      depth = std::max<int64_t>(depth - 1, 0);
    }
  }
  return depth > kMostDeep;
}

llvm::Error Compilation::parse(StringRef text) {
  Stopwatch watch;
  // The parser reads up to a null character, which a StringRef may lack.
  sources.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text, options.sourceName),
      llvm::SMLoc());
  Block block;
  AsmParserState state;
  llvm::MemoryBufferRef buffer =
      sources.getMemoryBuffer(sources.getMainFileID())->getMemBufferRef();
  if (!isBytecode(buffer) && isTooDeep(text))
    return llvm::createStringError(
        "cannot parse the module: expected brackets nested at most 1000 deep");
  // Bytecode has no names of arguments for the state to hold.
  if (failed(isBytecode(buffer)
                 ? readBytecodeFile(buffer, &block, &context)
                 : parseAsmSourceFile(sources, &block, &context, &state)))
    return takeDiagnostics("cannot parse the module");
  Location location = FileLineColLoc::get(&context, options.sourceName, 0, 0);
  module = mlir::detail::constructContainerOpForParserIfNecessary<ModuleOp>(
      &block, &context, location);
  if (!module)
    return takeDiagnostics("cannot parse the module");
  llvm::Expected<func::FuncOp> found = findEntry(*module, options.entry);
  if (!found)
    return found.takeError();
  entry = *found;
  SmallVector<std::string> names = getArgumentNames(entry, state);
  if (!options.constantsPath.empty())
    if (llvm::Error error =
            fovea::detail::bindConstants(entry, options.constantsPath, names))
      return error;
  std::string cotangent = "%result";
  for (const VJPOptions &vjp : options.vjps) {
    cotangent.insert(1, "d_");
    entry = differentiate(entry, vjp, cotangent, names);
    if (!entry)
      return takeDiagnostics("cannot differentiate");
  }
  if (failed(convertSignature(entry, impl->signature)))
    return takeDiagnostics("unsupported entry function");
  for (auto [spec, name] : llvm::zip(impl->signature.arguments, names))
    spec.name = name;
  impl->name = entry.getSymName().str();
  impl->constraints = fovea::detail::collectShapeConstraints(entry);
  impl->separateArguments = fovea::detail::collectSeparateArguments(entry);
  impl->times.parse = watch.lap();
  return llvm::Error::success();
}

namespace {
struct HeadroomInstrumentation : PassInstrumentation {
  void runBeforePass(Pass *, Operation *) override {
    fovea::detail::checkHeadroom();
  }
};
} // namespace

llvm::Error
Compilation::runPasses(bool stopAtKernels,
                       llvm::function_ref<void(PassManager &)> configure) {
  Stopwatch watch;
  dropOtherEntries(*module, entry);
  entry->setAttr(LLVM::LLVMDialect::getEmitCWrapperAttrName(),
                 UnitAttr::get(&context));
  PassManager pm(&context);
  // Once at the end is enough for a pipeline that is tested pass by pass.
  pm.enableVerifier(false);
  pm.addInstrumentation(std::make_unique<HeadroomInstrumentation>());
  if (configure)
    configure(pm);
  if (llvm::Error error = buildPipeline(pm, options, stopAtKernels))
    return error;
  if (failed(pm.run(*module)) || failed(mlir::verify(*module)))
    return takeDiagnostics("the pass pipeline for target '" +
                           fovea::getName(options.target) + "' failed");
  impl->times.passes = watch.lap();
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<llvm::Module>>
Compilation::translate(llvm::LLVMContext &llvmContext,
                       llvm::TargetMachine &machine, StringRef &entryName) {
  fovea::detail::checkHeadroom();
  Stopwatch watch;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(*module, llvmContext, options.sourceName);
  if (!llvmModule)
    return takeDiagnostics("cannot translate to LLVM IR");
  llvmModule->setTargetTriple(machine.getTargetTriple());
  llvmModule->setDataLayout(machine.createDataLayout());
  llvm::Expected<StringRef> symbol =
      fovea::detail::addPackedEntry(*llvmModule, *impl);
  if (!symbol)
    return symbol.takeError();
  entryName = *symbol;
  impl->times.translate = watch.lap();
  return llvmModule;
}

static llvm::Expected<Kernel> compileHere(StringRef text,
                                          const CompileOptions &options) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine =
      fovea::detail::createHostTargetMachine(
          llvm::StringRef(options.cpu).split(',').first);
  if (!machine)
    return machine.takeError();
  Compilation compilation(options);
  Kernel::Impl &impl = *compilation.impl;
  impl.cpu = (*machine)->getTargetCPU().str();
  impl.text = text.str();
  impl.options = options;
  if (llvm::Error error = compilation.parse(text))
    return std::move(error);
  if (llvm::Error error = compilation.runPasses())
    return std::move(error);
  llvm::LLVMContext llvmContext;
  StringRef symbol;
  llvm::Expected<std::unique_ptr<llvm::Module>> llvmModule =
      compilation.translate(llvmContext, **machine, symbol);
  if (!llvmModule)
    return llvmModule.takeError();
  llvm::Expected<std::unique_ptr<fovea::detail::LoadedCode>> code =
      fovea::detail::LoadedCode::create(**llvmModule, symbol, **machine,
                                        options.optLevel, impl.times);
  if (!code)
    return code.takeError();
  impl.setCode(std::move(*code));
  impl.diagnostics = compilation.diagnostics;
  return Kernel(compilation.impl);
}

llvm::Expected<Kernel> fovea::compile(StringRef text,
                                      const CompileOptions &options) {
  return fovea::detail::compileOnThread<Kernel>(
      [&] { return compileHere(text, options); });
}

llvm::Expected<Kernel> fovea::compile(ModuleOp module,
                                      const CompileOptions &options) {
  // A context of our own: the caller's may lack dialects, or be in use.
  std::string text;
  llvm::raw_string_ostream os(text);
  // Names of arguments, for errors, are in their locations.
  module.print(os, OpPrintingFlags()
                       .enableDebugInfo()
                       .useLocalScope()
                       .printNameLocAsPrefix());
  return compile(text, options);
}

llvm::Expected<Kernel> fovea::compileVJP(const Kernel &kernel,
                                         const VJPOptions &options) {
  const Kernel::Impl &impl = kernel.getImpl();
  CompileOptions compileOptions = impl.options;
  compileOptions.vjps.push_back(options);
  return KernelCache::getGlobal().getOrCompile(impl.text, compileOptions);
}
