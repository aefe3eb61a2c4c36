//===- ContractionKernel.h - Parallel products of matrices ------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (outer dimensions, chunks of rows, chunks of columns)     one task
//     sums[rows][columns] = output, or the constant that it was filled with,
//                           unless the kernel writes what it would add to zero
//     sums += left . right                          by a kernel: emitProducts()
//     output = sums, or what alone reads the output takes them: Epilogue.cpp
//
// "Columns" is the last dimension of the output, along which its vectors run;
// the right operand is the one that has it.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOVECTOR_CONTRACTIONKERNEL_H
#define FOVEA_LIB_CONVERSION_LINALGTOVECTOR_CONTRACTIONKERNEL_H

#include "LinalgKernels.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "llvm/ADT/STLExtras.h"

namespace fovea::attn {

/// A sum of products of two operands over permutations of its loops.
struct Contraction {
  /// An operand, and the loop that runs along each of its dimensions.
  struct Operand {
    mlir::Value memref;
    llvm::SmallVector<unsigned> loops;
    /// Where the right operand is packed, the columns of a panel: its last
    /// dimensions are panels, the depth, and the columns of each.
    int64_t panelColumns = 0;

    bool has(unsigned loop) const { return llvm::is_contained(loops, loop); }
    /// Whether neighbours along `loop` are neighbours in memory.
    bool isContiguousAlong(unsigned loop) const;
  };

  /// The parts of `op`; none when it is something else, or has panels that were
  /// packed for other registers.
  static std::optional<Contraction> match(mlir::linalg::LinalgOp op,
                                          RegisterFile registers);

  mlir::Value extentOf(KernelBuilder &b, unsigned loop) const;
  /// How many rows share the right operand.
  mlir::Value countRows(KernelBuilder &b) const;

  mlir::linalg::LinalgOp op;
  Operand left, right, output;
  unsigned columnLoop, depthLoop;
  std::optional<unsigned> rowLoop;
  llvm::SmallVector<unsigned> outerLoops, outerDepthLoops;
  /// What has filled the output, where nothing else reads that.
  mlir::linalg::FillOp fill;
  /// The type of sums.
  mlir::FloatType state;
  /// By which an elementwise operation takes the sums, instead of the output.
  mlir::OpOperand *epilogue = nullptr;
};

/// Vectors of columns in a panel of the right operand, of `columns` ones: sums
/// are of these and of a few rows.
int64_t getPanelVectors(RegisterFile registers, int64_t lanes, int64_t columns);

/// Emits `contraction` for few rows, or for many.
void emitContraction(const Contraction &contraction, mlir::OpBuilder &builder,
                     RegisterFile registers);

/// Emits a contraction in tasks of rows and columns.
class ContractionKernel : protected Contraction {
public:
  virtual ~ContractionKernel() = default;
  void emit();

protected:
  using Values = KernelBuilder::Values;

  ContractionKernel(const Contraction &contraction, mlir::OpBuilder &builder,
                    RegisterFile registers);

  /// Plans tasks of at most `maxVectors` vectors of columns.
  void setTaskColumns(int64_t maxVectors);
  /// Adds the products of the present task to the sums.
  virtual void emitProducts() = 0;

  Values indices(const Operand &operand) const;
  void setRow(mlir::Value row);
  void setColumn(mlir::Value column);
  bool isMultiple(unsigned loop, int64_t factor);
  /// Calls `vector` for all whole vectors of columns of the task, and `scalar`
  /// for what they leave.
  void forEachColumn(llvm::function_ref<void(mlir::Value)> vector,
                     llvm::function_ref<void(mlir::Value)> scalar);

  /// Whether the output was zero before, so that sums can be written at first.
  bool isFromZero();

  KernelBuilder b;
  int64_t lanes, vectors, taskRows;
  /// Whether emitProducts() writes all sums: they have no values before.
  bool writesSums = false;

  // The present task: where each loop is, and its rows and columns.
  Values position;
  mlir::Value firstRow, numRows, firstColumn, numColumns, sums;

private:
  void copySums(bool load);
  void emitEpilogue();
};

/// The most rows for which the right operand is read where it is.
constexpr int64_t kMaxRowsInPlace = 8;

/// Whether neighbours in the right operand meet neighbours in another one, as
/// emitFewRows() needs them.
bool isReadableInPlace(const Contraction &contraction);

/// Emits a product of kMaxRowsInPlace rows or less.
void emitFewRows(const Contraction &contraction, mlir::OpBuilder &builder,
                 RegisterFile registers);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LINALGTOVECTOR_CONTRACTIONKERNEL_H
