//===- ConvValues.cpp - Values of sums of convolutions --------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ConvValues.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

/// Whether products cannot read the values where they are.
static bool needsCopy(ConvBuilder &b) {
  auto type = cast<MemRefType>(b.value.getType());
  // What takes the place of values that are not all finite is as wide.
  auto plain = MemRefType::get(type.getShape(), type.getElementType());
  return b.paddedWidth != b.width ||
         type.getElementType() != b.getStateType() ||
         !memref::CastOp::areCastCompatible(plain, type);
}

ConvValues::ConvValues(ConvBuilder &b, bool findsSpoilt)
    : memref(b.value), b(b), findsSpoilt(findsSpoilt), isPacked(needsCopy(b)) {
  Value batches = b.extent(b.value, 0), groups = b.extent(b.value, 1);
  if (areFoundByProducts()) {
    spoilt = b.allocate(b.getIndexType(), {batches, b.extent(b.basis, 1)});
    copies = allocateLike(b.numTokens);
    return;
  }
  spoilt = b.allocate(b.getIndexType(), {batches, groups});
  Value tasks = b.ceilDiv(b.numTokens, kTaskRows);
  Value marks = b.allocate(b.getI8Type(), {batches, groups, tasks});
  if (isPacked) {
    memref = allocateLike(b.numTokens);
    cleanAll(marks, memref);
    return;
  }
  cleanAll(marks, /*target=*/Value());
  Value first = findFirstOfAll(), isClean = b.equal(first, b.numTokens);
  copies = allocateLike(b.select(isClean, b.index(0), b.numTokens));
  b.ifThen(b.less(first, b.numTokens), [&] { cleanAll(marks, copies); });
  memref = memref::CastOp::create(b, b.value.getType(), copies);
  memref = b.select(isClean, b.value, memref);
}

Value ConvValues::allocateLike(Value tokens) {
  return b.allocate(b.getStateType(),
                    {b.extent(b.value, 0), b.extent(b.value, 1), tokens,
                     b.index(b.paddedWidth)});
}

/// Finds the first spoilt tokens, by marks of tasks; copies values to `target`,
/// if that is there.
void ConvValues::cleanAll(Value marks, Value target) {
  Value batches = b.extent(b.value, 0), groups = b.extent(b.value, 1);
  Value tasks = b.ceilDiv(b.numTokens, kTaskRows);
  b.forAll({batches, groups, tasks}, [&](ValueRange task) {
    Value first = b.mul(task[2], kTaskRows);
    Value end = b.min(b.add(first, kTaskRows), b.numTokens);
    Value none = b.firstLanes(b.index(0));
    Value isSpoilt =
        b.loop(first, end, 1, none, [&](Value row, ValueRange carried) {
          Value found = cleanRow(task[0], task[1], row, target);
          return Values{arith::OrIOp::create(b, found, carried[0])};
        })[0];
    isSpoilt = b.reduce(vector::CombiningKind::OR, isSpoilt);
    Value mark = arith::ExtUIOp::create(b, b.getI8Type(), isSpoilt);
    memref::StoreOp::create(b, mark, marks, task);
  });
  findSpoilt(marks);
}

/// Copies a row of values to `target`, if that is there, with zeros for those
/// that are no finite numbers; returns which ones these are, of all vectors
/// together.
Value ConvValues::cleanRow(Value batch, Value group, Value row, Value target) {
  auto cleanColumns = [&](Value column, ValueRange running) -> Values {
    Value numbers = b.loadColumns(b.value, {batch, group, row}, column);
    // Zeros, or NaN.
    Value rests = b.fsub(numbers, numbers);
    Value sums = b.fadd(running[0], rests);
    if (!target)
      return {sums};
    Value isFinite = b.compare(arith::CmpFPredicate::ORD, rests, rests);
    numbers = arith::SelectOp::create(b, isFinite, numbers, b.splat(0.0));
    b.storeVector(numbers, target, {batch, group, row, column});
    return {sums};
  };
  Value sums = b.overColumns(b.paddedWidth, b.splat(0.0), cleanColumns)[0];
  return b.compare(arith::CmpFPredicate::UNO, sums, sums);
}

/// Stores the first token of the first task of each head that has a mark.
void ConvValues::findSpoilt(Value marks) {
  b.forAll({b.extent(b.value, 0), b.extent(b.value, 1)}, [&](ValueRange head) {
    Value tasks = b.ceilDiv(b.numTokens, kTaskRows);
    Value first = b.loop(
        b.index(0), tasks, 1, b.numTokens, [&](Value done, ValueRange carried) {
          Value task = b.sub(b.sub(tasks, b.index(1)), done);
          Value at[] = {head[0], head[1], task};
          Value mark = b.loadIndex(marks, at);
          Value token = b.mul(task, kTaskRows);
          return Values{b.select(b.equal(mark, b.index(0)), carried[0], token)};
        })[0];
    b.storeIndex(first, spoilt, head);
  });
}

Value ConvValues::findFirstOfAll() {
  Value batches = b.extent(b.value, 0), groups = b.extent(b.value, 1);
  return b.loop(b.index(0), batches, 1, b.numTokens,
                [&](Value batch, ValueRange carried) {
                  return b.loop(b.index(0), groups, 1, carried,
                                [&](Value group, ValueRange carried) {
                                  Value own =
                                      b.loadIndex(spoilt, {batch, group});
                                  return Values{b.min(own, carried[0])};
                                });
                })[0];
}

/// The first token of the present head, from `first` on, that is not all finite
/// numbers, or N.
Value ConvValues::findSpoiltToken(Value first) {
  auto isClean = [&](ValueRange token) {
    Value no = arith::ConstantIntOp::create(b, 0, /*width=*/1);
    return b.select(
        b.less(token[0], b.numTokens), no.getType(),
        [&] {
          Value found = cleanRow(b.batch, b.group, token[0], /*target=*/{});
          found = b.reduce(vector::CombiningKind::OR, found);
          return b.equal(found, no);
        },
        [&] { return no; });
  };
  return b.loopWhile(first, isClean, [&](ValueRange token) {
    return Values{b.add(token[0], 1)};
  })[0];
}

void ConvValues::emitUntilClean(function_ref<void()> emitProduct,
                                function_ref<Value()> findSpoilt) {
  if (!areFoundByProducts())
    return emitProduct();
  // What is read turns to copies, with zeros, for the second turn.
  b.storeIndex(b.numTokens, spoilt, spoiltAt());
  auto clean = [&]() -> Value {
    emitProduct();
    Value firstToken = findSpoiltToken(findSpoilt());
    Value found = b.less(firstToken, b.numTokens);
    b.ifThen(found, [&] {
      b.forAllRows({}, [&](ValueRange, Value row) {
        cleanRow(b.batch, b.group, row, copies);
      });
      b.storeIndex(firstToken, spoilt, spoiltAt());
    });
    Value cleaned = memref::CastOp::create(b, b.value.getType(), copies);
    return b.select(found, cleaned, memref);
  };
  memref = b.loop(
      b.index(0), b.index(2), 1, b.value, [&](Value turn, ValueRange carried) {
        memref = carried[0];
        Value isNeeded = b.either(b.equal(turn, b.index(0)),
                                  b.less(firstSpoiltToken(), b.numTokens));
        return Values{b.select(isNeeded, b.value.getType(), clean,
                               [&] { return carried[0]; })};
      })[0];
}
