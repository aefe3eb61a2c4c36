//===- VQWindow.h - Tokens that a window of queries reads -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_KERNELS_VQWINDOW_H
#define FOVEA_KERNELS_VQWINDOW_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/TeamBuilder.h"

namespace fovea::attn {

/// The tokens that the queries of a window read one by one: those of the block
/// that it begins in and of the `memory` before it, which the state keeps, and
/// then its own. So blocks of tokens are those of the sequence, and a token is
/// a row of queries plus `numBefore`.
struct VQWindow {
  using Value = mlir::Value;

  VQWindow(KernelBuilder &builder, VQBackwardOp op);

  /// Of the window in the sequence.
  Value position;
  /// Of queries, of tokens before them, and of all tokens.
  Value length, numBefore, numTokens;
  /// [B, H, length, D] and [B, H, length, E], with zeros in rows of absent
  /// tokens.
  Value queries, dOutputs;
  /// [B, G, tokens] and [B, G, tokens, E].
  Value codes, values;
  /// Of the values with each code: [B, G, blocks, S, E], of which block n reads
  /// entry n - `memory`, or [B, G, S, E] of all tokens.
  Value means, counts;
};

/// What a gradient of attn.vq does before and after its products.
class VQWindowLoops {
public:
  using Value = mlir::Value;
  using ValueRange = mlir::ValueRange;
  /// What belongs at (batch, head, row, column).
  using Element = llvm::function_ref<Value(KernelBuilder &, ValueRange at)>;

  VQWindowLoops(TeamBuilder &builder, VQBackwardOp op);

  const VQWindow &getWindow() const { return window; }
  bool hasState() { return !op.getState().empty(); }
  bool hasNext() { return !op.getDNextState().empty(); }

  /// A buffer until `freeBuffers`.
  Value allocate(llvm::ArrayRef<Value> leading,
                 llvm::ArrayRef<int64_t> trailing, mlir::Type elementType) {
    return buffers.emplace_back(b.allocate(leading, trailing, elementType));
  }
  /// One with a row for every token, [B, G, tokens, columns].
  Value allocateRows(int64_t columns, mlir::Type elementType) {
    return allocate({batches, heads, window.numTokens}, {columns}, elementType);
  }
  void freeBuffers();

  /// Makes the queries, codes, values, means and counts of the window; means of
  /// blocks have a type.
  void gatherTokens(Reduction reduction, mlir::Type meanType);
  /// `load()` for a token with that code; 0 where it is absent.
  Value loadPresent(KernelBuilder &k, Value code,
                    llvm::function_ref<Value()> load);
  /// Stores all elements of a memref of rank 4.
  void fillRows(Value memref, Element element);
  /// What the mean of the next state at (batch, head, code, column) gives each
  /// of its tokens: those older than the memory of the next token's block.
  Value loadNextMean(KernelBuilder &k, ValueRange at);
  /// Adds to `sums`, [B, G, groups, S, E], those of all later groups of
  /// queries, and where `addsNext` what comes through the means of the next
  /// state. Tokens in the means of the state get the sum of all groups.
  void addLaterSums(Value sums, Value addsNext);
  /// Stores `sum` of every token, at (batch, head, token, column), and what
  /// comes through the next state where their gradients belong: to `gradient`,
  /// or to part `part` of that of the state.
  void storeTokens(Value gradient, unsigned part, Element sum);

private:
  void
  forElements(llvm::ArrayRef<Value> rows, int64_t width,
              llvm::function_ref<void(KernelBuilder &, ValueRange at)> body);
  Value clearAbsent(Value rows);
  void prependKept();
  void summarize(Reduction reduction, mlir::Type meanType);

  TeamBuilder &b;
  VQBackwardOp op;
  VQWindow window;
  int64_t block, memory, numCodes, valueWidth;
  Value batches, heads;
  KernelBuilder::Values buffers;
};

} // namespace fovea::attn

#endif // FOVEA_KERNELS_VQWINDOW_H
