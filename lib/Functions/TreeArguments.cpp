//===- TreeArguments.cpp - Checks of trees and lists of nodes -------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TreeArguments.h"
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

void functions::checkTree(Checker &check, const Tree &tree) {
  check.check(tree.ratio >= 2 && tree.levels >= 1 &&
                  tree.nodes.getShape().size() == 3,
              "tree: found none, needed a tree of tree_build");
}

/// Copies a list [r] or [B,r] to [B,r].
static Expected<OwnedTensor> spread(const Argument &list, int64_t batch) {
  OwnedTensor copy;
  Expected<TensorRef> ref = toContiguous(list, copy, [&] { return list.name; });
  if (!ref)
    return ref.takeError();
  int64_t size = list.shape.back();
  Expected<OwnedTensor> result = allocateList(batch, size);
  if (!result)
    return result.takeError();
  const int32_t *from = static_cast<const int32_t *>(ref->data);
  int64_t stride = list.shape.size() == 2 ? size : 0;
  for (int64_t b = 0; b < batch; ++b)
    std::copy_n(from + b * stride, size,
                result->getDataAs<int32_t>() + b * size);
  return result;
}

Expected<NodeList> functions::checkNodes(Checker &check, const Tree &tree,
                                         const TensorRef &level,
                                         const TensorRef &index) {
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  int64_t batch = tree.getBatch();
  Argument lists[] = {Argument("level", level), Argument("index", index)};
  for (const Argument &list : lists) {
    check.check(list.elementType == ElementType::I32,
                list.name + ": found element type " +
                    getArrayTypeName(list.elementType) + ", needed int32");
    ArrayRef<int64_t> shape = list.shape;
    std::string text;
    raw_string_ostream os(text);
    interleaveComma(shape, os);
    check.check(shape.size() == 1 || (shape.size() == 2 && shape[0] == batch),
                list.name + ": found shape [" + text + "], needed [r] or [" +
                    Twine(batch) + ", r]");
  }
  if (check.hasFailed())
    return check.takeError();
  check.check(lists[0].shape.back() == lists[1].shape.back(),
              "index: found " + Twine(lists[1].shape.back()) +
                  " nodes, needed " + Twine(lists[0].shape.back()) +
                  ", as in level");
  if (check.hasFailed())
    return check.takeError();
  Expected<OwnedTensor> levels = spread(lists[0], batch);
  if (!levels)
    return levels.takeError();
  Expected<OwnedTensor> indices = spread(lists[1], batch);
  if (!indices)
    return indices.takeError();
  NodeList nodes{std::move(*levels), std::move(*indices)};

  auto isAbsent = [&](int64_t at) {
    return nodes.getLevel(at) == -1 && nodes.getIndex(at) == -1;
  };
  auto checkRange = [&](StringRef name, int64_t at, int64_t found,
                        int64_t most) {
    if (found >= 0 && found <= most)
      return;
    check.fail(name + "[" + Twine(at / nodes.size()) + ", " +
               Twine(at % nodes.size()) + "]: found " + Twine(found) +
               ", needed 0 to " + Twine(most));
  };
  int64_t count = batch * nodes.size();
  for (int64_t at = 0; at < count; ++at)
    if (!isAbsent(at))
      checkRange("level", at, nodes.getLevel(at), tree.levels);
  for (int64_t at = 0; at < count && !check.hasFailed(); ++at)
    if (!isAbsent(at))
      checkRange("index", at, nodes.getIndex(at),
                 tree.getNumNodes(nodes.getLevel(at)) - 1);
  if (check.hasFailed())
    return check.takeError();
  return nodes;
}

void functions::addTreeShape(Call &call, const Tree &tree) {
  call.attribute("shape", TreeValue{tree.ratio, tree.levels});
}

void functions::addCounts(Call &call, const Tree &tree) {
  call.operandIf(tree.hasCounts()
                     ? std::optional(Argument("counts", tree.counts.getRef()))
                     : std::nullopt);
}
