//===- QuantizeKernel.h - Loops of attn.quantize ----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Code for one attn.quantize on memrefs, vectorised over keys. The nearest
// codeword is the one with the greatest `k.C_s - |C_s|^2 / 2`:
//
//   forall (batch, head, run of keys)
//     per block of L = lanes * vectors keys
//       pack     KT[D][L] = transposed keys
//       for each tile of codewords
//         score  -|C_s|^2 / 2 + C_s . KT, in registers
//         best   greater scores and their codes replace the best so far, lane
//                by lane
//       store    codes, and the codewords if they are wanted
//
// Halves of the squared norms are the accumulators' initial values, so they
// cost nothing; scores never leave the registers. Every score is one chain of
// multiply-adds along the width, wherever its key and codeword lie: codes
// depend on neither.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_QUANTIZEKERNEL_H
#define FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_QUANTIZEKERNEL_H

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/KernelBuilder.h"
#include "fovea/Kernels/RegisterFile.h"

namespace fovea::attn {

/// The sizes of the loops.
struct QuantizePlan {
  /// Keys of one vector, vectors and codewords of a register tile.
  int64_t lanes, vectors, codes;
  /// Keys of one parallel task.
  int64_t run;
  /// Whether there are too few keys for a vector (QuantizeFewKeys.cpp).
  bool fewKeys;

  int64_t getBlock() const { return lanes * vectors; }
};

/// Plans the loops for a CPU.
QuantizePlan planQuantize(QuantizeOp op, RegisterFile registers);

/// Emits the loops that compute `op` at the insertion point of `builder`.
void emitQuantize(mlir::OpBuilder &builder, QuantizeOp op,
                  const QuantizePlan &plan, bool manageCache);

/// The same for a plan that says `fewKeys`.
void emitQuantizeFewKeys(mlir::OpBuilder &builder, QuantizeOp op,
                         const QuantizePlan &plan);

/// Stores the code of key `[batch, head, row]`, an index, and the codeword if
/// that is wanted.
void emitCode(KernelBuilder &builder, QuantizeOp op, mlir::ValueRange key,
              mlir::Value set, mlir::Value code);

} // namespace fovea::attn

#endif // FOVEA_LIB_CONVERSION_ATTNTOVECTOR_QUANTIZE_QUANTIZEKERNEL_H
