//===- AttnOps.td - Operations of the attention dialect, by family -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNOPS_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNOPS_TD

include "fovea/Dialect/Attn/IR/AttnConvOps.td"
include "fovea/Dialect/Attn/IR/AttnHierarchicalOps.td"
include "fovea/Dialect/Attn/IR/AttnLowRankOps.td"
include "fovea/Dialect/Attn/IR/AttnPoolOps.td"
include "fovea/Dialect/Attn/IR/AttnQuantizeOps.td"
include "fovea/Dialect/Attn/IR/AttnSoftmaxOps.td"
include "fovea/Dialect/Attn/IR/AttnTokenOps.td"
include "fovea/Dialect/Attn/IR/AttnTreeOps.td"
include "fovea/Dialect/Attn/IR/AttnVQOps.td"

#endif // FOVEA_DIALECT_ATTN_IR_ATTNOPS_TD
