//===- PackConstants.cpp - Constant factors in panels of columns ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   out[m, n] += x[m, k] * w[n, k]
//
// becomes, for a constant w, of which a register tile has 16 columns:
//
//   out[m, n] += x[m, k] * packed[n / 16, k, n % 16]
//
// That is what the kernel of many rows reads from its first to its last
// element; of another factor it makes such panels in every call. The last panel
// has zeros behind the last column.
//
//===----------------------------------------------------------------------===//

#include "ContractionKernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

std::optional<PanelMap> PanelMap::match(AffineMap map) {
  unsigned rank = map.getNumResults();
  if (rank < 3 || map.getNumSymbols() != 0)
    return std::nullopt;
  ArrayRef<AffineExpr> results = map.getResults();
  auto panel = dyn_cast<AffineBinaryOpExpr>(results[rank - 3]);
  auto depth = dyn_cast<AffineDimExpr>(results[rank - 2]);
  auto column = dyn_cast<AffineBinaryOpExpr>(results[rank - 1]);
  if (!panel || !depth || !column ||
      panel.getKind() != AffineExprKind::FloorDiv ||
      column.getKind() != AffineExprKind::Mod)
    return std::nullopt;
  auto loop = dyn_cast<AffineDimExpr>(panel.getLHS());
  auto columns = dyn_cast<AffineConstantExpr>(panel.getRHS());
  if (!loop || !columns || column.getLHS() != loop ||
      column.getRHS() != columns ||
      !llvm::all_of(results.drop_back(3), llvm::IsaPred<AffineDimExpr>))
    return std::nullopt;
  return PanelMap{loop.getPosition(), depth.getPosition(), columns.getValue()};
}

/// The elements of a constant, in the order of its dimensions; none of others.
static ArrayRef<char> getElements(Value value) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  if (!constant)
    return {};
  if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue()))
    return dense.isSplat() ? ArrayRef<char>() : dense.getRawData();
  auto resource = dyn_cast<DenseResourceElementsAttr>(constant.getValue());
  AsmResourceBlob *blob =
      resource ? resource.getRawHandle().getBlob() : nullptr;
  return blob ? blob->getData() : ArrayRef<char>();
}

namespace {
/// A constant factor of a product, and how it becomes panels.
class ConstantFactor {
public:
  /// None where there is no such factor, or panels are of no use.
  static std::optional<ConstantFactor> match(linalg::LinalgOp op,
                                             RegisterFile registers);
  /// Has the product read panels.
  void pack();

private:
  RankedTensorType getType() const {
    return cast<RankedTensorType>(factor->get().getType());
  }
  unsigned getDim(unsigned loop);
  int64_t getExtent(unsigned loop) {
    return getType().getDimSize(getDim(loop));
  }
  void copyPanels(MutableArrayRef<char> packed);

  linalg::LinalgOp op;
  OpOperand *factor;
  ArrayRef<char> elements;
  unsigned columnLoop, depthLoop;
  SmallVector<unsigned> outerLoops;
  /// Columns of a panel.
  int64_t width;
};
} // namespace

std::optional<ConstantFactor> ConstantFactor::match(linalg::LinalgOp op,
                                                    RegisterFile registers) {
  if (!op.hasPureTensorSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !isSumOfProducts(op) ||
      op.getNumReductionLoops() != 1 ||
      !llvm::all_of(op.getIndexingMapsArray(),
                    [](AffineMap map) { return map.isProjectedPermutation(); }))
    return std::nullopt;
  AffineMap out = op.getMatchingIndexingMap(op.getDpsInitOperand(0));
  if (out.getNumResults() == 0)
    return std::nullopt;
  ConstantFactor found;
  found.op = op;
  found.columnLoop = out.getDimPosition(out.getNumResults() - 1);
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  found.depthLoop = reductions.front();
  OpOperand *left = op.getDpsInputOperand(0), *right = op.getDpsInputOperand(1);
  if (op.getMatchingIndexingMap(left).isFunctionOfDim(found.columnLoop))
    std::swap(left, right);
  AffineMap leftMap = op.getMatchingIndexingMap(left);
  AffineMap rightMap = op.getMatchingIndexingMap(right);
  auto type = dyn_cast<RankedTensorType>(right->get().getType());
  // Sums have the type of the widest operand. Others are converted for each
  // block.
  bool isDouble = llvm::any_of(op->getOperandTypes(), [](Type operand) {
    return getElementTypeOrSelf(operand).isF64();
  });
  if (!type ||
      !(isDouble ? type.getElementType().isF64()
                 : type.getElementType().isF32()) ||
      leftMap.isFunctionOfDim(found.columnLoop) ||
      !rightMap.isFunctionOfDim(found.columnLoop) ||
      !rightMap.isFunctionOfDim(found.depthLoop))
    return std::nullopt;
  found.factor = right;
  found.elements = getElements(right->get());
  if (found.elements.empty())
    return std::nullopt;
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  bool hasRows = false;
  for (AffineExpr expr : out.getResults()) {
    unsigned loop = cast<AffineDimExpr>(expr).getPosition();
    hasRows |= leftMap.isFunctionOfDim(loop) &&
               !rightMap.isFunctionOfDim(loop) &&
               (ShapedType::isDynamic(extents[loop]) ||
                extents[loop] > kMaxRowsInPlace);
  }
  if (!hasRows)
    return std::nullopt;
  for (AffineExpr expr : rightMap.getResults())
    if (unsigned loop = cast<AffineDimExpr>(expr).getPosition();
        loop != found.columnLoop && loop != found.depthLoop)
      found.outerLoops.push_back(loop);
  int64_t lanes =
      registers.vectorBits / type.getElementType().getIntOrFloatBitWidth();
  found.width = lanes * getPanelVectors(registers, lanes,
                                        found.getExtent(found.columnLoop));
  return found;
}

/// The dimension of the factor that `loop` runs along.
unsigned ConstantFactor::getDim(unsigned loop) {
  return *op.getMatchingIndexingMap(factor).getResultPosition(
      getAffineDimExpr(loop, op.getContext()));
}

/// Copies `extent` elements `stride` bytes apart to ones `step` bytes apart.
template <typename T>
static void copyStrided(const char *from, int64_t stride, char *to,
                        int64_t step, int64_t extent) {
  for (int64_t i = 0; i < extent; ++i)
    std::memcpy(to + i * step, from + i * stride, sizeof(T));
}

void ConstantFactor::copyPanels(MutableArrayRef<char> packed) {
  int64_t bytes = getType().getElementTypeBitWidth() / 8;
  // Bytes between neighbours along a loop.
  auto strideOf = [&](unsigned loop) {
    return bytes *
           llvm::product_of(getType().getShape().drop_front(getDim(loop) + 1));
  };
  int64_t columns = getExtent(columnLoop), depth = getExtent(depthLoop);
  int64_t columnStride = strideOf(columnLoop),
          depthStride = strideOf(depthLoop);
  char *to = packed.data();
  auto copyMatrix = [&](const char *from) {
    for (int64_t first = 0; first < columns; first += width) {
      int64_t count = std::min(width, columns - first);
      for (int64_t column = 0; column < count; ++column) {
        auto *copy = bytes == 4 ? copyStrided<float> : copyStrided<double>;
        copy(from + (first + column) * columnStride, depthStride,
             to + column * bytes, width * bytes, depth);
      }
      to += depth * width * bytes;
    }
  };
  std::function<void(ArrayRef<unsigned>, const char *)> copyAll =
      [&](ArrayRef<unsigned> loops, const char *from) {
        if (loops.empty())
          return copyMatrix(from);
        for (int64_t i = 0; i < getExtent(loops.front()); ++i)
          copyAll(loops.drop_front(), from + i * strideOf(loops.front()));
      };
  copyAll(outerLoops, elements.data());
}

void ConstantFactor::pack() {
  Type elementType = getType().getElementType();
  SmallVector<int64_t> shape;
  SmallVector<AffineExpr> exprs;
  MLIRContext *context = op.getContext();
  for (unsigned loop : outerLoops) {
    shape.push_back(getExtent(loop));
    exprs.push_back(getAffineDimExpr(loop, context));
  }
  int64_t panels = llvm::divideCeil(getExtent(columnLoop), width);
  shape.append({panels, getExtent(depthLoop), width});
  AffineExpr column = getAffineDimExpr(columnLoop, context);
  exprs.append({column.floorDiv(width), getAffineDimExpr(depthLoop, context),
                column % width});

  AsmResourceBlob blob = HeapAsmResourceBlob::allocate(
      llvm::product_of(shape) * elementType.getIntOrFloatBitWidth() / 8,
      /*align=*/64);
  llvm::fill(blob.getMutableData(), 0);
  copyPanels(blob.getMutableData());
  OpBuilder builder(op);
  auto packedType = RankedTensorType::get(shape, elementType);
  Value packed = arith::ConstantOp::create(
      builder, op.getLoc(),
      DenseResourceElementsAttr::get(packedType, "packed", std::move(blob)));
  SmallVector<Value> inputs = op.getDpsInputs();
  inputs[factor->getOperandNumber()] = packed;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  maps[factor->getOperandNumber()] =
      AffineMap::get(op.getNumLoops(), 0, exprs, context);
  auto product = linalg::GenericOp::create(
      builder, op.getLoc(), op->getResultTypes(), inputs, op.getDpsInits(),
      maps, op.getIteratorTypesArray());
  product.getRegion().takeBody(op->getRegion(0));
  op->replaceAllUsesWith(product);
  op->erase();
}

void fovea::attn::packConstants(Operation *root, RegisterFile registers) {
  SmallVector<linalg::LinalgOp> ops;
  root->walk([&](linalg::LinalgOp op) { ops.push_back(op); });
  for (linalg::LinalgOp op : ops)
    if (auto factor = ConstantFactor::match(op, registers))
      factor->pack();
}
