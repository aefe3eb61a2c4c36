//===- KernelFile.h - Kernels as bytes --------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For readers that are the very program that wrote them: numbers are as they
// lie in memory, and there are no versions.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_KERNELFILE_H
#define FOVEA_LIB_EXECUTIONENGINE_KERNELFILE_H

#include "KernelImpl.h"

namespace fovea::detail {

/// Options as bytes, all of them.
std::string serialize(const CompileOptions &options);

/// What precedes the rest: a checksum of it, and how much there is.
struct KernelFileHeader {
  char magic[8];
  uint64_t checksum, bytes;
};

/// A file with the kernel, which `object` is the code of, under `key`.
std::string writeKernelFile(llvm::StringRef key, const Kernel::Impl &impl,
                            llvm::StringRef object);

/// Reads all but the options and the loaded code to `impl`. Null if `file` is
/// not one that was written for `key`, else the object code.
std::unique_ptr<llvm::MemoryBuffer>
readKernelFile(llvm::StringRef file, llvm::StringRef key, Kernel::Impl &impl);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_KERNELFILE_H
