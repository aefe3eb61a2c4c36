//===- GPUConvKernel.h - Parts of convolutions on a GPU ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.conv_apply on memrefs, or its gradient, on all heads at
// once:
//
//   GPUConvSegments     the segment of every key
//   GPUConvProfiles     weights, from score sums in f64
//   GPUConvNormalisers  sums of weights, without subtraction
//   GPUConvProduct      weights times values, by one of the algorithms
//   GPUConvRows         rows that rounding may spoil are listed
//
// Each is an object whose constructor emits the code that fills it, so that
// nothing is read before it is there. They are those of AttnToVector/Conv.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVKERNEL_H

#include "GPUConvNormalisers.h"
#include "fovea/Kernels/GPU/WarpTeamBuilder.h"
#include <memory>
#include <optional>

namespace fovea::attn {

/// What all algorithms share, in both directions.
struct GPUConvTables {
  explicit GPUConvTables(GPUConvBuilder &b)
      : b(b), segments(b), profiles(b, segments),
        normalisers(b, segments, profiles) {}

  GPUConvBuilder &b;
  GPUConvSegments segments;
  GPUConvProfiles profiles;
  GPUConvNormalisers normalisers;
};

/// The rows whose weights are next to nothing, or whose numerator may be mostly
/// noise, are listed to be done again, from their scores; and what each of the
/// others is multiplied by.
class GPUConvRows {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  /// Whether rounding errors of a row are small next to its normaliser; null
  /// where numerators are as exact as sums are.
  using IsQuiet = llvm::function_ref<Value(ValueRange row, Value normaliser)>;
  /// Code of a team for number `at[2]` of the list of a head: the row, and its
  /// greatest score, or 0.
  using ListedRow = llvm::function_ref<void(WarpTeamBuilder &, ValueRange at,
                                            Value row, Value top)>;

  /// Judges all rows; `counts` [B, H] has how many are listed.
  GPUConvRows(GPUConvTables &tables, Value counts, IsQuiet isQuiet);

  Value count(KernelBuilder &k, ValueRange head) {
    return k.loadIndex(counts, {head[0], head[1]});
  }
  Value load(KernelBuilder &k, ValueRange at) { return k.loadIndex(list, at); }
  /// A team for every listed row.
  void forEach(ListedRow body);

  /// [B, H, N]: 0 for rows that are listed.
  Value reciprocals;

private:
  Value judge(ValueRange row, IsQuiet isQuiet);
  void listMarked();

  GPUConvTables &t;
  GPUConvBuilder &b;
  /// Marks of rows and numbers of those that are marked [B, H, N].
  Value marks, list, counts;
};

/// An algorithm for weights times values.
class GPUConvProduct {
public:
  virtual ~GPUConvProduct() = default;
  /// As in GPUConvRows.
  virtual mlir::Value isQuiet(mlir::ValueRange row, mlir::Value normaliser) {
    return {};
  }
  /// Computes all rows, of which those that are listed may hold anything.
  virtual void emit(mlir::Value reciprocals) = 0;
};

/// Emits the forward direction with the algorithm that `makeProduct` makes.
void emitConvApplyOnGPU(
    mlir::OpBuilder &builder, ConvApplyOp op, F32Math math,
    llvm::function_ref<std::unique_ptr<GPUConvProduct>(GPUConvTables &)>
        makeProduct);
std::unique_ptr<GPUConvProduct> makeConvToeplitz(GPUConvTables &tables,
                                                 ConvApplyOp op);
/// By Fourier transforms of blocks of `block` tokens.
std::unique_ptr<GPUConvProduct>
makeConvTransforms(GPUConvTables &tables, ConvApplyOp op, int64_t block);
/// Whether the runtime has Fourier transforms on the GPU, as an i1.
mlir::Value emitHasTransforms(KernelBuilder &builder, mlir::Operation *op);

/// Emits the other direction, by transforms of blocks of `block` tokens, if
/// given.
void emitConvGradientOnGPU(mlir::OpBuilder &builder, ConvApplyBackwardOp op,
                           F32Math math, std::optional<int64_t> block);
void emitConvRecoverOnGPU(mlir::OpBuilder &builder, ConvRecoverOp op,
                          F32Math math);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVKERNEL_H
