//===- Load.cpp - Registers the emulator ----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/GPUDriver.h"

/// Loading the library is what a host does to have it, from any language.
__attribute__((constructor)) static void load() {
  fovea::simt::registerEmulator();
}
