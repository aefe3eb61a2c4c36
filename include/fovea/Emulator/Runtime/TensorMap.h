//===- TensorMap.h - Descriptors of TMA copies ------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_RUNTIME_TENSORMAP_H
#define FOVEA_EMULATOR_RUNTIME_TENSORMAP_H

#include <cstdint>

namespace fovea::simt {

enum class Swizzle : uint8_t { None, B32, B64, B128 };

/// What stands for a CUtensorMap: 128 bytes, passed to kernels by value or by
/// address. Axes are counted from the innermost.
struct alignas(64) TensorMap {
  static constexpr uint32_t kMagic = 0x464d4150;

  uint32_t magic = kMagic;
  uint8_t rank = 0;
  uint8_t elementBytes = 0;
  Swizzle swizzle = Swizzle::None;
  uint8_t reserved = 0;
  uint64_t base = 0;
  uint32_t extent[5] = {};
  uint16_t box[5] = {};
  uint16_t padding = 0;
  /// Bytes from one index to the next on axes 1 to 4.
  uint64_t stride[4] = {};

  /// Bytes that one copy moves.
  uint32_t getBoxBytes() const {
    uint32_t bytes = elementBytes;
    for (unsigned axis = 0; axis < rank; ++axis)
      bytes *= box[axis];
    return bytes;
  }
};
static_assert(sizeof(TensorMap) == 128, "kernels reserve 128 bytes");

/// What the map breaks of the rules of TMA; null if nothing.
const char *checkTensorMap(const TensorMap &map);

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_RUNTIME_TENSORMAP_H
