//===- VQDistanceSums.cpp - Gradients of terms by distance ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/VQDistanceSums.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Rows that a thread stores in one task.
static constexpr int64_t kRows = 64;

static ArrayRef<int64_t> getShape(Value memref) {
  return cast<MemRefType>(memref.getType()).getShape();
}

void VQDistanceSums::allocate(Value numParts) {
  Value leading[] = {b.extent(op.getQuery(), 0), b.extent(op.getQuery(), 1),
                     numParts};
  if (Value terms = op.getRelativeKeys())
    keys =
        loops.allocate(leading, getShape(terms).drop_front(), b.getStateType());
  Value terms = keys ? op.getRelativeKeys() : op.getDistanceBias();
  distances = loops.allocate(leading, getShape(terms)[1], b.getStateType());
}

/// `body(number, sum)` for the numbers `low .. high - 1`, from `sum` on.
static Value addUp(KernelBuilder &k, Value low, Value high, Value sum,
                   function_ref<Value(Value, Value)> body) {
  return k.loop(low, high, 1, sum, [&](Value number, ValueRange sum) {
    return Values{body(number, sum[0])};
  })[0];
}

/// The same over the heads that `set` of a term is for.
static Value addHeads(KernelBuilder &k, Value term, Value set, Value heads,
                      function_ref<Value(Value, Value)> body) {
  bool isShared = getShape(term).front() == 1;
  Value begin = isShared ? k.index(0) : set;
  Value end = isShared ? heads : k.add(set, 1);
  return addUp(k, begin, end, k.splat(0.0), body);
}

/// `sums` are [B, H, parts, ..] and `gradient` [H or 1, ..].
void VQDistanceSums::storeSums(Value sums, Value gradient, double factor) {
  Value zero = b.index(0), batches = b.extent(sums, 0),
        heads = b.extent(sums, 1), parts = b.extent(sums, 2);
  ArrayRef<int64_t> shape = getShape(gradient);
  auto storeRow = [&](ValueRange at) {
    b.forColumns(shape.back(), [&](KernelBuilder &k, Value column) {
      Value total =
          addHeads(k, gradient, at[0], heads, [&](Value head, Value sum) {
            return addUp(k, zero, batches, sum, [&](Value batch, Value sum) {
              return addUp(k, zero, parts, sum, [&](Value part, Value sum) {
                Values place = {batch, head, part};
                llvm::append_range(place, at.drop_front());
                place.push_back(column);
                return k.fadd(sum, k.loadVector(sums, place));
              });
            });
          });
      Values place(at);
      place.push_back(column);
      k.storeVector(k.fmul(total, k.splat(factor)), gradient, place);
    });
  };
  if (shape.size() == 2)
    b.forTeams({b.extent(gradient, 0)}, storeRow);
  else
    b.forRows({b.extent(gradient, 0)}, b.extent(gradient, 1), kRows, storeRow);
}

void VQDistanceSums::store(double keyFactor) {
  if (op.getDDistanceBias())
    storeSums(distances, op.getDDistanceBias(), /*factor=*/1.0);
  Value dBias = op.getDRelativeBias(), terms = op.getRelativeKeys();
  if (!dBias)
    return;
  storeSums(keys, op.getDRelativeKeys(), keyFactor);
  int64_t numTerms = getShape(terms)[1], width = getShape(terms)[2];
  Value heads = b.extent(distances, 1);
  Value ofHeads = loops.allocate(heads, numTerms, b.getStateType());
  storeSums(distances, ofHeads, op.getScale().convertToDouble());
  b.forTeams({b.extent(dBias, 0)}, [&](ValueRange at) {
    b.forColumns(width, [&](KernelBuilder &k, Value column) {
      Value total =
          addHeads(k, dBias, at[0], heads, [&](Value head, Value sum) {
            Value set = k.broadcastIndex(terms, 0, head);
            auto addDistance = [&](Value distance, Value sum) {
              Value key = k.loadVector(terms, {set, distance, column});
              Value weight = k.loadScalar(ofHeads, {head, distance});
              return k.fma(k.broadcast(weight), key, sum);
            };
            return addUp(k, k.index(0), k.index(numTerms), sum, addDistance);
          });
      k.storeVector(total, dBias, {at[0], column});
    });
  });
}
