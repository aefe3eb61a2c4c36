//===- RegisterEmulator.cpp - For tests that compile for it ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Emulator/GPUDriver.h"

static const bool registered = (fovea::simt::registerEmulator(), true);
