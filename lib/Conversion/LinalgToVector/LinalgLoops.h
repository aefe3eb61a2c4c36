//===- LinalgLoops.h - Vectorised loops of linalg ops -----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGLOOPS_H
#define FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGLOOPS_H

#include "LinalgBody.h"
#include "LinalgKernels.h"

namespace fovea::attn {

/// Elements that a task visits, and what a dynamic extent is taken for.
constexpr int64_t kTaskElements = 16384, kDynamicExtent = 256;

/// What marks loops for interleaveVectors().
constexpr llvm::StringLiteral kInterleaved = "attn.interleaved";

/// Has the vectors of such a loop, whose functions are expanded by now, advance
/// side by side: a step of one waits for the last step, not for other vectors.
void interleaveVectors(mlir::scf::ForOp loop);

/// Emits the loops of one operation: all of them, or those within one row.
class LoopsKernel {
public:
  using Values = KernelBuilder::Values;

  LoopsKernel(mlir::linalg::LinalgOp op, mlir::OpBuilder &builder,
              RegisterFile registers);

  static bool canEmit(mlir::linalg::LinalgOp op);
  /// The loop along which vectors run, when there is one.
  std::optional<unsigned> getVectorLoop();
  /// How many dimensions of the outputs these vectors fill.
  unsigned countVectorDims() const { return pairLoop ? 2 : 1; }
  /// Emits all loops, as one parallel loop.
  void emit();

  /// Has emitRow() emit all but `rows`, which are parallel. Returns how far
  /// these go.
  Values beginRows(llvm::ArrayRef<unsigned> rows);
  /// Emits the loops within the row at `at` where `builder` stands.
  void emitRow(mlir::OpBuilder &builder, mlir::ValueRange at);
  /// An input whose rows lie one after the other, vector by vector, or null.
  mlir::OpOperand *findStream();
  /// Has the vectors of emitRow() ask for those of row `at` of a stream, too.
  void prefetchBeside(const LoopsKernel &other, mlir::OpOperand &stream,
                      mlir::ValueRange at);

private:
  int64_t countLanes();
  bool isReduction(unsigned loop) {
    return types[loop] == mlir::utils::IteratorType::reduction;
  }
  void chooseVectorLoop();
  bool choosePairs();
  void findExtents();
  llvm::SmallVector<int64_t> chooseChunks();
  mlir::Value extentOf(unsigned loop);
  /// Those in `loops`, the vector's last.
  llvm::SmallVector<unsigned> putVectorLast(llvm::ArrayRef<unsigned> loops);

  void emitParallel(llvm::ArrayRef<unsigned> loops);
  Values emitReductions(llvm::ArrayRef<unsigned> loops, bool isVector,
                        mlir::ValueRange running);
  void emitVectors(mlir::Value from, mlir::Value to, int64_t count);
  void emitPoint(bool isVector);
  void emitPairs(bool isVector);
  Values emitValues(bool isVector);
  void emitReducedPoint();
  bool isExtreme();
  mlir::Value reduceVectors(mlir::Value running);
  Values addVectors(mlir::Value at, mlir::ValueRange running, int64_t count);
  mlir::Value withNaNs(mlir::Value vector, mlir::Value isNaN);
  mlir::Value reduceLanes(mlir::Value vector);
  mlir::Value combine(mlir::Value one, mlir::Value other);

  mlir::linalg::LinalgOp op;
  RegisterFile registers;
  KernelBuilder b;
  llvm::SmallVector<mlir::utils::IteratorType> types;
  int64_t lanes;
  LinalgBody body;
  /// What asks for elements of another row beside the vector at a place.
  std::function<void(mlir::Value)> prefetch;
  /// Loops that emitRow() leaves to its caller.
  llvm::SmallVector<unsigned> rows;
  /// The loop along which vectors run.
  std::optional<unsigned> vectorLoop;
  /// The loop through pairs of neighbours, which vectors have both of.
  std::optional<unsigned> pairLoop;
  /// What combines partial results where that loop is a reduction.
  mlir::Operation *combiner = nullptr;
  llvm::SmallVector<unsigned> parallel,
      reductions; // the latter but the vector's
  llvm::SmallVector<mlir::Value> low, high;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGLOOPS_H
