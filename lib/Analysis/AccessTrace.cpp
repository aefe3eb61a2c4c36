//===- AccessTrace.cpp - Where the numbers of a tensor come from ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Analysis/AccessTrace.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fovea;

/// What a tree of scalars may have in operations before it is not looked at:
/// operands that are used twice are visited twice.
static constexpr unsigned kMaxTree = 4096;

//===----------------------------------------------------------------------===//
// Atoms
//===----------------------------------------------------------------------===//

Atom AccessTrace::addAtom(int64_t extent) {
  atoms.push_back({extent, std::nullopt});
  return atoms.size() - 1;
}

IndexList AccessTrace::addIndex(int64_t extent) {
  if (extent == 1)
    return {};
  return {addAtom(extent)};
}

Access AccessTrace::addAccess(Value tensor) {
  Access access{tensor, {}};
  for (int64_t extent : getShape(tensor))
    access.indices.push_back(addIndex(extent));
  return access;
}

int64_t AccessTrace::getExtent(ArrayRef<Atom> list) const {
  int64_t extent = 1;
  for (Atom atom : list)
    extent *= getExtent(atom);
  return extent;
}

bool AccessTrace::isStatic(ArrayRef<Atom> list) const {
  return !symbols || llvm::all_of(list, [&](Atom atom) {
    return symbols->isStatic(getExtent(atom));
  });
}

SmallVector<int64_t> AccessTrace::getShape(Value tensor) const {
  if (symbols)
    return symbols->getShape(tensor);
  return llvm::to_vector(cast<RankedTensorType>(tensor.getType()).getShape());
}

void AccessTrace::resolve(Atom atom, IndexList &list) const {
  if (!atoms[atom].parts)
    return list.push_back(atom);
  resolve(atoms[atom].parts->first, list);
  resolve(atoms[atom].parts->second, list);
}

IndexList AccessTrace::resolve(ArrayRef<Atom> list) const {
  IndexList resolved;
  for (Atom atom : list)
    resolve(atom, resolved);
  return resolved;
}

AtomSet AccessTrace::resolve(const AtomSet &set) const {
  AtomSet resolved;
  resolved.insert_range(resolve(set.getArrayRef()));
  return resolved;
}

AtomSet AccessTrace::getAtoms(const Access &access) const {
  AtomSet found;
  for (const IndexList &list : access.indices)
    found.insert_range(resolve(list));
  return found;
}

void AccessTrace::split(Atom atom, int64_t inner) {
  Atom high = addAtom(getExtent(atom) / inner);
  Atom low = addAtom(inner);
  atoms[atom].parts = {high, low};
}

std::optional<IndexLists> AccessTrace::cut(ArrayRef<Atom> list,
                                           ArrayRef<int64_t> extents) {
  IndexList rest = resolve(list);
  IndexLists cuts(extents.size());
  for (auto [extent, digits] : llvm::reverse(llvm::zip_equal(extents, cuts))) {
    for (int64_t open = extent; open != 1;) {
      if (rest.empty() || open <= 0)
        return std::nullopt;
      Atom atom = rest.pop_back_val();
      int64_t size = getExtent(atom);
      if (size > open && size % open == 0) {
        split(atom, open);
        rest.push_back(atoms[atom].parts->first);
        atom = atoms[atom].parts->second;
        size = open;
      }
      if (open % size != 0)
        return std::nullopt;
      digits.insert(digits.begin(), atom);
      open /= size;
    }
  }
  if (!rest.empty())
    return std::nullopt;
  return cuts;
}

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Whether the map only permutes loops, and leaves out those of extent 1.
static bool coversLoops(AffineMap map, ArrayRef<int64_t> extents) {
  llvm::SmallBitVector found(extents.size());
  for (AffineExpr expr : map.getResults()) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
      if (found.test(dim.getPosition()))
        return false;
      found.set(dim.getPosition());
    } else if (expr != 0) {
      return false;
    }
  }
  return llvm::all_of(llvm::enumerate(extents), [&](auto loop) {
    return found.test(loop.index()) || loop.value() == 1;
  });
}

std::optional<SmallVector<int64_t>>
AccessTrace::getLoopExtents(linalg::LinalgOp op) const {
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  for (OpOperand &operand : op->getOpOperands()) {
    if (!symbols || !isa<RankedTensorType>(operand.get().getType()))
      continue;
    AffineMap map = op.getMatchingIndexingMap(&operand);
    for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
      auto loop = dyn_cast<AffineDimExpr>(expr);
      if (!loop)
        continue;
      int64_t &extent = extents[loop.getPosition()];
      int64_t found = symbols->get(operand.get(), dim);
      if (ShapedType::isDynamic(extent))
        extent = found;
      else if (extent != found)
        return std::nullopt;
    }
  }
  if (llvm::any_of(extents, ShapedType::isDynamic))
    return std::nullopt;
  return extents;
}

std::optional<IndexLists> AccessTrace::getLoops(linalg::LinalgOp op,
                                                unsigned result,
                                                ArrayRef<IndexList> indices) {
  if (!op.hasPureTensorSemantics())
    return std::nullopt;
  std::optional<SmallVector<int64_t>> known = getLoopExtents(op);
  if (!known)
    return std::nullopt;
  const SmallVector<int64_t> &extents = *known;
  AffineMap map = op.getMatchingIndexingMap(op.getDpsInitOperand(result));
  // What is reduced counts as covered.
  SmallVector<int64_t> parallel = extents;
  SmallVector<unsigned> reduced;
  op.getReductionDims(reduced);
  for (unsigned loop : reduced)
    parallel[loop] = 1;
  if (!coversLoops(map, parallel))
    return std::nullopt;
  IndexLists loops(extents.size());
  for (unsigned loop : reduced)
    loops[loop] = addIndex(extents[loop]);
  for (auto [expr, index] : llvm::zip_equal(map.getResults(), indices)) {
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      loops[dim.getPosition()] = index;
    else if (!index.empty())
      return std::nullopt;
  }
  return loops;
}

std::optional<Access> AccessTrace::read(linalg::LinalgOp op, OpOperand *operand,
                                        ArrayRef<IndexList> loops) {
  Access access{operand->get(), {}};
  auto type = dyn_cast<RankedTensorType>(operand->get().getType());
  if (!type)
    return access;
  for (auto [expr, extent] : llvm::zip_equal(
           op.getMatchingIndexingMap(operand).getResults(), type.getShape())) {
    if (extent == 1)
      access.indices.emplace_back();
    else if (auto dim = dyn_cast<AffineDimExpr>(expr))
      access.indices.push_back(loops[dim.getPosition()]);
    else
      return std::nullopt;
  }
  return access;
}

/// The operation of linalg whose body has the scalar.
static linalg::LinalgOp getBodyOwner(Value scalar) {
  Block *block = scalar.getParentBlock();
  auto op = dyn_cast_or_null<linalg::LinalgOp>(block->getParentOp());
  return op && op.getBlock() == block ? op : nullptr;
}

/// What the body of an operation without reductions yields for the element.
static std::optional<Access> enter(AccessTrace &trace, const Access &access) {
  auto op = access.value.getDefiningOp<linalg::LinalgOp>();
  if (!op || op.getNumReductionLoops() != 0)
    return std::nullopt;
  unsigned result = cast<OpResult>(access.value).getResultNumber();
  auto loops = trace.getLoops(op, result, access.indices);
  if (!loops)
    return std::nullopt;
  Value scalar = op.getMatchingYieldValue(op.getDpsInitOperand(result))->get();
  if (getBodyOwner(scalar) != op)
    return Access{scalar, {}};
  return Access{scalar, *loops};
}

std::optional<Access> AccessTrace::step(const Access &access) {
  if (auto argument = dyn_cast<BlockArgument>(access.value)) {
    linalg::LinalgOp op = getBodyOwner(argument);
    if (!op)
      return std::nullopt;
    OpOperand *operand = op.getMatchingOpOperand(argument);
    // An accumulator is not what it began with.
    if (op.isDpsInit(operand) && op.getNumReductionLoops() != 0)
      return std::nullopt;
    return read(op, operand, access.indices);
  }
  return TypeSwitch<Operation *, std::optional<Access>>(access.getDefiningOp())
      .Case([&](tensor::ExpandShapeOp op) -> std::optional<Access> {
        // What is only found to fit at run time ends the trace, here and where
        // a cast says more than is known.
        SmallVector<int64_t> from = getShape(op.getSrc());
        SmallVector<int64_t> to = getShape(op.getResult());
        for (auto [extent, group] :
             llvm::zip_equal(from, op.getReassociationIndices()))
          if (extent !=
              computeProduct(ArrayRef(to).slice(group.front(), group.size())))
            return std::nullopt;
        Access source{op.getSrc(), {}};
        for (const ReassociationIndices &group : op.getReassociationIndices()) {
          IndexList list;
          for (int64_t dim : group)
            llvm::append_range(list, access.indices[dim]);
          source.indices.push_back(list);
        }
        return source;
      })
      .Case([&](tensor::CollapseShapeOp op) -> std::optional<Access> {
        Access source{op.getSrc(), {}};
        SmallVector<int64_t> shape = getShape(op.getSrc());
        source.indices.resize(shape.size());
        for (auto [group, list] :
             llvm::zip_equal(op.getReassociationIndices(), access.indices)) {
          auto parts =
              cut(list, ArrayRef(shape).slice(group.front(), group.size()));
          if (!parts)
            return std::nullopt;
          llvm::copy(*parts, source.indices.begin() + group.front());
        }
        // To a scalar's tensor there are no groups.
        return source;
      })
      .Case([&](tensor::ReshapeOp op) -> std::optional<Access> {
        IndexList whole;
        for (const IndexList &list : access.indices)
          llvm::append_range(whole, list);
        auto parts = cut(whole, getShape(op.getSource()));
        if (!parts)
          return std::nullopt;
        return Access{op.getSource(), *parts};
      })
      .Case([&](tensor::CastOp op) -> std::optional<Access> {
        if (!isa<RankedTensorType>(op.getSource().getType()) ||
            getShape(op.getSource()) != getShape(op.getResult()))
          return std::nullopt;
        return Access{op.getSource(), access.indices};
      })
      .Case([&](linalg::LinalgOp op) -> std::optional<Access> {
        std::optional<Access> yielded = enter(*this, access);
        if (!yielded || (isa<OpResult>(yielded->value) &&
                         getBodyOwner(yielded->value) == op))
          return std::nullopt;
        return yielded;
      })
      .Default([](Operation *) { return std::nullopt; });
}

Access AccessTrace::peel(Access access) {
  while (std::optional<Access> source = step(access))
    access = *source;
  return access;
}

Access AccessTrace::open(Access access) {
  access = peel(access);
  while (std::optional<Access> inner = enter(*this, access))
    access = peel(*inner);
  return access;
}

Operation *AccessTrace::getElementwiseOp(const Access &access) {
  Operation *op = access.getDefiningOp();
  if (!op || !OpTrait::hasElementwiseMappableTraits(op) ||
      !isMemoryEffectFree(op))
    return nullptr;
  return op;
}

Access AccessTrace::getOperand(const Access &access, unsigned number) {
  Value operand = access.getDefiningOp()->getOperand(number);
  bool hasIndices = access.isTensor() ? isa<RankedTensorType>(operand.getType())
                                      : operand.getParentBlock() ==
                                            access.getDefiningOp()->getBlock();
  if (!hasIndices)
    return {operand, {}};
  return {operand, access.indices};
}

//===----------------------------------------------------------------------===//
// Comparison
//===----------------------------------------------------------------------===//

bool AccessTrace::alignIndices(ArrayRef<Atom> a, ArrayRef<Atom> b,
                               const AtomSet &unknown,
                               DenseMap<Atom, Atom> &bound) {
  IndexList restA = resolve(a);
  IndexList restB = resolve(b);
  AtomSet open = resolve(unknown);
  while (!restA.empty() && !restB.empty()) {
    Atom atomA = restA.pop_back_val();
    Atom atomB = restB.pop_back_val();
    if (atomA == atomB)
      continue;
    if (!open.contains(atomB))
      return false;
    int64_t extentA = getExtent(atomA);
    int64_t extentB = getExtent(atomB);
    // The same digits on both sides; atoms that were bound before are split
    // together.
    if (extentA != extentB) {
      Atom larger = extentA > extentB ? atomA : atomB;
      int64_t inner = std::min(extentA, extentB);
      if (getExtent(larger) % inner != 0 || bound.contains(atomB))
        return false;
      split(larger, inner);
      (larger == atomA ? restA : restB).push_back(atoms[larger].parts->first);
      Atom low = atoms[larger].parts->second;
      if (larger == atomA) {
        atomA = low;
      } else {
        open.insert_range(resolve({atomB}));
        atomB = low;
      }
    }
    auto [entry, isNew] = bound.try_emplace(atomB, atomA);
    if (!isNew && resolve({entry->second}) != resolve({atomA}))
      return false;
  }
  return restA.empty() && restB.empty();
}

bool AccessTrace::isSame(const Access &left, const Access &right,
                         const AtomSet &unknown, DenseMap<Atom, Atom> &bound,
                         unsigned &budget) {
  if (budget-- == 0)
    return false;
  Access a = peel(left);
  Access b = peel(right);
  if (a.value == b.value && a.indices.size() == b.indices.size()) {
    DenseMap<Atom, Atom> found = bound;
    if (llvm::all_of(llvm::zip_equal(a.indices, b.indices), [&](auto pair) {
          return alignIndices(std::get<0>(pair), std::get<1>(pair), unknown,
                              found);
        })) {
      bound = found;
      return true;
    }
  }
  // Of equal numbers computed twice, the operands are equal.
  a = open(a);
  b = open(b);
  Operation *opA = a.getDefiningOp();
  Operation *opB = b.getDefiningOp();
  if (!opA || !opB || opA->getName() != opB->getName() ||
      opA->getAttrDictionary() != opB->getAttrDictionary() ||
      getElementTypeOrSelf(a.value) != getElementTypeOrSelf(b.value))
    return false;
  if (opA->hasTrait<OpTrait::ConstantLike>())
    return opA->getResultTypes() == opB->getResultTypes();
  if (auto index = dyn_cast<linalg::IndexOp>(opA)) {
    unsigned dim = index.getDim();
    return dim < a.indices.size() && dim < b.indices.size() &&
           alignIndices(a.indices[dim], b.indices[dim], unknown, bound);
  }
  if (!getElementwiseOp(a) || !getElementwiseOp(b))
    return false;
  return llvm::all_of(llvm::seq(opA->getNumOperands()), [&](unsigned k) {
    return isSame(getOperand(a, k), getOperand(b, k), unknown, bound, budget);
  });
}

bool AccessTrace::isSame(const Access &a, const Access &b,
                         const AtomSet &unknown, DenseMap<Atom, Atom> &bound) {
  unsigned budget = kMaxTree;
  return isSame(a, b, unknown, bound, budget);
}

bool AccessTrace::addDependencies(const Access &access, AtomSet &found,
                                  unsigned &budget) {
  if (budget == 0)
    return false;
  --budget;
  Access opened = open(access);
  if (auto index = opened.value.getDefiningOp<linalg::IndexOp>()) {
    found.insert_range(opened.indices[index.getDim()]);
    return true;
  }
  Operation *op = getElementwiseOp(opened);
  if (!op) {
    for (const IndexList &list : opened.indices)
      found.insert_range(list);
    return true;
  }
  return llvm::all_of(llvm::seq(op->getNumOperands()), [&](unsigned k) {
    return addDependencies(getOperand(opened, k), found, budget);
  });
}

AtomSet AccessTrace::getDependencies(const Access &access) {
  AtomSet found;
  unsigned budget = kMaxTree;
  if (!addDependencies(access, found, budget))
    for (const IndexList &list : access.indices)
      found.insert_range(list);
  return resolve(found);
}
