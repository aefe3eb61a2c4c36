//===- IndependentLines.cpp - Threads for lines of arrays -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loops over elements, such as
//
//   for k { for j { row[j] += x[k, j]; out[k, j] = row[j] } }
//
// have some over lines that know nothing of each other: all accesses of what
// is written have `j` in one place. Whatever the order of its loops, a nest has
// the same result with such a loop around the others:
//
//   parallel j { for k { row[j] += x[k, j]; out[k, j] = row[j] } }
//
// What is next to each other inside of a loop is brought together that way.
//
//===----------------------------------------------------------------------===//

#include "IndependentLines.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;
using namespace fovea::attn;

using Operations = SmallVector<Operation *>;

static Operations getOperations(scf::ForOp loop) {
  return llvm::map_to_vector(loop.getBody()->without_terminator(),
                             [](Operation &op) { return &op; });
}

static bool isBuffer(Type type) { return isa<BaseMemRefType>(type); }

/// Whether `op` computes numbers alone, of numbers.
static bool isPlain(Operation *op) {
  return op->getNumRegions() == 0 && isMemoryEffectFree(op) &&
         llvm::none_of(op->getResultTypes(), isBuffer);
}

/// What a buffer is a view of.
static Value findRoot(Value buffer) {
  while (auto view = buffer.getDefiningOp<ViewLikeOpInterface>())
    buffer = view.getViewSource();
  return buffer;
}

namespace {
struct Access {
  Value buffer;
  ValueRange indices;
  Operation *op;
  bool isWrite;
};

/// Loops over the same lines, none in another.
using LineLoops = llvm::SetVector<scf::ForOp>;

class Lines {
public:
  explicit Lines(scf::ForOp loop) : nest(loop) {}

  bool run();

private:
  bool isKnown();
  bool isOutside(Value value) const {
    return !nest->isAncestor(value.getParentRegion()->getParentOp());
  }
  /// Whether loops have the same iterations, by numbers from before the nest.
  bool areAlike(scf::ForOp loop, scf::ForOp other) const;
  LineLoops findLoops(const Operations &ops) const;
  /// A buffer of each iteration, as a part of one for all.
  bool shareBuffers(ImplicitLocOpBuilder &b);

  scf::ForOp nest;
};
} // namespace

/// Whether the nest is made of elements, numbers, loops and branches.
bool Lines::isKnown() {
  return !nest->walk([&](Operation *op) -> WalkResult {
                if (isa<memref::LoadOp, memref::StoreOp>(op))
                  return WalkResult::advance();
                if (isa<scf::ForOp, scf::IfOp, scf::WhileOp>(op))
                  return WalkResult(
                      failure(llvm::any_of(op->getResultTypes(), isBuffer) ||
                              llvm::any_of(op->getOperandTypes(), isBuffer)));
                if (isa<scf::YieldOp, scf::ConditionOp>(op))
                  return WalkResult::advance();
                // Those of each iteration of the outermost loop.
                if (auto alloc = dyn_cast<memref::AllocOp>(op)) {
                  bool isAccessed =
                      llvm::all_of(op->getUsers(), [](Operation *user) {
                        return isa<memref::LoadOp, memref::StoreOp,
                                   memref::DeallocOp>(user);
                      });
                  return WalkResult(success(
                      isAccessed && op->getParentOp() == nest &&
                      llvm::all_of(alloc.getDynamicSizes(), [&](Value size) {
                        return isOutside(size);
                      })));
                }
                if (isa<memref::DeallocOp>(op))
                  return WalkResult(success(op->getParentOp() == nest));
                return WalkResult(success(isPlain(op)));
              })
              .wasInterrupted();
}

bool Lines::areAlike(scf::ForOp loop, scf::ForOp other) const {
  auto isSame = [&](Value one, Value value) {
    return isOutside(one) && isEqualConstantIntOrValue(one, value);
  };
  return other->getNumResults() == 0 &&
         isSame(loop.getLowerBound(), other.getLowerBound()) &&
         isSame(loop.getUpperBound(), other.getUpperBound()) &&
         isSame(loop.getStep(), other.getStep());
}

static SmallVector<Access> findAccesses(const Operations &ops) {
  SmallVector<Access> accesses;
  for (Operation *op : ops)
    op->walk([&](Operation *inner) {
      if (auto load = dyn_cast<memref::LoadOp>(inner))
        accesses.push_back(
            {load.getMemref(), load.getIndices(), inner, /*isWrite=*/false});
      else if (auto store = dyn_cast<memref::StoreOp>(inner))
        accesses.push_back(
            {store.getMemref(), store.getIndices(), inner, /*isWrite=*/true});
    });
  return accesses;
}

/// Whether `ops` are such loops, loops around these, and plain numbers.
static bool consistOf(const LineLoops &lines, const Operations &ops) {
  return llvm::all_of(ops, [&](Operation *op) {
    auto loop = dyn_cast<scf::ForOp>(op);
    if (!loop || loop->getNumResults() > 0)
      return isPlain(op);
    return lines.contains(loop) || consistOf(lines, getOperations(loop));
  });
}

/// Whether iterations touch elements of their own of all that is written, when
/// all accesses are in such loops.
static bool areIndependent(const LineLoops &lines, ArrayRef<Access> accesses) {
  auto isOfLine = [&](const Access &access, int64_t place) {
    for (Operation *op = access.op; op; op = op->getParentOp())
      if (auto loop = dyn_cast<scf::ForOp>(op); loop && lines.contains(loop))
        return access.indices[place] == loop.getInductionVar();
    return false;
  };
  return llvm::all_of(accesses, [&](const Access &written) {
    auto alloc = written.buffer.getDefiningOp<memref::AllocOp>();
    if (!written.isWrite)
      return true;
    if (!alloc)
      return false;
    // One of each iteration.
    auto around = dyn_cast<scf::ForOp>(alloc->getParentOp());
    if (around && lines.contains(around))
      return true;
    auto isIn = [&](int64_t place) {
      return llvm::all_of(accesses, [&](const Access &access) {
        if (access.buffer != written.buffer)
          return findRoot(access.buffer) != written.buffer;
        return isOfLine(access, place);
      });
    };
    return llvm::any_of(llvm::seq<int64_t>(written.indices.size()), isIn);
  });
}

/// Loops that have the same place in all accesses of something that is written,
/// and that all of `ops` can be brought into.
LineLoops Lines::findLoops(const Operations &ops) const {
  SmallVector<Access> accesses = findAccesses(ops);
  for (const Access &written : accesses) {
    if (!written.isWrite)
      continue;
    for (int64_t place : llvm::seq<int64_t>(written.indices.size())) {
      LineLoops lines;
      bool isCandidate = llvm::all_of(accesses, [&](const Access &access) {
        if (access.buffer != written.buffer)
          return true;
        auto number = dyn_cast<BlockArgument>(access.indices[place]);
        auto loop = number
                        ? dyn_cast<scf::ForOp>(number.getOwner()->getParentOp())
                        : scf::ForOp();
        if (!loop || loop.getInductionVar() != number ||
            llvm::none_of(ops,
                          [&](Operation *op) { return op->isAncestor(loop); }))
          return false;
        lines.insert(loop);
        return areAlike(lines.front(), loop);
      });
      if (isCandidate && areAlike(lines.front(), lines.front()) &&
          consistOf(lines, ops) && areIndependent(lines, accesses))
        return lines;
    }
  }
  return {};
}

bool Lines::shareBuffers(ImplicitLocOpBuilder &b) {
  SmallVector<memref::AllocOp> allocs(
      nest.getBody()->getOps<memref::AllocOp>());
  if (allocs.empty())
    return true;
  if (!isConstantIntValue(nest.getLowerBound(), 0) ||
      !isConstantIntValue(nest.getStep(), 1))
    return false;
  for (memref::AllocOp alloc : allocs) {
    MemRefType type = alloc.getType();
    SmallVector<int64_t> shape(type.getShape());
    SmallVector<Value> sizes(alloc.getDynamicSizes());
    std::optional<int64_t> count = getConstantIntValue(nest.getUpperBound());
    shape.insert(shape.begin(), count.value_or(ShapedType::kDynamic));
    if (!count)
      sizes.insert(sizes.begin(), nest.getUpperBound());
    b.setInsertionPoint(nest);
    Value shared = memref::AllocOp::create(
        b, MemRefType::get(shape, type.getElementType()), sizes);
    b.setInsertionPointAfter(nest);
    memref::DeallocOp::create(b, shared);
    for (Operation *user : llvm::make_early_inc_range(alloc->getUsers())) {
      SmallVector<Value> indices = {nest.getInductionVar()};
      b.setInsertionPoint(user);
      if (auto load = dyn_cast<memref::LoadOp>(user)) {
        llvm::append_range(indices, load.getIndices());
        load.replaceAllUsesWith(
            memref::LoadOp::create(b, shared, indices).getResult());
      } else if (auto store = dyn_cast<memref::StoreOp>(user)) {
        llvm::append_range(indices, store.getIndices());
        memref::StoreOp::create(b, store.getValue(), shared, indices);
      }
      user->erase();
    }
    alloc.erase();
  }
  return true;
}

/// What `ops` do for line `number`.
static void emitLine(ImplicitLocOpBuilder &b, const LineLoops &lines,
                     const Operations &ops, Value number, IRMapping &mapping) {
  for (Operation *op : ops) {
    auto inner = dyn_cast<scf::ForOp>(op);
    if (!inner) {
      b.clone(*op, mapping);
    } else if (lines.contains(inner)) {
      mapping.map(inner.getInductionVar(), number);
      for (Operation *each : getOperations(inner))
        b.clone(*each, mapping);
    } else {
      auto around =
          scf::ForOp::create(b, mapping.lookupOrDefault(inner.getLowerBound()),
                             mapping.lookupOrDefault(inner.getUpperBound()),
                             mapping.lookupOrDefault(inner.getStep()));
      mapping.map(inner.getInductionVar(), around.getInductionVar());
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(around.getBody());
      emitLine(b, lines, getOperations(inner), number, mapping);
    }
  }
}

bool Lines::run() {
  if (nest->getNumResults() > 0 || !isKnown())
    return false;
  ImplicitLocOpBuilder b(nest.getLoc(), nest);
  SmallVector<scf::ForOp> parallel;
  Operations ops = {nest};
  for (LineLoops lines = findLoops(ops); !lines.empty();
       lines = findLoops(ops)) {
    if (parallel.empty() && !shareBuffers(b))
      return false;
    scf::ForOp loop = lines.front();
    b.setInsertionPoint(ops.front());
    auto outer = scf::ForOp::create(b, loop.getLowerBound(),
                                    loop.getUpperBound(), loop.getStep());
    b.setInsertionPointToStart(outer.getBody());
    IRMapping mapping;
    emitLine(b, lines, ops, outer.getInductionVar(), mapping);
    for (Operation *op : llvm::reverse(ops))
      op->erase();
    if (parallel.empty())
      nest = outer;
    parallel.push_back(outer);
    ops = getOperations(outer);
  }
  if (parallel.empty())
    return false;

  SmallVector<Value> low, high, step;
  for (scf::ForOp loop : parallel) {
    low.push_back(loop.getLowerBound());
    high.push_back(loop.getUpperBound());
    step.push_back(loop.getStep());
  }
  b.setInsertionPoint(nest);
  scf::ParallelOp::create(
      b, low, high, step,
      [&](OpBuilder &builder, Location, ValueRange numbers) {
        IRMapping mapping;
        for (auto [loop, number] : llvm::zip(parallel, numbers))
          mapping.map(loop.getInductionVar(), number);
        for (Operation *op : getOperations(parallel.back()))
          builder.clone(*op, mapping);
      });
  nest->erase();
  return true;
}

bool fovea::attn::separateLines(scf::ForOp loop) { return Lines(loop).run(); }
