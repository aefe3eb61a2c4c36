//===- FirstTrips.cpp - What loops do at first ----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FirstTrips.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/Support/CheckedArithmetic.h"
#include <limits>

using namespace mlir;
using namespace fovea;
using namespace fovea::explanation;

using Facts = DenseMap<Operation *, FunctionOp>;

static std::optional<int64_t> countTrips(scf::ForOp loop) {
  std::optional<APInt> trips = loop.getStaticTripCount();
  if (!trips)
    return std::nullopt;
  return static_cast<int64_t>(
      trips->getLimitedValue(std::numeric_limits<int64_t>::max()));
}

/// Copies the body of `loop` before it.
static void copyFirstTrip(scf::ForOp loop, Facts &facts) {
  OpBuilder b(loop);
  IRMapping mapping;
  mapping.map(loop.getInductionVar(), loop.getLowerBound());
  mapping.map(loop.getRegionIterArgs(), loop.getInitArgs());
  std::optional<int64_t> trips = countTrips(loop);
  if (trips == 0)
    return;
  for (Operation &op : loop.getBody()->without_terminator()) {
    Operation *copy = b.clone(op, mapping);
    // What follows from the first index is a number.
    SmallVector<Value> folded;
    if (!copy->getNumRegions() && succeeded(b.tryFold(copy, folded)) &&
        !folded.empty()) {
      mapping.map(op.getResults(), folded);
      copy->erase();
      continue;
    }
    SmallVector<Operation *> originals, copies;
    op.walk([&](Operation *inner) { originals.push_back(inner); });
    copy->walk([&](Operation *inner) { copies.push_back(inner); });
    for (auto [original, copied] : llvm::zip_equal(originals, copies)) {
      FunctionOp fact = facts.lookup(original);
      fact.op = copied;
      fact.trips = fact.trips && trips ? llvm::checkedMul(*fact.trips, *trips)
                                       : std::nullopt;
      facts[copied] = fact;
    }
  }
}

FirstTrips explanation::unrollFirstTrips(FunctionOpInterface function) {
  FirstTrips result;
  result.module = function->getParentOfType<ModuleOp>()->clone();
  result.function = cast<FunctionOpInterface>(
      SymbolTable::lookupSymbolIn(*result.module, function.getName()));
  Facts facts;
  unsigned number = 0;
  result.function->walk([&](Operation *op) { facts[op] = {op, number++}; });
  // Copies hold the loops of their bodies, which are copied in their turn.
  llvm::SmallPtrSet<Operation *, 8> done;
  auto findLoop = [&] {
    scf::ForOp found;
    result.function->walk<WalkOrder::PreOrder>([&](scf::ForOp loop) {
      if (!done.insert(loop).second)
        return WalkResult::skip();
      found = loop;
      return WalkResult::interrupt();
    });
    return found;
  };
  while (scf::ForOp loop = findLoop())
    copyFirstTrip(loop, facts);
  result.function->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (done.contains(op))
      return WalkResult::skip();
    // Not the numbers that copies folded to.
    if (auto fact = facts.find(op); fact != facts.end())
      result.ops.push_back(fact->second);
    return WalkResult::advance();
  });
  return result;
}
