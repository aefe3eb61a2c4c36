//===- TreeArguments.cpp - Checks of trees and lists of nodes -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeArguments.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Extents
//===----------------------------------------------------------------------===//

int64_t Tree::getSegment(int64_t level) const {
  int64_t segment = 1;
  for (int64_t i = 0; i < level; ++i)
    segment *= ratio;
  return segment;
}

int64_t Tree::getFirstRow(int64_t level) const {
  int64_t row = 0;
  for (int64_t above = level + 1; above <= levels; ++above)
    row += getNumNodes(above);
  return row;
}

int64_t Tree::getNumNodes(int64_t level) const {
  // A root and what is under it.
  int64_t perRoot = 0;
  for (int64_t below = 0; below <= levels; ++below)
    perRoot += getSegment(below);
  return nodes.getShape()[1] / perRoot * getSegment(levels - level);
}

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

Expected<OwnedTensor> functions::allocateList(int64_t batch, int64_t size) {
  return allocate(ElementType::I32, {batch, size});
}

int64_t functions::getPower(int64_t ratio, int64_t levels) {
  int64_t power = 1;
  for (int64_t i = 0; i < levels && power <= kMaxNodes; ++i)
    power *= std::min(ratio, kMaxNodes);
  return power;
}

Shape functions::getSequenceShape(const Tree &tree) {
  return {tree.getBatch(), tree.getNumTokens(), tree.getWidth()};
}

static void checkParts(Checker &check, const TensorRef &nodes,
                       const std::optional<TensorRef> &counts, int64_t ratio,
                       int64_t levels) {
  Argument rows = check.tensor("nodes", nodes, 3, "[B,n,F]");
  check.integer("ratio", ratio, 2);
  check.integer("levels", levels, 1);
  if (check.hasFailed())
    return;
  // A root and what is under it.
  int64_t perRoot = 0;
  for (int64_t level = 0; level <= levels && perRoot <= kMaxNodes; ++level)
    perRoot += getPower(ratio, level);
  if (rows.shape[1] == 0 || rows.shape[2] == 0 || perRoot > 2 * kMaxNodes ||
      getPower(ratio, levels) > kMaxNodes || rows.shape[1] % perRoot)
    check.fail("nodes: found shape " + toList(rows.shape) +
               ", needed the nodes of a tree of ratio " + Twine(ratio) +
               " with " + Twine(levels) + " levels");
  if (!counts)
    return;
  Argument found("counts", *counts);
  if (found.elementType != ElementType::I32)
    check.fail("counts: found element type " +
               getArrayTypeName(found.elementType) + ", needed int32");
  check.match("counts", "shape", found.shape, ArrayRef(rows.shape).drop_back());
}

Error fovea::tree_check(const TensorRef &nodes,
                        const std::optional<TensorRef> &counts, int64_t ratio,
                        int64_t levels) {
  Checker check;
  checkParts(check, nodes, counts, ratio, levels);
  return check.takeError();
}

void functions::checkTree(Checker &check, const Tree &tree) {
  if (!tree.nodes.getData())
    return check.fail("tree: found none, needed a tree of tree_build");
  checkParts(check, tree.nodes.getRef(),
             tree.hasCounts() ? std::optional(tree.counts.getRef())
                              : std::nullopt,
             tree.ratio, tree.levels);
}

/// The numbers of a list [r] or [B,r], for every batch entry.
static Expected<SmallVector<int64_t>> spread(const Argument &list,
                                             int64_t batch) {
  OwnedTensor copy;
  Expected<TensorRef> ref =
      prepare(list, /*takesStrides=*/false, copy, [&] { return list.name; });
  if (!ref)
    return ref.takeError();
  int64_t size = list.shape.back();
  bool isShared = list.shape.size() == 1;
  SmallVector<int64_t> numbers(batch * size);
  for (auto [at, number] : enumerate(numbers)) {
    int64_t from = isShared ? at % size : at;
    number = list.elementType == ElementType::I64
                 ? static_cast<const int64_t *>(ref->data)[from]
                 : static_cast<const int32_t *>(ref->data)[from];
  }
  return numbers;
}

/// A list [r] or [B,r] as one of every batch entry.
static OwnedTensor viewList(const Argument &list, int64_t batch) {
  TensorRef view = list.getRef();
  if (list.shape.size() == 2)
    return getView(view);
  int64_t shape[] = {batch, list.shape[0]};
  int64_t strides[] = {0, list.strides.empty() ? 1 : list.strides[0]};
  view.shape = shape;
  view.strides = strides;
  return getView(view);
}

static void checkList(Checker &check, const Argument &list, int64_t batch) {
  ArrayRef<int64_t> shape = list.shape;
  if (list.elementType != ElementType::I32 &&
      list.elementType != ElementType::I64)
    check.fail(list.name + ": found element type " +
               getArrayTypeName(list.elementType) + ", needed int32");
  if (shape.size() != 1 && (shape.size() != 2 || shape[0] != batch))
    check.fail(list.name + ": found shape " + toList(shape) +
               ", needed [r] or [" + Twine(batch) + ", r]");
}

Expected<NodeList> functions::checkNodes(Checker &check, const Tree &tree,
                                         const TensorRef &level,
                                         const TensorRef &index,
                                         Target target) {
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  int64_t batch = tree.getBatch();
  Argument levelList("level", level), indexList("index", index);
  checkList(check, levelList, batch);
  checkList(check, indexList, batch);
  if (check.hasFailed())
    return check.takeError();
  int64_t size = levelList.shape.back();
  check.check(size == indexList.shape.back(),
              "index: found " + Twine(indexList.shape.back()) +
                  " nodes, needed " + Twine(size) + ", as in level");
  if (check.hasFailed())
    return check.takeError();
  if (DescribeScope::isActive())
    return NodeList{
        DescribeScope::makeAbstract(ElementType::I32, {batch, size}),
        DescribeScope::makeAbstract(ElementType::I32, {batch, size})};
  if (isOnDevice(level.data, target) || isOnDevice(index.data, target)) {
    NodeList nodes{viewList(levelList, batch), viewList(indexList, batch)};
    nodes.isOnDevice = true;
    return nodes;
  }
  Expected<SmallVector<int64_t>> levels = spread(levelList, batch);
  if (!levels)
    return levels.takeError();
  Expected<SmallVector<int64_t>> indices = spread(indexList, batch);
  if (!indices)
    return indices.takeError();

  auto checkRange = [&](StringRef name, int64_t at, int64_t found,
                        int64_t most) {
    if (found < 0 || found > most)
      check.fail(name + "[" + Twine(at / size) + ", " + Twine(at % size) +
                 "]: found " + Twine(found) + ", needed 0 to " + Twine(most));
  };
  auto isAbsent = [&](int64_t at) {
    return (*levels)[at] == -1 && (*indices)[at] == -1;
  };
  for (int64_t at = 0; at < batch * size; ++at)
    if (!isAbsent(at))
      checkRange("level", at, (*levels)[at], tree.levels);
  SmallVector<int64_t> numNodes;
  for (int64_t each = 0; each <= tree.levels; ++each)
    numNodes.push_back(tree.getNumNodes(each));
  for (int64_t at = 0; at < batch * size && !check.hasFailed(); ++at)
    if (!isAbsent(at))
      checkRange("index", at, (*indices)[at], numNodes[(*levels)[at]] - 1);
  if (check.hasFailed())
    return check.takeError();
  NodeList nodes{reserve(ElementType::I32, {batch, size}),
                 reserve(ElementType::I32, {batch, size})};
  copy(*levels, nodes.level.getDataAs<int32_t>());
  copy(*indices, nodes.index.getDataAs<int32_t>());
  return nodes;
}

void functions::addNodes(Call &call, const NodeList &nodes) {
  call.operands({Argument("level", nodes.level.getRef()),
                 Argument("index", nodes.index.getRef())});
}

void functions::addTreeShape(Call &call, const Tree &tree) {
  call.attribute("shape", TreeValue{tree.ratio, tree.levels});
}

void functions::addCounts(Call &call, const Tree &tree) {
  call.operandIf(tree.hasCounts()
                     ? std::optional(Argument("counts", tree.counts.getRef()))
                     : std::nullopt);
}
