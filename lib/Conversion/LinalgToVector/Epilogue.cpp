//===- Epilogue.cpp - What alone reads the results of a product -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   product = left . right
//   output = f(product, bias, residual...)      by the tasks of the product
//
// A product whose results one elementwise operation reads and nothing else is
// computed where that stands, and hands it the rows of each task while they lie
// in the first cache. The product itself is never written to memory.
//
//===----------------------------------------------------------------------===//

#include "Buffers.h"
#include "ContractionKernel.h"
#include "LinalgBody.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fovea::attn;

/// The operation whose results are what `reader` reads by `product`, when
/// nothing else does.
static linalg::LinalgOp findProduct(linalg::LinalgOp reader,
                                    OpOperand &product) {
  Value buffer = product.get();
  if (!buffer.getDefiningOp<memref::AllocOp>())
    return {};
  linalg::LinalgOp found;
  Block *block = reader->getBlock();
  for (OpOperand &use : buffer.getUses()) {
    Operation *user = use.getOwner();
    if (user == reader && &use != &product)
      return {};
    if (user == reader || isa<memref::DeallocOp>(user))
      continue;
    Operation *inBlock = block->findAncestorOpInBlock(*user);
    if (!inBlock || reader->isBeforeInBlock(inBlock))
      return {};
    if (auto last = dyn_cast<linalg::LinalgOp>(inBlock);
        !found || found->isBeforeInBlock(inBlock)) {
      if (!last || user != inBlock)
        return {};
      found = last;
    }
  }
  return found && found.getNumDpsInits() == 1 &&
                 found.getDpsInits().front() == buffer &&
                 !llvm::is_contained(found.getDpsInputs(), buffer)
             ? found
             : linalg::LinalgOp();
}

/// Whether the reads and writes of `contraction` can wait until `reader`.
/// Collects what frees its operands before.
static bool canWait(const Contraction &contraction, Operation *reader,
                    SmallVectorImpl<Operation *> &deallocs) {
  Value left = findRoot(contraction.left.memref);
  Value right = findRoot(contraction.right.memref);
  if (!isWhole(left) || !isWhole(right))
    return false;
  for (Operation *op = contraction.op->getNextNode(); op != reader;
       op = op->getNextNode()) {
    std::optional<SmallVector<MemoryEffects::EffectInstance>> effects =
        getEffectsRecursively(op);
    if (!effects)
      return false;
    for (const MemoryEffects::EffectInstance &effect : *effects) {
      if (isa<MemoryEffects::Read, MemoryEffects::Allocate>(effect.getEffect()))
        continue;
      Value root = effect.getValue() ? findRoot(effect.getValue()) : Value();
      if (!root || !root.getDefiningOp<memref::AllocOp>())
        return false;
      if (root != left && root != right)
        continue;
      if (!isa<memref::DeallocOp>(op))
        return false;
      deallocs.push_back(op);
    }
  }
  return true;
}

/// Whether the tasks of `contraction` can compute `reader`, which reads their
/// results by `product`.
static bool fits(const Contraction &contraction, linalg::LinalgOp reader,
                 OpOperand &product) {
  AffineMap map = reader.getMatchingIndexingMap(&product);
  if (reader.getNumParallelLoops() != reader.getNumLoops() ||
      !map.isPermutation() || !LinalgBody::canEmit(reader) ||
      getElementTypeOrSelf(product.get()) != contraction.state)
    return false;
  unsigned columns = map.getDimPosition(map.getNumResults() - 1);
  OpBuilder builder(reader);
  KernelBuilder b(reader.getLoc(), builder, contraction.state, /*lanes=*/1);
  LinalgBody body(reader, b, /*lanes=*/1);
  if (!body.hasVectors(columns))
    return false;
  Value left = findRoot(contraction.left.memref);
  Value right = findRoot(contraction.right.memref);
  return llvm::all_of(reader->getOpOperands(), [&](OpOperand &operand) {
    Type type = getElementTypeOrSelf(operand.get());
    AffineMap own = reader.getMatchingIndexingMap(&operand);
    if (!type.isIntOrFloat() || own.getNumSymbols() != 0)
      return false;
    if (!reader.isDpsInit(&operand))
      return body.isContiguous(operand, columns) ||
             body.isInvariant(operand, columns);
    // Other tasks still read the factors when one writes its results.
    Value root = findRoot(operand.get());
    return own.isPermutation() && body.isContiguous(operand, columns) &&
           !reader.payloadUsesValueFromOperand(&operand) &&
           root.getDefiningOp<memref::AllocOp>() && root != left &&
           root != right;
  });
}

bool fovea::attn::emitContractionWithEpilogue(linalg::LinalgOp reader,
                                              RegisterFile registers) {
  if (!reader.hasPureBufferSemantics())
    return false;
  for (OpOperand *product : reader.getDpsInputOperands()) {
    linalg::LinalgOp op = findProduct(reader, *product);
    std::optional<Contraction> contraction =
        op ? Contraction::match(op, registers) : std::nullopt;
    SmallVector<Operation *> deallocs;
    if (!contraction || !fits(*contraction, reader, *product) ||
        !canWait(*contraction, reader, deallocs))
      continue;
    for (Operation *dealloc : deallocs)
      dealloc->moveAfter(reader);
    contraction->epilogue = product;
    OpBuilder builder(reader);
    emitContraction(*contraction, builder, registers);
    op.erase();
    return true;
  }
  return false;
}

void ContractionKernel::emitEpilogue() {
  auto reader = cast<linalg::LinalgOp>(epilogue->getOwner());
  AffineMap map = reader.getMatchingIndexingMap(epilogue);
  LinalgBody body(reader, b, lanes);
  body.setVectorLoop(map.getDimPosition(map.getNumResults() - 1));
  auto emitColumns = [&](Value row, Value column, bool isVector) {
    setColumn(column);
    body.position[*body.getVectorLoop()] = position[columnLoop];
    body.given[epilogue] = isVector ? b.loadVector(sums, {row, column})
                                    : b.loadScalar(sums, {row, column});
    Values results =
        body.emit(isVector, Values(reader.getNumDpsInits(), Value()));
    for (auto [result, init] : llvm::zip(results, reader.getDpsInitsMutable()))
      body.store(result, init, isVector);
  };
  b.loop(b.index(0), numRows, 1, [&](Value row) {
    setRow(row);
    for (auto [dim, loop] : llvm::enumerate(ArrayRef(output.loops).drop_back()))
      body.position[map.getDimPosition(dim)] = position[loop];
    body.enterRow();
    forEachColumn([&](Value column) { emitColumns(row, column, true); },
                  [&](Value column) { emitColumns(row, column, false); });
    body.leaveRow();
  });
}
