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
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Utils/Utils.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
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
    if (isComputation(inner) || isa<memref::LoadOp>(inner))
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
    if (!collect() || !isReadBeforeWrites())
      return;
    for (auto [alloc, bytes] : allocs)
      allocateAtMost(alloc, bytes);
    for (scf::IfOp op : decisions)
      decideInLaunches(op);
    for (auto [launch, blocks] : grids)
      launch->setOperand(0, blocks);
    for (gpu::LaunchOp launch : launches)
      sink(launch);
    SetVector<Operation *> sorted = topologicalSort(computations);
    for (Operation *op : llvm::reverse(sorted))
      if (op->use_empty())
        op->erase();
  }

private:
  bool collect();
  bool collectUse(OpOperand &use);
  bool isReadBeforeWrites();
  Value findBound(OpBuilder &b, Value value);
  Value findExtentBound(OpBuilder &b, memref::DimOp dim);
  void allocateAtMost(memref::AllocOp alloc, Value bytes);
  void decideInLaunches(scf::IfOp op);
  void sink(gpu::LaunchOp launch);

  bool depends(Value value) {
    Operation *op = value.getDefiningOp();
    return op && computations.contains(op);
  }

  memref::LoadOp load;
  Value buffer;
  /// The load and everything that the host computes from it.
  SetVector<Operation *> computations;
  SetVector<gpu::LaunchOp> launches;
  SetVector<scf::IfOp> decisions;
  /// With the most blocks, and the most bytes.
  llvm::MapVector<gpu::LaunchOp, Value> grids;
  llvm::MapVector<memref::AllocOp, Value> allocs;
};
} // namespace

bool LoadSinking::collect() {
  computations.insert(load);
  // Grows.
  for (size_t i = 0; i < computations.size(); ++i) {
    if (computations[i]->getParentOfType<LoopLikeOpInterface>())
      return false;
    for (OpOperand &use : computations[i]->getUses())
      if (!collectUse(use))
        return false;
  }
  return true;
}

bool LoadSinking::collectUse(OpOperand &use) {
  Operation *user = use.getOwner();
  if (auto launch = user->getParentOfType<gpu::LaunchOp>()) {
    launches.insert(launch);
    return true;
  }
  OpBuilder b(user);
  if (auto launch = dyn_cast<gpu::LaunchOp>(user)) {
    if (!launch->hasAttr(kFlatLaunchAttrName) || use.getOperandNumber() != 0)
      return false;
    return (grids[launch] = findBound(b, use.get())) != nullptr;
  }
  if (auto decision = dyn_cast<scf::IfOp>(user)) {
    decisions.insert(decision);
    for (auto launch : decision.thenBlock()->getOps<gpu::LaunchOp>())
      launches.insert(launch);
    return decidesOnLaunches(decision);
  }
  if (auto alloc = dyn_cast<memref::AllocOp>(user)) {
    int64_t width =
        llvm::divideCeil(getBits(alloc.getType().getElementType()), 8);
    Value bytes = arith::ConstantIndexOp::create(b, alloc.getLoc(), width);
    for (OpFoldResult size : alloc.getMixedSizes()) {
      Value most = findBound(
          b, getValueOrCreateConstantIndexOp(b, alloc.getLoc(), size));
      if (!most)
        return false;
      bytes = b.createOrFold<arith::MulIOp>(alloc.getLoc(), bytes, most);
    }
    allocs[alloc] = bytes;
    // Its users will see a view, which depends on the load.
    return alloc.getType().getLayout().isIdentity() &&
           llvm::all_of(alloc->getUses(), [&](OpOperand &other) {
             return isa<memref::DeallocOp>(other.getOwner()) ||
                    collectUse(other);
           });
  }
  if (!isComputation(user))
    return false;
  computations.insert(user);
  return true;
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
      auto launch = dyn_cast<gpu::LaunchOp>(op);
      if (launch && isWritten && launches.contains(launch))
        return WalkResult::interrupt();
      if (launch || op->getNumRegions() == 0)
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
Value LoadSinking::findExtentBound(OpBuilder &b, memref::DimOp dim) {
  std::optional<int64_t> index = dim.getConstantIndex();
  if (!index)
    return {};
  Value source = dim.getSource();
  while (auto cast = source.getDefiningOp<memref::CastOp>())
    source = cast.getSource();
  SmallVector<OpFoldResult> sizes;
  if (auto view = source.getDefiningOp<memref::SubViewOp>()) {
    if (view.getDroppedDims().none())
      sizes = view.getMixedSizes();
  } else if (auto alloc = source.getDefiningOp<memref::AllocOp>()) {
    sizes = alloc.getMixedSizes();
  }
  if (sizes.empty())
    return {};
  return findBound(
      b, getValueOrCreateConstantIndexOp(b, dim.getLoc(), sizes[*index]));
}

/// What a number, which counts something, is at most whatever is loaded; null
/// where that cannot be told.
Value LoadSinking::findBound(OpBuilder &b, Value value) {
  if (!depends(value))
    return value;
  Operation *op = value.getDefiningOp();
  Location loc = op->getLoc();
  if (auto dim = dyn_cast<memref::DimOp>(op))
    return findExtentBound(b, dim);
  if (auto min = dyn_cast<affine::AffineMinOp>(op)) {
    std::optional<int64_t> most;
    for (AffineExpr expr : min.getMap().getResults())
      if (auto constant = dyn_cast<AffineConstantExpr>(expr))
        most =
            std::min(most.value_or(constant.getValue()), constant.getValue());
    return most ? arith::ConstantIndexOp::create(b, loc, *most).getResult()
                : Value();
  }
  // Operations that grow with their operands, of which a divisor and what is
  // subtracted must be known.
  bool grows = isa<arith::AddIOp, arith::MulIOp, arith::MaxSIOp, arith::MinSIOp,
                   arith::IndexCastOp>(op);
  bool growsWithFirst =
      isa<arith::SubIOp, arith::DivUIOp, arith::DivSIOp, arith::CeilDivSIOp,
          arith::CeilDivUIOp, arith::FloorDivSIOp>(op);
  if (!grows && !(growsWithFirst && !depends(op->getOperand(1))))
    return {};
  IRMapping mapping;
  for (Value operand : op->getOperands()) {
    Value most = findBound(b, operand);
    if (!most)
      return {};
    mapping.map(operand, most);
  }
  return b.clone(*op, mapping)->getResult(0);
}

//===----------------------------------------------------------------------===//
// Rewriting
//===----------------------------------------------------------------------===//

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
  for (auto launch : op.thenBlock()->getOps<gpu::LaunchOp>()) {
    Block &body = launch.getBody().front();
    OpBuilder b = OpBuilder::atBlockBegin(&body);
    auto guard = scf::IfOp::create(b, op.getLoc(), op.getCondition());
    Block &guarded = *guard.thenBlock();
    guarded.getOperations().splice(guarded.begin(), body.getOperations(),
                                   std::next(guard->getIterator()),
                                   std::prev(body.end()));
  }
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
        !isInLaunch(store) && !store->getParentOfType<LoopLikeOpInterface>())
      stores.push_back(store);
  });
  for (memref::StoreOp store : stores) {
    OpBuilder builder(store);
    KernelBuilder b(store.getLoc(), builder, builder.getF32Type(), /*lanes=*/0);
    parallelLoop(b, {b.index(1)}, [&](ValueRange) { b.clone(*store); });
    store.erase();
  }
}
