//===- GPUListPasses.h - Sums of listed rows by passes ----------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTPASSES_H
#define FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTPASSES_H

#include "GPUListsOfRows.h"

namespace fovea::attn {

/// Gradients of the rows of a list from its own queries are *parts* of those of
/// stored rows. A kernel makes the parts of some lists, a *pass*, and another
/// one adds them to the sums, in the order of lists and entries: so parts take
/// bounded memory.
class ListPasses {
public:
  using Value = mlir::Value;

  ListPasses(RowBuilder &host, StreamBackwardOp op, const StreamSource &source,
             const ListsOfRows &entries);

  /// Emits a loop of the host over all passes, one at least.
  void forEach(llvm::function_ref<void()> body);
  /// A buffer for the parts of `result`, [B * lists, list heads, rows, ..] of
  /// f32; the caller frees it.
  Value allocateParts(Value result);
  /// Emits the kernel that adds the parts of a pass to `sums`, of f32, where
  /// nothing is before the first pass.
  void addUp(Value parts, Value sums);

  /// Heads that a list is for count as one *list head*: all of a key head that
  /// have the same lists, or each alone.
  Value getListHeads() const { return listHeads; }
  Value getHeadsOfList() const { return headsOfList; }
  Value getListHeadsOfKey() const { return listHeadsOfKey; }
  /// Rows that the entries of a list name.
  Value getListRows() const { return listRows; }
  /// The first list of the present pass, and how many it has.
  Value getFirstList() const { return firstList; }
  Value getNumLists() const { return numLists; }
  /// Where parts of list `list` of the pass lie.
  Value getPlace(KernelBuilder &k, Value batch, Value list) const {
    return k.add(k.mul(batch, mostLists), list);
  }

private:
  RowBuilder &host;
  StreamBackwardOp op;
  StreamSource source;
  const ListsOfRows &entries;
  Value batches, lists, listHeads, headsOfList, listHeadsOfKey, listRows;
  Value chunksOfPass, mostLists; // of a pass
  Value firstChunk, endChunk, firstList, numLists;
};

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOGPU_STREAM_GPULISTPASSES_H
