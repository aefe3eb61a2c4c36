//===- LinalgKernels.h - Vector code of linalg ops --------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What surrounds attention in a transformer layer: products of matrices, and
// everything else that visits its elements in loops. Both kernels work on
// buffers and emit one parallel loop.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGKERNELS_H
#define FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGKERNELS_H

#include "fovea/Kernels/LinalgProduct.h"
#include "fovea/Kernels/RegisterFile.h"

namespace fovea::attn {

/// A convolution of floating-point tensors as a product of matrices; no value
/// when `op` is something else, or no channel meets all of the others.
mlir::Value emitConvolutionAsProduct(mlir::OpBuilder &builder,
                                     mlir::linalg::LinalgOp op);

/// How the right factor of a product is read that lies in panels of columns:
/// `(outer loops..., n floordiv columns, k, n mod columns)`.
struct PanelMap {
  unsigned columnLoop, depthLoop;
  int64_t columns;

  static std::optional<PanelMap> match(mlir::AffineMap map);
};

/// Packs factors of products with many rows that are constants into panels of
/// columns, in the order in which the products read them.
void packConstants(mlir::Operation *root, RegisterFile registers);

/// Emits a register-tiled product before `op` and returns true, when `op` sums
/// products of two floating-point operands over permutations of its loops.
bool emitLinalgContraction(mlir::linalg::LinalgOp op, RegisterFile registers);

/// Emits a product before `op` whose tasks compute `op`, too, and returns true,
/// when `op` is elementwise and alone reads the product, which is erased.
bool emitContractionWithEpilogue(mlir::linalg::LinalgOp op,
                                 RegisterFile registers);

/// Emits vectorised loops before `op` and returns true, when the body of `op`
/// is made of elementwise operations. Vectors run along the last dimension of
/// the output, or along that of the input when it is reduced.
bool emitLinalgLoops(mlir::linalg::LinalgOp op, RegisterFile registers);

/// Emits operations of `block` that follow each other along rows, as norms do,
/// as one parallel loop over rows each.
void emitRowGroups(mlir::Block &block, RegisterFile registers);

/// Has stacks of two tensors, as a last dimension of extent 2, be elementwise.
void populateStackPatterns(mlir::RewritePatternSet &patterns);

/// Whether an elementwise operation reads such a stack as rows of neighbours.
bool isOfPairs(mlir::OpOperand &operand);

/// Has elementwise operations read every other element as one of a pair.
void populateReadPairsPatterns(mlir::RewritePatternSet &patterns);

/// Has what computes pairs write them to concatenations of their rows.
void populateInsertPairsPatterns(mlir::RewritePatternSet &patterns);

/// Has elementwise operations read the parts of complex numbers as pairs.
void pairComplexOperands(mlir::Operation *root);

/// Has elementwise operations on concatenations be done part by part.
void populateSplitConcatPatterns(mlir::RewritePatternSet &patterns);

/// Has what follows from numbers of the host, which are tensors of one element,
/// be computed there; on a GPU, elementwise operations read them as operands of
/// kernels.
void populateHostNumberPatterns(mlir::RewritePatternSet &patterns,
                                bool isForGPU);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_LINALGTOVECTOR_LINALGKERNELS_H
