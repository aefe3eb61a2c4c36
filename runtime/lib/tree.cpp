//===- tree.cpp - Trees of averages ---------------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea_rt/abi.h"
#include "fovea_rt/fovea_rt.h"
#include "status.h"
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <limits>

using namespace fovea::rt;

//===----------------------------------------------------------------------===//
// Checks of lists
//===----------------------------------------------------------------------===//

namespace {
struct List {
  const int32_t *level, *index;
  int64_t count;
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
static void checkList(const List &list, int64_t batch, int64_t roots,
                      int64_t ratio, int64_t levels, bool mustCover) {
  const char *op = mustCover ? "attn.tree_update" : "attn.tree_fetch";
  const int64_t tokens = roots * power(ratio, levels);
  int64_t next = 0;
  bool isOver = false;
  for (int64_t j = 0; j < list.count; ++j) {
    const int64_t level = list.level[j], index = list.index[j];
    if (level == -1 && index == -1) {
      isOver = true;
      continue;
    }
    if (level < 0 || level > levels)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: level of node %" PRId64 " in batch entry %" PRId64
           ", expected 0 to %" PRId64 ", but got %" PRId64,
           op, j, batch, levels, level);
    const int64_t segment = power(ratio, level);
    const int64_t nodes = tokens / segment;
    if (index < 0 || index >= nodes)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: index of node %" PRId64 " in batch entry %" PRId64
           ", expected 0 to %" PRId64 " at level %" PRId64 ", but got %" PRId64,
           op, j, batch, nodes - 1, level, index);
    if (!mustCover)
      continue;
    if (isOver)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: nodes of batch entry %" PRId64
           " must cover the sequence in order, but node %" PRId64
           " (level %" PRId64 ", index %" PRId64 ") follows an absent one",
           op, batch, j, level, index);
    const int64_t first = index * segment;
    if (first != next)
      fail(FOVEA_RT_INVALID_ARGUMENT,
           "%s: nodes of batch entry %" PRId64
           " must cover the sequence in order, but node %" PRId64
           " (level %" PRId64 ", index %" PRId64 ") %s: it begins at token "
           "%" PRId64 ", expected %" PRId64,
           op, batch, j, level, index,
           first < next ? "overlaps the one before" : "leaves a gap", first,
           next);
    next = first + segment;
  }
  if (mustCover && next != tokens)
    fail(FOVEA_RT_INVALID_ARGUMENT,
         "%s: nodes of batch entry %" PRId64
         " must cover the sequence in order, but they end at token %" PRId64
         ", expected %" PRId64,
         op, batch, next, tokens);
}

void fovea_rt_check_nodes(const int32_t *level, int64_t level_stride,
                          const int32_t *index, int64_t index_stride,
                          int64_t batches, int64_t count, int64_t roots,
                          int64_t ratio, int64_t levels, int64_t must_cover) {
  for (int64_t batch = 0; batch < batches; ++batch)
    checkList(
        {level + batch * level_stride, index + batch * index_stride, count},
        batch, roots, ratio, levels, must_cover != 0);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

/// NaN counts as the lowest score.
template <typename T> static T rank(T score) {
  return std::isnan(score) ? -std::numeric_limits<T>::infinity() : score;
}

/// Marks the candidates to split with 1, at most `split`: those that are absent
/// or have no token never are. Expected time O(candidates).
template <typename T>
static void choose(const T *scores, const int32_t *candidates,
                   const int32_t *counts, int32_t *order, char *chosen,
                   int64_t numCandidates, int64_t split) {
  int64_t present = 0;
  for (int64_t m = 0; m < numCandidates; ++m) {
    chosen[m] = 0;
    const int64_t node = candidates ? candidates[m] : m;
    if (node >= 0 && (!counts || counts[node] > 0))
      order[present++] = static_cast<int32_t>(m);
  }
  split = std::min(split, present);
  if (scores && split < present && split > 0)
    std::nth_element(order, order + split - 1, order + present,
                     [scores](int32_t a, int32_t b) {
                       const T x = rank(scores[a]), y = rank(scores[b]);
                       return x != y ? x > y : a < b;
                     });
  for (int64_t i = 0; i < split; ++i)
    chosen[order[i]] = 1;
}

void fovea_rt_tree_split(const void *scores, int64_t scores_are_double,
                         const int32_t *candidates, int64_t num_candidates,
                         const int32_t *level, const int32_t *index,
                         int64_t num_nodes, const int32_t *counts,
                         int32_t *new_level, int32_t *new_index,
                         int32_t *children, int64_t at, int64_t split,
                         int64_t ratio) {
  // One block: the candidates in the order that is worked out, then the marks.
  char *memory = static_cast<char *>(
      fovea_rt_alloc(num_candidates * (sizeof(int32_t) + 1), 0));
  int32_t *order = reinterpret_cast<int32_t *>(memory);
  char *chosen = memory + num_candidates * sizeof(int32_t);
  if (scores_are_double)
    choose(static_cast<const double *>(scores), candidates, counts, order,
           chosen, num_candidates, split);
  else
    choose(static_cast<const float *>(scores), candidates, counts, order,
           chosen, num_candidates, split);

  int32_t *const lastLevel = new_level + num_nodes + split * (ratio - 1);
  int32_t *const lastIndex = new_index + num_nodes + split * (ratio - 1);
  int32_t *const lastChild = children + split * ratio;
  int64_t candidate = 0;
  for (int64_t j = 0; j < num_nodes; ++j) {
    const int32_t nodeLevel = level ? level[j] : static_cast<int32_t>(at);
    const int32_t nodeIndex = index ? index[j] : static_cast<int32_t>(j);
    if (nodeIndex < 0)
      continue;
    if (nodeLevel != at || candidate >= num_candidates ||
        !chosen[candidate++]) {
      *new_level++ = nodeLevel;
      *new_index++ = nodeIndex;
      continue;
    }
    for (int64_t child = 0; child < ratio; ++child) {
      const int32_t childIndex =
          static_cast<int32_t>(nodeIndex * ratio + child);
      *new_level++ = static_cast<int32_t>(at - 1);
      *new_index++ = childIndex;
      *children++ = childIndex;
    }
  }
  // Where fewer were split, the rest is absent.
  std::fill(new_level, lastLevel, -1);
  std::fill(new_index, lastIndex, -1);
  std::fill(children, lastChild, -1);
  fovea_rt_free(memory);
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
