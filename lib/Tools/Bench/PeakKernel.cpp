//===- PeakKernel.cpp - The most this machine can compute -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Tools/Bench/PeakKernel.h"
#include "fovea/ExecutionEngine/JIT.h"
#include "fovea/Target/CPU/CPUInfo.h"
#include "fovea/Target/CPU/HostTarget.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/MC/MCSubtargetInfo.h"

using namespace llvm;
using namespace fovea;

static constexpr StringLiteral kLoopName = "fovea_peak_loop";

/// Adds `void loop(i64 iterations, ptr sink)`: in each iteration every
/// accumulator takes one multiply-add, in bf16 a dot product of two pairs.
/// Returns the number of accumulators.
static unsigned addLoop(Module &module, ElementType type, const CPUInfo &cpu) {
  LLVMContext &context = module.getContext();
  Type *elementType = type == ElementType::F64 ? Type::getDoubleTy(context)
                                               : Type::getFloatTy(context);
  auto *vectorType = FixedVectorType::get(
      elementType, cpu.vectorBits / elementType->getPrimitiveSizeInBits());
  FixedVectorType *factorType = vectorType;
  if (type == ElementType::BF16)
    factorType =
        FixedVectorType::get(Type::getBFloatTy(context), cpu.vectorBits / 16);
  // Enough to hide the latency of a multiply-add, few enough to stay in
  // registers beside the two factors.
  unsigned count = cpu.numRegisters / 2 + 4;
  if (cpu.numRegisters == 16)
    count = 12;
  IRBuilder<> builder(context);
  auto *loop = Function::Create(
      FunctionType::get(builder.getVoidTy(),
                        {builder.getInt64Ty(), builder.getPtrTy()}, false),
      GlobalValue::ExternalLinkage, kLoopName, module);
  Value *iterations = loop->getArg(0), *sink = loop->getArg(1);
  auto *entry = BasicBlock::Create(context, "entry", loop);
  auto *body = BasicBlock::Create(context, "body", loop);
  auto *exit = BasicBlock::Create(context, "exit", loop);

  // The factors come from memory, so that nothing can be computed ahead.
  builder.SetInsertPoint(entry);
  Value *a = builder.CreateAlignedLoad(factorType, sink, Align(4));
  Value *b = builder.CreateAlignedLoad(
      factorType, builder.CreateConstGEP1_64(factorType, sink, 1), Align(4));
  builder.CreateBr(body);

  builder.SetInsertPoint(body);
  PHINode *counter = builder.CreatePHI(builder.getInt64Ty(), 2);
  counter->addIncoming(builder.getInt64(0), entry);
  SmallVector<PHINode *> accumulators;
  for (unsigned i = 0; i < count; ++i) {
    accumulators.push_back(builder.CreatePHI(vectorType, 2));
    accumulators.back()->addIncoming(ConstantFP::get(vectorType, double(i)),
                                     entry);
  }
  SmallVector<Value *> next;
  for (PHINode *accumulator : accumulators) {
    next.push_back(
        type == ElementType::BF16
            ? builder.CreateIntrinsic(Intrinsic::x86_avx512bf16_dpbf16ps_512,
                                      {}, {accumulator, a, b})
            : builder.CreateIntrinsic(Intrinsic::fmuladd, {vectorType},
                                      {accumulator, a, b}));
    accumulator->addIncoming(next.back(), body);
  }
  Value *incremented = builder.CreateAdd(counter, builder.getInt64(1));
  counter->addIncoming(incremented, body);
  builder.CreateCondBr(builder.CreateICmpULT(incremented, iterations), body,
                       exit);

  builder.SetInsertPoint(exit);
  Value *sum = next[0];
  for (unsigned i = 1; i < count; ++i)
    sum = builder.CreateFAdd(sum, next[i]);
  builder.CreateAlignedStore(sum, sink, Align(4));
  builder.CreateRetVoid();
  return count;
}

Expected<PeakKernel> PeakKernel::create(ElementType type) {
  assert((type == ElementType::F32 || type == ElementType::F64 ||
          type == ElementType::BF16) &&
         "no peak for this type");
  Expected<std::unique_ptr<TargetMachine>> machine =
      detail::createHostTargetMachine("native");
  if (!machine)
    return machine.takeError();
  Expected<CPUInfo> cpu = getCPUInfo("native");
  if (!cpu)
    return cpu.takeError();
  if (type == ElementType::BF16 &&
      !(cpu->vectorBits == 512 &&
        (*machine)->getMCSubtargetInfo()->checkFeatures("+avx512bf16")))
    return createStringError("this CPU has no dot products of bf16");
  LLVMContext context;
  Module module("peak", context);
  module.setTargetTriple((*machine)->getTargetTriple());
  module.setDataLayout((*machine)->createDataLayout());
  unsigned count = addLoop(module, type, *cpu);

  PeakKernel peak;
  peak.flopsPerIteration =
      2.0 * count * cpu->vectorBits / (8 * getByteWidth(type));
  CompileTimes times;
  Expected<std::unique_ptr<detail::LoadedCode>> code =
      detail::LoadedCode::create(module, kLoopName, **machine, /*optLevel=*/1,
                                 times);
  if (!code)
    return code.takeError();
  peak.loop = (*code)->getEntry<void(int64_t, void *)>();
  peak.code = std::shared_ptr<const void>(std::move(*code));
  return peak;
}

double PeakKernel::measure(double seconds, Clock clock) const {
  // Two factors of one vector each, all zero, so that everything stays finite.
  alignas(64) char sink[128] = {};
  int64_t iterations = 1 << 14;
  double elapsed = 0;
  // Grow until the loop runs long enough to be timed well.
  while (true) {
    double start = now(clock);
    loop(iterations, sink);
    elapsed = now(clock) - start;
    if (elapsed >= seconds / 2)
      break;
    double factor = elapsed > 0 ? seconds / elapsed : 16;
    iterations *= std::clamp(factor, 2.0, 16.0);
  }
  return iterations * flopsPerIteration / elapsed;
}
