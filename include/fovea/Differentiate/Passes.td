//===- Passes.td - Differentiation of functions ------------*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIFFERENTIATE_PASSES_TD
#define FOVEA_DIFFERENTIATE_PASSES_TD

include "mlir/Pass/PassBase.td"

def DifferentiatePass : Pass<"attn-differentiate", "::mlir::ModuleOp"> {
  let summary = "emit the vector-Jacobian product of a function";
  let description = [{
    Emits, next to a function, one that computes its gradients by reverse mode: it
    takes the function's arguments and a cotangent for each of its floating-point
    results, and returns the derivative of the sum of the results, weighted by the
    cotangents, with respect to the arguments.

    ```mlir
    func.func @f(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32>
    ```
    gets
    ```mlir
    func.func @f_vjp(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>, %d_out: tensor<4x8xf32>)
        -> (tensor<4x8xf32>, tensor<8x8xf32>)
    ```

    | operations | gradient |
    |---|---|
    | `linalg`, named or generic, in any layout: element by element, sums of anything, maxima and minima | the same loops with the maps exchanged; the derivative of a body is taken operation by operation (`arith`, `math`) |
    | `tensor`: slices, reshapes, casts, `pad`, `concat`, `extract`, `insert` | their transposes |
    | `scf.for`, with any bounds | a loop over the iterations from the last to the first, see below |
    | `scf.while` | the same, once a copy of the loop has counted its iterations |
    | `scf.if` | a branch on the same condition, which computes again what it needs |
    | patterns of this dialect | their `attn.*_backward` |
    | `attn.dense_backward` without terms, sinks, lengths or functions; `attn.rope_backward` | products of tiles of queries with all keys: quadratic time, linear memory; turns |

    Equal maxima share their adjoint evenly. Rounding, comparisons and integers pass
    nothing on, nor does an operation with the attribute `attn.stop_gradient`.
    `attn.quantize` passes the gradients of quantized keys, and those that
    `attn.vq` has for its codes, straight through. Anything else that a result depends on is named in one error.

    Adjoints are kept in `f32` (`f64` for `f64`) and rounded once, at the end; those
    of a value that is used several times are added in the order of the uses, so
    that gradients do not depend on the number of threads.

    A loop computes what is within an iteration again, from the values that it
    carries into it. Of these, it keeps for all iterations those that the gradient
    reads, in tensors with one entry for each; sums, and tensors that iterations
    fill, are not among them, and of a tensor that is read by slices these are kept.
    What is kept has the same extents in all iterations, and iterations and
    branches have no side effects but assertions.

    The gradient is a function like any other: it has one itself where the
    operations that it is made of do, `linalg`, `tensor`, `arith`, `math`, loops,
    branches, dense attention and `attn.rope`.

    With `recompute`, elementwise results that the gradient needs are computed a
    second time rather than kept, where everything that takes is kept anyway.
  }];
  let options = [
    Option<"function", "function", "std::string", /*default=*/"",
           "the function to differentiate; by default the first public one with "
           "a body">,
    ListOption<"arguments", "arguments", "int64_t",
               "numbers of the arguments to differentiate with respect to; by "
               "default all of a floating-point type">,
    Option<"name", "name", "std::string", /*default=*/"",
           "name of the emitted function; by default that of the function and "
           "_vjp">,
    Option<"primalResults", "primal-results", "bool", /*default=*/"false",
           "return the results of the function, too, before the gradients">,
    Option<"recompute", "recompute", "bool", /*default=*/"true",
           "compute cheap values again instead of keeping them">
  ];
  let dependentDialects = [
    "::fovea::attn::AttnDialect", "::mlir::arith::ArithDialect",
    "::mlir::bufferization::BufferizationDialect",
    "::mlir::linalg::LinalgDialect", "::mlir::math::MathDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
}

#endif // FOVEA_DIFFERENTIATE_PASSES_TD
