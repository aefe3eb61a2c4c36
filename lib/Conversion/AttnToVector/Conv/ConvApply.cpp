//===- ConvApply.cpp - Loops of attn.conv_apply ---------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows that rounding may have spoilt in the product are computed again. And
// those that read values that are no finite numbers, for which products read
// zeros, get NaN.
//
//===----------------------------------------------------------------------===//

#include "ConvKernel.h"
#include "fovea/Kernels/ConvAlgebra.h"
#include "fovea/Kernels/RuntimeCalls.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;
using namespace fovea::attn::conv;

namespace {
class ConvApply : public ConvKernel {
public:
  ConvApply(ConvBuilder &b, ConvValues &values, ConvApplyOp op,
            function_ref<std::unique_ptr<ConvProduct>(ConvTables &)> allocate)
      : op(op), b(b), t(b, values), product(allocate(t)) {}

private:
  void emitHead() override;
  void countRows(Value count);
  void emitExactRows(const ConvMarks::Marked &marked);
  void emitExactRow(RowWeights &weights, Value row, Value sums);
  void addRun(RowWeights &weights, Value lastKey, Value count, Value sums);
  void spoilRows();
  Value isSpoilt(Value token);
  Value spoilRow(Value row, Value key);

  ConvApplyOp op;
  ConvBuilder &b;
  ConvTables t;
  std::unique_ptr<ConvProduct> product;
};
} // namespace

void ConvApply::emitHead() {
  t.prepare();
  product->emit();
  ConvMarks::Marked marked =
      t.marks.judge([&](Value block, Value first, Value end) {
        return product->judgeBlock(block, first, end);
      });
  countRows(marked.count);
  emitExactRows(marked);
  spoilRows();
}

/// Reports how many rows are computed again.
void ConvApply::countRows(Value count) {
  RuntimeCalls::emitCall(
      b, op->getParentOfType<ModuleOp>(), "fovea_rt_count_recomputed",
      /*resultType=*/Type(),
      arith::IndexCastOp::create(b, b.getI64Type(), count).getResult());
  b.storeIndex(count, op.getRecomputed(), {b.batch, b.head});
}

//===----------------------------------------------------------------------===//
// Exact rows
//===----------------------------------------------------------------------===//

void ConvApply::emitExactRows(const ConvMarks::Marked &marked) {
  b.ifThen(b.less(b.index(0), marked.count), [&] {
    t.profiles.prepareScores(marked.end);
    b.forAll({b.ceilDiv(marked.end, kExactRows)}, [&](ValueRange task) {
      Value sums = b.scratch({b.paddedWidth}, b.getStateType());
      RowWeights weights(t);
      Value first = b.mul(task[0], kExactRows);
      Value end = b.min(b.add(first, kExactRows), marked.end);
      b.loop(first, end, 1, [&](Value row) {
        b.ifThen(t.marks.isMarked(row),
                 [&] { emitExactRow(weights, row, sums); });
      });
    });
  });
}

void ConvApply::emitExactRow(RowWeights &weights, Value row, Value sums) {
  b.clearRow(sums, {});
  Value top = b.broadcast(weights.findTop(row));
  Value normaliser = weights.sum(row, top, [&](Value firstLag, Value count) {
    addRun(weights, b.sub(row, firstLag), count, sums);
  });
  Value divisor = b.broadcast(getDivisor(b, normaliser));
  b.overColumns(b.width, /*inits=*/{}, [&](Value column, ValueRange) {
    Value mean = arith::DivFOp::create(b, b.loadVector(sums, column), divisor);
    b.storeColumns(mean, op.getOutput(), {b.batch, b.head, row}, column);
    return Values();
  });
}

/// Adds the keys of a run of weights, last to first.
void ConvApply::addRun(RowWeights &weights, Value lastKey, Value count,
                       Value sums) {
  // A tile of columns at a time, which stays in registers.
  int64_t lanes = b.getLanes(), vectors = b.plan.columnMultiple / lanes;
  b.loop(
      b.index(0), b.index(b.paddedWidth), vectors * lanes, [&](Value column) {
        Values tileSums;
        for (int64_t k = 0; k < vectors; ++k)
          tileSums.push_back(b.loadVector(sums, b.add(column, k * lanes)));
        tileSums = b.loop(
            b.index(0), count, 1, tileSums, [&](Value at, ValueRange carried) {
              Values next(carried);
              Value weight = b.broadcast(weights.load(at));
              Value key = b.sub(lastKey, at);
              for (int64_t k = 0; k < vectors; ++k)
                next[k] =
                    b.fma(weight, t.values.load(key, b.add(column, k * lanes)),
                          next[k]);
              return next;
            });
        for (int64_t k = 0; k < vectors; ++k)
          b.storeVector(tileSums[k], sums, b.add(column, k * lanes));
      });
}

//===----------------------------------------------------------------------===//
// Spoilt rows
//===----------------------------------------------------------------------===//

void ConvApply::spoilRows() {
  Value spoilt = t.values.firstSpoiltToken();
  b.ifThen(b.less(spoilt, b.numTokens), [&] {
    t.profiles.prepareScores(b.numTokens);
    Value first = b.max(spoilt, t.segments.first());
    size_t numBuffers = b.getNumBuffers();
    Value tokens = b.allocate(b.getIndexType(), {b.numTokens});
    Value count = b.listIf(first, b.numTokens, tokens,
                           [&](Value token) { return isSpoilt(token); });
    auto spoilBy = [&](Value row, Value key, Value isOpen) {
      Value isReached = b.both(isOpen, b.less(key, b.add(row, 1)));
      return b.select(
          isReached, isOpen.getType(), [&] { return spoilRow(row, key); },
          [&] { return isOpen; });
    };
    b.forAll({b.ceilDiv(b.sub(b.numTokens, first), kExactRows)},
             [&](ValueRange task) {
               Value begin = b.add(first, b.mul(task[0], kExactRows));
               Value end = b.min(b.add(begin, kExactRows), b.numTokens);
               b.loop(begin, end, 1, [&](Value row) {
                 // The latest first: often it spoils the whole row.
                 Value yes = arith::ConstantIntOp::create(b, 1, /*width=*/1);
                 b.loop(b.index(0), count, 1, yes,
                        [&](Value done, ValueRange isOpen) {
                          Value place = b.sub(b.sub(count, b.index(1)), done);
                          Value key = b.loadIndex(tokens, place);
                          return Values{spoilBy(row, key, isOpen[0])};
                        });
               });
             });
    b.freeBuffers(numBuffers);
  });
}

/// Whether a token has a value that is no finite number.
Value ConvApply::isSpoilt(Value token) {
  auto addRests = [&](Value column, ValueRange running) {
    Value numbers = t.values.loadOriginal(token, column);
    return Values{b.fadd(running[0], b.fsub(numbers, numbers))};
  };
  Value rests = b.overColumns(b.width, b.splat(0.0), addRests)[0];
  return b.reduce(vector::CombiningKind::OR,
                  b.compare(arith::CmpFPredicate::UNO, rests, rests));
}

/// Makes a row NaN in the columns in which a key is no finite number, if it
/// reads the key. Returns whether it has numbers left.
Value ConvApply::spoilRow(Value row, Value key) {
  Value reads = t.profiles.isRead(t.segments.of(key), b.sub(row, key));
  Value none = b.firstLanes(b.index(0)), zeros = b.splat(0.0);
  Value at[] = {b.batch, b.head, row};
  auto spoilColumns = [&](Value column, ValueRange left) {
    Value numbers = t.values.loadOriginal(key, column);
    Value rests = b.select(reads, b.fsub(numbers, numbers), zeros);
    Value old = b.loadColumns(op.getOutput(), at, column);
    Value isNumber = b.compare(arith::CmpFPredicate::ORD, rests, rests);
    Value next = arith::SelectOp::create(b, isNumber, old, rests);
    b.storeColumns(next, op.getOutput(), at, column);
    isNumber = b.compare(arith::CmpFPredicate::ORD, next, next);
    Value exists = b.firstLanes(b.sub(b.index(b.width), column));
    isNumber = arith::AndIOp::create(b, isNumber, exists);
    return Values{arith::OrIOp::create(b, left[0], isNumber)};
  };
  return b.reduce(vector::CombiningKind::OR,
                  b.overColumns(b.width, none, spoilColumns)[0]);
}

void fovea::attn::conv::emitConvApply(
    ConvBuilder &b, ConvValues &values, ConvApplyOp op,
    function_ref<std::unique_ptr<ConvProduct>(ConvTables &)> allocate) {
  emitConvHeads(b, /*headsOfTask=*/b.index(1), [&] {
    return std::make_unique<ConvApply>(b, values, op, allocate);
  });
  b.freeBuffers(0);
}
