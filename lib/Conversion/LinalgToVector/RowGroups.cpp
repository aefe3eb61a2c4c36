//===- RowGroups.cpp - Operations that share rows, row by row -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   forall (chunks of rows)                                          one task
//     for each row
//       the first operation's loops within the row
//       the second's...
//
// The steps of a norm or a soft-max each visit all rows. One after the other
// they would read arrays from memory that one row after the other finds in the
// first cache. Steps are a group when each reads of what another writes only
// the row that it computes itself.
//
//===----------------------------------------------------------------------===//

#include "Buffers.h"
#include "LinalgLoops.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class RowGroup {
public:
  RowGroup(RegisterFile registers) : registers(registers) {}

  bool empty() const { return members.empty(); }
  /// Takes `op` in, where it visits the rows of the group; the first decides
  /// what a row is.
  bool join(linalg::LinalgOp op);
  /// Whether `op` may stand before what stood before it. Remembers what frees
  /// buffers of the group.
  bool canPass(Operation *op);
  /// Emits two operations or more.
  void emit();

private:
  /// How the group meets a buffer.
  struct Access {
    Value memref; // no value when by different views
    bool isWritten = false, isByRow = true;
    /// Other parts of it that are written, which nothing reads.
    SmallVector<Value> parts;
  };

  std::optional<unsigned> countRowLoops(linalg::LinalgOp op);
  bool addAccesses(linalg::LinalgOp op, ArrayRef<unsigned> rows);
  int64_t countElements(linalg::LinalgOp op, ArrayRef<unsigned> rows);

  RegisterFile registers;
  SmallVector<linalg::LinalgOp> members;
  SmallVector<SmallVector<unsigned>> rowLoops;
  unsigned numRowLoops = 0;
  int64_t elements = 1;
  llvm::SmallMapVector<Value, Access, 8> accesses;
  /// Of these the first stand before a member.
  SmallVector<Operation *> deallocs;
  size_t numPassedDeallocs = 0;
};
} // namespace

/// The loops that run along the first `count` dimensions of all outputs.
static std::optional<SmallVector<unsigned>> findRowLoops(linalg::LinalgOp op,
                                                         unsigned count) {
  SmallVector<unsigned> found;
  for (OpOperand &init : op.getDpsInitsMutable()) {
    AffineMap map = op.getMatchingIndexingMap(&init);
    if (map.getNumResults() < count)
      return std::nullopt;
    SmallVector<unsigned> loops;
    for (unsigned dim = 0; dim < count; ++dim)
      loops.push_back(map.getDimPosition(dim));
    if (!found.empty() && found != loops)
      return std::nullopt;
    found = loops;
  }
  return found;
}

/// Whether an operand is read or written at the row that `rows` are in.
static bool isByRow(AffineMap map, ArrayRef<unsigned> rows) {
  if (map.getNumResults() < rows.size())
    return false;
  for (auto [dim, loop] : llvm::enumerate(rows))
    if (map.getResult(dim) != getAffineDimExpr(loop, map.getContext()))
      return false;
  return llvm::none_of(map.getResults().drop_front(rows.size()),
                       [&](AffineExpr expr) {
                         return llvm::any_of(rows, [&](unsigned loop) {
                           return expr.isFunctionOfDim(loop);
                         });
                       });
}

/// All parallel loops of a reduction along vectors are rows, and all but the
/// last of what has vectors along that, or along pairs in it.
std::optional<unsigned> RowGroup::countRowLoops(linalg::LinalgOp op) {
  OpBuilder builder(op);
  LoopsKernel kernel(op, builder, registers);
  std::optional<unsigned> vectorLoop = kernel.getVectorLoop();
  if (!vectorLoop)
    return std::nullopt;
  unsigned rank = op.getRank(op.getDpsInitOperand(0));
  bool isReduced =
      op.getIteratorTypesArray()[*vectorLoop] == utils::IteratorType::reduction;
  unsigned count = isReduced ? rank : rank - kernel.countVectorDims();
  return count > 0 ? std::optional(count) : std::nullopt;
}

/// The elements that `op` visits in a row.
int64_t RowGroup::countElements(linalg::LinalgOp op, ArrayRef<unsigned> rows) {
  int64_t count = 1;
  for (auto [loop, extent] : llvm::enumerate(op.getStaticLoopRanges()))
    if (!llvm::is_contained(rows, loop))
      count *= ShapedType::isDynamic(extent) ? kDynamicExtent : extent;
  return count;
}

namespace {
/// Where a view begins in an array along each dimension, and how far it goes.
struct Part {
  Value array;
  SmallVector<OpFoldResult> offsets, sizes;
};
} // namespace

/// What `view` is a part of; rows of pairs are parts of rows.
static std::optional<Part> findPart(Value view) {
  auto subview = view.getDefiningOp<memref::SubViewOp>();
  if (!subview || !subview.hasUnitStride() ||
      subview.getSourceType().getRank() != subview.getType().getRank())
    return std::nullopt;
  Part part{subview.getSource(), subview.getMixedOffsets(),
            subview.getMixedSizes()};
  auto pairs = part.array.getDefiningOp<memref::ExpandShapeOp>();
  if (!pairs || part.sizes.size() < 2)
    return part;
  SmallVector<ReassociationIndices> groups = pairs.getReassociationIndices();
  int64_t last = pairs.getResultType().getRank() - 1,
          count = pairs.getResultType().getDimSize(last);
  std::optional<int64_t> offset = getConstantIntValue(part.offsets[last - 1]),
                         size = getConstantIntValue(part.sizes[last - 1]);
  if (static_cast<int64_t>(groups.size()) != last ||
      groups.back().size() != 2 || !offset || !size ||
      !isConstantIntValue(part.offsets[last], 0) ||
      !isConstantIntValue(part.sizes[last], count))
    return part;
  Builder b(view.getContext());
  part.array = pairs.getSrc();
  part.offsets.pop_back();
  part.offsets.back() = b.getIndexAttr(*offset * count);
  part.sizes.pop_back();
  part.sizes.back() = b.getIndexAttr(*size * count);
  return part;
}

/// Whether two views are the same rows of a buffer, but other elements of them.
static bool arePartsOfRows(Value one, Value other, unsigned numRowDims) {
  std::optional<Part> first = findPart(one), second = findPart(other);
  if (!first || !second || first->array != second->array)
    return false;
  bool isApart = false;
  for (size_t dim = 0; dim < first->sizes.size(); ++dim) {
    OpFoldResult low = first->offsets[dim], size = first->sizes[dim];
    OpFoldResult otherLow = second->offsets[dim],
                 otherSize = second->sizes[dim];
    if (dim < numRowDims) {
      if (!isEqualConstantIntOrValue(low, otherLow) ||
          !isEqualConstantIntOrValue(size, otherSize))
        return false;
      continue;
    }
    std::optional<int64_t> at = getConstantIntValue(low),
                           count = getConstantIntValue(size),
                           otherAt = getConstantIntValue(otherLow),
                           otherCount = getConstantIntValue(otherSize);
    if (!at || !count || !otherAt || !otherCount)
      return false;
    isApart |= *at + *count <= *otherAt || *otherAt + *otherCount <= *at;
  }
  return isApart;
}

/// Adds what `op` meets; false when another row of it is, or may be, written
/// or read by the group.
bool RowGroup::addAccesses(linalg::LinalgOp op, ArrayRef<unsigned> rows) {
  auto all = accesses;
  bool isConnected = members.empty();
  auto add = [&](Value memref, bool isWritten, bool byRow) {
    Value root = findRoot(memref);
    if (!isWhole(root) || (isWritten && !root.getDefiningOp<memref::AllocOp>()))
      return false;
    auto [entry, isNew] = all.try_emplace(root);
    if (isNew)
      entry->second.memref = memref;
    Access &access = entry->second;
    auto isApart = [&](Value part) {
      return arePartsOfRows(part, memref, rows.size());
    };
    // Halves of rows that are written one after the other.
    if (!isNew && isWritten && access.isWritten && byRow && access.memref &&
        isApart(access.memref) && llvm::all_of(access.parts, isApart)) {
      access.parts.push_back(memref);
      return isConnected = true;
    }
    isConnected |= access.isWritten && byRow && access.memref == memref;
    if (access.memref != memref)
      access.memref = Value();
    access.isWritten |= isWritten;
    access.isByRow &= byRow;
    return !access.isWritten || (access.memref && access.isByRow);
  };
  for (OpOperand &operand : op->getOpOperands())
    if (isa<MemRefType>(operand.get().getType()) &&
        !add(operand.get(), op.isDpsInit(&operand),
             isByRow(op.getMatchingIndexingMap(&operand), rows)))
      return false;
  for (auto load : op.getBlock()->getOps<memref::LoadOp>())
    if (!add(load.getMemRef(), /*isWritten=*/false, /*byRow=*/false))
      return false;
  if (!isConnected)
    return false;
  accesses = std::move(all);
  return true;
}

bool RowGroup::join(linalg::LinalgOp op) {
  if (!LoopsKernel::canEmit(op))
    return false;
  std::optional<unsigned> count = countRowLoops(op);
  bool isColumn = op.getNumLoops() == numRowLoops;
  if (members.empty() ? !count : (!count && !isColumn))
    return false;
  unsigned numRows = members.empty() ? *count : numRowLoops;
  std::optional<SmallVector<unsigned>> rows = findRowLoops(op, numRows);
  // One element of a row is not worth a vector along rows.
  OpBuilder builder(op);
  if (!rows ||
      (op.getNumLoops() > rows->size() &&
       llvm::is_contained(*rows,
                          LoopsKernel(op, builder, registers).getVectorLoop())))
    return false;
  int64_t own = countElements(op, *rows);
  if (own > kTaskElements || !addAccesses(op, *rows))
    return false;
  elements = std::max(elements, own);
  numRowLoops = numRows;
  members.push_back(op);
  rowLoops.push_back(*rows);
  numPassedDeallocs = deallocs.size();
  return true;
}

bool RowGroup::canPass(Operation *op) {
  std::optional<SmallVector<MemoryEffects::EffectInstance>> effects =
      getEffectsRecursively(op);
  if (!effects)
    return false;
  for (const MemoryEffects::EffectInstance &effect : *effects) {
    if (isa<MemoryEffects::Allocate>(effect.getEffect()))
      continue;
    Value root = effect.getValue() ? findRoot(effect.getValue()) : Value();
    if (!root)
      return false;
    auto *found = accesses.find(root);
    if (found == accesses.end()) {
      if (isWhole(root) || op->isAncestor(root.getParentBlock()->getParentOp()))
        continue;
      return false;
    }
    if (isa<MemoryEffects::Read>(effect.getEffect()) &&
        !found->second.isWritten)
      continue;
    if (!isa<memref::DeallocOp>(op))
      return false;
    deallocs.push_back(op);
  }
  return true;
}

/// Has the last step of a row ask for what the first one reads of the next:
/// a row of a page or more begins where hardware does not look ahead.
static void prefetchNext(KernelBuilder &b,
                         ArrayRef<std::unique_ptr<LoopsKernel>> kernels,
                         ValueRange at, Value extent) {
  OpOperand *stream = kernels.front()->findStream();
  if (!stream)
    return;
  KernelBuilder::Values next(at);
  Value last = b.sub(extent, b.index(1));
  next.back() = b.min(b.add(at.back(), 1), last);
  kernels.back()->prefetchBeside(*kernels.front(), *stream, next);
}

void RowGroup::emit() {
  if (members.size() < 2)
    return;
  OpBuilder builder(members.back());
  SmallVector<std::unique_ptr<LoopsKernel>> kernels;
  KernelBuilder::Values extents;
  for (auto [op, rows] : llvm::zip(members, rowLoops)) {
    kernels.push_back(std::make_unique<LoopsKernel>(op, builder, registers));
    extents = kernels.back()->beginRows(rows);
  }
  KernelBuilder b(members.back().getLoc(), builder, builder.getF32Type(), 1);
  int64_t chunk =
      std::max<int64_t>(kTaskElements / std::max<int64_t>(elements, 1), 1);
  SmallVector<OpFoldResult> bounds;
  for (Value extent : ArrayRef(extents).drop_back())
    bounds.push_back(getAsOpFoldResult(extent));
  bounds.push_back(getAsOpFoldResult(b.ceilDiv(extents.back(), chunk)));
  scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                        /*mapping=*/std::nullopt,
                        [&](OpBuilder &, Location, ValueRange ivs) {
                          Value low = b.mul(ivs.back(), chunk);
                          Value high = b.min(b.add(low, chunk), extents.back());
                          b.loop(low, high, 1, [&](Value row) {
                            KernelBuilder::Values at(ivs.drop_back());
                            at.push_back(row);
                            prefetchNext(b, kernels, at, extents.back());
                            for (auto &kernel : kernels)
                              kernel->emitRow(b, at);
                          });
                          scf::InParallelOp::create(b);
                        });
  for (Operation *dealloc : ArrayRef(deallocs).take_front(numPassedDeallocs))
    dealloc->moveAfter(members.back());
  for (linalg::LinalgOp op : members)
    op.erase();
}

void fovea::attn::emitRowGroups(Block &block, RegisterFile registers) {
  SmallVector<Operation *> ops =
      llvm::map_to_vector(block, [](Operation &op) { return &op; });
  RowGroup group(registers);
  for (Operation *op : ops) {
    auto structured = dyn_cast<linalg::LinalgOp>(op);
    if (structured && group.join(structured))
      continue;
    if (group.empty() || group.canPass(op))
      continue;
    group.emit();
    group = RowGroup(registers);
    if (structured)
      group.join(structured);
  }
  group.emit();
}
