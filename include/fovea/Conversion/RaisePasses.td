//===- RaisePasses.td - Conversions to attention -----------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_RAISEPASSES_TD
#define FOVEA_CONVERSION_RAISEPASSES_TD

include "mlir/Pass/PassBase.td"

def RaiseAttentionPass : Pass<"attn-raise", "::mlir::func::FuncOp"> {
  let summary = "find soft-max attention in linalg on tensors, and make it attn.dense";
  let description = [{
    Frontends write attention as two products of matrices with a soft-max between
    them. Where a product sums, over the axis of a soft-max, weights times values,
    it becomes one `attn.dense`, whose scores are never formed:

    ```mlir
    %s = linalg.batch_matmul ins(%q, %kt : ...) outs(%zero : ...)
    %e = linalg.generic ... { math.exp of %s less its maximum }
    %l = linalg.generic ... { the sum of %e along a row }
    %p = linalg.generic ... { %e / %l }
    %o = linalg.batch_matmul ins(%p, %v : ...) outs(%zero : ...)
    ```

    ==>

    ```mlir
    %o = attn.dense ins(%q, %k, %v : ...) outs(%init : ...) {scale = 1.0} -> ...
    ```

    Numbers are traced through layouts, broadcasts and elementwise operations, so
    it does not matter in which order and shape a frontend writes them:
    [Raising](Raising.md) lists the forms. Masks that are known when compiling are
    evaluated and become `#attn.mask`; all others, and what is added to scores,
    become the bias.

    A row whose mask admits no key is zeros in `attn.dense`. Programs give zeros,
    NaN, or the mean of all values; with `fully-masked=refuse` attention stays as
    it is unless such rows are known to give zeros, or not to be.

    A remark of category `attn-raise` says for each soft-max what became of it
    (`--remarks-filter='attn.*' --remark-policy=all`). Run `--canonicalize`
    afterwards to delete what is left of the scores.
  }];
  let options = [
    Option<"fullyMasked", "fully-masked", "::fovea::attn::FullyMasked",
           /*default=*/"::fovea::attn::FullyMasked::Ours",
           "rows of queries that may read no key",
           [{::llvm::cl::values(
               clEnumValN(::fovea::attn::FullyMasked::Ours, "ours",
                          "zeros, whatever the program gives"),
               clEnumValN(::fovea::attn::FullyMasked::Refuse, "refuse",
                          "raise no attention for which the program could give others"))}]>,
    Option<"maxMaskElements", "max-mask-elements", "int64_t", /*default=*/"16777216",
           "do not evaluate masks of more elements">
  ];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::tensor::TensorDialect"
  ];
}

#endif // FOVEA_CONVERSION_RAISEPASSES_TD
