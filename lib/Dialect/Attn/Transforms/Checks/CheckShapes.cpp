//===- CheckShapes.cpp - Checks of dynamic extents ------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckTensors.h"
#include "fovea/Analysis/ExtentOrigin.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/IR/Levels.h"
#include "fovea/Dialect/Attn/IR/RangeOverlap.h"
#include "fovea/Dialect/Attn/IR/SourceDistances.h"
#include "fovea/Dialect/Attn/IR/TreeRules.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "fovea/Kernels/StreamRanges.h"
#include "fovea/Kernels/TargetFacts.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include <limits>

namespace fovea::attn {
#define GEN_PASS_DEF_CHECKSHAPESPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

/// Tokens of a sequence: sums of a few such numbers do not overflow.
static constexpr int64_t kMostTokens = int64_t(1) << 60;

/// True when both extents are one and the same extent of an argument.
static bool haveSameOrigin(const ExtentRule &rule, Block *entry) {
  auto first = getExtentOrigin(rule.first.operand, rule.first.dim, entry);
  auto second = getExtentOrigin(rule.second.operand, rule.second.dim, entry);
  return rule.kind != ExtentRule::Summaries && first && second &&
         first->argument && first->argument == second->argument &&
         first->dim == second->dim;
}

namespace {
struct CheckShapesPass
    : fovea::attn::impl::CheckShapesPassBase<CheckShapesPass> {
  void runOnOperation() override {
    RuntimeCalls calls(getOperation());
    getOperation().walk([&](func::FuncOp function) {
      if (function.isExternal())
        return;
      Block *entry = &function.getBody().front();
      function.walk([&](Operation *op) {
        if (isa<attn::VQOp, attn::VQDecodeOp, attn::VQBackwardOp>(op))
          emitPositionCheck(op, calls);
        emitLevelCheck(op, calls);
        forEachExtentRule(op, [&](const ExtentRule &rule) {
          if (!haveSameOrigin(rule, entry))
            emitCheck(op, rule, calls);
        });
        forEachTreeRule(
            op, [&](const TreeRule &rule) { emitTreeCheck(op, rule, calls); });
        emitRangeChecks(op, calls);
      });
      emitTensorChecks(function, calls);
    });
  }

private:
  /// A loop over the blocks of queries that checks what depends on extents.
  static void emitRangeChecks(Operation *op, RuntimeCalls &calls) {
    SmallVector<RangePair> pairs = getRangePairs(op);
    llvm::erase_if(pairs,
                   [](const RangePair &pair) { return pair.areApart(); });
    SmallVector<RangeDistances> distances = getRangeDistances(op);
    if (pairs.empty() && distances.empty())
      return;
    OpBuilder builder(op);
    KernelBuilder b(op->getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
    Value queries = getNumQueries(b, op);
    int64_t block = pairs.empty() ? distances.front().extents.block
                                  : pairs.front().extents.block;
    Value numBlocks =
        block ? b.ceilDiv(queries, block) : b.min(queries, b.index(1));
    SmallVector<Value> rows;
    for (const RangePair &pair : pairs)
      rows.push_back(getExtent(b, {/*name=*/"", pair.rowsOperand, /*dim=*/2}));
    b.loop(b.index(0), numBlocks, 1, [&](Value number) {
      for (auto [pair, numRows] : llvm::zip_equal(pairs, rows)) {
        SmallVector<Value> arguments = {asI64(b, number)};
        for (AffineMap range : {pair.firstRange, pair.secondRange}) {
          RangeBounds bounds =
              emitRangeBounds(b, range, number, numRows, queries);
          arguments.push_back(asI64(b, bounds.low));
          arguments.push_back(asI64(b, bounds.high));
        }
        calls.emitCheck(
            b, "fovea_rt_check_ranges",
            (op->getName().getStringRef() + ": " + pair.describe()).str(),
            arguments);
      }
      for (const RangeDistances &range : distances)
        emitDistanceCheck(b, op, range, number, queries, calls);
    });
  }

  static void emitDistanceCheck(KernelBuilder &b, Operation *op,
                                const RangeDistances &range, Value block,
                                Value queries, RuntimeCalls &calls) {
    Value rows =
        getExtent(b, {/*name=*/"", range.operands.getRowsOperand(), /*dim=*/2});
    RangeBounds bounds =
        emitRangeBounds(b, range.getRange(), block, rows, queries);
    Value origin = affine::expandAffineExpr(b, b.getLoc(),
                                            range.operands.attr.getOriginExpr(),
                                            /*dimValues=*/{}, {rows, queries});
    Value first = b.index(0), end = queries;
    if (int64_t length = range.extents.block) {
      first = b.mul(block, length);
      end = b.min(b.add(first, length), queries);
    }
    Value least = b.sub(b.sub(first, origin), b.sub(bounds.high, b.index(1)));
    Value greatest = b.sub(b.sub(b.sub(end, b.index(1)), origin), bounds.low);
    if (std::optional<int64_t> admitted = range.getLeastAdmitted())
      least = b.max(least, *admitted);
    if (std::optional<int64_t> admitted = range.getGreatestAdmitted())
      greatest = b.min(greatest, *admitted);
    // No rows have no distances.
    greatest = b.select(b.less(bounds.low, bounds.high), greatest,
                        b.sub(least, b.index(1)));
    calls.emitCheck(
        b, "fovea_rt_check_distances",
        (op->getName().getStringRef() + ": " + range.describe()).str(),
        {asI64(b, block), asI64(b, least), asI64(b, greatest),
         asI64(b, b.index(range.getNumTerms()))});
  }

  /// How many queries there are, of which a tile may be a part.
  static Value getNumQueries(ImplicitLocOpBuilder &b, Operation *op) {
    if (auto stream = dyn_cast<StreamOp>(op); stream && stream.getNumRows())
      return stream.getNumRows();
    return getExtent(b, {/*name=*/"", op->getOperand(0), /*dim=*/2});
  }

  static Value asI64(ImplicitLocOpBuilder &b, Value value) {
    return arith::IndexCastOp::create(b, b.getI64Type(), value);
  }

  /// There are weights for as many levels as the number of tokens needs.
  static void emitLevelCheck(Operation *op, RuntimeCalls &calls) {
    llvm::TypeSwitch<Operation *>(op)
        .Case<FastMultipoleOp, FastMultipoleLinearOp, FastMultipoleBackwardOp,
              FastMultipoleLinearBackwardOp>([&](auto multipole) {
          ImplicitLocOpBuilder b(op->getLoc(), op);
          emitSummaryChecks(b, multipole, calls);
          auto query = cast<ShapedType>(multipole.getQuery().getType());
          if (!query.isDynamicDim(2))
            return;
          int64_t group = multipole.getGroup(),
                  levels = multipole.getNumLevels();
          Value tokens =
              getExtent(b, {/*name=*/"", multipole.getQuery(), /*dim=*/2});
          Value most =
              arith::ConstantIndexOp::create(b, getMostTokens(group, levels));
          std::string rule =
              llvm::formatv("{0}: weights of {1} levels are for so many tokens "
                            "in groups of {2} at most",
                            op->getName().getStringRef(), levels, group);
          calls.emitCheck(b, "fovea_rt_check_extent", rule,
                          {asI64(b, tokens),
                           asI64(b, arith::MinSIOp::create(b, tokens, most))});
        });
  }

  /// Ready-made summaries are of all intervals of their level.
  template <typename OpTy>
  static void emitSummaryChecks(ImplicitLocOpBuilder &b, OpTy op,
                                RuntimeCalls &calls) {
    SmallVector<std::pair<StringRef, OperandRange>> lists = {
        {"key", op.getKeySummaries()}, {"value", op.getValueSummaries()}};
    if constexpr (llvm::is_one_of<OpTy, FastMultipoleLinearOp,
                                  FastMultipoleLinearBackwardOp>::value)
      lists.push_back({"query", op.getQuerySummaries()});
    bool isOpen = cast<ShapedType>(op.getQuery().getType()).isDynamicDim(2);
    for (auto [name, list] : lists)
      for (auto [level, summaries] : llvm::enumerate(list)) {
        if (!isOpen && !cast<ShapedType>(summaries.getType()).isDynamicDim(2))
          continue;
        int64_t interval =
            getMostTokens(op.getGroup(), static_cast<int64_t>(level) - 1);
        Value tokens = getExtent(b, {/*name=*/"", op.getQuery(), /*dim=*/2});
        Value needed = affine::makeComposedAffineApply(
            b, b.getLoc(), b.getAffineSymbolExpr(0).ceilDiv(interval),
            OpFoldResult(tokens));
        std::string rule = llvm::formatv(
            "{0}: extent 2 of {1}_summaries[{2}] must count the intervals of "
            "{3} tokens",
            op->getName().getStringRef(), name, level, interval);
        calls.emitCheck(
            b, "fovea_rt_check_extent", rule,
            {asI64(b, getExtent(b, {/*name=*/"", summaries, /*dim=*/2})),
             asI64(b, needed)});
      }
  }

  /// For where no host reads it: as a code, of 32 bits.
  static void checkPositionOnDevice(ImplicitLocOpBuilder &b, Operation *op,
                                    Value position) {
    using Limits = std::numeric_limits<int32_t>;
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
    };
    Value found = tensor::ExtractOp::create(b, position, ValueRange());
    found = arith::MaxSIOp::create(b, found, constant(Limits::min()));
    found = arith::MinSIOp::create(b, found, constant(Limits::max()));
    found = arith::TruncIOp::create(b, b.getI32Type(), found);
    Value list = tensor::FromElementsOp::create(
        b, RankedTensorType::get({1, 1, 1}, b.getI32Type()), found);
    CheckCodesOp::create(
        b, list, arith::ConstantIndexOp::create(b, Limits::max()),
        (op->getName().getStringRef() + ": position of state").str());
  }

  /// Windows and blocks are cut out of the sequence at the position of a state.
  static void emitPositionCheck(Operation *op, RuntimeCalls &calls) {
    Value position = getPosition(op);
    if (!position)
      return;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    bool isRepeated = isForGPU(op) && isa<RankedTensorType>(position.getType());
    if (isRepeated)
      checkPositionOnDevice(b, op, position);
    Value found =
        isa<MemRefType>(position.getType())
            ? memref::LoadOp::create(b, position).getResult()
            : tensor::ExtractOp::create(b, position, ValueRange()).getResult();
    auto constant = [&](int64_t value) -> Value {
      return arith::ConstantOp::create(b, b.getI64IntegerAttr(value));
    };
    Value expected = arith::MaxSIOp::create(
        b, arith::MinSIOp::create(b, found, constant(kMostTokens)),
        constant(0));
    std::string rule = llvm::formatv(
        "{0}: position of state must be from 0 to {1}",
        op->getName().getStringRef(), static_cast<int64_t>(kMostTokens));
    calls.emitCheck(b, "fovea_rt_check_extent", rule, {found, expected});
    if (isRepeated)
      op->getPrevNode()->setAttr(kRepeatedCheckAttrName, b.getUnitAttr());
  }

  /// The position of the state that `op` is given, or null.
  static Value getPosition(Operation *op) {
    return llvm::TypeSwitch<Operation *, Value>(op)
        .Case<attn::VQOp, attn::VQDecodeOp, attn::VQBackwardOp>(
            [](auto op) -> Value {
              return op.getState().empty() ? Value() : op.getState()[4];
            });
  }

  static void emitCheck(Operation *op, const ExtentRule &rule,
                        RuntimeCalls &calls) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Value found = getExtent(b, rule.first);
    Value expected = getExtent(b, rule.second);
    if (rule.kind == ExtentRule::Summaries) {
      AffineExpr rows = b.getAffineSymbolExpr(0);
      expected = affine::makeComposedAffineApply(
          b, b.getLoc(), rows.ceilDiv(rule.interval) * rule.rank,
          OpFoldResult(expected));
    }
    StringRef name = rule.kind == ExtentRule::Multiple
                         ? "fovea_rt_check_multiple"
                         : "fovea_rt_check_extent";
    calls.emitCheck(
        b, name, (op->getName().getStringRef() + ": " + rule.describe()).str(),
        {asI64(b, found), asI64(b, expected)});
  }

  static void emitTreeCheck(Operation *op, const TreeRule &rule,
                            RuntimeCalls &calls) {
    ImplicitLocOpBuilder b(op->getLoc(), op);
    auto extentOf = [&](const TreeRule::Extent &extent) {
      return getExtent(b, {/*name=*/"", extent.operand, extent.dim});
    };
    StringRef name = "fovea_rt_check_multiple";
    Value expected = arith::ConstantIndexOp::create(b, rule.divisor);
    if (rule.other.operand) {
      name = "fovea_rt_check_extent";
      AffineExpr count = b.getAffineSymbolExpr(0).floorDiv(rule.divisor);
      expected = affine::makeComposedAffineApply(
          b, b.getLoc(), count * rule.factor + rule.addend,
          OpFoldResult(extentOf(rule.other)));
    }
    calls.emitCheck(
        b, name, (op->getName().getStringRef() + ": " + rule.describe()).str(),
        {asI64(b, extentOf(rule.extent)), asI64(b, expected)});
  }

  static Value getExtent(ImplicitLocOpBuilder &b,
                         const ExtentRule::Extent &extent) {
    if (isa<MemRefType>(extent.operand.getType()))
      return b.createOrFold<memref::DimOp>(extent.operand, extent.dim);
    return b.createOrFold<tensor::DimOp>(extent.operand, extent.dim);
  }
};
} // namespace
