//===- Shapes.cpp - Kernels for one length or for all ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Shapes.h"
#include "Call.h"
#include <atomic>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static std::atomic<Shapes> shapes = Shapes::Auto;

void fovea::setShapes(Shapes chosen) { shapes = chosen; }
Shapes fovea::getShapes() { return shapes; }

/// Operations whose kernels for all lengths are as fast as others.
static constexpr StringLiteral kOpenOperations[] = {"codebook_update",
                                                    "commitment_loss",
                                                    "commitment_loss_backward",
                                                    "dense",
                                                    "dense_backward",
                                                    "quantize",
                                                    "rope",
                                                    "rope_backward",
                                                    "vq",
                                                    "vq_backward"};

bool functions::leavesLengthsOpen(StringRef op, Target target) {
  return shapes != Shapes::Static &&
         (target == Target::CPU || target == Target::Reference) &&
         is_contained(kOpenOperations, op);
}
