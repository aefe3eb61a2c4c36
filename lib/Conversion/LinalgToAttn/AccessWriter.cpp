//===- AccessWriter.cpp - Numbers of a trace as tensors --------------------
//===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessWriter.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn::detail;

//===----------------------------------------------------------------------===//
// What can be written
//===----------------------------------------------------------------------===//

/// A scalar of no body, which a new body can read where it is.
static bool isOutside(Access access) {
  return !access.isTensor() &&
         !isa_and_nonnull<linalg::LinalgOp>(
             access.value.getParentBlock()->getParentOp());
}

static bool isConstantScalar(const Access &access) {
  return !access.isTensor() && matchPattern(access.value, m_Constant());
}

/// No element is left out, as a diagonal leaves some.
static bool hasAllElements(AccessTrace &trace, const Access &access) {
  size_t count = 0;
  for (const IndexList &list : access.indices)
    count += trace.resolve(list).size();
  return trace.getAtoms(access).size() == count;
}

/// Whether what computes the number can be written again.
static bool canCompute(AccessTrace &trace, const Access &access) {
  Access opened = trace.open(access);
  if (isConstantScalar(opened) || opened.value.getDefiningOp<linalg::IndexOp>())
    return true;
  Operation *op = AccessTrace::getElementwiseOp(opened);
  return op && llvm::all_of(llvm::seq(op->getNumOperands()), [&](unsigned k) {
           return AccessWriter::canWrite(trace,
                                         AccessTrace::getOperand(opened, k));
         });
}

bool AccessWriter::canWrite(AccessTrace &trace, const Access &access) {
  Access peeled = trace.peel(access);
  if (isOutside(peeled) || (peeled.isTensor() && hasAllElements(trace, peeled)))
    return true;
  return canCompute(trace, peeled);
}

/// Whether the numbers are read from the tensor that the trace has come to, not
/// computed again with fewer repetitions.
static bool isReadAsTensor(AccessTrace &trace, const Access &peeled) {
  return peeled.isTensor() && hasAllElements(trace, peeled) &&
         (trace.getDependencies(peeled).size() ==
              trace.getAtoms(peeled).size() ||
          !canCompute(trace, peeled));
}

/// The atoms of what `writeAtoms` writes.
static AtomSet getWrittenAtoms(AccessTrace &trace, const Access &access) {
  Access peeled = trace.peel(access);
  if (isReadAsTensor(trace, peeled))
    return trace.getAtoms(peeled);
  Access opened = trace.open(peeled);
  AtomSet atoms;
  if (isConstantScalar(opened) || isOutside(opened))
    return atoms;
  if (auto index = opened.value.getDefiningOp<linalg::IndexOp>()) {
    atoms.insert_range(trace.resolve(opened.indices[index.getDim()]));
    return atoms;
  }
  for (unsigned k : llvm::seq(opened.getDefiningOp()->getNumOperands()))
    atoms.insert_range(
        getWrittenAtoms(trace, AccessTrace::getOperand(opened, k)));
  return atoms;
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

SmallVector<int64_t> AccessWriter::getExtents(ArrayRef<Atom> list) const {
  return llvm::map_to_vector(list,
                             [&](Atom atom) { return trace.getExtent(atom); });
}

SmallVector<int64_t> AccessWriter::getShape(ArrayRef<IndexList> dims) const {
  return llvm::map_to_vector(
      dims, [&](const IndexList &list) { return trace.getExtent(list); });
}

RankedTensorType AccessWriter::getType(ArrayRef<int64_t> shape,
                                       Type element) const {
  if (SymbolicExtents *symbols = trace.getSymbols())
    return RankedTensorType::get(symbols->getTypeShape(shape), element);
  return RankedTensorType::get(shape, element);
}

static OpFoldResult materialize(OpBuilder &builder, Location loc,
                                const AccessTrace &trace, int64_t extent) {
  if (SymbolicExtents *symbols = trace.getSymbols())
    return symbols->materialize(builder, loc, extent);
  return builder.getIndexAttr(extent);
}

Value AccessWriter::createExtent(int64_t extent) {
  return getValueOrCreateConstantIndexOp(
      builder, loc, materialize(builder, loc, trace, extent));
}

Value AccessWriter::createEmpty(ArrayRef<int64_t> shape, Type element) {
  SmallVector<OpFoldResult> sizes =
      llvm::map_to_vector(shape, [&](int64_t extent) {
        return materialize(builder, loc, trace, extent);
      });
  return tensor::EmptyOp::create(builder, loc, sizes, element);
}

/// Merges dimensions, or splits them, but not both.
Value AccessWriter::reshape(Value tensor, ArrayRef<int64_t> shape) {
  const SmallVector<int64_t> from = trace.getShape(tensor);
  if (ArrayRef(from) == shape)
    return tensor;
  auto type = cast<RankedTensorType>(tensor.getType());
  // Types of operands may know less of their extents.
  RankedTensorType known = getType(from, type.getElementType());
  if (type != known)
    tensor = tensor::CastOp::create(builder, loc, known, tensor);
  RankedTensorType target = getType(shape, type.getElementType());
  bool merges = from.size() > shape.size();
  SmallVector<ReassociationIndices> groups =
      *getReassociationIndicesForCollapse(merges ? ArrayRef(from) : shape,
                                          merges ? shape : ArrayRef(from));
  if (merges)
    return tensor::CollapseShapeOp::create(builder, loc, target, tensor,
                                           groups);
  SmallVector<OpFoldResult> sizes =
      llvm::map_to_vector(shape, [&](int64_t extent) {
        return materialize(builder, loc, trace, extent);
      });
  return tensor::ExpandShapeOp::create(builder, loc, target, tensor, groups,
                                       sizes);
}

/// All dimensions one after the other, and those of extent 1 as well.
static SmallVector<std::optional<Atom>> flatten(ArrayRef<IndexList> dims) {
  SmallVector<std::optional<Atom>> flat;
  for (const IndexList &list : dims) {
    llvm::append_range(flat, list);
    if (list.empty())
      flat.push_back(std::nullopt);
  }
  return flat;
}

IndexLists AccessWriter::resolveAll(ArrayRef<IndexList> dims) const {
  return llvm::map_to_vector<4>(
      dims, [&](const IndexList &list) { return trace.resolve(list); });
}

Value AccessWriter::relayout(Value tensor, ArrayRef<IndexList> from,
                             ArrayRef<IndexList> to) {
  if (from == to)
    return tensor;
  // What was written before may have split atoms.
  SmallVector<int64_t> shape;
  IndexList atoms;
  for (std::optional<Atom> atom : flatten(resolveAll(from))) {
    shape.push_back(atom ? trace.getExtent(*atom) : 1);
    if (atom)
      atoms.push_back(*atom);
  }
  IndexList order;
  SmallVector<int64_t> target;
  for (std::optional<Atom> atom : flatten(resolveAll(to))) {
    target.push_back(atom ? trace.getExtent(*atom) : 1);
    if (atom)
      order.push_back(*atom);
  }
  tensor = reshape(tensor, shape);
  tensor = reshape(tensor, getExtents(atoms));
  if (atoms != order) {
    SmallVector<int64_t> permutation;
    for (Atom atom : order)
      permutation.push_back(llvm::find(atoms, atom) - atoms.begin());
    auto type = cast<RankedTensorType>(tensor.getType());
    Value empty = createEmpty(getExtents(order), type.getElementType());
    tensor =
        linalg::TransposeOp::create(builder, loc, tensor, empty, permutation)
            ->getResult(0);
  }
  tensor = reshape(tensor, target);
  return reshape(tensor, getShape(to));
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value AccessWriter::convert(Value tensor, Type type) {
  auto from = cast<RankedTensorType>(tensor.getType());
  if (from.getElementType() == type)
    return tensor;
  Type to = from.clone(type);
  if (from.getElementTypeBitWidth() < type.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(builder, loc, to, tensor);
  return arith::TruncFOp::create(builder, loc, to, tensor);
}

Value AccessWriter::writeIndex(ArrayRef<Atom> list, ArrayRef<Atom> order) {
  Value empty = createEmpty(getExtents(order), builder.getIndexType());
  SmallVector<Value> extents = llvm::map_to_vector(
      list, [&](Atom atom) { return createExtent(trace.getExtent(atom)); });
  SmallVector<utils::IteratorType> loops(order.size(),
                                         utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange) {
    Value index = arith::ConstantIndexOp::create(b, loc, 0);
    for (auto [atom, extent] : llvm::zip_equal(list, extents)) {
      Value digit = linalg::IndexOp::create(
          b, loc, llvm::find(order, atom) - order.begin());
      index = arith::MulIOp::create(b, loc, index, extent);
      index = arith::AddIOp::create(b, loc, index, digit);
    }
    linalg::YieldOp::create(b, loc, index);
  };
  return linalg::GenericOp::create(builder, loc, TypeRange(empty.getType()),
                                   ValueRange(), ValueRange(empty),
                                   {AffineMap::getMultiDimIdentityMap(
                                       order.size(), builder.getContext())},
                                   loops, body)
      ->getResult(0);
}

/// The operation in a body of its own, with other operands.
Value AccessWriter::writeOperation(const Access &access, ArrayRef<Atom> order) {
  Operation *op = access.getDefiningOp();
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  /// For each operand what the body reads directly, or null for an input.
  SmallVector<Value> direct;
  for (unsigned k : llvm::seq(op->getNumOperands())) {
    Access operand = trace.peel(AccessTrace::getOperand(access, k));
    Access opened = trace.open(operand);
    if (isConstantScalar(opened) || isOutside(opened)) {
      direct.push_back(opened.value);
      continue;
    }
    AtomSet atoms = getWrittenAtoms(trace, operand);
    IndexList list;
    SmallVector<AffineExpr> exprs;
    for (auto [loop, atom] : llvm::enumerate(order)) {
      if (!atoms.contains(atom))
        continue;
      list.push_back(atom);
      exprs.push_back(builder.getAffineDimExpr(loop));
    }
    inputs.push_back(writeAtoms(operand, list));
    maps.push_back(
        AffineMap::get(order.size(), 0, exprs, builder.getContext()));
    direct.push_back(nullptr);
  }
  maps.push_back(
      AffineMap::getMultiDimIdentityMap(order.size(), builder.getContext()));
  Value empty =
      createEmpty(getExtents(order), getElementTypeOrSelf(op->getResult(0)));
  SmallVector<utils::IteratorType> loops(order.size(),
                                         utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange arguments) {
    SmallVector<Value> operands;
    for (Value value : direct) {
      if (!value) {
        operands.push_back(arguments.front());
        arguments = arguments.drop_front();
      } else if (Operation *constant = value.getDefiningOp();
                 constant && constant->hasTrait<OpTrait::ConstantLike>()) {
        operands.push_back(b.clone(*constant)->getResult(0));
      } else {
        operands.push_back(value);
      }
    }
    Operation *scalar =
        b.create(loc, op->getName().getIdentifier(), operands,
                 {getElementTypeOrSelf(op->getResult(0))}, op->getAttrs());
    linalg::YieldOp::create(b, loc, scalar->getResults());
  };
  return linalg::GenericOp::create(builder, loc, TypeRange(empty.getType()),
                                   inputs, ValueRange(empty), maps, loops, body)
      ->getResult(0);
}

/// One dimension for each atom, in this order.
Value AccessWriter::writeAtoms(const Access &access, ArrayRef<Atom> order) {
  Access peeled = trace.peel(access);
  if (isReadAsTensor(trace, peeled)) {
    IndexLists from =
        llvm::map_to_vector<4>(peeled.indices, [&](const IndexList &list) {
          return trace.resolve(list);
        });
    IndexLists to = llvm::map_to_vector<4>(
        order, [](Atom atom) { return IndexList{atom}; });
    return relayout(peeled.value, from, to);
  }
  Access opened = trace.open(peeled);
  if (auto index = opened.value.getDefiningOp<linalg::IndexOp>())
    return writeIndex(trace.resolve(opened.indices[index.getDim()]), order);
  if (isConstantScalar(opened) || isOutside(opened)) {
    Value scalar = opened.value;
    if (isConstantScalar(opened))
      scalar = builder.clone(*opened.getDefiningOp())->getResult(0);
    return tensor::SplatOp::create(builder, loc, scalar, ArrayRef<int64_t>());
  }
  return writeOperation(opened, order);
}

Value AccessWriter::writeSmallest(const Access &access,
                                  ArrayRef<IndexList> dims) {
  AtomSet atoms = getWrittenAtoms(trace, access);
  IndexLists used;
  for (const IndexList &dim : dims)
    used.push_back(llvm::any_of(trace.resolve(dim),
                                [&](Atom atom) { return atoms.contains(atom); })
                       ? dim
                       : IndexList());
  return write(access, used);
}

Value AccessWriter::write(const Access &access, ArrayRef<IndexList> dims) {
  AtomSet atoms = getWrittenAtoms(trace, access);
  Access peeled = trace.peel(access);
  // Directly, where nothing is repeated.
  IndexList order;
  for (const IndexList &dim : dims)
    llvm::append_range(order, trace.resolve(dim));
  if (isReadAsTensor(trace, peeled) && atoms.size() == order.size())
    return relayout(peeled.value,
                    llvm::map_to_vector<4>(peeled.indices,
                                           [&](const IndexList &list) {
                                             return trace.resolve(list);
                                           }),
                    dims);
  IndexList written;
  SmallVector<int64_t> repeated;
  for (auto [at, atom] : llvm::enumerate(order)) {
    if (atoms.contains(atom))
      written.push_back(atom);
    else
      repeated.push_back(at);
  }
  Value tensor = writeAtoms(access, written);
  if (!repeated.empty()) {
    Value empty =
        createEmpty(getExtents(order), getElementTypeOrSelf(tensor.getType()));
    tensor = linalg::BroadcastOp::create(builder, loc, tensor, empty, repeated)
                 ->getResult(0);
  }
  IndexLists single =
      llvm::map_to_vector<4>(order, [](Atom atom) { return IndexList{atom}; });
  return relayout(tensor, single, dims);
}
