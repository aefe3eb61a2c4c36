//===- Shapes.cpp - Kernels for one length or for all ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Shapes.h"
#include "Call.h"
#include <atomic>
#include <optional>
#include <utility>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static std::atomic<Shapes> shapes = Shapes::Auto;
static thread_local std::optional<Shapes> threadShapes;

void fovea::setShapes(Shapes chosen) { shapes = chosen; }
Shapes fovea::getShapes() { return threadShapes.value_or(shapes); }

ThreadShapesScope::ThreadShapesScope(Shapes shapes)
    : before(std::exchange(threadShapes, shapes)) {}
ThreadShapesScope::~ThreadShapesScope() { threadShapes = before; }

/// Operations whose kernels for all lengths are as fast as others.
static constexpr StringLiteral kOpenOperations[] = {
    "codebook_update",
    "commitment_loss",
    "commitment_loss_backward",
    "dense",
    "dense_backward",
    "fast_multipole_decode",
    "low_rank",
    "low_rank_backward",
    "polynomial_features",
    "polynomial_features_backward",
    "pool",
    "pool_backward",
    "quantize",
    "rope",
    "rope_backward",
    "stream",
    "stream_backward",
    "top_k",
    "tree_build",
    "tree_fetch",
    "tree_materialize",
    "tree_score",
    "tree_split",
    "tree_update",
    "vq",
    "vq_backward",
    "vq_decode"};
/// Those whose kernels for all lengths are slower.
static constexpr StringLiteral kSlowOpenOperations[] = {
    "conv",
    "conv_apply",
    "conv_apply_backward",
    "conv_backward",
    "conv_recover",
    "conv_recover_backward",
    "fast_multipole",
    "fast_multipole_backward",
    "fast_multipole_linear",
    "fast_multipole_linear_backward"};
/// Those whose kernels for all lengths are as fast on GPUs: keys of one query,
/// and numbers of rows and of sequences by which no thread divides.
static constexpr StringLiteral kOpenOnGPUs[] = {
    "cache_rows", "fast_multipole_decode", "packed_batch", "packed_places",
    "packed_rows"};

bool functions::leavesLengthsOpen(StringRef op, Target target) {
  if (target != Target::CPU && target != Target::Reference)
    return getShapes() != Shapes::Static && is_contained(kOpenOnGPUs, op);
  switch (getShapes()) {
  case Shapes::Auto:
    return is_contained(kOpenOperations, op);
  case Shapes::Static:
    return false;
  case Shapes::Dynamic:
    return is_contained(kOpenOperations, op) ||
           is_contained(kSlowOpenOperations, op);
  }
  llvm_unreachable("unknown shapes");
}
