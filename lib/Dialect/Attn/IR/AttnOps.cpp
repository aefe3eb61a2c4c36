//===- AttnOps.cpp - Generated definitions of the ops ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "OpHelpers.h"
#include "Tiler.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

#include "fovea/Dialect/Attn/IR/AttnInterfaces.cpp.inc"

#define GET_OP_CLASSES
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
