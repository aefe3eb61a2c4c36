//===- GPUConvLoops.h - GPU code of sums of convolutions --------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVLOOPS_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVLOOPS_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPUTileProduct.h"

namespace fovea::attn {

/// What a sum of convolutions is made of, as in attn.conv_apply.
struct ConvOperands {
  mlir::Value basis, sizes, value;
  /// How many rows of each head are listed [B, H], if it is asked for.
  mlir::Value recomputed = {};
};

/// Code of a sum of convolutions on memrefs, all heads at once. Keys between
/// the first one of a basis and that of the next are a *segment*: they share
/// one profile of weights by lag, the distance of query and key.
///
///   segments     of every key
///   profiles     from score sums in f64, the head's greatest one taken off;
///                the weight of minus infinity is hidden
///   normalisers  sums of weights in f64, without subtraction
///   judge        rows that rounding may have spoilt are listed
///   (rows)       what becomes of the weights
class ConvLoops {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  using Values = KernelBuilder::Values;

  ConvLoops(mlir::OpBuilder &builder, mlir::Location loc,
            const ConvOperands &operands, F32Math math);
  virtual ~ConvLoops() = default;

  void emit();

protected:
  virtual void emitRows() = 0;
  /// What has to be known before rows are judged.
  virtual void prepareProduct() {}
  /// Whether rounding errors of a row are small next to its normaliser; null
  /// where a product is as exact as sums are.
  virtual Value isQuiet(ValueRange row, Value normaliser) { return Value(); }

  /// A buffer that ends with the operation.
  Value allocate(llvm::ArrayRef<Value> extents, mlir::Type type);
  Value keyHead(KernelBuilder &k, Value head) {
    return k.div(head, headsOfKey);
  }
  /// The first key of a segment; the number of tokens behind the last one.
  Value firstKey(KernelBuilder &k, ValueRange head, Value segment);
  /// The segment of a key that is none before the first one.
  Value segmentOf(KernelBuilder &k, ValueRange head, Value key);
  /// The weight of a score, which `top` is taken off, times `factor`.
  Value weigh(KernelBuilder &k, Value score, Value top = {}, Value factor = {});
  /// The weight that `find` looks up for an entry, at a place of the profiles;
  /// hidden if the row does not reach the key.
  Value weighEntry(KernelBuilder &k, ValueRange head, Value row, Value key,
                   llvm::function_ref<Value(ValueRange place)> find);
  /// Whether weights may be hidden in a tile that has no earlier row and no
  /// later key than these. The head's first key is not behind the tile's.
  Value mayHide(KernelBuilder &k, ValueRange head, Value row, Value key);
  Value isListed(KernelBuilder &k, ValueRange head, Value number) {
    Value at[] = {head[0], head[1]};
    return k.less(number, k.loadIndex(operands.recomputed, at));
  }
  /// Runs `body` in a warp for every listed row, with the number of the row in
  /// the list, the row, and its greatest score or 0.
  void forListedRows(llvm::function_ref<void(GPUKernelBuilder &, ValueRange at,
                                             Value row, Value top)>
                         body);
  /// `sum` over the keys of a row, a lane for every 32nd.
  Value sumOverKeys(GPUKernelBuilder &k, ValueRange head, Value row,
                    llvm::function_ref<Value(Value score, Value running)> add,
                    double start);
  // Numbers in f64.
  Value wide(KernelBuilder &k, double number);
  Value loadWide(Value memref, ValueRange at);
  Value isLess(Value x, Value y);

  ConvOperands operands;
  RowBuilder b;
  F32Math math;
  int64_t width;
  Value batches, heads, headsOfKey, numBases, numTokens;
  /// Segments [B, H, N]; profiles [B, H, R, N], scores as binary logarithms;
  /// whether heads have scores of minus infinity [B, H].
  Value segments, weights, scores, masked;
  /// [B, H, N]: sums of weights in f64, and what rows are multiplied by: 0 for
  /// those that are listed.
  Value normalisers, reciprocals;
  /// Rows to be done again [B, H, N].
  Value listed;

private:
  void findSegments();
  Value findTops();
  Values visitLag(ValueRange head, Value lag, ValueRange inits,
                  llvm::function_ref<Values(Value segment, Value sum,
                                            Value exists, ValueRange)>
                      visit);
  void storeProfiles(Value tops);
  void sumWeights();
  Value sumWindow(ValueRange head, Value segment, Value low, Value high);
  void findNormalisers();
  void judgeRows();

  /// Sums of 16, 256, .. weights.
  Values pyramid;
  Value marks;
  Values buffers;
};

/// Code of one attn.conv_apply: weights times values, then listed rows once
/// more, from the scores.
class ConvApplyLoops : public ConvLoops {
public:
  ConvApplyLoops(mlir::OpBuilder &builder, ConvApplyOp op, F32Math math);

protected:
  /// Writes all rows but those that are listed.
  virtual void emitProduct() = 0;

  ConvApplyOp op;

private:
  void emitRows() override;
  Value findRowTops();
  void emitExactRows();
};

void emitConvToeplitzLoops(mlir::OpBuilder &builder, ConvApplyOp op,
                           F32Math math);
/// The same by Fourier transforms of blocks of `block` tokens.
void emitConvTransformLoops(mlir::OpBuilder &builder, ConvApplyOp op,
                            F32Math math, int64_t block);
/// Whether the runtime has Fourier transforms on the GPU, as an i1.
mlir::Value emitHasTransforms(KernelBuilder &builder, mlir::Operation *op);
void emitConvGradientLoops(mlir::OpBuilder &builder, ConvApplyBackwardOp op,
                           F32Math math);
void emitConvRecoverLoops(mlir::OpBuilder &builder, ConvRecoverOp op,
                          F32Math math);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_CONV_GPUCONVLOOPS_H
