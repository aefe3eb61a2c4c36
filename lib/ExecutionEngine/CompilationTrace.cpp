//===- CompilationTrace.cpp - What a compilation does ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/CompilationTrace.h"
#include "Compilation.h"
#include "CompilerThread.h"
#include "RuntimeUse.h"
#include "fovea/ExecutionEngine/JIT.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "mlir/IR/Remarks.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace fovea;
using fovea::detail::Compilation;

//===----------------------------------------------------------------------===//
// Operations and remarks
//===----------------------------------------------------------------------===//

/// What an operation's location is called while passes rewrite it.
static constexpr StringLiteral kOperation = "operation:";

/// Gives the operations of `function` locations that tell their numbers, which
/// what they are lowered to has, too.
static void numberOperations(Operation *function) {
  unsigned number = 0;
  MLIRContext *context = function->getContext();
  function->walk([&](Operation *op) {
    auto name = StringAttr::get(context, kOperation + Twine(number++));
    op->setLoc(NameLoc::get(name, op->getLoc()));
  });
}

static std::optional<unsigned> findOperation(Location location) {
  std::optional<unsigned> number;
  location->walk([&](Location part) {
    unsigned found;
    auto name = dyn_cast<NameLoc>(part);
    StringRef text = name ? name.getName().getValue() : StringRef();
    if (!text.consume_front(kOperation) || text.getAsInteger(10, found))
      return WalkResult::advance();
    number = found;
    return WalkResult::interrupt();
  });
  return number;
}

namespace {
/// Keeps remarks as they come.
struct RemarkKeeper : remark::detail::MLIRRemarkStreamerBase {
  explicit RemarkKeeper(std::vector<PassDecision> &decisions)
      : decisions(decisions) {}

  void streamOptimizationRemark(const remark::detail::Remark &remark) override {
    PassDecision decision{remark.getCategoryName().str(),
                          remark.getRemarkName().str(),
                          remark.getRemarkType() == llvm::remarks::Type::Passed,
                          findOperation(remark.getLocation()),
                          {}};
    for (const remark::detail::Remark::Arg &arg : remark.getArgs())
      decision.values.push_back({arg.key, arg.val});
    decisions.push_back(std::move(decision));
  }

  std::vector<PassDecision> &decisions;
};
} // namespace

//===----------------------------------------------------------------------===//
// Passes
//===----------------------------------------------------------------------===//

namespace {
class PassWatcher : public PassInstrumentation {
public:
  PassWatcher(const TraceOptions &options, ModuleOp module, Operation *entry,
              const ArgumentShapes &shapes, CompilationTrace &trace)
      : options(options), module(module), entry(entry), shapes(shapes),
        trace(trace) {
    last = print();
    if (options.keepsStages)
      trace.stages.push_back({"input", last});
  }

  void runAfterPass(Pass *pass, Operation *op) override {
    // Adaptors run passes that come here themselves.
    if (pass->getArgument().empty())
      return;
    keepStage(pass);
    if (pass->getArgument() == "attn-raise" && op == entry)
      inspect();
  }

  /// Shows the entry, and numbers what it has.
  void inspect() {
    if (options.inspect)
      options.inspect(cast<FunctionOpInterface>(entry), shapes);
    numberOperations(entry);
  }

private:
  std::string print() const {
    std::string text;
    if (!options.keepsStages)
      return text;
    llvm::raw_string_ostream os(text);
    ModuleOp(module).print(os, OpPrintingFlags().elideLargeElementsAttrs(16));
    return text;
  }

  void keepStage(Pass *pass) {
    if (!options.keepsStages)
      return;
    std::string text = print();
    if (text == last)
      return;
    // A pass on functions comes once for each of them.
    if (pass != lastPass)
      trace.stages.push_back({pass->getArgument().str(), text});
    trace.stages.back().ir = text;
    lastPass = pass;
    last = std::move(text);
  }

  const TraceOptions &options;
  ModuleOp module;
  Operation *entry;
  const ArgumentShapes &shapes;
  CompilationTrace &trace;
  std::string last;
  Pass *lastPass = nullptr;
};
} // namespace

//===----------------------------------------------------------------------===//
// ArgumentShapes
//===----------------------------------------------------------------------===//

static llvm::Error checkShapes(const Kernel::Impl &impl,
                               const ArgumentShapes &shapes) {
  const Signature &signature = impl.signature;
  if (shapes.size() != signature.arguments.size())
    return llvm::createStringError(
        std::make_error_code(std::errc::invalid_argument),
        "@" + impl.name + " expects " + Twine(signature.arguments.size()) +
            " shapes, but got " + Twine(shapes.size()));
  SmallVector<TensorRef> inputs(shapes.size());
  for (auto [index, shape] : llvm::enumerate(shapes)) {
    const ValueSpec &spec = signature.arguments[index];
    bool fits =
        shape.size() == spec.shape.size() &&
        llvm::all_of(llvm::zip(shape, spec.shape), [](auto pair) {
          auto [found, needed] = pair;
          return found >= 0 && (needed == kDynamicExtent || found == needed);
        });
    if (!fits)
      return llvm::createStringError(
          std::make_error_code(std::errc::invalid_argument),
          impl.describeArgument(index) + ": expected a shape of type " +
              spec.getTypeString() + ", but got " +
              (shape.empty()
                   ? "none"
                   : llvm::join(llvm::map_range(shape,
                                                [](int64_t extent) {
                                                  return std::to_string(extent);
                                                }),
                                "x")));
    inputs[index].shape = shape;
  }
  for (const fovea::detail::ShapeConstraint &constraint : impl.constraints)
    if (llvm::Error error = constraint.check(inputs, [&](unsigned index) {
          return impl.describeArgument(index);
        }))
      return error;
  return llvm::Error::success();
}

/// Makes the extents of tensors in the memory descriptors that `function` takes
/// constants, so that what follows from them can be computed.
static void setExtents(llvm::Function &function, const Signature &signature,
                       const ArgumentShapes &shapes) {
  llvm::Type *word = llvm::Type::getInt64Ty(function.getContext());
  unsigned next = 0;
  for (auto [spec, shape] : llvm::zip_equal(signature.arguments, shapes)) {
    if (spec.isScalar) {
      ++next;
      continue;
    }
    // Two pointers and an offset, then extents and strides.
    next += 3;
    int64_t stride = 1;
    for (size_t dim = shape.size(); dim-- > 0;) {
      function.getArg(next + dim)
          ->replaceAllUsesWith(llvm::ConstantInt::get(word, shape[dim]));
      function.getArg(next + shape.size() + dim)
          ->replaceAllUsesWith(llvm::ConstantInt::get(word, stride));
      stride *= shape[dim];
    }
    next += 2 * shape.size();
  }
}

//===----------------------------------------------------------------------===//
// Compilation
//===----------------------------------------------------------------------===//

/// What the code of the host asks the runtime for.
static llvm::Error traceCode(Compilation &compilation,
                             const ArgumentShapes &shapes,
                             CompilationTrace &trace) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine =
      fovea::detail::createFileTargetMachine(
          StringRef(compilation.options.cpu).split(',').first);
  if (!machine)
    return machine.takeError();
  trace.cpu = (*machine)->getTargetCPU().str();
  llvm::LLVMContext context;
  StringRef symbol;
  llvm::Expected<std::unique_ptr<llvm::Module>> module =
      compilation.translate(context, **machine, symbol);
  if (!module)
    return module.takeError();
  for (llvm::Function &function : **module)
    if (!function.isDeclaration() && function.getName() != trace.name)
      function.setLinkage(llvm::GlobalValue::InternalLinkage);
  if (!shapes.empty())
    setExtents(*(*module)->getFunction(trace.name), trace.signature, shapes);
  fovea::detail::optimize(**module, **machine, /*optLevel=*/1);
  trace.workspace = fovea::detail::findWorkspace(**module);
  trace.loops = fovea::detail::findParallelLoops(**module);
  return llvm::Error::success();
}

static llvm::Expected<CompilationTrace>
traceHere(StringRef text, const CompileOptions &options,
          const TraceOptions &traceOptions) {
  Compilation compilation(options);
  if (llvm::Error error = compilation.parse(text))
    return std::move(error);
  CompilationTrace trace;
  trace.name = compilation.impl->name;
  trace.signature = compilation.impl->signature;
  ArgumentShapes shapes;
  if (traceOptions.getShapes) {
    llvm::Expected<ArgumentShapes> given =
        traceOptions.getShapes(trace.signature, [&](size_t index) {
          return compilation.impl->describeArgument(index);
        });
    if (!given)
      return given.takeError();
    shapes = std::move(*given);
    if (llvm::Error error = checkShapes(*compilation.impl, shapes))
      return std::move(error);
  }
  std::string all = ".*";
  if (failed(remark::enableOptimizationRemarks(
          compilation.context, std::make_unique<RemarkKeeper>(trace.decisions),
          std::make_unique<remark::RemarkEmittingPolicyAll>(),
          remark::RemarkCategories{{}, all, all, all, all})))
    return llvm::createStringError("cannot collect remarks");
  bool raises = options.raise && options.target != Target::Reference;
  llvm::Error error = compilation.runPasses(
      /*stopAtKernels=*/false, [&](PassManager &pm) {
        auto watcher =
            std::make_unique<PassWatcher>(traceOptions, *compilation.module,
                                          compilation.entry, shapes, trace);
        if (!raises)
          watcher->inspect();
        pm.addInstrumentation(std::move(watcher));
      });
  if (error)
    return std::move(error);
  if (llvm::Error error = traceCode(compilation, shapes, trace))
    return std::move(error);
  return std::move(trace);
}

llvm::Expected<CompilationTrace>
fovea::traceCompilation(StringRef text, const CompileOptions &options,
                        const TraceOptions &traceOptions) {
  return fovea::detail::compileOnThread<CompilationTrace>(
      [&] { return traceHere(text, options, traceOptions); });
}
