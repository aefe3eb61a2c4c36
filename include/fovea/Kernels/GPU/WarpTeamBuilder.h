//===- WarpTeamBuilder.h - Teams that are warps of a GPU --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_GPU_WARPTEAMBUILDER_H
#define FOVEA_KERNELS_GPU_WARPTEAMBUILDER_H

#include "fovea/Kernels/TeamBuilder.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"

namespace fovea::attn {

/// A team is a warp, and a block of threads. A grid is a launch. Column c is
/// lane c % 32's.
class WarpTeamBuilder : public TeamBuilder {
public:
  WarpTeamBuilder(mlir::Location loc, mlir::OpBuilder &builder)
      : WarpTeamBuilder(loc, builder, builder.getF32Type()) {}
  WarpTeamBuilder(mlir::Location loc, mlir::OpBuilder &builder,
                  mlir::FloatType stateType)
      : TeamBuilder(loc, builder, stateType, /*lanes=*/0) {}

  void forTeams(llvm::ArrayRef<Value> grid,
                llvm::function_ref<void(ValueRange)> body) override;
  /// The number of the thread in its team.
  Value getLane() const { return lane; }
  bool hasManyTeams() const override { return true; }
  int64_t getMinTeams() const override;
  using TeamBuilder::forColumns;
  void forColumns(Value begin, Value end, ColumnBody body) override;
  void atColumn(Value column, llvm::function_ref<void()> body) override;
  Value foldColumns(mlir::vector::CombiningKind kind, double init, Value begin,
                    Value end, ColumnStep step) override;
  void forColumnTiles(
      int64_t width, int64_t most,
      llvm::function_ref<void(KernelBuilder &, ValueRange)> body) override;
  void forNumbers(Value begin, Value end,
                  llvm::function_ref<void(Value number)> body) override;
  Value listNumbers(
      Value extent,
      llvm::function_ref<Value(KernelBuilder &, Value number)> condition,
      Value list, ValueRange at) override;
  /// Runs `body` for the numbers below `extent`, each by one lane, with the
  /// sums of what `load` gives, integers of 32 bits, for those before and up to
  /// it. Returns the sum of all.
  Value
  addUp(Value extent, llvm::function_ref<Value(Value number)> load,
        llvm::function_ref<void(Value number, Value before, Value upTo)> body);
  /// Every lane looks at the key of one row; then they vote.
  void forRowsOfKey(Value begin, Value end, KeyOfRow getKey, Value own,
                    int64_t numOwn, KeyedRowBody body) override;
  void single(llvm::function_ref<void()> body) override;
  void barrier() override;
  /// Those that take no more together are in shared memory, of which an SM has
  /// enough for 16 teams.
  static constexpr int64_t kMostSharedBytes = 12 << 10;
  Value teamBuffer(llvm::ArrayRef<int64_t> shape,
                   mlir::Type elementType) override;
  Value teamBuffer(Value extent, mlir::Type elementType) override;

private:
  /// The first column of the lane from `begin` on.
  Value firstColumn(Value begin);
  /// The part of the team in a buffer in global memory, whose first extent is
  /// the number of teams.
  Value globalBuffer(llvm::ArrayRef<Value> leading,
                     llvm::ArrayRef<int64_t> trailing, mlir::Type elementType);

  /// Of the launch that is being emitted.
  mlir::gpu::LaunchOp launch;
  Value lane;
  int64_t sharedBytes = 0;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_GPU_WARPTEAMBUILDER_H
