//===- KernelMutation.cpp - Kernels with one instruction less -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelMutation.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include <cmath>
#include <cstdlib>
#include <limits>

using namespace llvm;
using namespace fovea;
using namespace fovea::test;

namespace {
struct Halves {
  Halves(int64_t rows, double phase, int64_t width, int64_t heads = 1)
      : shape{1, heads, rows, width}, bits(heads * rows * width) {
    for (size_t i = 0; i < bits.size(); ++i)
      setElement(bits.data(), ElementType::F16, i,
                 std::sin(12.9898 * i + phase));
  }
  /// Makes two numbers of a row NaN, in an even column and in an odd one.
  void spoil(int64_t row) {
    for (int64_t column : {row % 32, row % 32 + 31})
      setElement(bits.data(), ElementType::F16, row * shape[3] + column,
                 std::numeric_limits<double>::quiet_NaN());
  }
  operator TensorRef() {
    return {bits.data(), ElementType::F16, shape, {}, true};
  }

  std::vector<int64_t> shape;
  std::vector<uint16_t> bits;
};

} // namespace

/// What an instruction is called: its intrinsic, its assembly, or an operation
/// of two operands, such as "xor".
static std::string nameOf(const Instruction &instruction) {
  if (instruction.isBinaryOp())
    return instruction.getOpcodeName();
  auto *call = dyn_cast<CallBase>(&instruction);
  if (!call)
    return "";
  if (auto *code = dyn_cast<InlineAsm>(call->getCalledOperand()))
    return code->getAsmString().str();
  const Function *callee = call->getCalledFunction();
  return callee ? callee->getName().str() : "";
}

/// The instructions that have names.
static SmallVector<Instruction *> findNamed(Module &module) {
  SmallVector<Instruction *> named;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (!nameOf(instruction).empty())
        named.push_back(&instruction);
  return named;
}

/// One of how many instructions to remove.
static size_t getEvery() {
  const char *text = std::getenv("FOVEA_EVERY");
  size_t every = 1;
  if (text && (StringRef(text).getAsInteger(10, every) || every == 0))
    report_fatal_error("FOVEA_EVERY must be a positive number");
  return every;
}

/// Removes an instruction; the last operand of its type, or 0, stands for it.
static void remove(Instruction &instruction) {
  Type *type = instruction.getType();
  if (!type->isVoidTy()) {
    Value *instead = Constant::getNullValue(type);
    for (Value *operand : instruction.operands())
      if (operand->getType() == type && !isa<Constant>(operand))
        instead = operand;
    instruction.replaceAllUsesWith(instead);
  }
  instruction.eraseFromParent();
}

/// Removes the bodies of the other functions.
static void keepOnly(Function &kept) {
  for (Function &function : *kept.getParent())
    if (&function != &kept && !function.isDeclaration())
      function.deleteBody();
}

void KernelMutation::SetUp() {
  if (isQuick())
    GTEST_SKIP() << "FOVEA_QUICK leaves out kernels with one instruction less";
}

void KernelMutation::TearDown() {
  simt::setModuleEditor(nullptr);
  simt::setEmulatorOptions(options);
}

Kernel KernelMutation::compile() {
  CompileOptions options;
  options.target = Target::GPUEmulator;
  options.chip = GetParam();
  std::string text;
  raw_string_ostream os(text);
  os << "!q = tensor<1x" << example.heads << 'x' << example.queries << 'x'
     << example.width << "xf16>\n!k = tensor<1x1x" << example.rows << 'x'
     << example.width << "xf16>\n";
  if (example.areGradients)
    os << "!l = tensor<1x" << example.heads << 'x' << example.queries
       << "xf32>\n";
  os << example.text;
  return compileOrDie(text, options);
}

std::string KernelMutation::run(std::vector<uint16_t> &output) {
  int64_t heads = example.heads, queries = example.queries,
          width = example.width;
  Halves q(queries, 0, width, heads), k(example.rows, 1, width),
      v(example.rows, 2, width), out(queries, 3, width, heads),
      d(queries, 4, width, heads);
  for (int64_t row : spoiledValues)
    v.spoil(row);
  for (int64_t row : spoiledKeys)
    k.spoil(row);
  for (int64_t row : spoiledQueries)
    q.spoil(row);
  for (int64_t row : spoiledGradients)
    d.spoil(row);
  std::vector<float> lse(heads * queries, 4.0f);
  std::vector<int64_t> lseShape = {1, heads, queries};
  SmallVector<TensorRef> arguments = {q, k, v};
  if (example.areGradients)
    arguments.append(
        {out, {lse.data(), ElementType::F32, lseShape, {}, true}, d});
  SmallVector<OwnedTensor> results;
  if (Error error = kernel.invoke(arguments, results))
    return toString(std::move(error));
  output.clear();
  for (const OwnedTensor &result : results) {
    const auto *bits = static_cast<const uint16_t *>(result.getData());
    output.insert(output.end(), bits, bits + result.getNumBytes() / 2);
  }
  return "";
}

bool KernelMutation::survives(size_t number) {
  // The other kernels run as they are, so that they are not translated again.
  simt::setModuleEditor([&](Module &module) {
    Instruction &site = *findNamed(module)[number];
    keepOnly(*site.getFunction());
    remove(site);
  });
  for (auto [seed, eager] : {std::pair(0u, false),
                             {8u, false},
                             {21u, false},
                             {0u, true},
                             {8u, true}}) {
    simt::Options schedule = options;
    schedule.seed = seed;
    schedule.eager = eager;
    simt::setEmulatorOptions(schedule);
    std::vector<uint16_t> output;
    // Bit by bit: the order of sums does not depend on schedules.
    if (!run(output).empty() || output != expected)
      return false;
  }
  return true;
}

void KernelMutation::runWhole() {
  Source sourceNow = {example.text, example.queries, example.rows,
                      example.heads, example.width};
  Spoiled spoiledNow = {spoiledValues, spoiledKeys, spoiledQueries,
                        spoiledGradients};
  if (source == sourceNow && spoiled == spoiledNow)
    return;
  simt::setModuleEditor(nullptr);
  if (source != sourceNow) {
    named.clear();
    // Called when the kernel is first run.
    simt::setModuleEditor([&](Module &module) {
      for (Instruction *instruction : findNamed(module))
        named.push_back({nameOf(*instruction),
                         instruction->getFunction()->getName().str()});
    });
    kernel = compile();
  }
  EXPECT_EQ(run(expected), "");
  source = sourceNow;
  spoiled = spoiledNow;
}

void KernelMutation::expectMissed(StringRef part, ArrayRef<size_t> spare) {
  runWhole();
  SmallVector<size_t> sites;
  for (auto [number, site] : llvm::enumerate(named))
    if (StringRef(site.name).contains(part) &&
        StringRef(site.kernel).ends_with(kernelName))
      sites.push_back(number);
  EXPECT_GT(sites.size(), spare.size()) << part.str();
  // At least one that must be missed, however few are looked at.
  size_t first = 0;
  while (is_contained(spare, first))
    ++first;
  size_t every = getEvery();
  for (size_t i = first % every; i < sites.size(); i += every)
    EXPECT_EQ(survives(sites[i]), is_contained(spare, i))
        << part.str() << ' ' << i << " of " << named[sites[i]].kernel;
}
