//===- ProductsToRuntime.cpp - Products of matrices by a library ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GPUSerialLoops.h"
#include "fovea/Conversion/LoopsToGPU/Passes.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "fovea/Kernels/LinalgProduct.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/Matchers.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace fovea::attn {
#define GEN_PASS_DEF_PRODUCTSTORUNTIMEPASS
#include "fovea/Conversion/LoopsToGPU/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::product;

namespace {
/// An array of a product: the axis along each of its dimensions.
struct Array {
  Value memref;
  SmallVector<unsigned> axes;

  MemRefType getType() const { return cast<MemRefType>(memref.getType()); }
  Type getElementType() const { return getType().getElementType(); }
  bool has(unsigned axis) const { return llvm::is_contained(axes, axis); }
  bool isPacked() const { return getType().getLayout().isIdentity(); }
};

/// A sum of products that the runtime can compute.
class Product {
public:
  /// The parts of `op`; none where it is something else.
  static std::optional<Product> match(linalg::LinalgOp op);

  /// Writes what adds a bias, or rounds, at once. Returns the operation that
  /// does so now, null without one.
  linalg::GenericOp absorbUser();
  void emit(OpBuilder &builder, bool tf32);

  linalg::FillOp fill;

private:
  bool classifyAxes();
  bool haveMatrices() const;
  bool sumsAtOnce() const;
  bool matchUser(linalg::GenericOp user);

  linalg::LinalgOp op;
  Array left, right, result, bias;
  SmallVector<AxisKind> kinds;
};

struct ProductsToRuntimePass
    : fovea::attn::impl::ProductsToRuntimePassBase<ProductsToRuntimePass> {
  using ProductsToRuntimePassBase::ProductsToRuntimePassBase;

  void runOnOperation() override {
    SmallVector<linalg::LinalgOp> ops;
    getOperation().walk<WalkOrder::PreOrder>([&](Operation *op) {
      // What kernels do is not for the host.
      auto loop = dyn_cast<scf::ForOp>(op);
      if (isa<gpu::LaunchOp, scf::ParallelOp, scf::ForallOp>(op) ||
          (loop && isSerialLoop(loop)))
        return WalkResult::skip();
      if (auto linalgOp = dyn_cast<linalg::LinalgOp>(op))
        ops.push_back(linalgOp);
      return WalkResult::advance();
    });
    llvm::SmallPtrSet<Operation *, 8> absorbed;
    for (linalg::LinalgOp op : ops) {
      if (absorbed.contains(op))
        continue;
      std::optional<Product> product = Product::match(op);
      if (!product)
        continue;
      Value output = op.getDpsInits()[0];
      linalg::GenericOp user = product->absorbUser();
      OpBuilder builder(user ? user : op);
      product->emit(builder, f32 == F32Math::TF32);
      if (product->fill)
        product->fill.erase();
      op.erase();
      if (!user)
        continue;
      absorbed.insert(user);
      user.erase();
      eraseUnused(output);
    }
  }

private:
  /// Erases a buffer that nothing reads or writes.
  static void eraseUnused(Value buffer) {
    if (!llvm::all_of(buffer.getUsers(), llvm::IsaPred<memref::DeallocOp>))
      return;
    for (Operation *user : llvm::make_early_inc_range(buffer.getUsers()))
      user->erase();
    buffer.getDefiningOp()->erase();
  }
};
} // namespace

/// The dimensions that a map selects, in order; none for other maps.
static std::optional<SmallVector<unsigned>> getAxes(AffineMap map) {
  if (!map.isProjectedPermutation())
    return std::nullopt;
  return llvm::map_to_vector(map.getResults(), [](AffineExpr expr) {
    return cast<AffineDimExpr>(expr).getPosition();
  });
}

static bool isKnown(Type type) {
  return isa<Float16Type, BFloat16Type, Float32Type>(type);
}

/// Whether the runtime rounds sums of products of `factors` to `results`.
static bool canRound(Type factors, Type results) {
  return isKnown(results) && (results == factors || results.isF32());
}

//===----------------------------------------------------------------------===//
// Matching
//===----------------------------------------------------------------------===//

std::optional<Product> Product::match(linalg::LinalgOp op) {
  if (!op.hasPureBufferSemantics() || op.getNumDpsInputs() != 2 ||
      op.getNumDpsInits() != 1 || op.getNumLoops() > kMostAxes ||
      !isSumOfProducts(op))
    return std::nullopt;
  Product product;
  product.op = op;
  Array *arrays[] = {&product.left, &product.right, &product.result};
  for (auto [operand, array] : llvm::zip(op->getOpOperands(), arrays)) {
    auto type = dyn_cast<MemRefType>(operand.get().getType());
    auto axes = getAxes(op.getMatchingIndexingMap(&operand));
    if (!type || !axes || !isKnown(type.getElementType()) || !type.isStrided())
      return std::nullopt;
    array->memref = operand.get();
    array->axes = *axes;
  }
  if (product.left.getElementType() != product.right.getElementType() ||
      !canRound(product.left.getElementType(),
                product.result.getElementType()) ||
      !product.classifyAxes() || !product.haveMatrices() ||
      (!product.result.getElementType().isF32() && !product.sumsAtOnce()))
    return std::nullopt;
  product.fill = findFill(op);
  if (product.fill && !matchPattern(product.fill.value(), m_AnyZeroFloat()))
    product.fill = {};
  return product;
}

bool Product::classifyAxes() {
  SmallVector<utils::IteratorType> iterators = op.getIteratorTypesArray();
  for (unsigned axis = 0; axis < op.getNumLoops(); ++axis) {
    bool isLeft = left.has(axis), isRight = right.has(axis);
    bool isReduced = iterators[axis] == utils::IteratorType::reduction;
    if (isReduced == result.has(axis))
      return false;
    if (isReduced ? !(isLeft && isRight) : !(isLeft || isRight))
      return false;
    kinds.push_back(isReduced           ? Depth
                    : isLeft && isRight ? Batch
                    : isLeft            ? Rows
                                        : Columns);
  }
  return llvm::is_contained(kinds, Depth) &&
         (llvm::is_contained(kinds, Rows) ||
          llvm::is_contained(kinds, Columns));
}

/// Whether adjacent elements lie along rows, columns or the depth, and along
/// the same axes where two arrays agree on that.
bool Product::haveMatrices() const {
  const Array *arrays[] = {&left, &right, &result};
  for (const Array *array : arrays)
    if (array->axes.empty() || !array->getType().isLastDimUnitStride() ||
        kinds[array->axes.back()] == Batch)
      return false;
  for (const Array *one : arrays)
    for (const Array *other : arrays) {
      unsigned axis = one->axes.back(), others = other->axes.back();
      if (axis != others && kinds[axis] == kinds[others])
        return false;
    }
  return true;
}

/// Whether all axes of the depth are one, which the runtime finds out from
/// strides: a narrow result must not be rounded between sums.
bool Product::sumsAtOnce() const {
  if (llvm::count(kinds, Depth) == 1)
    return true;
  auto getDepth = [&](const Array &array) {
    SmallVector<unsigned> axes(array.axes);
    // What is before and behind the axes of the depth.
    auto isDepth = [&](unsigned axis) { return kinds[axis] == Depth; };
    auto first = llvm::find_if(axes, isDepth);
    auto last = std::find_if_not(first, axes.end(), isDepth);
    return std::any_of(last, axes.end(), isDepth)
               ? SmallVector<unsigned>()
               : SmallVector<unsigned>(first, last);
  };
  SmallVector<unsigned> axes = getDepth(left);
  return left.isPacked() && right.isPacked() && !axes.empty() &&
         axes == getDepth(right);
}

//===----------------------------------------------------------------------===//
// Biases and rounding
//===----------------------------------------------------------------------===//

/// `value` without a conversion to another floating-point type.
template <typename Conversion> static Value stripped(Value value) {
  auto conversion = value.getDefiningOp<Conversion>();
  return conversion ? Value(conversion.getIn()) : value;
}

/// Whether `user` makes of the sums, with a bias for each column or without,
/// something that the runtime rounds to; keeps it then.
bool Product::matchUser(linalg::GenericOp user) {
  if (!user.hasPureBufferSemantics() || user.getNumDpsInits() != 1 ||
      user.getNumDpsInputs() > 2 ||
      user.getNumParallelLoops() != user.getNumLoops())
    return false;
  OpOperand *sums = nullptr, *biases = nullptr;
  for (OpOperand *operand : user.getDpsInputOperands())
    (operand->get() == result.memref && !sums ? sums : biases) = operand;
  OpOperand *output = user.getDpsInitOperand(0);
  auto type = dyn_cast<MemRefType>(output->get().getType());
  if (!sums || !type || !type.isStrided() || !type.isLastDimUnitStride() ||
      !canRound(left.getElementType(), type.getElementType()) ||
      !user.getMatchingIndexingMap(sums).isIdentity() ||
      !user.getMatchingIndexingMap(output).isIdentity() ||
      !user.getMatchingBlockArgument(output).use_empty())
    return false;

  Value value = stripped<arith::TruncFOp>(
      user.getBlock()->getTerminator()->getOperand(0));
  auto isArgument = [&](Value value, OpOperand *operand) {
    return stripped<arith::ExtFOp>(value) ==
           user.getMatchingBlockArgument(operand);
  };
  Array found;
  if (biases) {
    auto sum = value.getDefiningOp<arith::AddFOp>();
    if (!sum ||
        !((isArgument(sum.getLhs(), sums) &&
           isArgument(sum.getRhs(), biases)) ||
          (isArgument(sum.getRhs(), sums) && isArgument(sum.getLhs(), biases))))
      return false;
    auto biasType = dyn_cast<MemRefType>(biases->get().getType());
    auto axes = getAxes(user.getMatchingIndexingMap(biases));
    if (!biasType || !axes || axes->empty() || !biasType.isStrided() ||
        !biasType.isLastDimUnitStride() ||
        biasType.getElementType() != type.getElementType())
      return false;
    found.memref = biases->get();
    for (unsigned axis : *axes)
      found.axes.push_back(result.axes[axis]);
    if (found.axes.back() != result.axes.back() ||
        !llvm::all_of(found.axes,
                      [&](unsigned axis) { return kinds[axis] == Columns; }))
      return false;
  } else if (!isArgument(value, sums)) {
    return false;
  }
  bias = found;
  result.memref = output->get();
  return true;
}

/// The allocation, constant or argument that a buffer is a view of; null where
/// that is not known.
static Value getBase(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  if (auto argument = dyn_cast<BlockArgument>(buffer))
    return isa<func::FuncOp>(argument.getOwner()->getParentOp()) ? buffer
                                                                 : Value();
  return isa<memref::AllocOp, memref::GetGlobalOp>(buffer.getDefiningOp())
             ? buffer
             : Value();
}

linalg::GenericOp Product::absorbUser() {
  // What the sums are added to must be zero.
  if (!fill || !sumsAtOnce())
    return {};
  // Between the two nothing may change the factors.
  Operation *next = op->getNextNode();
  while (next && (isMemoryEffectFree(next) || isa<memref::AllocOp>(next)))
    next = next->getNextNode();
  auto user = dyn_cast_or_null<linalg::GenericOp>(next);
  if (!user || user.getNumDpsInits() != 1)
    return {};
  // Nothing else may read the sums.
  Value sums = result.memref, output = user.getDpsInits()[0];
  for (Operation *each : sums.getUsers())
    if (output != sums && each != op && each != fill && each != user &&
        !isa<memref::DeallocOp>(each))
      return {};
  // Nor may the result lie where a factor does.
  if (output != sums && !output.getDefiningOp<memref::AllocOp>())
    return {};
  if (!matchUser(user))
    return {};
  for (const Array *array : {&left, &right, &bias}) {
    Value base = array->memref ? getBase(array->memref) : Value();
    if (array->memref && (!base || base == output)) {
      result.memref = sums;
      bias = {};
      return {};
    }
  }
  return user;
}

//===----------------------------------------------------------------------===//
// Calls
//===----------------------------------------------------------------------===//

void Product::emit(OpBuilder &builder, bool tf32) {
  Location loc = op.getLoc();
  auto function = op->getParentOfType<func::FuncOp>();
  GPURuntimeCalls calls(op->getParentOfType<ModuleOp>());
  Type i64 = builder.getI64Type();
  auto number = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  auto flag = [&](int32_t value) -> Value {
    return arith::ConstantIntOp::create(builder, loc, value, /*width=*/32);
  };
  SmallVector<Value> extents(kinds.size());
  SmallVector<SmallVector<Value>> strides;
  SmallVector<Value> pointers;
  for (const Array *array : {&left, &right, &result, &bias}) {
    SmallVector<Value> &own = strides.emplace_back(kinds.size(), number(0));
    if (!array->memref) {
      pointers.push_back(LLVM::ZeroOp::create(builder, loc, calls.pointerType));
      continue;
    }
    auto metadata =
        memref::ExtractStridedMetadataOp::create(builder, loc, array->memref);
    for (auto [axis, size, stride] :
         llvm::zip(array->axes, metadata.getSizes(), metadata.getStrides())) {
      extents[axis] = size;
      own[axis] = stride;
    }
    pointers.push_back(
        calls.getElementPointer(builder, loc, array->memref, {}));
  }
  SmallVector<Value> numbers;
  for (auto [axis, kind] : llvm::enumerate(kinds)) {
    numbers.append({number(kind), extents[axis]});
    for (const SmallVector<Value> &own : strides)
      numbers.push_back(own[axis]);
  }
  assert(numbers.size() == kinds.size() * kAxisNumbers && "strides left out");
  auto typeOf = [&](const Array &array) {
    return flag(int32_t(getDeviceType(array.getElementType())));
  };
  calls.call(builder, loc, "fovea_rt_gpu_multiply",
             {typeOf(left), typeOf(result),
              flag((fill ? 0 : Add) | (tf32 ? TF32 : 0)), pointers[0],
              pointers[1], pointers[2], pointers[3], flag(kinds.size()),
              calls.makeList(builder, loc, function, i64, numbers)});
}
