//===- LevelGroups.cpp - Levels that are computed together ----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LevelGroups.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace fovea::attn;

/// Whether both are parts of one buffer that are known to be apart, as the
/// levels of pooled summaries are.
static bool areDisjointParts(Value a, Value b) {
  auto first = a.getDefiningOp<memref::SubViewOp>();
  auto second = b.getDefiningOp<memref::SubViewOp>();
  if (!first || !second || first.getSource() != second.getSource())
    return false;
  auto endsBefore = [](memref::SubViewOp x, memref::SubViewOp y, int64_t dim) {
    int64_t offset = x.getStaticOffsets()[dim], size = x.getStaticSizes()[dim],
            stride = x.getStaticStrides()[dim],
            start = y.getStaticOffsets()[dim];
    return !ShapedType::isDynamic(offset) && !ShapedType::isDynamic(size) &&
           !ShapedType::isDynamic(start) && stride == 1 &&
           offset + size <= start;
  };
  for (int64_t dim = 0, rank = first.getSourceType().getRank(); dim < rank;
       ++dim)
    if (endsBefore(first, second, dim) || endsBefore(second, first, dim))
      return true;
  return false;
}

/// Whether `op` may write any of `values`, or touch one at all if `read`.
static bool mayTouch(Operation *op, ArrayRef<Value> values, bool read,
                     AliasAnalysis &aliases) {
  std::optional<SmallVector<MemoryEffects::EffectInstance>> effects =
      getEffectsRecursively(op);
  if (!effects)
    return true;
  for (const MemoryEffects::EffectInstance &effect : *effects) {
    // Memory that `op` itself brings to life is none of the others'.
    if (isa<MemoryEffects::Allocate>(effect.getEffect()) ||
        (isa<MemoryEffects::Read>(effect.getEffect()) && !read))
      continue;
    Value touched = effect.getValue();
    if (!touched || llvm::any_of(values, [&](Value value) {
          return !aliases.alias(touched, value).isNo() &&
                 !areDisjointParts(touched, value);
        }))
      return true;
  }
  return false;
}

bool fovea::attn::mayRunAfter(DestinationStyleOpInterface first, Operation *op,
                              Value shared, AliasAnalysis &aliases) {
  SmallVector<Value> reads = first.getDpsInputs(), writes;
  for (Value init : first.getDpsInits())
    if (init != shared)
      writes.push_back(init);
  return !mayTouch(op, reads, /*read=*/false, aliases) &&
         !mayTouch(op, writes, /*read=*/true, aliases);
}
