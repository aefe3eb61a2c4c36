//===- StreamMatrix.h - Which rows of sources queries read ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_ANALYSIS_STREAMMATRIX_H
#define FOVEA_LIB_ANALYSIS_STREAMMATRIX_H

#include "fovea/Analysis/KnownData.h"
#include "fovea/Analysis/ScoreMatrix.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"

namespace fovea::detail {

/// The score matrix of a stream; without meaning if an extent is not known,
/// which `extents` tells then.
ScoreMatrix makeStreamMatrix(attn::StreamOp op, Extents &extents,
                             const KnownData &data);
ScoreMatrix makeStreamMatrix(attn::StreamBackwardOp op, Extents &extents,
                             const KnownData &data);

} // namespace fovea::detail

#endif // FOVEA_LIB_ANALYSIS_STREAMMATRIX_H
