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

/// What a score region is given and gives: natural scores, exponents of 2
/// instead, or these for natural scores.
enum class ScoreBase { Natural, InBase2, ToBase2 };

/// Whether a region removes scores and adds to them, but uses them for nothing
/// else: then they may be exponents of 2 before it, too.
bool addsToScore(mlir::Region &score);

struct TileScore {
  /// The region is changed for `base`.
  TileScore(mlir::Region &score, mlir::ValueRange captures, ScoreBase base);

  void setDerivatives(const ScoreDerivatives &derivatives);
  /// Whether scores that are admitted grow as much as the products.
  bool keepsGradient() const { return hasUnitDerivative; }
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

private:
  bool hasUnitDerivative = false;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TILESCORE_H
