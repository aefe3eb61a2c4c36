//===- ContractionKernel.cpp - Parallel products of matrices --------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContractionKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Contractions
//===----------------------------------------------------------------------===//

Value Contraction::extentOf(KernelBuilder &b, unsigned loop) const {
  for (const Operand *operand : {&output, &left, &right})
    for (auto [dim, other] : llvm::enumerate(operand->loops))
      if (other == loop)
        return b.extent(operand->memref, dim);
  llvm_unreachable("every loop runs along some operand");
}

Value Contraction::countRows(KernelBuilder &b) const {
  return rowLoop ? extentOf(b, *rowLoop) : b.index(1);
}

bool Contraction::Operand::isContiguousAlong(unsigned loop) const {
  return !loops.empty() && loops.back() == loop &&
         cast<MemRefType>(memref.getType()).isLastDimUnitStride();
}

/// The loop along each dimension of `memref`; none where that is no permutation
/// of loops, and no panels of columns as packConstants() makes them.
static std::optional<Contraction::Operand> matchOperand(Value memref,
                                                        AffineMap map) {
  Contraction::Operand operand;
  operand.memref = memref;
  ArrayRef<AffineExpr> results = map.getResults();
  if (std::optional<PanelMap> panels = PanelMap::match(map)) {
    operand.panelColumns = panels->columns;
    for (AffineExpr expr : results.drop_back(3))
      operand.loops.push_back(cast<AffineDimExpr>(expr).getPosition());
    llvm::append_range(
        operand.loops,
        ArrayRef{panels->columnLoop, panels->depthLoop, panels->columnLoop});
    return operand;
  }
  if (!map.isProjectedPermutation())
    return std::nullopt;
  for (AffineExpr expr : results)
    operand.loops.push_back(cast<AffineDimExpr>(expr).getPosition());
  return operand;
}

/// Whether the panels of the right operand, if it has some, are those that
/// packConstants() makes for `registers`, along the loops of the product.
static bool hasFittingPanels(const Contraction &contraction,
                             RegisterFile registers) {
  const Contraction::Operand &right = contraction.right;
  if (!right.panelColumns)
    return true;
  linalg::LinalgOp op = contraction.op;
  FloatType state = contraction.state;
  int64_t lanes = registers.vectorBits / state.getWidth();
  int64_t vectors = getPanelVectors(
      registers, lanes, op.getStaticLoopRanges()[contraction.columnLoop]);
  return right.panelColumns == vectors * lanes &&
         right.isContiguousAlong(contraction.columnLoop) &&
         right.loops.end()[-2] == contraction.depthLoop;
}

std::optional<Contraction> Contraction::match(linalg::LinalgOp op,
                                              RegisterFile registers) {
  if (!op.hasPureBufferSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || !isSumOfProducts(op))
    return std::nullopt;
  SmallVector<Operand> operands;
  bool isDouble = false;
  for (OpOperand &operand : op->getOpOperands()) {
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    AffineMap map = op.getMatchingIndexingMap(&operand);
    if (!type || !isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
                     type.getElementType()))
      return std::nullopt;
    isDouble |= type.getElementType().isF64();
    std::optional<Operand> parts = matchOperand(operand.get(), map);
    if (!parts)
      return std::nullopt;
    operands.push_back(*parts);
  }
  if (operands[2].loops.empty() || op.getNumReductionLoops() == 0)
    return std::nullopt;
  unsigned columnLoop = operands[2].loops.back();
  if (operands[0].has(columnLoop))
    std::swap(operands[0], operands[1]);
  if (!operands[1].has(columnLoop) || operands[0].has(columnLoop) ||
      !operands[2].isContiguousAlong(columnLoop))
    return std::nullopt;
  if (operands[0].panelColumns || operands[2].panelColumns)
    return std::nullopt;

  MLIRContext *context = op.getContext();
  Contraction contraction;
  contraction.op = op;
  contraction.state = isDouble ? FloatType(Float64Type::get(context))
                               : Float32Type::get(context);
  std::tie(contraction.left, contraction.right, contraction.output) =
      std::tuple(operands[0], operands[1], operands[2]);
  contraction.columnLoop = columnLoop;
  contraction.fill = findFill(op);
  // Rows share the right operand. A loop of one iteration has nothing to share.
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  for (unsigned loop : contraction.output.loops) {
    if (loop == columnLoop)
      continue;
    contraction.outerLoops.push_back(loop);
    if (contraction.left.has(loop) && !contraction.right.has(loop) &&
        (!contraction.rowLoop || extents[loop] != 1))
      contraction.rowLoop = loop;
  }
  if (contraction.rowLoop)
    llvm::erase(contraction.outerLoops, *contraction.rowLoop);
  SmallVector<unsigned> reductions;
  op.getReductionDims(reductions);
  // The innermost reduction runs along the left operand's last dimension.
  contraction.depthLoop = reductions.back();
  for (unsigned loop : contraction.left.loops)
    if (llvm::is_contained(reductions, loop))
      contraction.depthLoop = loop;
  for (unsigned loop : reductions)
    if (loop != contraction.depthLoop)
      contraction.outerDepthLoops.push_back(loop);
  if (!hasFittingPanels(contraction, registers))
    return std::nullopt;
  return contraction;
}

//===----------------------------------------------------------------------===//
// Tasks
//===----------------------------------------------------------------------===//

ContractionKernel::ContractionKernel(const Contraction &contraction,
                                     OpBuilder &builder, RegisterFile registers)
    : Contraction(contraction),
      b(op.getLoc(), builder, state, registers.vectorBits / state.getWidth()),
      lanes(b.getLanes()), vectors(1), taskRows(1) {}

void ContractionKernel::setTaskColumns(int64_t maxVectors) {
  vectors = maxVectors;
  int64_t columns = op.getStaticLoopRanges()[columnLoop];
  if (!ShapedType::isDynamic(columns))
    vectors = std::clamp<int64_t>(llvm::divideCeil(columns, lanes), 1, vectors);
}

ContractionKernel::Values
ContractionKernel::indices(const Operand &operand) const {
  return llvm::map_to_vector(operand.loops,
                             [&](unsigned loop) { return position[loop]; });
}

void ContractionKernel::setRow(Value row) {
  if (rowLoop)
    position[*rowLoop] = b.add(firstRow, row);
}

void ContractionKernel::setColumn(Value column) {
  position[columnLoop] = b.add(firstColumn, column);
}

bool ContractionKernel::isMultiple(unsigned loop, int64_t factor) {
  std::optional<int64_t> known = getConstantIntValue(extentOf(b, loop));
  return known && *known % factor == 0;
}

bool ContractionKernel::isFromZero() {
  return fill && matchPattern(fill.value(), m_PosZeroFloat());
}

void ContractionKernel::emit() {
  int64_t columns = vectors * lanes;
  SmallVector<OpFoldResult> bounds;
  for (unsigned loop : outerLoops)
    bounds.push_back(getAsOpFoldResult(extentOf(b, loop)));
  Value rows = countRows(b);
  bounds.push_back(getAsOpFoldResult(b.ceilDiv(rows, taskRows)));
  bounds.push_back(
      getAsOpFoldResult(b.ceilDiv(extentOf(b, columnLoop), columns)));
  scf::ForallOp::create(
      b, bounds, /*outputs=*/ValueRange(), /*mapping=*/std::nullopt,
      [&](OpBuilder &, Location, ValueRange ivs) {
        position.assign(op.getNumLoops(), Value());
        for (auto [loop, iv] : llvm::zip(outerLoops, ivs))
          position[loop] = iv;
        firstRow = b.mul(ivs[outerLoops.size()], taskRows);
        numRows = !rowLoop || isMultiple(*rowLoop, taskRows)
                      ? b.index(taskRows)
                      : b.min(b.sub(rows, firstRow), taskRows);
        firstColumn = b.mul(ivs.back(), columns);
        numColumns =
            isMultiple(columnLoop, columns)
                ? b.index(columns)
                : b.min(b.sub(extentOf(b, columnLoop), firstColumn), columns);
        sums = b.scratch({taskRows, columns}, state);
        if (!writesSums)
          copySums(/*load=*/true);
        emitProducts();
        if (epilogue)
          emitEpilogue();
        else
          copySums(/*load=*/false);
        b.freeScratch();
        scf::InParallelOp::create(b);
      });
}

void ContractionKernel::forEachColumn(function_ref<void(Value)> vector,
                                      function_ref<void(Value)> scalar) {
  if (isMultiple(columnLoop, vectors * lanes))
    return b.overVectors(vectors * lanes, vector);
  Value whole = b.roundDown(numColumns, lanes);
  b.loop(b.index(0), whole, lanes, vector);
  if (!isMultiple(columnLoop, lanes))
    b.loop(whole, numColumns, 1, scalar);
}

/// Copies the output's rows to the sums, or back.
void ContractionKernel::copySums(bool load) {
  Value zero = b.splat(0.0);
  if (load && fill) {
    FloatAttr constant;
    matchPattern(fill.value(), m_Constant(&constant));
    Value start = b.splat(constant.getValueAsDouble());
    return b.loop(b.index(0), numRows, 1, [&](Value row) {
      b.overVectors(vectors * lanes, [&](Value column) {
        b.storeVector(start, sums, {row, column});
      });
    });
  }
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    setRow(row);
    // Columns that do not exist compute too, and must not be subnormal.
    if (load && !isMultiple(columnLoop, vectors * lanes))
      b.overVectors(vectors * lanes, [&](Value column) {
        b.storeVector(zero, sums, {row, column});
      });
    auto copy = [&](bool isVector) {
      return [&, isVector](Value column) {
        setColumn(column);
        Values inside = {row, column}, outside = indices(output);
        Value from = load ? output.memref : sums;
        Value to = load ? sums : output.memref;
        const Values &source = load ? outside : inside;
        const Values &target = load ? inside : outside;
        if (isVector)
          b.storeVector(b.loadVector(from, source), to, target);
        else
          b.storeScalar(b.loadScalar(from, source), to, target);
      };
    };
    forEachColumn(copy(true), copy(false));
  });
}
