//===- ExtentOrigin.cpp - Where an extent comes from ----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/ExtentOrigin.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"

using namespace mlir;
using namespace fovea;

/// The size that an operation is given for an axis of its result.
static std::optional<OpFoldResult> getSize(Operation *op, unsigned dim) {
  if (auto empty = dyn_cast<tensor::EmptyOp>(op))
    return empty.getMixedSizes()[dim];
  auto slice = dyn_cast<tensor::ExtractSliceOp>(op);
  if (!slice)
    return std::nullopt;
  SmallVector<OpFoldResult> sizes;
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  for (auto [axis, size] : llvm::enumerate(slice.getMixedSizes()))
    if (!dropped.test(axis))
      sizes.push_back(size);
  return sizes[dim];
}

std::optional<ExtentOrigin> fovea::getExtentOrigin(Value value, unsigned dim,
                                                   Block *entry) {
  while (true) {
    auto type = dyn_cast<ShapedType>(value.getType());
    if (!type || !type.hasRank())
      return std::nullopt;
    if (!type.isDynamicDim(dim))
      return ExtentOrigin{std::nullopt, 0, type.getDimSize(dim)};
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (argument.getOwner() != entry)
        return std::nullopt;
      return ExtentOrigin{argument.getArgNumber(), dim, 0};
    }
    Operation *op = value.getDefiningOp();
    if (auto castOp = dyn_cast<tensor::CastOp>(op)) {
      value = castOp.getSource();
    } else if (auto style = dyn_cast<DestinationStyleOpInterface>(op)) {
      value = style.getTiedOpOperand(cast<OpResult>(value))->get();
    } else if (std::optional<OpFoldResult> size = getSize(op, dim)) {
      if (std::optional<int64_t> constant = getConstantIntValue(*size))
        return ExtentOrigin{std::nullopt, 0, *constant};
      auto extent = dyn_cast<Value>(*size).getDefiningOp<tensor::DimOp>();
      std::optional<int64_t> index =
          extent ? extent.getConstantIndex() : std::nullopt;
      if (!index)
        return std::nullopt;
      value = extent.getSource();
      dim = *index;
    } else {
      return std::nullopt;
    }
  }
}
