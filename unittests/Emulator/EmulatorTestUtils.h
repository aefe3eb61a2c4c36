//===- EmulatorTestUtils.h - Helpers of the emulator's tests --------*- C++
//-*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_UNITTESTS_EMULATOR_EMULATORTESTUTILS_H
#define FOVEA_UNITTESTS_EMULATOR_EMULATORTESTUTILS_H

#include "fovea/Emulator/Module.h"
#include "fovea/Emulator/Runtime/Memory.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <string>
#include <type_traits>
#include <vector>

namespace fovea::simt::test {

/// Device memory with elements of type T.
template <typename T> class Buffer {
public:
  explicit Buffer(size_t count)
      : data(static_cast<T *>(allocateDevice(count * sizeof(T)))),
        count(count) {}
  explicit Buffer(const std::vector<T> &values) : Buffer(values.size()) {
    std::copy(values.begin(), values.end(), data);
  }
  ~Buffer() { freeDevice(data); }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;

  T *get() const { return data; }
  T &operator[](size_t i) const { return data[i]; }
  size_t size() const { return count; }
  std::vector<T> values() const { return {data, data + count}; }

private:
  T *data;
  size_t count;
};

/// Text that LLVM parses as a module for a device. `body` is the text of
/// functions; declarations of intrinsics may be left out.
inline std::string makeModule(const std::string &body) {
  return "target triple = \"nvptx64-nvidia-cuda\"\n" + body;
}

inline llvm::Expected<std::unique_ptr<Module>>
tryCompile(const std::string &body, bool clocks = false) {
  llvm::LLVMContext context;
  llvm::SMDiagnostic diagnostic;
  std::unique_ptr<llvm::Module> module =
      llvm::parseAssemblyString(makeModule(body), diagnostic, context);
  if (!module) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    diagnostic.print("test", stream);
    ADD_FAILURE() << text;
    return llvm::createStringError(text);
  }
  return Module::create(*module, clocks);
}

inline std::unique_ptr<Module> compile(const std::string &body,
                                       bool clocks = false) {
  llvm::Expected<std::unique_ptr<Module>> module = tryCompile(body, clocks);
  if (module)
    return std::move(*module);
  ADD_FAILURE() << llvm::toString(module.takeError());
  return nullptr;
}

/// The error of a module that cannot be emulated.
inline std::string compileError(const std::string &body) {
  llvm::Expected<std::unique_ptr<Module>> module = tryCompile(body);
  return module ? "" : llvm::toString(module.takeError());
}

/// Runs the first kernel of a module; returns the error text, empty on
/// success. Arguments are buffers and numbers.
class Launch {
public:
  Launch(Module &module, Dim3 grid, Dim3 block)
      : module(module), grid(grid), block(block) {}

  Options options;
  Counters counters;
  size_t dynamicShared = 0;

  template <typename... Args> std::string operator()(const Args &...args) {
    void *params[] = {address(args)..., nullptr};
    llvm::Error error =
        module.launch(module.getKernelNames().front(), grid, block,
                      dynamicShared, params, options, &counters);
    for (void **pointer : pointers)
      delete pointer;
    pointers.clear();
    return llvm::toString(std::move(error));
  }

private:
  template <typename T> void *address(const Buffer<T> &buffer) {
    pointers.push_back(new void *(buffer.get()));
    return pointers.back();
  }
  template <typename T> void *address(const T &value) {
    return const_cast<T *>(&value);
  }

  Module &module;
  Dim3 grid, block;
  std::vector<void **> pointers;
};

} // namespace fovea::simt::test

#endif // FOVEA_UNITTESTS_EMULATOR_EMULATORTESTUTILS_H
