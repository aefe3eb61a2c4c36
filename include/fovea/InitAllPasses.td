//===- InitAllPasses.td - All passes, for their documentation -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

include "fovea/Conversion/Passes.td"
include "fovea/Conversion/LoopsToGPU/Passes.td"
include "fovea/Dialect/Attn/Transforms/Passes.td"
include "fovea/Differentiate/Passes.td"
