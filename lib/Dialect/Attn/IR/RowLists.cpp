//===- RowLists.cpp - Lists of rows that sources have ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpHelpers.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;

LogicalResult attn::detail::verifyBlockAxis(Operation *op, const Twine &name,
                                            Value operand, int64_t block,
                                            int64_t numQueries) {
  if (block == 0)
    return op->emitOpError() << "expects a block size, since " << name
                             << " has an axis of query blocks";
  int64_t found = extent(operand, 2);
  if (ShapedType::isDynamic(found) || ShapedType::isDynamic(numQueries))
    return success();
  int64_t needed = llvm::divideCeil(numQueries, block);
  if (found < needed)
    return op->emitOpError()
           << "expects " << name << " to have an entry for each of the "
           << needed << " query blocks, but got " << found;
  return success();
}

LogicalResult attn::detail::verifyRowLists(Operation *op,
                                           ArrayRef<StreamSource> sources,
                                           Value query, int64_t block,
                                           int64_t numQueries) {
  for (auto [index, source] : llvm::enumerate(sources)) {
    if (!source.rowList)
      continue;
    std::string name = ("rows of source " + Twine(index)).str();
    if (source.hasValueBlocks() || source.hasLogWeightBlocks())
      return op->emitOpError()
             << "expects no axis of query blocks of "
             << (source.hasValueBlocks() ? "values" : "log_weight")
             << " beside " << name;
    int64_t found = extent(source.rowList, 1), heads = extent(query, 1),
            keyHeads = extent(source.values, 1);
    auto isAny = [&](int64_t extent) {
      return ShapedType::isDynamic(extent) || found == extent;
    };
    if (!ShapedType::isDynamic(found) && found != 1 && !isAny(keyHeads) &&
        !isAny(heads))
      return op->emitOpError() << "expects extent 1 of " << name << " to be 1, "
                               << keyHeads << " (key heads) or " << heads
                               << " (query heads), but got " << found;
    // A single list is that of all blocks.
    if (extent(source.rowList, 2) != 1 &&
        failed(verifyBlockAxis(op, name, source.rowList, block, numQueries)))
      return failure();
  }
  return success();
}
