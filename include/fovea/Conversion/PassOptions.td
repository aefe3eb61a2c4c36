//===- PassOptions.td - Options that several passes have ---*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_PASSOPTIONS_TD
#define FOVEA_CONVERSION_PASSOPTIONS_TD

include "mlir/Pass/PassBase.td"

// The target CPU.

def VectorBitsOption
    : Option<"vectorBits", "vector-bits", "int64_t", /*default=*/"256",
             "width of a vector register in bits">;
def NumRegistersOption
    : Option<"numRegisters", "num-registers", "int64_t", /*default=*/"16",
             "number of vector registers">;
def SeparateAddsOption
    : Option<"separateAdds", "separate-adds", "bool", /*default=*/"false",
             "whether additions have ports of their own beside multiply-adds">;
def SplitVectorsOption
    : Option<"splitVectors", "split-vectors", "bool", /*default=*/"false",
             "whether vectors of half the width get as much done">;

// What code for a CPU does.

def ManageCacheOption
    : Option<"manageCache", "manage-cache", "bool", /*default=*/"true",
             "manage the caches: prefetches, streaming stores">;
def MinTasksOption
    : Option<"minTasks", "min-tasks", "int64_t", /*default=*/"2",
             "tasks of a parallel loop to aim at; no effect on results">;

// The target GPU, and products on it.

def SharedBytesOption
    : Option<"sharedBytes", "shared-bytes", "int64_t", /*default=*/"166912",
             "shared memory that a block can have, in bytes">;
def F32MathOption
    : Option<"f32", "f32", "::fovea::attn::F32Math",
             /*default=*/"::fovea::attn::F32Math::TF32x3",
             "products of f32 data: tf32x3, tf32 or exact",
             "::fovea::attn::getF32MathValues()">;

// Lists of nodes, codes and sizes.

#endif // FOVEA_CONVERSION_PASSOPTIONS_TD
