//===- GPUConvBuilder.h - Emission of convolutions on a GPU -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVBUILDER_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVBUILDER_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPUTileProduct.h"

namespace fovea::attn {

/// Emits the code of one attn.conv_apply on memrefs, or of its gradient, all
/// heads at once: the operands that all parts read, and short names for what
/// they do. `head` is the batch and the head of a place in a grid, the first
/// two numbers of it. Code of kernels has a builder of its own, `k`.
class GPUConvBuilder : public KernelBuilder {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;

  GPUConvBuilder(mlir::OpBuilder &builder, mlir::Operation *op, Value basis,
                 Value sizes, Value value, F32Math math);

  mlir::Operation *const op;
  const Value basis, sizes, value;
  const F32Math math;
  /// Columns of a value.
  const int64_t width;
  const Value batches, heads, headsOfKey, numBases, numTokens;

  Value loadValue(KernelBuilder &k, ValueRange head, Value token, Value column);

  /// The grid of all rows of all heads.
  Values rows() const { return {batches, heads, numTokens}; }
  /// A buffer that ends with the operation.
  Value allocate(llvm::ArrayRef<Value> extents, mlir::Type type);
  /// One of what `find` gives for every point of a grid, a thread for each.
  Value tabulate(llvm::ArrayRef<Value> grid, mlir::Type type,
                 llvm::function_ref<Value(ValueRange at)> find);
  void freeBuffers();
  /// The sums, in f64, of what `part` gives for each of `kWarpSize` lanes, for
  /// every point of a grid.
  Value
  tabulateSums(llvm::ArrayRef<Value> grid,
               llvm::function_ref<Value(mlir::ValueRange at, Value lane)> part);

  // Numbers in f64.
  Value wide(double number);
  Value widen(Value number);
  Value loadWide(Value memref, ValueRange at);
  void storeWide(Value number, Value memref, ValueRange at);

private:
  Values buffers;
};

/// How many of `heads` share each of `keyHeads`; 1 where there are none.
mlir::Value getHeadsOfKey(KernelBuilder &builder, mlir::Value heads,
                          mlir::Value keyHeads);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVBUILDER_H
