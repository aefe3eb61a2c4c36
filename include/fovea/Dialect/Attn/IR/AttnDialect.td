//===- AttnDialect.td - Attention dialect -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_TD

include "mlir/IR/OpBase.td"

def Attn_Dialect : Dialect {
  let name = "attn";
  let cppNamespace = "::fovea::attn";
  let summary = "attention patterns as high-level operations";
  let description = [{
    The `attn` dialect expresses attention patterns on whole tensors: dense
    soft-max attention, hierarchical (fast multipole) attention, and the
    streaming soft-max that every pattern expands to.

    The central idea: a pattern is a soft-max over a *union of key/value
    sources*. A source may be coarser than the tokens, in which case each key
    carries the logarithm of how many tokens it stands for, and a block of
    queries reads only some rows of it. `attn.stream` is that soft-max; patterns
    expand to it with `--attn-expand-patterns`, and tiling, vectorisation and
    later the GPU mapping and the backward pass are written once, for it.

    Shapes use these letters throughout: `B` batch, `H` query heads, `G`
    key/value heads (`H` is a multiple of `G`; query head `h` reads key/value
    head `h / (H / G)`), `N` queries, `M` keys, `D` head width, `E` value width.
    Tables of shapes are what the verifier, the checks at run time and the
    functions of C++ and Python compare. `T[B, H, N, D!]` holds the element type of
    the data, `T`; `sum` is that of sums (`f64` for `f64`, `f32` for all others),
    `T|sum` either, and `~T` any type with the same sums. Extents with the same
    letters are equal; lower-case letters belong to one element of a list. With `~`
    an extent of 1 in the type broadcasts; with `!` the type has to tell the extent,
    which is at least 1.
    Operations are in destination style and work on tensors and, after
    bufferization, on memrefs.

    An operation refuses an attribute that it does not have, and lists those that
    it has. Notes of other tools have a prefix, `tool.note`, and are left alone.
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasCanonicalizer = 1;
  let dependentDialects = [
    "::mlir::affine::AffineDialect", "::mlir::arith::ArithDialect",
    "::mlir::memref::MemRefDialect", "::mlir::tensor::TensorDialect"
  ];
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNDIALECT_TD
