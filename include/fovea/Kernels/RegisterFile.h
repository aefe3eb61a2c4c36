//===- RegisterFile.h - Vector registers of a CPU ---------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_REGISTERFILE_H
#define FOVEA_KERNELS_REGISTERFILE_H

#include <cstdint>

namespace fovea::attn {

/// The registers that kernels are planned for.
struct RegisterFile {
  int64_t vectorBits, count;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_REGISTERFILE_H
