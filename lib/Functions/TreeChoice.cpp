//===- TreeChoice.cpp - Choosing nodes of trees in one kernel -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeChoice.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::functions;

static const attn::Contract &getContract() {
  static const attn::Contract contract("tree_choice", "tree: [B, T, F]\n"
                                                      "counts: [B, T]\n"
                                                      "score: [B, P, F]\n"
                                                      "level: i32[B, R]\n"
                                                      "index: i32[B, R]");
  return contract;
}

/// Rows [B,n,F] as those of one head, [B,1,n,F].
static Value asHead(ImplicitLocOpBuilder &b, Value rows) {
  auto type = cast<RankedTensorType>(rows.getType());
  SmallVector<int64_t> shape(type.getShape());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), rows);
  shape.insert(shape.begin() + 1, 1);
  sizes.insert(sizes.begin() + 1, b.getIndexAttr(1));
  return tensor::ExpandShapeOp::create(
      b, RankedTensorType::get(shape, type.getElementType()), rows,
      ArrayRef<ReassociationIndices>{{0, 1}, {2}, {3}}, sizes);
}

/// Scores of candidates: (53), whose logarithm has the same order.
static void buildScore(ImplicitLocOpBuilder &b, Block &block, Value vip) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(&block);
  Value rows = block.getArgument(0);
  auto type = cast<RankedTensorType>(rows.getType());
  Type element = type.getElementType();
  Type state = element.isF64() ? element : Type(b.getF32Type());
  SmallVector<OpFoldResult> sizes = tensor::getMixedSizes(b, b.getLoc(), rows);
  Value init = tensor::EmptyOp::create(b, ArrayRef(sizes).drop_back(), state);
  auto score = attn::TreeScoreOp::create(
      b, TypeRange{init.getType()}, asHead(b, vip), asHead(b, rows),
      /*log_weight=*/Value(), /*mask=*/Value(), init,
      /*scale=*/b.getF64FloatAttr(1.0), /*exponential=*/b.getUnitAttr());
  attn::YieldOp::create(b, score->getResult(0));
}

llvm::Expected<TreeSelection>
functions::chooseByRows(const Tree &tree, ArrayRef<int64_t> budgets,
                        int64_t numNodes, const Argument &vip, Target target,
                        const ResultMemory &out) {
  Checker check;
  Call call(getContract(), target, out);
  call.operands({Argument("tree", tree.nodes.getRef())});
  addCounts(call, tree);
  call.operands({vip});
  // What the body knows, the key of the kernel has.
  addTreeShape(call, tree);
  for (int64_t budget : budgets)
    call.attribute("budget", budget);
  Shape shape = {tree.getBatch(), numNodes};
  call.result(check, "level", ElementType::I32, shape);
  call.result(check, "index", ElementType::I32, shape);
  call.setBody([&](OpBuilder &builder, ValueRange arguments, ValueRange inits) {
    ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
    Value nodes = arguments.front();
    auto select = attn::TreeSelectOp::create(
        b, inits.getTypes(), nodes, tree.hasCounts() ? arguments[1] : Value(),
        inits[0], inits[1],
        /*factor=*/Value(),
        attn::TreeAttr::get(b.getContext(), tree.ratio, tree.levels), budgets);
    auto type = cast<RankedTensorType>(nodes.getType());
    // Levels differ in how many candidates they have.
    auto rows = RankedTensorType::get(
        {type.getDimSize(0), ShapedType::kDynamic, type.getDimSize(2)},
        type.getElementType());
    Block &block = select.getScore().emplaceBlock();
    block.addArgument(rows, b.getLoc());
    buildScore(b, block, arguments.back());
    return SmallVector<Value>(select->getResults());
  });
  return call.runFor<TreeSelection, 2>(check);
}
