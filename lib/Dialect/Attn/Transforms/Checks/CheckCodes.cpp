//===- CheckCodes.cpp - Checks of codes -----------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKCODESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

namespace {
/// Codes that an operation takes, and the operand with an entry for each code
/// along extent `dim`.
struct CodesOperand {
  Value codes, table;
  unsigned dim;
  /// Whether -1 is a code, that of an absent token.
  bool orAbsent;
  StringRef name = "codes";
};
} // namespace

/// The codes that `op` uses as indices, if any. Every operation that does must
/// be here.
static SmallVector<CodesOperand, 2> getCodesOperands(Operation *op) {
  using Result = SmallVector<CodesOperand, 2>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case([](CodebookAccumulateOp op) -> Result {
        return {{op.getCodes(), op.getMean(), 2, /*orAbsent=*/true}};
      })
      .Case([](CodebookScanOp op) -> Result {
        return {{op.getCodes(), op.getInitialMean(), 2, /*orAbsent=*/true}};
      })
      .Case<VQOp, VQDecodeOp, VQBackwardOp>([](auto op) -> Result {
        bool orAbsent = op.getPadded();
        Result operands = {{op.getCodes(), op.getCodebook(), 1, orAbsent}};
        if (!op.getState().empty())
          operands.push_back(
              {op.getState()[2], op.getCodebook(), 1, orAbsent, "kept codes"});
        return operands;
      })
      .Case([](CodebookUpdateOp op) -> Result {
        return {{op.getCodes(), op.getCodebook(), 1, /*orAbsent=*/true}};
      })
      .Default([](Operation *) -> Result { return {}; });
}

/// Checks the counts of a state, which a codeword cannot have fewer than none
/// of.
template <typename OpTy> static void checkCounts(OpTy op) {
  if (op.getState().empty())
    return;
  ImplicitLocOpBuilder b(op.getLoc(), op);
  int64_t most = std::numeric_limits<int32_t>::max();
  CheckCodesOp::create(
      b, op.getState()[1], arith::ConstantIndexOp::create(b, most + 1),
      (op->getName().getStringRef() + ": count of state").str());
}

static Value getExtent(ImplicitLocOpBuilder &b, Value operand, int64_t dim) {
  return isa<MemRefType>(operand.getType())
             ? b.createOrFold<memref::DimOp>(operand, dim)
             : b.createOrFold<tensor::DimOp>(operand, dim);
}

/// Checks that a batch entry has no more rows than `most`, by default all, or
/// tokens of rows that a mask gives a stride.
static void checkLengths(Operation *op, Value lengths, Value rows,
                         const Twine &name, Value most = {},
                         int64_t stride = 1) {
  if (!lengths)
    return;
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Value bound =
      b.createOrFold<arith::MulIOp>(most ? most : getExtent(b, rows, 2),
                                    arith::ConstantIndexOp::create(b, stride));
  bound = b.createOrFold<arith::AddIOp>(
      bound, arith::ConstantIndexOp::create(b, stride));
  auto type = cast<ShapedType>(lengths.getType());
  int64_t shape[] = {1, 1, type.getDimSize(0)};
  SmallVector<OpFoldResult> sizes = {
      b.getIndexAttr(1), b.getIndexAttr(1),
      getAsOpFoldResult(getExtent(b, lengths, 0))};
  SmallVector<ReassociationIndices> groups = {{0, 1, 2}};
  Value list;
  if (isa<MemRefType>(type))
    list = memref::ExpandShapeOp::create(b, shape, lengths, groups, sizes);
  else
    list = tensor::ExpandShapeOp::create(
        b, RankedTensorType::get(shape, type.getElementType()), lengths, groups,
        sizes);
  CheckCodesOp::create(b, list, bound,
                       (op->getName().getStringRef() + ": " + name).str());
}

/// Checks that a list names units of rows that there are.
static void checkRowList(Operation *op, const StreamSource &source,
                         unsigned index) {
  if (!source.rowList)
    return;
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Value bound = b.createOrFold<arith::CeilDivSIOp>(
      getExtent(b, source.keys, 2),
      arith::ConstantIndexOp::create(b, source.attr.getUnit()));
  CheckCodesOp::create(
      b, source.rowList, bound,
      (op->getName().getStringRef() + ": rows of source " + Twine(index)).str(),
      /*or_absent=*/true);
}

/// How many rows the lists of a source may name; null without listed positions.
static Value countListedRows(Operation *op, const StreamSource &source) {
  if (!source.attr.getHasListedPositions())
    return Value();
  ImplicitLocOpBuilder b(op->getLoc(), op);
  return b.createOrFold<arith::MulIOp>(
      getExtent(b, source.rowList, 3),
      arith::ConstantIndexOp::create(b, source.attr.getUnit()));
}

/// Checks all lengths, and lists of rows, that `op` takes.
static void checkLengths(Operation *op) {
  auto checkQueries = [](auto op, Value most = {}) {
    checkLengths(op, op.getQueryLengths(), op.getQuery(), "query_lengths",
                 most);
  };
  auto checkSources = [](Operation *op, ArrayRef<StreamSource> sources) {
    for (auto [index, source] : llvm::enumerate(sources)) {
      if (source.lengths)
        checkLengths(op, source.lengths, source.getRowsOperand(),
                     "lengths of source " + Twine(index),
                     countListedRows(op, source),
                     source.attr.getMask().getStride());
      checkRowList(op, source, index);
    }
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<DenseOp, DenseBackwardOp>([&](auto op) {
        checkLengths(op, op.getLengths(), op.getKey(), "lengths", /*most=*/{},
                     op.getMaskOrNone().getStride());
        checkQueries(op);
      })
      .Case([&](StreamOp op) {
        checkSources(op, op.getSourceList());
        // Of a tile they count all queries.
        checkQueries(op, op.getNumRows());
      })
      .Case([&](StreamBackwardOp op) {
        SmallVector<StreamSource> sources;
        for (const StreamSourceGradient &source : op.getSourceList())
          sources.push_back(source.forward);
        checkSources(op, sources);
        checkQueries(op);
      });
}

/// True for codes that come, perhaps in part, from a codebook of no more than
/// `numCodes` codewords, or from a mask where `orAbsent`.
static bool areKnown(Value codes, int64_t numCodes, bool orAbsent) {
  while (Operation *op = codes.getDefiningOp()) {
    if (auto quantize = dyn_cast<QuantizeOp>(op))
      return cast<ShapedType>(quantize.getCodebook().getType()).getDimSize(1) <=
                 numCodes &&
             (orAbsent || !quantize.getMask());
    if (!isa<tensor::ExtractSliceOp, tensor::CastOp>(op))
      return false;
    codes = op->getOperand(0);
  }
  return false;
}

/// `operand[.., first .. first + size - 1]` along its last dimension.
static Value getSlice(ImplicitLocOpBuilder &b, Value operand, int64_t first,
                      OpFoldResult size) {
  SmallVector<OpFoldResult> offsets(3, b.getIndexAttr(0)),
      strides(3, b.getIndexAttr(1)), sizes;
  for (int64_t dim : {0, 1})
    sizes.push_back(getAsOpFoldResult(getExtent(b, operand, dim)));
  offsets[2] = b.getIndexAttr(first);
  sizes.push_back(size);
  if (isa<MemRefType>(operand.getType()))
    return memref::SubViewOp::create(b, operand, offsets, sizes, strides);
  return tensor::ExtractSliceOp::create(b, operand, offsets, sizes, strides);
}

/// Checks what a mask of attn.low_rank, or of its gradient, is made of.
template <typename OpTy> static void checkMask(OpTy op) {
  RowMask mask = op.getMask();
  OperandRange parts = op.getMaskParts();
  ImplicitLocOpBuilder b(op.getLoc(), op);
  auto name = [&](StringRef part) {
    return (op->getName().getStringRef() + ": " + part).str();
  };
  auto checkCodes = [&](unsigned part, Value bound) {
    CheckCodesOp::create(b, parts[part], bound,
                         name(LowRankOp::getPartNames(mask)[part]));
  };
  if (mask == RowMask::RowInterval) {
    CheckIntervalsOp::create(b, parts[0], parts[1], getExtent(b, op.getU2(), 2),
                             name("interval"));
  } else if (mask == RowMask::DistinctRows ||
             mask == RowMask::DistinctColumns) {
    checkCodes(0, getExtent(b, parts[1], 2));
  } else if (mask == RowMask::RowChange) {
    Value one = arith::ConstantIndexOp::create(b, 1);
    Value bound = b.createOrFold<arith::AddIOp>(getExtent(b, parts[1], 2), one);
    checkCodes(0, bound);
    checkCodes(1, getExtent(b, op.getU2(), 2));
    // Ends in order: from each one to the next is an interval. A single row
    // has none, and no row minus one.
    Value numRows = getExtent(b, parts[0], 2);
    Value size = b.createOrFold<arith::SubIOp>(
        b.createOrFold<arith::MaxSIOp>(numRows, one), one);
    CheckIntervalsOp::create(
        b, getSlice(b, parts[0], 0, getAsOpFoldResult(size)),
        getSlice(b, parts[0], 1, getAsOpFoldResult(size)), bound, name("ends"));
  }
}

namespace {
struct CheckCodesPass : fovea::attn::impl::CheckCodesPassBase<CheckCodesPass> {
  void runOnOperation() override {
    getOperation().walk([](Operation *op) {
      if (auto lowRank = dyn_cast<LowRankOp>(op))
        return checkMask(lowRank);
      if (auto lowRank = dyn_cast<LowRankBackwardOp>(op))
        return checkMask(lowRank);
      checkLengths(op);
      llvm::TypeSwitch<Operation *>(op).Case<VQOp, VQDecodeOp, VQBackwardOp>(
          [](auto op) { checkCounts(op); });
      for (const CodesOperand &operand : getCodesOperands(op)) {
        auto type = cast<ShapedType>(operand.table.getType());
        int64_t numCodes = type.getDimSize(operand.dim);
        if (!ShapedType::isDynamic(numCodes) &&
            areKnown(operand.codes, numCodes, operand.orAbsent))
          continue;
        ImplicitLocOpBuilder b(op->getLoc(), op);
        Value bound = getExtent(b, operand.table, operand.dim);
        std::string name =
            (op->getName().getStringRef() + ": " + operand.name).str();
        CheckCodesOp::create(b, operand.codes, bound, name, operand.orAbsent);
      }
    });
  }
};
} // namespace
