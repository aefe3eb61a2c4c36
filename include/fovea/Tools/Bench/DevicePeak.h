//===- DevicePeak.h - The most a GPU can compute and copy -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_BENCH_DEVICEPEAK_H
#define FOVEA_TOOLS_BENCH_DEVICEPEAK_H

#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Target/NVVM/GPUInfo.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fovea {

/// Two loops that all multiprocessors of a GPU run at once: products of
/// matrices that lie in registers, or, on sm_90a, in shared memory; and a copy
/// of device memory. They run on the device and the stream of the calling
/// thread.
class DevicePeak {
public:
  /// Seconds that the device takes for what the function starts.
  using Timer = llvm::function_ref<llvm::Expected<double>(
      llvm::function_ref<llvm::Error()>)>;

  /// Products such as kernels for `options` make of data of `type`, f16, bf16
  /// or f32.
  static llvm::Expected<DevicePeak> create(const CompileOptions &options,
                                           ElementType type);

  const GPUInfo &getGPU() const;
  /// What products multiply: "f16", "bf16", "tf32", or "f32" without tensor
  /// cores. Products of three tf32 products are counted as three.
  llvm::StringRef getProductName() const;
  llvm::StringRef getPTX() const;

  /// Floating-point operations per second, two for each multiply-add, in a run
  /// of about `seconds`.
  llvm::Expected<double> measureProducts(Timer time, double seconds);
  /// Bytes per second, those that are read and those that are written.
  llvm::Expected<double> measureCopy(Timer time);

  // What is measured.
  llvm::Error runProducts(int64_t iterations);
  double getFlops(int64_t iterations) const;
  /// Copies a multiple of `kCopyBytes` between two places on the device.
  llvm::Error copy(void *to, const void *from, int64_t bytes);
  /// What a block of threads copies.
  static constexpr int64_t kCopyBytes = 16384;

private:
  struct Impl;
  explicit DevicePeak(std::shared_ptr<Impl> impl) : impl(std::move(impl)) {}
  std::shared_ptr<Impl> impl;
};

} // namespace fovea

#endif // FOVEA_TOOLS_BENCH_DEVICEPEAK_H
