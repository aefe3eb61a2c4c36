//===- Memory.h - Device memory of the emulator -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_EMULATOR_RUNTIME_MEMORY_H
#define FOVEA_EMULATOR_RUNTIME_MEMORY_H

#include <cstddef>
#include <string>

namespace fovea::simt {

/// Emulated device memory. A block ends where an inaccessible page begins, up
/// to the 16 bytes of its alignment, and begins after one; it is filled with
/// 0xff, a NaN in every floating-point type. Null if there is no memory.
void *allocateDevice(size_t bytes);

/// Makes the block inaccessible; its addresses are not used again for a while.
/// False if `pointer` is not the start of a live block.
bool freeDevice(void *pointer);

/// The live block that holds `address`; false if there is none.
bool findDevice(const void *address, void **start, size_t *bytes);

/// Which block `address` lies in or just beside, for messages; empty if none.
std::string describeDevice(const void *address);

/// A sentence about a block whose unused bytes around it have been written
/// since it was allocated; empty if there is none.
std::string checkDevice();

/// Live blocks.
size_t countDevice();

} // namespace fovea::simt

#endif // FOVEA_EMULATOR_RUNTIME_MEMORY_H
