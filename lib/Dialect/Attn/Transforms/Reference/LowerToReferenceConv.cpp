//===- LowerToReferenceConv.cpp - Sums of convolutions as plain loops -----===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ReferenceBuilder.h"

using namespace mlir;
using namespace fovea::attn;

void fovea::attn::lowerToReference(ConvApplyOp op) {
  ReferenceBuilder ref(op);
  Value basis = op.getBasis(), sizes = op.getSizes(), value = op.getValue();
  Value numBases = ref.extent(basis, 2), numTokens = ref.extent(basis, 3);
  Value row = ref.allocate({cast<MemRefType>(value.getType()).getDimSize(3)});
  ref.forEach(ref.extent(basis, 0), [&](Value b) {
    ref.forEach(ref.extent(basis, 1), [&](Value h) {
      Value g = ref.keyHead(basis, value, h);
      ref.storeIndex(ref.index(0), op.getRecomputed(), {b, h});
      // Whether basis r reaches key j.
      auto reaches = [&](Value r, Value j) {
        return ref.lessOrEqual(numTokens,
                               ref.add(ref.loadIndex(sizes, {b, h, r}), j));
      };
      ref.forEach(numTokens, [&](Value i) {
        auto walk = [&](Value state, EntryVisitor visit) {
          auto visitKey = [&](Value j, Value state) {
            Value score = ref.accumulate(
                ref.index(0), numBases, ref.number(0.0),
                [&](Value r, Value sum) {
                  return ref.when(
                      reaches(r, j),
                      [&] {
                        return ref.addNumbers(
                            sum, ref.load(basis, {b, h, r, ref.sub(i, j)}));
                      },
                      sum);
                });
            Value counts = ref.both(reaches(ref.index(0), j),
                                    ref.isNotMinusInfinity(score));
            auto valueOf = [&](Value column) {
              return ref.load(value, {b, g, j, column});
            };
            return ref.when(
                counts, [&] { return visit({score, Value(), valueOf}, state); },
                state);
          };
          return ref.accumulate(ref.index(0), ref.add(i, ref.index(1)), state,
                                visitKey);
        };
        emitSoftmaxRow(ref, walk, row);
        ref.storeRow(row, op.getOutput(), {b, h, i});
      });
    });
  });
  op.erase();
}
