//===- TreeBackward.cpp - Gradients of functions on trees -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions are linear: gradients are their transposes, sums over children
// and shares of parents, level by level, which --attn-differentiate makes of
// the operations.
//
//===----------------------------------------------------------------------===//

#include "TreeArguments.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static Expected<OwnedTensor> runGradient(const Call &call, Checker &check,
                                         const ResultMemory &out,
                                         const Argument &gradient) {
  Expected<SmallVector<OwnedTensor>> gradients =
      call.runGradient(check, out, {0}, gradient);
  if (!gradients)
    return gradients.takeError();
  return std::move((*gradients)[0]);
}

/// Which tokens are present: those that count.
static Expected<OwnedTensor> getMask(const Tree &tree) {
  int64_t length = tree.getNumTokens(), numNodes = tree.nodes.getShape()[1],
          first = tree.getFirstRow(0);
  if (DescribeScope::isActive())
    return DescribeScope::makeAbstract(ElementType::I1,
                                       {tree.getBatch(), length});
  Expected<OwnedTensor> mask =
      allocate(ElementType::I1, {tree.getBatch(), length});
  if (!mask)
    return mask.takeError();
  for (int64_t b = 0; b < tree.getBatch(); ++b)
    for (int64_t i = 0; i < length; ++i)
      mask->getDataAs<char>()[b * length + i] =
          tree.counts.getDataAs<int32_t>()[b * numNodes + first + i] > 0;
  return mask;
}

Expected<OwnedTensor> fovea::tree_build_backward(const TensorRef &dTree,
                                                 const Tree &tree,
                                                 Target target,
                                                 const ResultMemory &out) {
  Checker check("tree_build");
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  ElementType type = tree.nodes.getElementType();
  Argument gradient = check.like("d_tree", dTree, type, tree.nodes.getShape());
  if (tree.hasCounts())
    checkOnHost(check, "counts", tree.counts.getData(), target);
  if (check.hasFailed())
    return check.takeError();
  // What the sequence was does not matter.
  OwnedTensor sequence = reserve(type, getSequenceShape(tree));
  Call call("tree_build", target);
  call.operand(Argument("c", sequence.getRef()));
  OwnedTensor mask;
  if (tree.hasCounts()) {
    Expected<OwnedTensor> found = getMask(tree);
    if (!found)
      return found.takeError();
    mask = std::move(*found);
  }
  call.operandIf(tree.hasCounts()
                     ? std::optional(Argument("mask", mask.getRef()))
                     : std::nullopt);
  // A kernel for any lengths has the number of nodes from them.
  call.addArgument(Argument("tree", tree.nodes.getRef()), "tree_build", "tree");
  addTreeShape(call, tree);
  call.result(check, "tree", type, tree.nodes.getShape());
  call.resultIf(tree.hasCounts(), check, "counts", ElementType::I32,
                ArrayRef(tree.nodes.getShape()).drop_back());
  return runGradient(call, check, out, gradient);
}

Expected<OwnedTensor>
fovea::tree_materialize_backward(const TensorRef &dC, const Tree &tree,
                                 Target target, const ResultMemory &out) {
  Checker check("tree_materialize");
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  ElementType type = tree.nodes.getElementType();
  Argument gradient = check.like("d_c", dC, type, getSequenceShape(tree));
  Call call("tree_materialize", target);
  call.operand(Argument("tree", tree.nodes.getRef()));
  // The same with the number of tokens.
  call.addArgument(gradient, "tree_materialize", "output");
  addTreeShape(call, tree);
  call.result(check, "output", type, gradient.shape);
  return runGradient(call, check, out, gradient);
}

Expected<OwnedTensor>
fovea::tree_fetch_backward(const TensorRef &dRows, const Tree &tree,
                           const TensorRef &level, const TensorRef &index,
                           Target target, const ResultMemory &out) {
  Checker check("tree_fetch");
  Expected<NodeList> nodes = checkNodes(check, tree, level, index, target);
  if (!nodes)
    return nodes.takeError();
  ElementType type = tree.nodes.getElementType();
  Argument gradient = check.like(
      "d_rows", dRows, type, {tree.getBatch(), nodes->size(), tree.getWidth()});
  Call call("tree_fetch", target);
  call.operand(Argument("tree", tree.nodes.getRef()));
  addNodes(call, *nodes);
  call.operandIf(std::nullopt);
  addTreeShape(call, tree);
  call.result(check, "rows", type, gradient.shape);
  call.resultIf(false, check, "log_weight", getStateType(type), {});
  return runGradient(call, check, out, gradient);
}

Expected<TreeUpdateGradients>
fovea::tree_update_backward(const TensorRef &dTree, const Tree &tree,
                            const TensorRef &level, const TensorRef &index,
                            Target target, const GradientMemory &gradients) {
  Checker check("tree_update");
  Expected<NodeList> nodes = checkNodes(check, tree, level, index, target);
  if (!nodes)
    return nodes.takeError();
  ElementType type = tree.nodes.getElementType();
  Argument gradient = check.like("d_tree", dTree, type, tree.nodes.getShape());
  // What the rows were does not matter.
  OwnedTensor rows =
      reserve(type, {tree.getBatch(), nodes->size(), tree.getWidth()});
  Call call("tree_update", target);
  call.operand(Argument("rows", rows.getRef()));
  addNodes(call, *nodes);
  addCounts(call, tree);
  addTreeShape(call, tree);
  call.update(check, Argument("tree", tree.nodes.getRef()), /*inPlace=*/false);
  int64_t numArguments = tree.hasCounts() ? 5 : 4;
  Expected<SmallVector<OwnedTensor>> found =
      call.runGradient(check, gradients, {numArguments - 1, 0}, gradient);
  if (!found)
    return found.takeError();
  return TreeUpdateGradients{std::move((*found)[0]), std::move((*found)[1])};
}
