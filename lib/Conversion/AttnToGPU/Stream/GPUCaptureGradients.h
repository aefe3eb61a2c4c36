//===- GPUCaptureGradients.h - Gradients of captures on a GPU ---*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUCAPTUREGRADIENTS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUCAPTUREGRADIENTS_H

#include "GPUListsOfRows.h"
#include "GPUStreamBackward.h"

namespace fovea::attn {

/// Adds the gradients of what the score region of a source reads to `sums`, one
/// for each captured tensor of floating-point numbers, if not null. `deltas`
/// are those of all queries, `listsOfRows` those of the source if it has lists;
/// `admission` may say which tiles the region removes.
void emitCaptureGradients(RowBuilder &host, StreamBackwardOp op,
                          const StreamSource &source,
                          const ScoreDerivatives &score, mlir::Value deltas,
                          F32Math math, const ListsOfRows *listsOfRows,
                          ScoreAdmission *admission, mlir::ValueRange sums);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPUCAPTUREGRADIENTS_H
