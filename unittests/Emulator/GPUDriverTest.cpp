//===- GPUDriverTest.cpp - Kernels through the runtime --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/GPUDriver.h"
#include "EmulatorTestUtils.h"
#include "fovea_rt/fovea_rt.h"
#include "fovea_rt/gpu.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/IR/Constants.h"

using namespace fovea::simt;
using namespace fovea::simt::test;
using testing::HasSubstr;

namespace {

constexpr int32_t kKind = FOVEA_RT_GPU_EMULATOR;

static std::string makeBitcode(const std::string &body) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  auto module =
      llvm::parseAssemblyString(makeModule(body), diagnostic, context);
  std::string bitcode;
  llvm::raw_string_ostream stream(bitcode);
  llvm::WriteBitcodeToFile(*module, stream);
  return bitcode;
}

const char *const addOne = R"(
define ptx_kernel void @add_one(ptr %x, i64 %n) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %i = zext i32 %tid to i64
  %inside = icmp ult i64 %i, %n
  br i1 %inside, label %body, label %end
body:
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %s = fadd float %v, 1.0
  store float %s, ptr %p
  br label %end
end:
  ret void
}
)";

class GPUDriver : public testing::Test {
protected:
  void SetUp() override {
    registerEmulator();
    bitcode = makeBitcode(addOne);
    module.name = "test";
    module.bitcode = bitcode.data();
    module.bitcode_bytes = bitcode.size();
    before = countDevice();
  }
  void TearDown() override {
    fovea_rt_gpu_unload(&module);
    setLaunchObserver(nullptr);
    setModuleEditor(nullptr);
    EXPECT_EQ(countDevice(), before);
  }

  struct Call {
    fovea_rt_gpu_function *function;
    float *values;
    int64_t mapped, count, numParams, cluster;
  };
  /// Adds one to `count` of the `mapped` values.
  fovea_rt_status run(float *values, int64_t mapped, int64_t count,
                      int64_t numParams = 2, int64_t cluster = 1) {
    Call call{&function, values, mapped, count, numParams, cluster};
    void *args[] = {&call};
    return fovea_rt_invoke(
        [](void **args) {
          Call call = *static_cast<Call *>(args[0]);
          fovea_rt_gpu_queue *queue = fovea_rt_gpu_begin(kKind);
          void *device =
              fovea_rt_gpu_map(queue, call.values, call.mapped * 4,
                               FOVEA_RT_GPU_READ | FOVEA_RT_GPU_WRITE);
          void *params[] = {&device, &call.count};
          fovea_rt_gpu_launch(queue, call.function, 1, 1, 1, 128, 1, 1,
                              call.cluster, 1, 1, 0, params, call.numParams);
          fovea_rt_gpu_end(queue);
        },
        args);
  }

  std::string bitcode;
  fovea_rt_gpu_module module = {};
  fovea_rt_gpu_function function = {&module, "add_one", nullptr};
  size_t before = 0;
};

TEST_F(GPUDriver, RunsTheSameHostCode) {
  std::string observed;
  setLaunchObserver([&](const char *kernel, const Counters &counters) {
    observed = kernel + std::string(" ") + std::to_string(counters.threads);
  });
  std::vector<float> values(100, 1.0f);
  ASSERT_EQ(run(values.data(), 100, 100), FOVEA_RT_OK) << fovea_rt_last_error();
  EXPECT_EQ(values, std::vector<float>(100, 2.0f));
  EXPECT_EQ(observed, "add_one 128");
}

/// A kernel that is loaded follows each editor, and one that an editor leaves
/// without a body is what was loaded.
TEST_F(GPUDriver, EditsWhatIsLoaded) {
  float value = 1;
  auto expect = [&](float expected) {
    value = 1;
    ASSERT_EQ(run(&value, 1, 1), FOVEA_RT_OK) << fovea_rt_last_error();
    EXPECT_EQ(value, expected);
  };
  expect(2);
  int calls = 0;
  setModuleEditor([&](llvm::Module &module) {
    ++calls;
    llvm::BasicBlock &body = *std::next(module.getFunction("add_one")->begin());
    for (llvm::Instruction &instruction : body)
      if (instruction.getOpcode() == llvm::Instruction::FAdd)
        instruction.setOperand(
            1, llvm::ConstantFP::get(instruction.getType(), 4.0));
  });
  expect(5);
  expect(5);
  EXPECT_EQ(calls, 1);
  setModuleEditor([](llvm::Module &module) {
    llvm::Function &function = *module.getFunction("add_one");
    llvm::Function *other = llvm::Function::Create(
        function.getFunctionType(), llvm::Function::ExternalLinkage, "other",
        module);
    other->setCallingConv(function.getCallingConv());
    other->splice(other->begin(), &function);
    for (auto [mine, theirs] : llvm::zip(other->args(), function.args()))
      theirs.replaceAllUsesWith(&mine);
  });
  expect(2);
  setModuleEditor(nullptr);
  expect(2);
}

TEST_F(GPUDriver, ReportsErrorsOfTheEmulator) {
  std::vector<float> values(100, 1.0f);
  EXPECT_EQ(run(values.data(), 100, 101), FOVEA_RT_DEVICE);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("kernel 'add_one', block (0, 0, 0), thread 100: access "
                        "to address"));
  EXPECT_EQ(values, std::vector<float>(100, 1.0f));
}

TEST_F(GPUDriver, ChecksTheNumberOfParameters) {
  float value = 0;
  EXPECT_EQ(run(&value, 1, 1, 1), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(),
               "kernel 'add_one' has 2 parameters, but got 1");
}

TEST_F(GPUDriver, RefusesClustersThatKernelsDoNotDemand) {
  float value = 0;
  EXPECT_EQ(run(&value, 1, 1, 2, /*cluster=*/2), FOVEA_RT_UNAVAILABLE);
  EXPECT_STREQ(fovea_rt_last_error(),
               "kernel 'add_one' is launched in clusters of 2 x 1 x 1 blocks, "
               "but demands 1 x 1 x 1; others are not emulated");
}

TEST_F(GPUDriver, ReportsCodeThatIsNotEmulated) {
  float value = 0;
  std::string bad = makeBitcode(R"(
define ptx_kernel void @add_one(ptr %x, i64 %n) {
  call void asm sideeffect "frobnicate;", ""()
  ret void
}
)");
  module.bitcode = bad.data();
  module.bitcode_bytes = bad.size();
  EXPECT_EQ(run(&value, 1, 1), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_THAT(fovea_rt_last_error(),
              HasSubstr("the emulator refuses module 'test': inline assembly: "
                        "instruction 'frobnicate' is not emulated"));
  module.bitcode = nullptr;
  EXPECT_EQ(run(&value, 1, 1), FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_STREQ(fovea_rt_last_error(), "module 'test' has no bitcode: it was "
                                      "compiled for a GPU only");
}

TEST_F(GPUDriver, ReportsMissingKernels) {
  float value = 0;
  function.name = "other";
  EXPECT_EQ(run(&value, 1, 1), FOVEA_RT_DEVICE);
  EXPECT_STREQ(fovea_rt_last_error(), "the module has no kernel 'other'");
}

TEST_F(GPUDriver, MovesMemory) {
  void *pointer;
  float values[4] = {1, 2, 3, 4}, back[4] = {};
  ASSERT_EQ(fovea_rt_gpu_acquire(kKind, 16, &pointer), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_transfer(kKind, pointer, values, 16), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_transfer(kKind, back, pointer, 16), FOVEA_RT_OK);
  EXPECT_EQ(back[3], 4);
  EXPECT_EQ(fovea_rt_gpu_transfer(kKind, pointer, values, 17),
            FOVEA_RT_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, pointer), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_release(kKind, values), FOVEA_RT_INVALID_ARGUMENT);
}

TEST_F(GPUDriver, DescribesItself) {
  fovea_rt_gpu_properties properties;
  ASSERT_EQ(fovea_rt_gpu_get_properties(kKind, 0, &properties), FOVEA_RT_OK);
  EXPECT_STREQ(properties.name, "Fovea SIMT emulator");
  EXPECT_EQ(properties.multiprocessors, 2);
  EXPECT_EQ(fovea_rt_gpu_get_properties(kKind, 1, &properties),
            FOVEA_RT_UNAVAILABLE);
}

} // namespace
