//===- tree.cpp - Trees of averages ---------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "checks.h"
#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
#include "status.h"
#include <cinttypes>
#include <cstdio>

using namespace fovea::rt;

//===----------------------------------------------------------------------===//
// Checks of lists
//===----------------------------------------------------------------------===//

namespace {
struct List {
  const int32_t *level, *index;
  int64_t levelStride, indexStride, count;
};
} // namespace

static int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent-- > 0)
    result *= base;
  return result;
}

/// Every node must be in the tree, or absent: -1 twice. With `mustCover`, node
/// after node must begin where the one before ends, from token 0 on, and absent
/// ones come last.
static void checkList(const char *op, const List &list, int64_t batch,
                      int64_t roots, int64_t ratio, int64_t levels,
                      bool mustCover) {
  const int64_t tokens = roots * power(ratio, levels);
  int64_t next = 0;
  bool isOver = false;
  for (int64_t j = 0; j < list.count; ++j) {
    const int64_t level = list.level[j * list.levelStride];
    const int64_t index = list.index[j * list.indexStride];
    if (level == -1 && index == -1) {
      isOver = true;
      continue;
    }
    auto failHere = [&] {
      failCheck(op, FOVEA_RT_GPU_NODES,
                {batch, j, level, index, next, isOver, roots, ratio, levels,
                 list.count});
    };
    if (level < 0 || level > levels)
      failHere();
    const int64_t segment = power(ratio, level);
    if (index < 0 || index >= tokens / segment)
      failHere();
    if (!mustCover)
      continue;
    if (isOver || index * segment != next)
      failHere();
    next += segment;
  }
  if (mustCover && next != tokens)
    failCheck(
        op, FOVEA_RT_GPU_NODES,
        {batch, list.count, 0, 0, next, 0, roots, ratio, levels, list.count});
}

void fovea_rt_check_nodes(const char *op, const int32_t *level, int64_t batches,
                          int64_t count, int64_t level_batch_stride,
                          int64_t level_stride, const int32_t *index,
                          int64_t index_batches, int64_t index_count,
                          int64_t index_batch_stride, int64_t index_stride,
                          int64_t roots, int64_t ratio, int64_t levels,
                          int64_t must_cover) {
  for (int64_t batch = 0; batch < batches; ++batch)
    checkList(op,
              {level + batch * level_batch_stride,
               index + batch * index_batch_stride, level_stride, index_stride,
               count},
              batch, roots, ratio, levels, must_cover != 0);
}

//===----------------------------------------------------------------------===//
// Buffers of the host
//===----------------------------------------------------------------------===//

int64_t fovea_rt_tree_nodes(int64_t tokens, int64_t ratio, int64_t levels) {
  if (tokens < 1 || ratio < 2 || levels < 1)
    return -1;
  int64_t nodes = tokens, all = tokens;
  for (int64_t level = 0; level < levels; ++level) {
    if (nodes % ratio != 0)
      return -1;
    nodes /= ratio;
    if (__builtin_add_overflow(all, nodes, &all))
      return -1;
  }
  return all <= INT32_MAX ? all : -1;
}

fovea_rt_status fovea_rt_tree_create(int64_t batches, int64_t tokens,
                                     int64_t width, int64_t ratio,
                                     int64_t levels, int64_t element_bytes,
                                     int32_t has_counts, fovea_rt_tree *tree) {
  *tree = fovea_rt_tree{};
  setLastError("");
  const int64_t nodes = fovea_rt_tree_nodes(tokens, ratio, levels);
  int64_t elements, bytes, lists;
  if (nodes < 0 || batches < 0 || width < 1 ||
      (element_bytes != 2 && element_bytes != 4 && element_bytes != 8) ||
      __builtin_mul_overflow(batches, nodes, &lists) ||
      __builtin_mul_overflow(lists, width, &elements) ||
      __builtin_mul_overflow(elements, element_bytes, &bytes)) {
    char text[256];
    snprintf(text, sizeof(text),
             "fovea_rt_tree_create: expected tokens that are a multiple of "
             "ratio^levels, at least one column and elements of 2, 4 or 8 "
             "bytes, but got %" PRId64 " tokens, ratio %" PRId64
             ", levels %" PRId64 ", width %" PRId64 " and %" PRId64 " bytes",
             tokens, ratio, levels, width, element_bytes);
    setLastError(text);
    return FOVEA_RT_INVALID_ARGUMENT;
  }

  struct Request {
    int64_t bytes, lists;
    bool hasCounts;
    fovea_rt_tree *tree;
  } request = {bytes, lists, has_counts != 0, tree};
  void *args[] = {&request};
  // Memory may run out, which is a failure of an invocation.
  fovea_rt_status status = fovea_rt_invoke(
      [](void **args) {
        auto *request = static_cast<Request *>(args[0]);
        void *data = fovea_rt_alloc(request->bytes, 0);
        void *counts = request->hasCounts
                           ? fovea_rt_alloc(request->lists * sizeof(int32_t), 0)
                           : nullptr;
        request->tree->data = data;
        request->tree->counts = static_cast<int32_t *>(counts);
      },
      args);
  if (status != FOVEA_RT_OK) {
    *tree = fovea_rt_tree{};
    return status;
  }
  tree->batches = batches;
  tree->nodes = nodes;
  tree->width = width;
  tree->ratio = ratio;
  tree->levels = levels;
  tree->roots = tokens / power(ratio, levels);
  tree->element_bytes = element_bytes;
  return FOVEA_RT_OK;
}

void fovea_rt_tree_destroy(fovea_rt_tree *tree) {
  fovea_rt_free(tree->data);
  fovea_rt_free(tree->counts);
  *tree = fovea_rt_tree{};
}

void *fovea_rt_tree_level(const fovea_rt_tree *tree, int64_t batch,
                          int64_t level, int64_t *num_nodes) {
  if (!tree->data || batch < 0 || batch >= tree->batches || level < 0 ||
      level > tree->levels)
    return nullptr;
  int64_t first = 0, nodes = tree->roots;
  for (int64_t above = tree->levels; above > level; --above) {
    first += nodes;
    nodes *= tree->ratio;
  }
  if (num_nodes)
    *num_nodes = nodes;
  return static_cast<char *>(tree->data) +
         (batch * tree->nodes + first) * tree->width * tree->element_bytes;
}
