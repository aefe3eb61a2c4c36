//===- SinkLoads.cpp - Numbers that kernels read themselves ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Such as the position of a state: it says where the state keeps tokens, how
// many rows a view of them has, and whether a block is complete. A graph is
// launched for any position, so kernels compute all of that. What the host
// needs ahead, blocks of threads and bytes of memory, has a bound.
//
//===----------------------------------------------------------------------===//

#include "SinkLoads.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace fovea::attn;

static bool isInLaunch(Operation *op) {
  return op->getParentOfType<gpu::LaunchOp>() != nullptr;
}

/// The buffer of which `memref` is a view.
static Value getBuffer(Value memref) {
  while (Operation *op = memref.getDefiningOp()) {
    if (auto view = dyn_cast<ViewLikeOpInterface>(op))
      memref = view.getViewSource();
    else if (auto metadata = dyn_cast<memref::ExtractStridedMetadataOp>(op))
      memref = metadata.getSource();
    else
      break;
  }
  return memref;
}

static bool isComputation(Operation *op) {
  return op->getNumRegions() == 0 && isMemoryEffectFree(op);
}

/// Whether `op`, or the code of a kernel, may write to `buffer`.
static bool mayWrite(Operation *op, Value buffer) {
  auto mayWriteItself = [&](Operation *inner) {
    if (isComputation(inner) || isa<memref::LoadOp, vector::LoadOp>(inner))
      return false;
    return llvm::any_of(inner->getOpOperands(), [&](OpOperand &operand) {
      auto copy = dyn_cast<memref::CopyOp>(inner);
      return isa<MemRefType>(operand.get().getType()) &&
             getBuffer(operand.get()) == buffer &&
             !(copy && operand.get() == copy.getSource());
    });
  };
  return op
      ->walk([&](Operation *inner) {
        return mayWriteItself(inner) ? WalkResult::interrupt()
                                     : WalkResult::advance();
      })
      .wasInterrupted();
}

static int64_t getBits(Type type) {
  if (auto complex = dyn_cast<ComplexType>(type))
    return 2 * getBits(complex.getElementType());
  return type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
}

/// Whether `op` does nothing but decide on launches.
static bool decidesOnLaunches(scf::IfOp op) {
  return op.getNumResults() == 0 &&
         (!op.elseBlock() || op.elseBlock()->without_terminator().empty()) &&
         llvm::all_of(*op.thenBlock(), [](Operation &inner) {
           return isComputation(&inner) ||
                  isa<gpu::LaunchOp, memref::AllocOp, memref::DeallocOp,
                      scf::YieldOp>(inner);
         });
}

namespace {
/// What depends on a load, and what becomes of it.
class LoadSinking {
public:
  explicit LoadSinking(memref::LoadOp load)
      : load(load), buffer(getBuffer(load.getMemref())) {}

  /// Changes nothing unless kernels can do without the host.
  void run() {
    collect();
    for (auto [alloc, bytes] : allocs)
      for (OpOperand &use : alloc->getUses())
        if (!isa<memref::DeallocOp>(use.getOwner()) && !takeUse(use))
          return;
    for (Operation *op : computations)
      for (OpOperand &use : op->getUses())
        if (!takeUse(use))
          return;
    if (!isReadBeforeWrites())
      return;
    rewrite();
  }

private:
  void collect();
  bool takeUse(OpOperand &use);
  bool isReadBeforeWrites();
  bool neverRuns(scf::ForOp loop);
  Value findBound(OpBuilder &b, Value value);
  Value findExtentBound(OpBuilder &b, Location loc, Value memref, int64_t dim);
  Value findBound(OpBuilder &b, Operation *affine, AffineExpr expr);
  Value findLeast(OpBuilder &b, Value value);
  void rewrite();
  void allocateAtMost(memref::AllocOp alloc, Value bytes);
  void decideInLaunches(scf::IfOp op);
  void boundBlocks(gpu::LaunchOp launch, Value most);
  void sink(gpu::LaunchOp launch);

  bool depends(Value value) {
    Operation *op = value.getDefiningOp();
    return op && (computations.contains(op) || isDependentAlloc(op));
  }
  bool isDependentAlloc(Operation *op) {
    auto alloc = dyn_cast<memref::AllocOp>(op);
    return alloc && allocs.contains(alloc);
  }

  memref::LoadOp load;
  Value buffer;
  /// The load and everything that the host computes from it.
  SetVector<Operation *> computations;
  SetVector<gpu::LaunchOp> launches;
  SetVector<scf::IfOp> decisions;
  /// Loops that have no iteration, and checks of the host that kernels repeat.
  SetVector<Operation *> needless;
  /// With the most blocks, and the most bytes.
  llvm::MapVector<gpu::LaunchOp, Value> grids;
  llvm::MapVector<memref::AllocOp, Value> allocs;
};
} // namespace

void LoadSinking::collect() {
  computations.insert(load);
  SmallVector<Operation *> pending = {load};
  while (!pending.empty())
    for (Operation *user : pending.pop_back_val()->getUsers()) {
      if (isInLaunch(user))
        continue;
      auto alloc = dyn_cast<memref::AllocOp>(user);
      if (alloc ? allocs.try_emplace(alloc).second
                : isComputation(user) && computations.insert(user))
        pending.push_back(user);
    }
}

/// Whether the host does not need the number for a use.
bool LoadSinking::takeUse(OpOperand &use) {
  Operation *user = use.getOwner();
  for (Operation *op = user; op; op = op->getParentOp())
    if (auto loop = dyn_cast<scf::ForOp>(op); loop && !isInLaunch(op))
      if (neverRuns(loop)) {
        needless.insert(loop);
        return true;
      }
  if (auto launch = user->getParentOfType<gpu::LaunchOp>()) {
    launches.insert(launch);
    return true;
  }
  OpBuilder b(user);
  if (auto launch = dyn_cast<gpu::LaunchOp>(user)) {
    if (use.get() != launch.getGridSizeX() || use.getOperandNumber() != 0)
      return false;
    launches.insert(launch);
    return (grids[launch] = findBound(b, use.get())) != nullptr;
  }
  if (auto decision = dyn_cast<scf::IfOp>(user)) {
    decisions.insert(decision);
    for (auto launch : decision.thenBlock()->getOps<gpu::LaunchOp>())
      launches.insert(launch);
    return decidesOnLaunches(decision);
  }
  if (auto alloc = dyn_cast<memref::AllocOp>(user)) {
    Location loc = alloc.getLoc();
    Value bytes = arith::ConstantIndexOp::create(
        b, loc, llvm::divideCeil(getBits(alloc.getType().getElementType()), 8));
    for (OpFoldResult size : alloc.getMixedSizes()) {
      Value most = findBound(b, getValueOrCreateConstantIndexOp(b, loc, size));
      if (!most)
        return false;
      bytes = b.createOrFold<arith::MulIOp>(loc, bytes, most);
    }
    allocs[alloc] = bytes;
    return alloc.getType().getLayout().isIdentity();
  }
  if (user->hasAttr(kRepeatedCheckAttrName)) {
    needless.insert(user);
    return true;
  }
  return computations.contains(user);
}

/// Kernels read what the host would have read.
bool LoadSinking::isReadBeforeWrites() {
  Block *block = load->getBlock();
  if (!isa<func::FuncOp>(block->getParentOp()))
    return false;
  bool isWritten = false;
  for (auto it = std::next(load->getIterator()); it != block->end(); ++it) {
    // Launches in the order of the program, those of decisions too.
    WalkResult result = it->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (needless.contains(op))
        return WalkResult::skip();
      auto launch = dyn_cast<gpu::LaunchOp>(op);
      // Nor may some threads write what others are still to read.
      if (launch && launches.contains(launch) &&
          (isWritten || mayWrite(launch, buffer)))
        return WalkResult::interrupt();
      // What a loop writes, its next iteration reads.
      if (launch || op->getNumRegions() == 0 || isa<LoopLikeOpInterface>(op))
        isWritten |= mayWrite(op, buffer);
      return launch ? WalkResult::skip() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Bounds
//===----------------------------------------------------------------------===//

/// An extent of a view or of memory that depends on the load.
Value LoadSinking::findExtentBound(OpBuilder &b, Location loc, Value memref,
                                   int64_t dim) {
  while (auto cast = memref.getDefiningOp<memref::CastOp>())
    memref = cast.getSource();
  if (auto collapse = memref.getDefiningOp<memref::CollapseShapeOp>()) {
    Value product = arith::ConstantIndexOp::create(b, loc, 1);
    ReassociationIndices parts = collapse.getReassociationIndices()[dim];
    for (int64_t part : parts) {
      Value most = findExtentBound(b, loc, collapse.getSrc(), part);
      if (!most)
        return {};
      product = b.createOrFold<arith::MulIOp>(loc, product, most);
    }
    return product;
  }
  SmallVector<OpFoldResult> sizes;
  if (auto view = memref.getDefiningOp<memref::SubViewOp>()) {
    if (view.getDroppedDims().none())
      sizes = view.getMixedSizes();
  } else if (auto alloc = memref.getDefiningOp<memref::AllocOp>()) {
    sizes = alloc.getMixedSizes();
  }
  if (sizes.empty())
    return {};
  return findBound(b, getValueOrCreateConstantIndexOp(b, loc, sizes[dim]));
}

/// What an affine expression of numbers that are not negative is at most.
Value LoadSinking::findBound(OpBuilder &b, Operation *affine, AffineExpr expr) {
  Location loc = affine->getLoc();
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(b, loc, value);
  };
  if (auto number = dyn_cast<AffineConstantExpr>(expr))
    return constant(number.getValue());
  if (auto symbol = dyn_cast<AffineSymbolExpr>(expr))
    return findBound(b, affine->getOperand(symbol.getPosition()));
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return {};
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (factor && expr.getKind() == AffineExprKind::Mul && factor.getValue() < 0)
    return constant(0);
  if (factor && expr.getKind() == AffineExprKind::Mod)
    return constant(factor.getValue() - 1);
  Value left = findBound(b, affine, binary.getLHS()),
        right = left ? findBound(b, affine, binary.getRHS()) : Value();
  if (!right || (expr.getKind() != AffineExprKind::Add && !factor))
    return {};
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return b.createOrFold<arith::AddIOp>(loc, left, right);
  case AffineExprKind::Mul:
    return b.createOrFold<arith::MulIOp>(loc, left, right);
  case AffineExprKind::FloorDiv:
    return b.createOrFold<arith::FloorDivSIOp>(loc, left, right);
  case AffineExprKind::CeilDiv:
    return b.createOrFold<arith::CeilDivSIOp>(loc, left, right);
  default:
    return {};
  }
}

/// Builds `op` of other operands, folded.
static Value rebuild(OpBuilder &b, Operation *op, ArrayRef<Value> operands) {
  IRMapping mapping;
  mapping.map(op->getOperands(), operands);
  Operation *copy = b.clone(*op, mapping);
  SmallVector<Value> folded;
  // What is folded in place has no other result.
  if (failed(b.tryFold(copy, folded)) || folded.empty())
    return copy->getResult(0);
  copy->erase();
  return folded.front();
}

/// What a number, which counts something, is at least.
Value LoadSinking::findLeast(OpBuilder &b, Value value) {
  if (!depends(value))
    return value;
  Operation *op = value.getDefiningOp();
  if (isa<arith::IndexCastOp>(op)) {
    Value least = findLeast(b, op->getOperand(0));
    return rebuild(b, op, least);
  }
  if (isa<math::CountLeadingZerosOp>(op))
    if (Value most = findBound(b, op->getOperand(0)))
      return rebuild(b, op, most);
  return arith::ConstantOp::create(b, op->getLoc(),
                                   b.getZeroAttr(value.getType()));
}

/// What a number, which counts something, is at most whatever is loaded; null
/// where that cannot be told.
Value LoadSinking::findBound(OpBuilder &b, Value value) {
  if (!depends(value))
    return value;
  Operation *op = value.getDefiningOp();
  Location loc = op->getLoc();
  if (auto dim = dyn_cast<memref::DimOp>(op)) {
    std::optional<int64_t> index = dim.getConstantIndex();
    return index ? findExtentBound(b, loc, dim.getSource(), *index) : Value();
  }
  AffineMap map;
  if (auto apply = dyn_cast<affine::AffineApplyOp>(op))
    map = apply.getMap();
  else if (isa<affine::AffineMinOp, affine::AffineMaxOp>(op))
    map = isa<affine::AffineMinOp>(op) ? cast<affine::AffineMinOp>(op).getMap()
                                       : cast<affine::AffineMaxOp>(op).getMap();
  if (map) {
    // Of the least of several numbers one bound will do.
    bool isMin = isa<affine::AffineMinOp>(op);
    Value most;
    for (AffineExpr expr : map.getResults()) {
      Value bound = map.getNumDims() ? Value() : findBound(b, op, expr);
      if (!bound && !isMin)
        return {};
      if (bound && most)
        bound = isMin ? b.createOrFold<arith::MinSIOp>(loc, most, bound)
                      : b.createOrFold<arith::MaxSIOp>(loc, most, bound);
      most = bound ? bound : most;
    }
    return most;
  }
  if (isa<arith::SubIOp>(op)) {
    Value most = findBound(b, op->getOperand(0));
    if (!most)
      return {};
    return rebuild(b, op, {most, findLeast(b, op->getOperand(1))});
  }
  if (isa<arith::RemUIOp, arith::RemSIOp>(op) && !depends(op->getOperand(1))) {
    Value one =
        arith::ConstantOp::create(b, loc, b.getIntegerAttr(value.getType(), 1));
    return b.createOrFold<arith::SubIOp>(loc, op->getOperand(1), one);
  }
  if (isa<arith::MinSIOp>(op)) {
    Value first = findBound(b, op->getOperand(0)),
          second = findBound(b, op->getOperand(1));
    return first && second ? rebuild(b, op, {first, second})
                           : (first ? first : second);
  }
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Value first = findBound(b, select.getTrueValue()),
          second = findBound(b, select.getFalseValue());
    return first && second ? b.createOrFold<arith::MaxSIOp>(loc, first, second)
                           : Value();
  }
  // Operations that grow with their operands, of which a divisor must be known.
  bool grows =
      isa<arith::AddIOp, arith::MulIOp, arith::MaxSIOp, arith::IndexCastOp>(op);
  bool growsWithFirst = isa<arith::DivUIOp, arith::DivSIOp, arith::CeilDivSIOp,
                            arith::CeilDivUIOp, arith::FloorDivSIOp>(op);
  if (!grows && !(growsWithFirst && !depends(op->getOperand(1))))
    return {};
  SmallVector<Value> bounds;
  for (Value operand : op->getOperands()) {
    bounds.push_back(findBound(b, operand));
    if (!bounds.back())
      return {};
  }
  return rebuild(b, op, bounds);
}

/// Whether a loop has no iteration whatever is loaded.
bool LoadSinking::neverRuns(scf::ForOp loop) {
  if (!depends(loop.getUpperBound()) || loop->getNumResults() > 0)
    return false;
  if (needless.contains(loop))
    return true;
  OpBuilder b(loop);
  Value most = findBound(b, loop.getUpperBound());
  std::optional<int64_t> last = most ? getConstantIntValue(most) : std::nullopt,
                         first = getConstantIntValue(loop.getLowerBound());
  return last && first && *last <= *first;
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

void LoadSinking::rewrite() {
  // Not of others: those go with them.
  SmallVector<Operation *> erased;
  llvm::copy_if(needless, std::back_inserter(erased), [&](Operation *op) {
    return llvm::none_of(needless, [&](Operation *other) {
      return other->isProperAncestor(op);
    });
  });
  for (Operation *op : erased) {
    op->walk([&](Operation *inner) {
      computations.remove(inner);
      if (auto launch = dyn_cast<gpu::LaunchOp>(inner)) {
        launches.remove(launch);
        grids.erase(launch);
      } else if (auto alloc = dyn_cast<memref::AllocOp>(inner)) {
        allocs.erase(alloc);
      }
    });
    op->erase();
  }
  for (auto [alloc, bytes] : allocs)
    allocateAtMost(alloc, bytes);
  allocs.clear();
  for (scf::IfOp op : decisions)
    decideInLaunches(op);
  for (auto [launch, most] : grids)
    boundBlocks(launch, most);
  for (gpu::LaunchOp launch : launches)
    sink(launch);
  SetVector<Operation *> sorted = topologicalSort(computations);
  for (Operation *op : llvm::reverse(sorted))
    if (op->use_empty())
      op->erase();
}

/// Puts what a kernel does under a condition.
static void guard(gpu::LaunchOp launch,
                  function_ref<Value(OpBuilder &)> getCondition) {
  Block &body = launch.getBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  auto guard = scf::IfOp::create(b, launch.getLoc(), getCondition(b));
  Block &guarded = *guard.thenBlock();
  guarded.getOperations().splice(guarded.begin(), body.getOperations(),
                                 std::next(guard->getIterator()),
                                 std::prev(body.end()));
}

/// Blocks of threads behind those that there are do nothing.
void LoadSinking::boundBlocks(gpu::LaunchOp launch, Value most) {
  Value count = launch.getGridSizeX();
  launch.getGridSizeXMutable().assign(most);
  guard(launch, [&](OpBuilder &b) -> Value {
    return arith::CmpIOp::create(b, launch.getLoc(), arith::CmpIPredicate::slt,
                                 launch.getBlockIds().x, count);
  });
}

/// As many bytes as there may have to be, and a view of those that there are.
void LoadSinking::allocateAtMost(memref::AllocOp alloc, Value bytes) {
  OpBuilder b(alloc);
  Location loc = alloc.getLoc();
  auto type = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  auto memory =
      memref::AllocOp::create(b, loc, type, bytes, alloc.getAlignmentAttr());
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  auto view = memref::ViewOp::create(b, loc, alloc.getType(), memory, zero,
                                     alloc.getDynamicSizes());
  for (OpOperand &use : llvm::make_early_inc_range(alloc->getUses()))
    use.set(isa<memref::DeallocOp>(use.getOwner()) ? Value(memory)
                                                   : Value(view));
  computations.insert(view);
  alloc.erase();
}

void LoadSinking::decideInLaunches(scf::IfOp op) {
  for (auto launch : op.thenBlock()->getOps<gpu::LaunchOp>())
    guard(launch, [&](OpBuilder &) { return op.getCondition(); });
  op.thenBlock()->getTerminator()->erase();
  op->getBlock()->getOperations().splice(op->getIterator(),
                                         op.thenBlock()->getOperations());
  op.erase();
}

/// Computes in a kernel what it uses.
void LoadSinking::sink(gpu::LaunchOp launch) {
  SetVector<Operation *> needed;
  auto need = [&](Operation *user) {
    for (Value operand : user->getOperands())
      if (depends(operand))
        needed.insert(operand.getDefiningOp());
  };
  launch.getBody().walk(need);
  // Grows.
  for (size_t i = 0; i < needed.size(); ++i)
    need(needed[i]);
  OpBuilder b = OpBuilder::atBlockBegin(&launch.getBody().front());
  IRMapping mapping;
  for (Operation *op : topologicalSort(needed)) {
    Operation *copy = b.clone(*op, mapping);
    op->replaceUsesWithIf(copy->getResults(), [&](OpOperand &use) {
      return launch->isProperAncestor(use.getOwner());
    });
  }
}

void fovea::attn::sinkHostLoads(func::FuncOp function) {
  SmallVector<memref::LoadOp> loads;
  function.walk([&](memref::LoadOp load) {
    if (!isInLaunch(load))
      loads.push_back(load);
  });
  for (memref::LoadOp load : loads)
    LoadSinking(load).run();
}

/// Whether the host computes a value from what it loads.
static bool isLoaded(Value value) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.inclusive = true;
  return succeeded(getBackwardSlice(value, &slice, options)) &&
         llvm::any_of(slice, llvm::IsaPred<memref::LoadOp>);
}

void fovea::attn::wrapHostStores(func::FuncOp function) {
  SmallVector<memref::StoreOp> stores;
  function.walk([&](memref::StoreOp store) {
    Value value = store.getValue();
    if ((getBits(value.getType()) > 32 || isLoaded(value)) &&
        !isInLaunch(store) && !store->getParentOfType<scf::ParallelOp>())
      stores.push_back(store);
  });
  for (memref::StoreOp store : stores) {
    OpBuilder builder(store);
    KernelBuilder b(store.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
    parallelLoop(b, {b.index(1)}, [&](ValueRange) { b.clone(*store); });
    store.erase();
  }
}
