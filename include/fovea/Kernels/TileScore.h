//===- TileScore.h - Score regions, tile by tile ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A score region computes the scores of tiles that it admits a part of, and
// those of others without its conditions, or not at all.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_TILESCORE_H
#define FOVEA_KERNELS_TILESCORE_H

#include "fovea/Kernels/ScoreAdmission.h"
#include "fovea/Kernels/ScoreBody.h"

namespace fovea::attn {

/// Says for each region of `op` that removes entries how many conditions it has
/// and how many of them kernels bound, once these are emitted.
void remarkOnAdmission(mlir::Operation *op,
                       llvm::ArrayRef<const ScoreAdmission *> admissions);

struct TileScore {
  /// Where scores are exponents of 2 the region is changed to give such.
  TileScore(mlir::Region &score, mlir::ValueRange captures, bool isBase2);

  void setDerivatives(const ScoreDerivatives &derivatives);
  /// The region is for one head, or for heads of some batch entries at once,
  /// whose scores are computed behind `enterHead` of each.
  void enterHead(KernelBuilder &b, mlir::Value batch, mlir::Value head);
  mlir::LogicalResult expandMath();

  ScoreBody body;
  /// Which tiles it removes, and what it computes of those that it admits
  /// whole.
  ScoreAdmission admission;
  mlir::Region admittedRegion;
  ScoreBody admittedBody;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TILESCORE_H
