//===- DeviceChecks.cpp - Checks of arrays on a GPU -----------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceChecks.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

DeviceChecks::DeviceChecks(RuntimeCalls &calls, Operation *op)
    : calls(calls), builder(op),
      b(op->getLoc(), builder, builder.getF32Type(), /*lanes=*/0), op(op) {}

KernelBuilder::Values DeviceChecks::getExtents(Value memref) {
  Values extents;
  for (int64_t dim = 0; dim < cast<MemRefType>(memref.getType()).getRank();
       ++dim)
    extents.push_back(b.extent(memref, dim));
  return extents;
}

void DeviceChecks::emit(StringRef rule, DeviceCheck kind,
                        ArrayRef<Value> extents,
                        function_ref<Finding(ValueRange)> find) {
  GPURuntimeCalls gpu(op->getParentOfType<ModuleOp>());
  Value failure =
      gpu.getFailure(op->getParentOfType<func::FuncOp>(), /*make=*/true);
  Value number, report;
  {
    // Once, even if the check is in a loop.
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfterValue(failure);
    Value kindOfRule = arith::ConstantIntOp::create(
        b, static_cast<int64_t>(kind), /*width=*/32);
    number =
        gpu.call(b, b.getLoc(), "fovea_rt_gpu_rule",
                 {calls.getTextAddress(b, rule), kindOfRule}, b.getI64Type());
    report = gpu.makeFailureWords(b, b.getLoc(),
                                  gpu.call(b, b.getLoc(), "fovea_rt_gpu_report",
                                           number, gpu.pointerType));
  }
  auto store = [&](Value fact, Value words, int64_t word) {
    if (fact.getType().isIndex())
      fact = arith::IndexCastOp::create(b, b.getI64Type(), fact);
    memref::StoreOp::create(b, fact, words, b.index(word));
  };
  // Any number of threads lower the first word to the first place.
  parallelLoop(b, extents, [&](ValueRange point) {
    b.ifThen(find(point).isWrong, [&] {
      Value place = b.index(0);
      for (auto [at, extent] : llvm::zip_equal(point, extents))
        place = b.add(b.mul(place, extent), at);
      memref::AtomicRMWOp::create(
          b, arith::AtomicRMWKind::minu,
          arith::IndexCastOp::create(b, b.getI64Type(), place), failure,
          b.index(0));
    });
  });
  // One thread tells what is wrong there; the rule is last.
  parallelLoop(b, {b.index(1)}, [&](ValueRange) {
    Value place = b.loadIndex(failure, b.index(0));
    Value hasFailed =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, place, b.index(0));
    b.ifThen(hasFailed, [&] {
      Values facts = find(splitNumber(b, place, extents)).facts;
      assert(facts.size() + 2 <= kFailureWords);
      store(place, report, 0);
      for (auto [i, fact] : llvm::enumerate(facts))
        store(fact, report, i + 2);
      Value told = arith::AddIOp::create(
          b, number, arith::ConstantIntOp::create(b, 1, /*width=*/64));
      store(told, report, 1);
      store(told, failure, 1);
    });
  });
}

/// Whether a number is out of `least` to below `bound`.
static Value isOut(KernelBuilder &b, Value number, int64_t least, Value bound) {
  return b.either(
      b.less(number, b.index(least)),
      arith::CmpIOp::create(b, arith::CmpIPredicate::sge, number, bound));
}

void DeviceChecks::checkCodes(CheckCodesOp op) {
  Value codes = op.getCodes();
  Values extents = getExtents(codes);
  DeviceCheck kind = extents.size() == 4 ? DeviceCheck::Rows
                     : op.getOrAbsent()  ? DeviceCheck::CodesOrAbsent
                                         : DeviceCheck::Codes;
  emit(op.getName(), kind, extents, [&](ValueRange point) -> Finding {
    Value code = b.loadIndex(codes, point);
    Values facts(point);
    facts.append({op.getNumCodes(), code});
    return {
        isOut(b, code, kind == DeviceCheck::Codes ? 0 : -1, op.getNumCodes()),
        facts};
  });
}

void DeviceChecks::checkIntervals(CheckIntervalsOp op) {
  emit(op.getName(), DeviceCheck::Intervals, getExtents(op.getFirst()),
       [&](ValueRange point) -> Finding {
         Value first = b.loadIndex(op.getFirst(), point);
         Value last = b.loadIndex(op.getLast(), point);
         Values facts(point);
         facts.append({op.getBound(), first, last});
         return {b.either(isOut(b, first, 0, op.getBound()),
                          b.either(b.less(last, first),
                                   isOut(b, last, 0, op.getBound()))),
                 facts};
       });
}

void DeviceChecks::checkSizes(Value sizes, Value numTokens, StringRef rule) {
  emit(rule, DeviceCheck::Sizes, getExtents(sizes),
       [&](ValueRange point) -> Finding {
         Value basis = point[2];
         Value isFirst = b.equal(basis, b.index(0));
         Value size = b.loadIndex(sizes, point);
         // The basis before has more, and no basis is before the first one.
         Value before = b.loadIndex(
             sizes, {point[0], point[1], b.max(b.sub(basis, b.index(1)), 0)});
         Value most = b.select(isFirst, numTokens, b.sub(before, b.index(1)));
         most = b.max(most, 0);
         Values facts(point);
         facts.append({most, size});
         return {isOut(b, size, 0, b.add(most, 1)), facts};
       });
}

void DeviceChecks::checkNodes(Value level, Value index, Value tree,
                              TreeAttr shape, bool mustCover, StringRef rule) {
  int64_t ratio = shape.getRatio(), levels = shape.getLevels();
  SmallVector<int64_t> tokensOfNode = {1};
  for (int64_t i = 0; i < levels; ++i)
    tokensOfNode.push_back(tokensOfNode.back() * ratio);
  Value roots = b.div(b.extent(tree, 1), shape.getNodesPerRoot());
  Value tokens = b.mul(roots, tokensOfNode.back());
  Value count = b.extent(level, 1);

  struct Node {
    Value level, index, isPresent, first, end, exists;
  };
  // Node `at` of a list, in which there is none at -1 and `count`.
  auto getNode = [&](Value batch, Value at) -> Node {
    Value isListed = b.both(
        arith::CmpIOp::create(b, arith::CmpIPredicate::sge, at, b.index(0)),
        b.less(at, count));
    Value absent = b.index(-1);
    auto load = [&](Value list) {
      return b.select(
          isListed, b.getIndexType(),
          [&] { return b.loadIndex(list, {batch, at}); },
          [&] { return absent; });
    };
    Node node;
    node.level = load(level);
    node.index = load(index);
    node.isPresent = b.select(
        b.both(b.equal(node.level, absent), b.equal(node.index, absent)),
        arith::ConstantIntOp::create(b, 0, /*width=*/1),
        arith::ConstantIntOp::create(b, 1, /*width=*/1));
    Value segment = b.index(1);
    for (int64_t l = 1; l <= levels; ++l)
      segment = b.select(b.equal(node.level, b.index(l)),
                         b.index(tokensOfNode[l]), segment);
    node.first = b.mul(node.index, segment);
    node.end = b.add(node.first, segment);
    node.exists =
        b.both(b.both(b.less(absent, node.level),
                      b.less(node.level, b.index(levels + 1))),
               b.both(b.less(absent, node.index), b.less(node.first, tokens)));
    return node;
  };
  // With one place more than there are nodes, for the end.
  Values extents = {b.extent(level, 0), b.add(count, mustCover ? 1 : 0)};
  emit(rule, DeviceCheck::Nodes, extents, [&](ValueRange point) -> Finding {
    Value at = point[1];
    Node node = getNode(point[0], at);
    auto no = [&](Value condition) {
      return arith::XOrIOp::create(
                 b, condition, arith::ConstantIntOp::create(b, 1, /*width=*/1))
          .getResult();
    };
    Value isWrong = b.both(node.isPresent, no(node.exists));
    Value next = b.index(0), follows = b.index(0);
    if (mustCover) {
      Node before = getNode(point[0], b.sub(at, b.index(1)));
      Value isFirst = b.equal(at, b.index(0));
      next = b.select(before.isPresent, before.end, b.index(0));
      Value isLate = b.both(no(isFirst), no(before.isPresent));
      follows = b.select(isLate, b.index(1), b.index(0));
      isWrong = b.either(
          isWrong, b.both(node.isPresent,
                          b.either(isLate, no(b.equal(node.first, next)))));
      // Where nodes end, they must have covered everything. The end is found
      // wrong at the place of the first absent node.
      Value isEnd = b.both(no(node.isPresent), b.either(isFirst, no(isLate)));
      isWrong = b.either(isWrong, b.both(isEnd, no(b.equal(next, tokens))));
    }
    Value place = b.select(node.isPresent, at, count);
    return {isWrong,
            {point[0], place, node.level, node.index, next, follows, roots,
             b.index(ratio), b.index(levels), count}};
  });
}
