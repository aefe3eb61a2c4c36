//===- TeamBuilder.h - Kernels written once for both targets ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels without an idea of their own about vectors or threads are written for
// teams of lanes. On a CPU a team is a thread and its lanes are those of its
// vectors; on a GPU it is a warp. Code outside loops over columns is the same
// for all lanes of a team.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_TEAMBUILDER_H
#define FOVEA_KERNELS_TEAMBUILDER_H

#include "fovea/Kernels/KernelBuilder.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace fovea::attn {

/// Emits code of one team. Columns are divided among its lanes.
class TeamBuilder : public KernelBuilder {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using ColumnBody = llvm::function_ref<void(KernelBuilder &, Value column)>;
  using ColumnValue = llvm::function_ref<Value(KernelBuilder &, Value column)>;

  virtual ~TeamBuilder() = default;

  /// Runs `body` for all points of a grid, each by a team, in any order.
  virtual void forTeams(llvm::ArrayRef<Value> grid,
                        llvm::function_ref<void(ValueRange)> body) = 0;
  /// Whether there should be as many teams as can be, as on a GPU, which hides
  /// latencies by them. On a CPU each costs a task.
  virtual bool hasManyTeams() const = 0;
  /// Rows that a team should take: `many`, where that makes up for its cost.
  int64_t getRowsPerTeam(int64_t many) const {
    return hasManyTeams() ? 1 : many;
  }
  /// Runs `body` for the rows `0 .. numRows - 1` of all points of a grid, given
  /// the point and the row, in any order; a team takes `many` rows where that
  /// makes up for its cost.
  void forRows(llvm::ArrayRef<Value> grid, Value numRows, int64_t many,
               llvm::function_ref<void(ValueRange)> body);
  /// Teams that keep the target busy.
  virtual int64_t getMinTeams() const = 0;

  /// Runs `body` for columns `begin .. end - 1`. It is given a builder whose
  /// vectors are the columns from `column` on: the same arithmetic for every
  /// column. What is stored in column c of a buffer can be read in column c of
  /// later loops, and elsewhere after a barrier.
  virtual void forColumns(Value begin, Value end, ColumnBody body) = 0;
  void forColumns(int64_t width, ColumnBody body) {
    forColumns(index(0), index(width), body);
  }
  /// The same for columns `0 .. width - 1`, where `body` is given the first
  /// columns of up to `most` vectors at a time.
  virtual void forColumnTiles(
      int64_t width, int64_t most,
      llvm::function_ref<void(KernelBuilder &, ValueRange)> body) = 0;
  /// The same, where `body` may run for columns behind, too: whole vectors, as
  /// long as they are no more than `most` columns.
  virtual void forColumnsOrMore(Value begin, Value end, Value most,
                                ColumnBody body) {
    forColumns(begin, end, body);
  }
  /// Runs `body` for the lane that has column `column` in these loops.
  virtual void atColumn(Value column, llvm::function_ref<void()> body) = 0;
  using ColumnStep =
      llvm::function_ref<Value(KernelBuilder &, Value column, Value running)>;
  /// Goes through columns `begin .. end - 1` with a running value for each
  /// lane, from `init` on, and combines those to one scalar that all lanes
  /// have. Sums are in the order of the target.
  virtual Value foldColumns(mlir::vector::CombiningKind kind, double init,
                            Value begin, Value end, ColumnStep step) = 0;
  Value sumColumns(Value begin, Value end, ColumnValue body);

  /// Runs `body` for the numbers `begin .. end - 1`, each by one lane.
  virtual void forNumbers(Value begin, Value end,
                          llvm::function_ref<void(Value number)> body) = 0;
  /// Stores the numbers below `extent` for which `condition` holds to
  /// `list[at, :]`, in order, and returns how many they are.
  virtual Value listNumbers(
      Value extent,
      llvm::function_ref<Value(KernelBuilder &, Value number)> condition,
      Value list, ValueRange at) = 0;

  using KeyOfRow = llvm::function_ref<Value(Value row)>;
  using KeyedRowBody = llvm::function_ref<void(Value row, Value key)>;
  /// Runs `body` for the rows from `begin` to `end - 1`, in order, whose key is
  /// one of the team's `numOwn` keys, from `own` on, where there are many
  /// teams; otherwise for all, of any key.
  virtual void forRowsOfKey(Value begin, Value end, KeyOfRow getKey, Value own,
                            int64_t numOwn, KeyedRowBody body) = 0;

  /// Runs `body`, which stores what is one for the team, for one lane; all see
  /// it afterwards.
  virtual void single(llvm::function_ref<void()> body) = 0;
  /// Orders what the lanes of the team have stored before what they load next.
  virtual void barrier() = 0;

  /// An uninitialised buffer of the team, until its point of the grid is done.
  virtual Value teamBuffer(llvm::ArrayRef<int64_t> shape,
                           mlir::Type elementType) = 0;
  /// The same of one extent, which is known outside of `forTeams`.
  virtual Value teamBuffer(Value extent, mlir::Type elementType) = 0;

protected:
  using KernelBuilder::KernelBuilder;
};

/// A team is a thread of a CPU with vectors of `vectorBits` bits.
class ThreadTeamBuilder : public TeamBuilder {
public:
  ThreadTeamBuilder(mlir::Location loc, mlir::OpBuilder &builder,
                    mlir::FloatType stateType, int64_t vectorBits,
                    int64_t minTeams);

  void forTeams(llvm::ArrayRef<Value> grid,
                llvm::function_ref<void(ValueRange)> body) override;
  bool hasManyTeams() const override { return false; }
  int64_t getMinTeams() const override { return minTeams; }
  using TeamBuilder::forColumns;
  void forColumns(Value begin, Value end, ColumnBody body) override;
  void forColumnsOrMore(Value begin, Value end, Value most,
                        ColumnBody body) override;
  void atColumn(Value column, llvm::function_ref<void()> body) override {
    body();
  }
  Value foldColumns(mlir::vector::CombiningKind kind, double init, Value begin,
                    Value end, ColumnStep step) override;
  void forColumnTiles(
      int64_t width, int64_t most,
      llvm::function_ref<void(KernelBuilder &, ValueRange)> body) override;
  void forNumbers(Value begin, Value end,
                  llvm::function_ref<void(Value number)> body) override {
    loop(begin, end, 1, body);
  }
  Value listNumbers(
      Value extent,
      llvm::function_ref<Value(KernelBuilder &, Value number)> condition,
      Value list, ValueRange at) override;
  void forRowsOfKey(Value begin, Value end, KeyOfRow getKey, Value own,
                    int64_t numOwn, KeyedRowBody body) override;
  void single(llvm::function_ref<void()> body) override { body(); }
  void barrier() override {}
  Value teamBuffer(llvm::ArrayRef<int64_t> shape,
                   mlir::Type elementType) override {
    return scratch(shape, elementType);
  }
  Value teamBuffer(Value extent, mlir::Type elementType) override;

private:
  /// Runs `body` for as many columns as whole vectors cover, then for fewer
  /// lanes and the rest.
  void forVectors(
      Value begin, Value end,
      llvm::function_ref<void(int64_t lanes, Value begin, Value end)> body);

  int64_t minTeams;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_TEAMBUILDER_H
