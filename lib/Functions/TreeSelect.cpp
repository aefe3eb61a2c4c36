//===- TreeSelect.cpp - Choosing nodes of trees of arrays -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenMask.h"
#include "TreeArguments.h"
#include "TreeChoice.h"
#include "fovea/ExecutionEngine/Elements.h"
#include "fovea/Functions/ResultScopes.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

//===----------------------------------------------------------------------===//
// Scores
//===----------------------------------------------------------------------===//

namespace {
/// One call of attn.tree_score, checked.
struct ScoreCall {
  ScoreCall(const TensorRef &query, const TensorRef &key,
            const TreeScoreOptions &options, const ResultMemory &out = {});

  Checker check;
  Call call;
  ElementType state;
  /// [B,c].
  Shape shape;
};
} // namespace

ScoreCall::ScoreCall(const TensorRef &query, const TensorRef &key,
                     const TreeScoreOptions &options, const ResultMemory &out)
    : check("tree_score"), call("tree_score", options.target, out) {
  Argument queries = check.operand("query", "query", query);
  Argument keys = check.operand("key", "key", key);
  check.notEmpty(queries);
  check.check(!options.exponential || queries.shape[1] == 1,
              "query: found " + Twine(queries.shape[1]) +
                  " heads, needed 1 with exponential");
  check.check(!options.exponential || !options.logWeight,
              "log_weight: found one, needed none with exponential");
  state = getStateType(queries.elementType);
  shape = {keys.shape[0], keys.shape[2]};
  call.operands({queries, keys});
  call.attribute("scale", check.scale(options.scale, queries.shape[3]));
  call.flag("exponential", options.exponential);
  std::optional<Argument> logWeight =
      check.operandIf("log_weight", "log_weight", options.logWeight);
  // The kernel of a gradient is for any extents.
  if (logWeight)
    check.match("log_weight", "shape", logWeight->shape, shape);
  call.operandIf(logWeight);
  TokenMask mask(check, {options.mask, std::nullopt}, queries.shape[0],
                 queries.shape[2], options.target);
  call.operandIf(mask.get());
  call.result(check, "output", state, shape);
}

Expected<OwnedTensor> fovea::tree_score(const TensorRef &query,
                                        const TensorRef &key,
                                        const TreeScoreOptions &options) {
  ScoreCall score(query, key, options, options.out);
  return score.call.runFor<OwnedTensor, 1>(score.check);
}

Expected<TreeScoreGradients> fovea::tree_score_backward(
    const TensorRef &dScore, const TensorRef &query, const TensorRef &key,
    const TreeScoreOptions &options, const GradientMemory &memory) {
  ScoreCall score(query, key, options);
  Argument gradient =
      score.check.like("d_score", dScore, score.state, score.shape);
  SmallVector<int64_t> wanted{0, 1};
  if (options.logWeight)
    wanted.push_back(2);
  Expected<SmallVector<OwnedTensor>> found =
      score.call.runGradient(score.check, memory, wanted, gradient);
  if (!found)
    return found.takeError();
  TreeScoreGradients gradients{
      std::move((*found)[0]), std::move((*found)[1]), {}};
  if (options.logWeight)
    gradients.logWeight = std::move((*found)[2]);
  return gradients;
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

namespace {
/// Algorithm 1, level by level.
class Selection {
public:
  Selection(const Tree &tree, Target target, const ResultMemory &out)
      : tree(tree), target(target), out(out) {}

  /// Says so where a level cannot have its budget.
  Error setBudgets(const TreeBudgets &given);
  /// Fails where the result cannot go to its memory.
  Error checkMemory() const;
  Expected<TreeSelection> run(TreeScore score);
  /// The same with scores by VIP rows, in kernels alone.
  Expected<TreeSelection> runInKernels(const Argument &vip) {
    return chooseByRows(tree, ArrayRef(budgets).drop_front(), getNumNodes(),
                        vip, target, out);
  }

private:
  Error start();
  Expected<OwnedTensor> getScores(int64_t level, TreeScore score);
  Expected<OwnedTensor> fetchRows(int64_t level);
  /// The frontier of the last split is the result.
  Error split(int64_t level, const OwnedTensor *scores, bool isLast);

  int64_t getNumCandidates() const { return candidates.getShape()[1]; }
  /// Those that the budgets leave.
  int64_t getNumNodes() const {
    int64_t size = tree.getNumRoots();
    for (int64_t budget : budgets)
      size += budget * (tree.ratio - 1);
    return size;
  }

  const Tree &tree;
  Target target;
  const ResultMemory &out;
  /// By level.
  SmallVector<int64_t> budgets;
  /// Indices of the nodes of the present level, and the frontier, all [B,?]; -1
  /// for absent ones.
  OwnedTensor candidates, level, index;
  bool hasFrontier = false;
};
} // namespace

Error Selection::setBudgets(const TreeBudgets &given) {
  Checker check;
  budgets.assign(tree.levels + 1, 0);
  for (auto [level, budget] : given) {
    check.check(level >= 1 && level <= tree.levels,
                "budgets: found level " + Twine(level) + ", needed 1 to " +
                    Twine(tree.levels));
    check.integer(("budgets[" + Twine(level) + "]").str(), budget, 0);
    if (check.hasFailed())
      return check.takeError();
    budgets[level] = budget;
  }
  int64_t candidates = tree.getNumRoots();
  for (int64_t level = tree.levels; level > 0; --level) {
    check.check(budgets[level] <= candidates,
                "budgets[" + Twine(level) + "]: found " +
                    Twine(budgets[level]) + ", needed at most " +
                    Twine(candidates) + ", the candidates of level " +
                    Twine(level));
    candidates = budgets[level] * tree.ratio;
  }
  return check.takeError();
}

Error Selection::checkMemory() const {
  Checker check;
  checkPlaces(check, out, 2);
  Shape shape{tree.getBatch(), getNumNodes()};
  for (size_t place : {0, 1}) {
    std::optional<Argument> memory =
        getPlace(check, out, place, ElementType::I32, shape);
    if (check.hasFailed())
      return check.takeError();
    if (!memory)
      continue;
    if (Error error =
            checkSeparate(*memory, Argument("tree", tree.nodes.getRef())))
      return error;
  }
  return check.takeError();
}

Error Selection::start() {
  Expected<OwnedTensor> roots =
      allocateList(tree.getBatch(), tree.getNumRoots());
  if (!roots)
    return roots.takeError();
  candidates = std::move(*roots);
  for (int64_t i = 0; i < candidates.getNumElements(); ++i)
    candidates.getDataAs<int32_t>()[i] = i % tree.getNumRoots();
  return Error::success();
}

/// `array`, or a copy of what only kernels can read.
static Expected<OwnedTensor> bringToHost(OwnedTensor array, Target target) {
  if (DescribeScope::isActive() || !isOnDevice(array.getData(), target))
    return array;
  OwnedTensor copy;
  Expected<TensorRef> found =
      prepareOnHost(Argument("score", array.getRef()), target, copy);
  if (!found)
    return found.takeError();
  return copy;
}

Expected<OwnedTensor> Selection::fetchRows(int64_t at) {
  Expected<OwnedTensor> levels =
      allocateList(tree.getBatch(), getNumCandidates());
  if (!levels)
    return levels.takeError();
  // Candidates of batch entries that have fewer are absent.
  for (int64_t i = 0; i < levels->getNumElements(); ++i)
    levels->getDataAs<int32_t>()[i] =
        candidates.getDataAs<int32_t>()[i] < 0 ? -1 : at;
  TreeFetchOptions options;
  options.target = target;
  Expected<TreeFetchResult> fetched =
      tree_fetch(tree, levels->getRef(), candidates.getRef(), options);
  if (!fetched)
    return fetched.takeError();
  return std::move(fetched->rows);
}

Expected<OwnedTensor> Selection::getScores(int64_t at, TreeScore score) {
  if (DescribeScope::isActive())
    return DescribeScope::makeAbstract(ElementType::F32, candidates.getShape());
  TreeRows given;
  OwnedTensor memory;
  if (!hasFrontier && tree.getBatch() == 1 && tree.nodes.getStrides().empty()) {
    // The roots, which lie first.
    static_cast<TensorRef &>(given) = tree.nodes.getRef();
  } else {
    Expected<OwnedTensor> rows = fetchRows(at);
    if (!rows)
      return rows.takeError();
    memory = std::move(*rows);
    static_cast<TensorRef &>(given) = memory.getRef();
    given.memory = &memory;
  }
  int64_t shape[] = {tree.getBatch(), getNumCandidates(), tree.getWidth()};
  given.shape = shape;
  Expected<OwnedTensor> scores = score(given, at);
  if (!scores)
    return scores.takeError();
  Checker check;
  if (scores->getShape() != candidates.getShape())
    check.fail("score: found shape " + toList(scores->getShape()) +
               " at level " + Twine(at) + ", needed " +
               toList(candidates.getShape()));
  if (check.hasFailed())
    return check.takeError();
  scores = bringToHost(std::move(*scores), target);
  // Compared in f64, whatever they come in.
  if (!scores || scores->getElementType() == ElementType::F64)
    return scores;
  Expected<OwnedTensor> wide =
      allocate(ElementType::F64, candidates.getShape());
  if (!wide)
    return wide.takeError();
  for (int64_t i = 0; i < wide->getNumElements(); ++i)
    wide->getDataAs<double>()[i] =
        getElement(scores->getData(), scores->getElementType(), i);
  return wide;
}

Error Selection::split(int64_t at, const OwnedTensor *scores, bool isLast) {
  int64_t batch = tree.getBatch(), budget = budgets[at];
  int64_t listed = hasFrontier ? level.getShape()[1] : tree.getNumRoots();
  Checker check("tree_split");
  // Children are nobody's result.
  ResultMemory memory(out.getName());
  if (isLast && !out.getPlaces().empty()) {
    for (const ResultMemory::Place &place : out.getPlaces())
      memory.add(place.name, place.array);
    memory.add("", std::nullopt);
  }
  Call call("tree_split", target, memory);
  auto add = [&](StringRef name, const OwnedTensor *list) {
    call.operandIf(list ? std::optional(Argument(name, list->getRef()))
                        : std::nullopt);
  };
  add("scores", scores);
  add("candidates", hasFrontier ? &candidates : nullptr);
  add("level", hasFrontier ? &level : nullptr);
  add("index", hasFrontier ? &index : nullptr);
  addCounts(call, tree);
  addTreeShape(call, tree);
  call.attribute("at", at);
  call.attribute("split", budget);
  Shape nodes{batch, listed + budget * (tree.ratio - 1)};
  call.result(check, "new_level", ElementType::I32, nodes);
  call.result(check, "new_index", ElementType::I32, nodes);
  call.result(check, "children", ElementType::I32,
              {batch, budget * tree.ratio});
  Expected<SmallVector<OwnedTensor>> results = call.runChecked(check);
  if (!results)
    return results.takeError();
  level = std::move((*results)[0]);
  index = std::move((*results)[1]);
  Expected<OwnedTensor> children =
      bringToHost(std::move((*results)[2]), target);
  if (!children)
    return children.takeError();
  candidates = std::move(*children);
  hasFrontier = true;
  return Error::success();
}

Expected<TreeSelection> Selection::run(TreeScore score) {
  if (Error error = start())
    return error;
  for (int64_t at = tree.levels; at > 0; --at) {
    // At least once, so that there is a frontier.
    if (budgets[at] == 0 && hasFrontier)
      break;
    OwnedTensor scores;
    bool isChoice = budgets[at] != 0 && budgets[at] != getNumCandidates();
    if (isChoice) {
      Expected<OwnedTensor> found = getScores(at, score);
      if (!found)
        return found.takeError();
      scores = std::move(*found);
    }
    bool isLast = at == 1 || budgets[at - 1] == 0;
    if (Error error = split(at, isChoice ? &scores : nullptr, isLast))
      return error;
  }
  return TreeSelection{std::move(level), std::move(index)};
}

/// Checks the arguments but for the scores.
static Error prepareSelection(Selection &selection, const Tree &tree,
                              const TreeBudgets &budgets) {
  Checker check;
  checkTree(check, tree);
  if (check.hasFailed())
    return check.takeError();
  if (Error error = selection.setBudgets(budgets))
    return error;
  return selection.checkMemory();
}

Expected<TreeSelection> fovea::tree_select(const Tree &tree,
                                           const TreeBudgets &budgets,
                                           TreeScore score, Target target,
                                           const ResultMemory &out) {
  Selection selection(tree, target, out);
  if (Error error = prepareSelection(selection, tree, budgets))
    return error;
  if (isCaptured(tree.nodes.getData(), target))
    return createStringError(
        "score: found a function, which the host calls, and which a CUDA graph "
        "that is being captured cannot hold: give rows of VIP tokens");
  return selection.run(score);
}

Expected<TreeSelection> fovea::tree_select(const Tree &tree,
                                           const TreeBudgets &budgets,
                                           const TensorRef &vip, Target target,
                                           const ResultMemory &out) {
  Checker check;
  checkTree(check, tree);
  Argument rows = check.tensor("score", vip, 3, "[B,np,F], or a function");
  if (check.hasFailed())
    return check.takeError();
  check.elementType(rows, {tree.nodes.getElementType()});
  check.match("score", "batch", rows.shape[0], tree.getBatch());
  check.match("score", "width", rows.shape[2], tree.getWidth());
  if (check.hasFailed())
    return check.takeError();
  if (target == Target::GPU || target == Target::GPUEmulator) {
    Selection selection(tree, target, out);
    if (Error error = prepareSelection(selection, tree, budgets))
      return error;
    return selection.runInKernels(rows);
  }
  // As one head.
  Shape shape{rows.shape[0], 1, rows.shape[1], rows.shape[2]};
  Shape strides = rows.strides;
  if (strides.size() == 3)
    strides.insert(strides.begin() + 1, 0);
  TensorRef query = vip;
  query.shape = shape;
  query.strides = strides;
  TreeScoreOptions options;
  options.scale = 1;
  options.exponential = true;
  options.target = target;
  return tree_select(
      tree, budgets,
      [&](const TensorRef &candidates, int64_t) -> Expected<OwnedTensor> {
        Shape extents{candidates.shape[0], 1, candidates.shape[1],
                      candidates.shape[2]};
        TensorRef key = candidates;
        key.shape = extents;
        return tree_score(query, key, options);
      },
      target, out);
}
