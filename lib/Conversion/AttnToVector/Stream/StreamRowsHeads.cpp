//===- StreamRowsHeads.cpp - Key heads that read pages together -----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pages have rows of several heads beside each other, or one head's rows behind
// another's. A head alone would read pieces of them, which takes memory twice
// as long with the prefetchers of a Zen 3: heads that have 4 KB of a row in all
// are one task and go through it together. CPUs with 32 registers read pages of
// elements as wide as the state well without that, and narrower ones as slowly.
//
//===----------------------------------------------------------------------===//

#include "StreamRowsKernel.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace fovea::attn;

/// Key heads whose sets are one task, at most.
int64_t StreamRowsKernel::getHeadBlock() {
  constexpr int64_t kBytes = 4096;
  for (const StreamSource &source : op.getSourceList())
    if (!source.attr.getHasListedPositions() || source.codes ||
        cast<MemRefType>(source.rowList.getType()).getDimSize(1) != 1)
      return 1;
  auto values = cast<MemRefType>(op.getValues().front().getType());
  bool isNarrow = values.getElementType() != b.getStateType();
  if ((!hasFewRegisters && !isNarrow) || !op.getScores().empty())
    return 1;
  int64_t rowBytes = values.getDimSize(3) *
                     values.getElementType().getIntOrFloatBitWidth() / 8;
  int64_t most = kMaxRows / headRows, heads = values.getDimSize(1);
  if (!ShapedType::isDynamic(heads))
    most = std::clamp<int64_t>(heads, 1, most);
  return std::clamp<int64_t>(kBytes / std::max<int64_t>(rowBytes, 1), 1, most);
}

/// The view of `memref` without what lies before `first`.
static Value rowsFrom(KernelBuilder &b, Value memref, Value first) {
  auto type = cast<MemRefType>(memref.getType());
  auto zero = b.getIndexAttr(0), one = b.getIndexAttr(1);
  SmallVector<OpFoldResult> offsets(type.getRank(), zero),
      sizes = memref::getMixedSizes(b, b.getLoc(), memref),
      strides(type.getRank(), one);
  offsets.front() = first;
  sizes.front() = b.sub(b.extent(memref, 0), first);
  return memref::SubViewOp::create(b, memref, offsets, sizes, strides);
}

/// The state of each head has as many rows as a head of several may have.
void StreamRowsKernel::enterHead(Value head) {
  headOfTask = head;
  setHead = b.add(setHead, head);
  keyHead = setHead;
  std::pair<Value *, int64_t> buffers[] = {
      {&packed, paddedWidth}, {&laneSums, lanes}, {&outputs, 1},
      {&maxima, 1},           {&sums, 1},         {&queryOf, 1}};
  for (auto [buffer, perRow] : buffers)
    if (*buffer)
      *buffer = rowsFrom(b, *buffer, b.mul(head, headRows * perRow));
}

/// Calls `body` for every head of the task.
void StreamRowsKernel::forHeads(function_ref<void()> body) {
  if (headBlock == 1)
    return body();
  Value *changed[] = {&packed,  &laneSums, &outputs, &maxima,    &sums,
                      &queryOf, &setHead,  &keyHead, &headOfTask};
  SmallVector<Value> saved =
      llvm::map_to_vector(changed, [](Value *value) { return *value; });
  b.loop(b.index(0), taskHeads, 1, [&](Value head) {
    enterHead(head);
    body();
  });
  for (auto [value, before] : llvm::zip(changed, saved))
    *value = before;
}
