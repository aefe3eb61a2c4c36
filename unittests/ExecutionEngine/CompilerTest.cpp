//===- CompilerTest.cpp - Tests of compilation and its errors -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TestUtils.h"
#include "fovea/InitAllDialects.h"
#include "fovea_rt/gpu.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/TargetParser/Host.h"
#include <thread>

using namespace fovea;
using namespace fovea::test;
using testing::HasSubstr;
using testing::Not;

namespace {

TEST(CompilerTest, describesTheFunction) {
  Kernel kernel = compileOrDie(kAdd);
  EXPECT_EQ(kernel.getName(), "add");
  EXPECT_EQ(kernel.getSignature().getString(),
            "(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>)");
  EXPECT_EQ(kernel.getCPU(), llvm::sys::getHostCPUName());
  EXPECT_GT(kernel.getCompileTimes().getTotal(), 0);
}

TEST(CompilerTest, returnsDiagnosticsWithPlaceAndPrintsNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  CompileOptions options;
  options.sourceName = "kernel.mlir";
  std::string text = getText(compile("func.func @f() {\n  bogus\n}", options));
  EXPECT_THAT(text, HasSubstr("kernel.mlir:2:3: error: "));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(CompilerTest, returnsErrorsOfVerifiers) {
  std::string text = getText(compile(R"(
    func.func @f(%q: tensor<1x3x8x4xf32>, %k: tensor<1x2x8x4xf32>)
        -> tensor<1x3x8x4xf32> {
      %init = tensor.empty() : tensor<1x3x8x4xf32>
      %out = attn.dense ins(%q, %k, %k : tensor<1x3x8x4xf32>,
          tensor<1x2x8x4xf32>, tensor<1x2x8x4xf32>)
        outs(%init : tensor<1x3x8x4xf32>) -> tensor<1x3x8x4xf32>
      return %out : tensor<1x3x8x4xf32>
    })"));
  EXPECT_THAT(text, HasSubstr("error: 'attn.dense' op"));
}

constexpr const char *kSeveral = R"(
  func.func private @hidden() -> i32 {
    %0 = arith.constant 1 : i32
    return %0 : i32
  }
  func.func @first() -> i32 {
    %0 = func.call @hidden() : () -> i32
    return %0 : i32
  }
  func.func @second() -> i32 {
    %0 = func.call @elsewhere() : () -> i32
    return %0 : i32
  }
  func.func private @elsewhere() -> i32
)";

TEST(CompilerTest, takesTheFirstPublicFunctionUnlessTold) {
  EXPECT_EQ(compileOrDie(kSeveral).getName(), "first");
  CompileOptions options;
  options.entry = "@first";
  EXPECT_EQ(compileOrDie(kSeveral, options).getName(), "first");
}

TEST(CompilerTest, namesTheFunctionsThereAre) {
  CompileOptions options;
  options.entry = "third";
  EXPECT_EQ(getText(compile(kSeveral, options)),
            "no entry function '@third'; public functions of the module: "
            "@first, @second");
  options.entry = "hidden";
  EXPECT_THAT(getText(compile(kSeveral, options)),
              HasSubstr("'@hidden' is private"));
  options.entry = "elsewhere";
  EXPECT_THAT(getText(compile(kSeveral, options)), HasSubstr("has no body"));
  EXPECT_THAT(getText(compile("")),
              HasSubstr("expected a public function with a body"));
}

TEST(CompilerTest, rejectsUnknownFunctions) {
  testing::internal::CaptureStderr();
  CompileOptions options;
  options.entry = "second";
  EXPECT_THAT(getText(compile(kSeveral, options)), HasSubstr("elsewhere"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(CompilerTest, rejectsTypesThatTheHostCannotPass) {
  EXPECT_THAT(getText(compile("func.func @f(%x: vector<4xf32>) { return }")),
              HasSubstr("has argument 0 of type 'vector<4xf32>'"));
  EXPECT_THAT(getText(compile("func.func @f(%x: tensor<*xf32>) { return }")),
              HasSubstr("ranked tensors"));
  EXPECT_THAT(getText(compile("func.func @f(%x: tensor<4xi3>) { return }")),
              HasSubstr("'tensor<4xi3>'"));
}

TEST(CompilerTest, checksTheCPU) {
  testing::internal::CaptureStderr();
  CompileOptions options;
  options.cpu = "pentium-twelve";
  EXPECT_THAT(getText(compile(kAdd, options)),
              HasSubstr("unknown CPU 'pentium-twelve'"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
#ifdef __x86_64__
  options.cpu = "x86-64";
  EXPECT_EQ(compileOrDie(kAdd, options).getCPU(), "x86-64");
  // A processor with instructions that no other has.
  options.cpu = "bdver4";
  if (!llvm::sys::getHostCPUName().starts_with("bdver"))
    EXPECT_THAT(getText(compile(kAdd, options)), HasSubstr("which lacks"));
#endif
}

TEST(CompilerTest, knowsTheTargets) {
  EXPECT_EQ(llvm::cantFail(parseTarget("cpu")), Target::CPU);
  EXPECT_EQ(llvm::cantFail(parseTarget("reference")), Target::Reference);
  EXPECT_EQ(getText(parseTarget("gpu9")),
            "unknown target 'gpu9'; expected 'cpu', 'reference', 'gpu' or "
            "'gpu-sim'");
}

TEST(CompilerTest, differentiates) {
  Kernel kernel = compileOrDie(R"(
    func.func @f(%x: f32, %n: i32, %y: f32) -> f32 {
      %0 = arith.mulf %x, %y : f32
      return %0 : f32
    })");
  VJPOptions options;
  options.arguments = {2};
  options.primalResults = true;
  llvm::Expected<Kernel> vjp = compileVJP(kernel, options);
  ASSERT_TRUE(bool(vjp)) << getText(std::move(vjp));
  EXPECT_EQ(vjp->getName(), "f_vjp");
  EXPECT_EQ(vjp->getSignature().getString(),
            "(%x: f32, %n: i32, %y: f32, %d_result0: f32) -> (f32, f32)");
  float x = 3, y = 5, d = 2;
  int32_t n = 0;
  llvm::SmallVector<OwnedTensor> results;
  llvm::Error error = vjp->invoke({{&x, ElementType::F32},
                                   {&n, ElementType::I32},
                                   {&y, ElementType::F32},
                                   {&d, ElementType::F32}},
                                  results);
  ASSERT_FALSE(bool(error)) << llvm::toString(std::move(error));
  EXPECT_EQ(*results[0].getDataAs<float>(), 15);
  EXPECT_EQ(*results[1].getDataAs<float>(), 6);

  llvm::Expected<Kernel> second = compileVJP(*vjp);
  ASSERT_TRUE(bool(second)) << getText(std::move(second));
  EXPECT_EQ(second->getSignature().getString(),
            "(%x: f32, %n: i32, %y: f32, %d_result0: f32, %d_d_result0: f32, "
            "%d_d_result1: f32) -> (f32, f32, f32)");
  options.arguments = {1};
  EXPECT_THAT(getText(compileVJP(kernel, options)),
              HasSubstr("expected a floating-point type, but got 'i32'"));
}

TEST(CompilerTest, compilesForTheReference) {
  CompileOptions options;
  options.target = Target::Reference;
  Kernel kernel = compileOrDie(kAdd, options);
  Floats x({4}, {1, 2, 3, 4});
  llvm::SmallVector<OwnedTensor> results;
  ASSERT_EQ(getText(kernel.invoke({x, x}, results)), "");
  EXPECT_EQ(toFloats(results[0]), (std::vector<float>{2, 4, 6, 8}));
}

TEST(CompilerTest, leavesResultsWhereTheDataIs) {
  CompileOptions options;
  options.target = Target::GPUEmulator;
  Kernel kernel = compileOrDie(kAdd, options);
  constexpr int32_t kind = FOVEA_RT_GPU_EMULATOR;
  Floats x({4}, {1, 2, 3, 4});
  TensorRef onHost = x, onDevice = x;
  ASSERT_EQ(fovea_rt_gpu_acquire(kind, 48, &onDevice.data), FOVEA_RT_OK);
  // Kernels read copies of what is not aligned.
  TensorRef shifted = onDevice;
  shifted.data = static_cast<char *>(onDevice.data) + 20;
  for (const TensorRef &memory : {onDevice, shifted})
    ASSERT_EQ(fovea_rt_gpu_transfer(kind, memory.data, onHost.data, 16),
              FOVEA_RT_OK);
  llvm::SmallVector<OwnedTensor> results;
  for (auto [one, other] : {std::pair(onDevice, onDevice),
                            {onDevice, onHost},
                            {shifted, onHost},
                            {onDevice, shifted}}) {
    ASSERT_EQ(getText(kernel.invoke({one, other}, results)), "");
    std::vector<float> sum(4);
    ASSERT_EQ(fovea_rt_gpu_transfer(kind, sum.data(), results[0].getData(), 16),
              FOVEA_RT_OK);
    EXPECT_EQ(sum, (std::vector<float>{2, 4, 6, 8}));
  }
  ASSERT_EQ(getText(kernel.invoke({onDevice, onDevice}, results)), "");
  // Memory of the host would be refused.
  EXPECT_EQ(fovea_rt_gpu_release(kind, results[0].release().base), FOVEA_RT_OK);
  ASSERT_EQ(getText(kernel.invoke({onHost, onHost}, results)), "");
  EXPECT_EQ(toFloats(results[0]), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_NE(fovea_rt_gpu_release(kind, results[0].getData()), FOVEA_RT_OK);
  EXPECT_EQ(fovea_rt_gpu_release(kind, onDevice.data), FOVEA_RT_OK);
}

TEST(CompilerTest, leavesAModuleAlone) {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(kAdd, &context);
  std::string before, after;
  llvm::raw_string_ostream(before) << *module;
  llvm::Expected<Kernel> kernel = compile(*module);
  ASSERT_TRUE(bool(kernel)) << getText(kernel.takeError());
  EXPECT_EQ(kernel->getName(), "add");
  llvm::raw_string_ostream(after) << *module;
  EXPECT_EQ(before, after);
}

TEST(CompilerTest, compilesOnSeveralThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> compiled = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] { compiled += bool(compileOrDie(kAdd)); });
  for (std::thread &thread : threads)
    thread.join();
  EXPECT_EQ(compiled, 4);
}

TEST(CompilerTest, takesEveryOptimizationLevel) {
  for (unsigned level : {0, 1, 2, 3}) {
    CompileOptions options;
    options.optLevel = level;
    EXPECT_TRUE(bool(compileOrDie(kAdd, options)));
  }
}

} // namespace
