//===- Tree.cpp - Trees of averages of arrays -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Tree.h"
#include "TokenMask.h"
#include "TreeArguments.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVector.h"
#include <cstring>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// tree_build and tree_materialize
//===----------------------------------------------------------------------===//

/// How many levels a tree of `length` tokens has.
static int64_t checkLevels(Checker &check, int64_t length, int64_t ratio,
                           std::optional<int64_t> levels) {
  if (check.hasFailed())
    return 1;
  if (!levels) {
    levels = 1;
    while (getPower(ratio, *levels) < length)
      ++*levels;
    check.check(getPower(ratio, *levels) == length,
                "c: found " + Twine(length) +
                    " tokens, needed a power of the ratio " + Twine(ratio) +
                    ", or levels");
    return *levels;
  }
  check.integer("levels", *levels, 1);
  int64_t segment = getPower(ratio, *levels);
  check.check(segment <= kMaxNodes && length != 0 && length % segment == 0,
              "c: found " + Twine(length) + " tokens, needed a multiple of " +
                  Twine(ratio) + "^" + Twine(*levels));
  return *levels;
}

Expected<Tree> fovea::tree_build(const TensorRef &c,
                                 const TreeBuildOptions &options) {
  Checker check("tree_build");
  Argument tokens = check.operand("input", "c", c);
  check.integer("ratio", options.ratio, 2);
  check.notEmpty(tokens);
  int64_t batch = tokens.shape[0], length = tokens.shape[1];
  Tree tree;
  tree.ratio = options.ratio;
  tree.levels = checkLevels(check, length, options.ratio, options.levels);
  if (check.hasFailed())
    return check.takeError();
  int64_t numNodes = 0;
  for (int64_t level = 0; level <= tree.levels; ++level)
    numNodes += length / tree.getSegment(level);
  check.check(numNodes <= kMaxNodes, "c: found " + Twine(length) +
                                         " tokens, needed a tree of at most " +
                                         Twine(kMaxNodes) + " nodes");
  Call call("tree_build", options.target, options.out);
  call.operand(tokens);
  TokenMask mask(check, options, batch, length, options.target);
  call.operandIf(mask.get());
  addTreeShape(call, tree);
  call.result(check, "tree", tokens.elementType,
              {batch, numNodes, tokens.shape[2]});
  call.resultIf(mask.get().has_value(), check, "counts", ElementType::I32,
                {batch, numNodes});
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check);
  if (!results)
    return results.takeError();
  tree.nodes = std::move((*results)[0]);
  if (mask.get())
    tree.counts = std::move((*results)[1]);
  return tree;
}

Expected<OwnedTensor> fovea::tree_materialize(const Tree &tree, Target target,
                                              const ResultMemory &out) {
  Checker check("tree_materialize");
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  Call call("tree_materialize", target, out);
  call.operand(Argument("tree", tree.nodes.getRef()));
  addTreeShape(call, tree);
  call.result(check, "output", tree.nodes.getElementType(),
              getSequenceShape(tree));
  return call.runFor<OwnedTensor, 1>(check);
}

//===----------------------------------------------------------------------===//
// tree_fetch and tree_update
//===----------------------------------------------------------------------===//

Expected<TreeFetchResult> fovea::tree_fetch(const Tree &tree,
                                            const TensorRef &level,
                                            const TensorRef &index,
                                            const TreeFetchOptions &options) {
  Checker check("tree_fetch");
  Expected<NodeList> nodes =
      checkNodes(check, tree, level, index, options.target);
  if (!nodes)
    return nodes.takeError();
  Call call("tree_fetch", options.target, options.out);
  call.operand(Argument("tree", tree.nodes.getRef()));
  addNodes(call, *nodes);
  addCounts(call, tree);
  addTreeShape(call, tree);
  call.flag("whole_segments", options.wholeSegments);
  ElementType type = tree.nodes.getElementType();
  call.result(check, "rows", type,
              {tree.getBatch(), nodes->size(), tree.getWidth()});
  call.resultIf(options.returnLogWeight, check, "log_weight",
                getStateType(type), {tree.getBatch(), nodes->size()});
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check);
  if (!results)
    return results.takeError();
  TreeFetchResult result;
  result.rows = std::move((*results)[0]);
  if (options.returnLogWeight)
    result.logWeight = std::move((*results)[1]);
  return result;
}

/// Sorts the numbers of nodes of every batch entry by where nodes begin.
static void sortBySequence(const Tree &tree, const NodeList &nodes,
                           MutableArrayRef<int64_t> order) {
  // Absent nodes come last.
  auto getFirst = [&](int64_t at) {
    int64_t level = nodes.getLevel(at);
    return level < 0 ? std::numeric_limits<int64_t>::max()
                     : nodes.getIndex(at) * tree.getSegment(level);
  };
  for (int64_t b = 0; b < tree.getBatch(); ++b)
    llvm::sort(order.slice(b * nodes.size(), nodes.size()),
               [&](int64_t left, int64_t right) {
                 return std::pair(getFirst(left), left) <
                        std::pair(getFirst(right), right);
               });
}

/// Checks that the nodes of every batch entry, visited in `order`, cover the
/// sequence one after the other, before those that are absent.
static void checkCover(Checker &check, const Tree &tree, const NodeList &nodes,
                       ArrayRef<int64_t> order) {
  int64_t size = nodes.size();
  for (int64_t b = 0; b < tree.getBatch(); ++b) {
    int64_t end = 0;
    for (int64_t j = 0; j < size; ++j) {
      int64_t at = order[b * size + j], level = nodes.getLevel(at);
      if (level < 0)
        break;
      int64_t first = nodes.getIndex(at) * tree.getSegment(level);
      check.check(
          first == end,
          "index[" + Twine(b) + ", " + Twine(j) + "]: found node " +
              Twine(nodes.getIndex(at)) + " of level " + Twine(level) +
              ", which " +
              (first < end ? "overlaps an earlier one" : "leaves a gap") +
              "; needed one that begins at token " + Twine(end));
      end = first + tree.getSegment(level);
    }
    check.check(end == tree.getNumTokens(),
                "index: found nodes that cover " + Twine(end) +
                    " tokens of batch entry " + Twine(b) + ", needed all " +
                    Twine(tree.getNumTokens()));
  }
}

/// Elements `order[i]` of `from`, which are `bytes` long.
static void permute(ArrayRef<int64_t> order, const void *from, void *to,
                    int64_t bytes) {
  for (auto [i, at] : enumerate(order))
    std::memcpy(static_cast<char *>(to) + i * bytes,
                static_cast<const char *>(from) + at * bytes, bytes);
}

/// Puts nodes and rows into the order of the sequence.
static Error sortNodes(ArrayRef<int64_t> order, NodeList &nodes, Argument &rows,
                       OwnedTensor &memory) {
  OwnedTensor copy;
  Expected<TensorRef> contiguous =
      prepare(rows, /*takesStrides=*/false, copy, [&] { return rows.name; });
  if (!contiguous)
    return contiguous.takeError();
  Expected<OwnedTensor> sorted = allocate(rows.elementType, rows.shape);
  if (!sorted)
    return sorted.takeError();
  memory = std::move(*sorted);
  permute(order, contiguous->data, memory.getData(),
          rows.shape[2] * getByteWidth(rows.elementType));
  rows = Argument(rows.name, memory.getRef());
  for (OwnedTensor *list : {&nodes.level, &nodes.index}) {
    Expected<OwnedTensor> other =
        allocateList(list->getShape()[0], list->getShape()[1]);
    if (!other)
      return other.takeError();
    permute(order, list->getData(), other->getData(), sizeof(int32_t));
    *list = std::move(*other);
  }
  return Error::success();
}

/// The result is the new nodes, unless they lie in those of the tree.
static Expected<SmallVector<OwnedTensor>>
runUpdate(const Tree &tree, const TensorRef &level, const TensorRef &index,
          const TensorRef &rows, Target target, bool inPlace,
          const ResultMemory &out = {}) {
  Checker check("tree_update");
  Expected<NodeList> nodes = checkNodes(check, tree, level, index, target);
  if (!nodes)
    return nodes.takeError();
  Argument newRows = check.operand("rows", "rows", rows);
  check.elementType(newRows, {tree.nodes.getElementType()});
  int64_t batch = tree.getBatch(), size = nodes->size();
  check.match("rows", "shape", newRows.shape, {batch, size, tree.getWidth()});

  SmallVector<int64_t> order = to_vector(seq<int64_t>(0, batch * size));
  // Kernels check that nodes on a device are in order.
  if (!DescribeScope::isActive() && !nodes->isOnDevice) {
    sortBySequence(tree, *nodes, order);
    checkCover(check, tree, *nodes, order);
  }
  if (check.hasFailed())
    return check.takeError();
  OwnedTensor memory;
  if (!llvm::is_sorted(order)) {
    checkOnHost(check, "rows", rows.data, target);
    if (check.hasFailed())
      return check.takeError();
    if (Error error = sortNodes(order, *nodes, newRows, memory))
      return error;
  }

  Call call("tree_update", target, out);
  call.operand(newRows);
  addNodes(call, *nodes);
  addCounts(call, tree);
  addTreeShape(call, tree);
  call.update(check, Argument("tree", tree.nodes.getRef()), inPlace);
  return call.runChecked(check);
}

Error fovea::tree_update(Tree &tree, const TensorRef &level,
                         const TensorRef &index, const TensorRef &rows,
                         Target target) {
  return runUpdate(tree, level, index, rows, target, /*inPlace=*/true)
      .takeError();
}

Expected<OwnedTensor> fovea::tree_updated(const Tree &tree,
                                          const TensorRef &level,
                                          const TensorRef &index,
                                          const TensorRef &rows, Target target,
                                          const ResultMemory &out) {
  Expected<SmallVector<OwnedTensor>> nodes =
      runUpdate(tree, level, index, rows, target, /*inPlace=*/false, out);
  if (!nodes)
    return nodes.takeError();
  return std::move((*nodes)[0]);
}
