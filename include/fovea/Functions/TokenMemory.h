//===- TokenMemory.h - Where caches have keys and values --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_TOKENMEMORY_H
#define FOVEA_FUNCTIONS_TOKENMEMORY_H

#include "fovea/ExecutionEngine/Compiler.h"

namespace fovea {

/// Where a cache has its memory.
struct CachePlace {
  /// Where kernels that read it run. Memory for Target::GPU is that of
  /// `device`, any other of the CPU.
  Target target = Target::CPU;
  int32_t device = -1;
};

/// Keys [C,G,M,D] and values [C,G,M,E], or keys alone, of which values are the
/// first columns.
struct TokenMemory : CachePlace {
  /// Of keys.
  int64_t getNumHeads() const {
    return keys.getShape()[hasTokensFirst ? 2 : 1];
  }
  int64_t getNumRows() const { return keys.getShape()[hasTokensFirst ? 1 : 2]; }
  int64_t getWidth() const { return keys.getShape().back(); }
  ElementType getElementType() const { return keys.getElementType(); }
  int64_t getNumBytes() const {
    return keys.getNumBytes() + (valuesAreKeys ? 0 : values.getNumBytes());
  }

  /// Memory has [C,M,G,D].
  bool hasTokensFirst = false;
  bool valuesAreKeys = false;
  int64_t valueWidth = 0;
  OwnedTensor keys, values;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_TOKENMEMORY_H
