//===- RuntimeSymbols.cpp - What generated code may call ------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Generated code is bound to addresses known here, not to whatever the dynamic
// linker finds first: the process may have been started by a program that hides
// our libraries, as Python does.
//
//===----------------------------------------------------------------------===//

#include "fovea/ExecutionEngine/RuntimeSymbols.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea_rt/abi.h"
#include "fovea_rt/gpu.h"
#include "llvm/IR/Module.h"
#include <cmath>
#include <cstring>

using namespace llvm;
using namespace fovea;

// Generated code passes these numbers.
static_assert(int32_t(attn::DeviceCheck::Codes) == FOVEA_RT_GPU_CODES &&
              int32_t(attn::DeviceCheck::CodesOrAbsent) ==
                  FOVEA_RT_GPU_CODES_OR_ABSENT &&
              int32_t(attn::DeviceCheck::Rows) == FOVEA_RT_GPU_ROWS &&
              int32_t(attn::DeviceCheck::Intervals) == FOVEA_RT_GPU_INTERVALS &&
              int32_t(attn::DeviceCheck::Sizes) == FOVEA_RT_GPU_SIZES &&
              int32_t(attn::DeviceCheck::Nodes) == FOVEA_RT_GPU_NODES &&
              attn::kFailureWords == FOVEA_RT_GPU_FAILURE_WORDS);
static_assert(int32_t(attn::DeviceType::F16) == FOVEA_RT_GPU_F16 &&
              int32_t(attn::DeviceType::F32) == FOVEA_RT_GPU_F32 &&
              int32_t(attn::DeviceType::BF16) == FOVEA_RT_GPU_BF16);
static_assert(int64_t(attn::product::Batch) == FOVEA_RT_GPU_AXIS_BATCH &&
              int64_t(attn::product::Rows) == FOVEA_RT_GPU_AXIS_ROWS &&
              int64_t(attn::product::Columns) == FOVEA_RT_GPU_AXIS_COLUMNS &&
              int64_t(attn::product::Depth) == FOVEA_RT_GPU_AXIS_DEPTH &&
              int32_t(attn::product::Add) == FOVEA_RT_GPU_ADD &&
              int32_t(attn::product::TF32) == FOVEA_RT_GPU_TF32 &&
              attn::product::kAxisNumbers == FOVEA_RT_GPU_AXIS_NUMBERS &&
              attn::product::kMostAxes == FOVEA_RT_GPU_MOST_AXES);

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

orc::SymbolMap fovea::getRuntimeSymbols(orc::MangleAndInterner &mangle) {
  orc::SymbolMap symbols;
  auto add = [&](StringRef name, auto *function) {
    symbols[mangle(name)] = {
        orc::ExecutorAddr::fromPtr(reinterpret_cast<void *>(function)),
        JITSymbolFlags::Exported | JITSymbolFlags::Callable};
  };
#define FOVEA_ADD(name) add(#name, &::name)
  FOVEA_ADD(fovea_rt_parallel_for);
  FOVEA_ADD(fovea_rt_loop_threads);
  FOVEA_ADD(fovea_rt_wait_for_turn);
  FOVEA_ADD(fovea_rt_end_turn);
  FOVEA_ADD(fovea_rt_fail);
  FOVEA_ADD(fovea_rt_check_interrupt);
  FOVEA_ADD(fovea_rt_check_codes);
  FOVEA_ADD(fovea_rt_check_codes_or_absent);
  FOVEA_ADD(fovea_rt_check_rows);
  FOVEA_ADD(fovea_rt_check_extent);
  FOVEA_ADD(fovea_rt_check_intervals);
  FOVEA_ADD(fovea_rt_check_ranges);
  FOVEA_ADD(fovea_rt_check_distances);
  FOVEA_ADD(fovea_rt_check_separate);
  FOVEA_ADD(fovea_rt_check_multiple);
  FOVEA_ADD(fovea_rt_check_sizes);
  FOVEA_ADD(fovea_rt_fft_twiddles);
  FOVEA_ADD(fovea_rt_count_recomputed);
  FOVEA_ADD(fovea_rt_check_nodes);
  FOVEA_ADD(fovea_rt_alloc);
  FOVEA_ADD(fovea_rt_free);
  FOVEA_ADD(_mlir_memref_to_llvm_alloc);
  FOVEA_ADD(_mlir_memref_to_llvm_aligned_alloc);
  FOVEA_ADD(_mlir_memref_to_llvm_free);
  FOVEA_ADD(__truncsfbf2);
  FOVEA_ADD(__truncdfbf2);
  FOVEA_ADD(__truncsfhf2);
  FOVEA_ADD(__truncdfhf2);
  FOVEA_ADD(__extendhfsf2);
  FOVEA_ADD(__extendbfsf2);
  FOVEA_ADD(fovea_rt_gpu_begin);
  FOVEA_ADD(fovea_rt_gpu_end);
  FOVEA_ADD(fovea_rt_gpu_launch);
  FOVEA_ADD(fovea_rt_gpu_alloc);
  FOVEA_ADD(fovea_rt_gpu_alloc_result);
  FOVEA_ADD(fovea_rt_gpu_encode_tensor_map);
  FOVEA_ADD(fovea_rt_gpu_transform);
  FOVEA_ADD(fovea_rt_gpu_has_transforms);
  FOVEA_ADD(fovea_rt_gpu_multiprocessors);
  FOVEA_ADD(fovea_rt_gpu_multiply);
  FOVEA_ADD(fovea_rt_gpu_free);
  FOVEA_ADD(fovea_rt_gpu_map);
  FOVEA_ADD(fovea_rt_gpu_map_rows);
  FOVEA_ADD(fovea_rt_gpu_copy);
  FOVEA_ADD(fovea_rt_gpu_constant);
  FOVEA_ADD(fovea_rt_gpu_forget);
  FOVEA_ADD(fovea_rt_gpu_fill);
  FOVEA_ADD(fovea_rt_gpu_failure);
  FOVEA_ADD(fovea_rt_gpu_rule);
  FOVEA_ADD(fovea_rt_gpu_report);
  FOVEA_ADD(fovea_rt_gpu_unload);
  FOVEA_ADD(memcpy);
  FOVEA_ADD(memmove);
  FOVEA_ADD(memset);
#undef FOVEA_ADD

#define FOVEA_ADD_MATH(name)                                                   \
  add(#name, static_cast<double (*)(double)>(&::name));                        \
  add(#name "f", static_cast<float (*)(float)>(&::name##f))
  FOVEA_ADD_MATH(exp);
  FOVEA_ADD_MATH(exp2);
  FOVEA_ADD_MATH(expm1);
  FOVEA_ADD_MATH(log);
  FOVEA_ADD_MATH(log2);
  FOVEA_ADD_MATH(log10);
  FOVEA_ADD_MATH(log1p);
  FOVEA_ADD_MATH(sqrt);
  FOVEA_ADD_MATH(sin);
  FOVEA_ADD_MATH(cos);
  FOVEA_ADD_MATH(tanh);
  FOVEA_ADD_MATH(erf);
  FOVEA_ADD_MATH(floor);
  FOVEA_ADD_MATH(ceil);
  FOVEA_ADD_MATH(trunc);
  FOVEA_ADD_MATH(round);
  FOVEA_ADD_MATH(roundeven);
  FOVEA_ADD_MATH(rint);
  FOVEA_ADD_MATH(nearbyint);
#undef FOVEA_ADD_MATH
#define FOVEA_ADD_MATH2(name)                                                  \
  add(#name, static_cast<double (*)(double, double)>(&::name));                \
  add(#name "f", static_cast<float (*)(float, float)>(&::name##f))
  FOVEA_ADD_MATH2(pow);
  FOVEA_ADD_MATH2(fmod);
  FOVEA_ADD_MATH2(fmax);
  FOVEA_ADD_MATH2(fmin);
#undef FOVEA_ADD_MATH2
  add("fma", static_cast<double (*)(double, double, double)>(&::fma));
  add("fmaf", static_cast<float (*)(float, float, float)>(&::fmaf));
  add("ldexp", static_cast<double (*)(double, int)>(&::ldexp));
  add("ldexpf", static_cast<float (*)(float, int)>(&::ldexpf));
  return symbols;
}

CallInst *fovea::emitCall(IRBuilderBase &builder, StringRef name, Type *result,
                          ArrayRef<Value *> operands) {
  SmallVector<Type *> types;
  for (Value *operand : operands)
    types.push_back(operand->getType());
  return builder.CreateCall(
      builder.GetInsertBlock()->getModule()->getOrInsertFunction(
          name, FunctionType::get(result, types, /*isVarArg=*/false)),
      operands);
}
