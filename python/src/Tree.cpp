//===- Tree.cpp - Trees of averages in Python -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Functions/Tree.h"
#include "Functions.h"

namespace nb = nanobind;
using namespace llvm;
using namespace fovea;
using namespace fovea::python;

/// The nodes, counts, ratio and levels of a tree, as views.
static Tree readTree(Reader &in) {
  Tree tree;
  tree.nodes = in.view("nodes");
  tree.counts = in.optionalView("counts");
  tree.ratio = in.integer("ratio", 2);
  tree.levels = in.integer("levels", 1);
  return tree;
}

static nb::object checkTree(Reader &in) {
  TensorRef nodes = in.array("nodes");
  std::optional<TensorRef> counts = in.optionalArray("counts");
  int64_t ratio = in.integer("ratio", 2), levels = in.integer("levels", 1);
  in.run([&] { return tree_check(nodes, counts, ratio, levels); });
  return nb::none();
}

/// Nodes, counts or None, and levels.
static nb::object callBuild(Reader &in) {
  TensorRef c = in.array("c");
  auto options = in.makeOptions<TreeBuildOptions>();
  options.ratio = in.integer("ratio", 2);
  options.levels = in.optionalInteger("levels", 1);
  in.readTokens(options);
  Tree tree = in.run([&] { return tree_build(c, options); });
  nb::object nodes = in.give(std::move(tree.nodes));
  nb::object counts =
      tree.hasCounts() ? in.give(std::move(tree.counts)) : nb::none();
  return nb::make_tuple(nodes, counts, tree.levels);
}

static nb::object callFetch(Reader &in) {
  Tree tree = readTree(in);
  TensorRef level = in.array("level"), index = in.array("index");
  auto options = in.makeOptions<TreeFetchOptions>();
  options.returnLogWeight = in.flag("return_log_weight");
  options.wholeSegments = in.flag("whole_segments");
  TreeFetchResult result =
      in.run([&] { return tree_fetch(tree, level, index, options); });
  nb::object rows = in.give(std::move(result.rows));
  return options.returnLogWeight
             ? nb::make_tuple(rows, in.give(std::move(result.logWeight)))
             : rows;
}

/// The nodes of another tree.
static nb::object callUpdate(Reader &in) {
  Tree tree = readTree(in);
  TensorRef level = in.array("level"), index = in.array("index"),
            rows = in.array("rows");
  const ResultMemory &out = in.getMemory();
  return in.call([&] {
    return tree_updated(tree, level, index, rows, in.getTarget(), out);
  });
}

static nb::object callMaterialize(Reader &in) {
  Tree tree = readTree(in);
  const ResultMemory &out = in.getMemory();
  return in.call([&] { return tree_materialize(tree, in.getTarget(), out); });
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

static TreeScoreOptions readScoreOptions(Reader &in) {
  auto options = in.makeOptions<TreeScoreOptions>();
  options.scale = in.optionalNumber("scale");
  options.logWeight = in.optionalArray("log_weight");
  options.mask = in.optionalArray("mask");
  options.exponential = in.flag("exponential");
  return options;
}

static nb::object callScore(Reader &in) {
  TensorRef query = in.array("query"), key = in.array("key");
  TreeScoreOptions options = readScoreOptions(in);
  return in.call([&] { return tree_score(query, key, options); });
}

/// Gradients of queries, keys and, if there were any, log weights.
static nb::object callScoreBackward(Reader &in) {
  TensorRef dScore = in.array("d_score"), query = in.array("query"),
            key = in.array("key");
  TreeScoreOptions options = readScoreOptions(in);
  GradientMemory memory = in.getMemory();
  TreeScoreGradients gradients = in.run(
      [&] { return tree_score_backward(dScore, query, key, options, memory); });
  if (!options.logWeight)
    return in.giveAll(std::move(gradients.query), std::move(gradients.key));
  return in.giveAll(std::move(gradients.query), std::move(gradients.key),
                    std::move(gradients.logWeight));
}

/// Calls `score`, a function of Python, from one of C++, which no exception may
/// pass. It is given None where the rows are those of the roots.
static Expected<OwnedTensor> callBack(Reader &in, nb::handle score,
                                      const TreeRows &rows, int64_t level) {
  nb::gil_scoped_acquire acquire;
  try {
    nb::object found = score(
        rows.memory ? in.give(std::move(*rows.memory)) : nb::none(), level);
    return in.loadView(found, "score", /*needsWrite=*/false);
  } catch (nb::python_error &error) {
    error.restore();
  } catch (const std::exception &error) {
    PyErr_SetString(PyExc_ValueError, error.what());
  }
  return createStringError("a function of Python has failed");
}

static nb::object callSelect(Reader &in) {
  Tree tree = readTree(in);
  TreeBudgets budgets;
  for (auto [level, budget] : nb::cast<nb::dict>(in.object())) {
    int64_t at = Reader::toInteger(level, "budgets", 0);
    budgets[at] =
        Reader::toInteger(budget, "budgets[" + std::to_string(at) + "]", 0);
  }
  const ResultMemory &memory = in.getMemory();
  TreeSelection selection;
  if (nb::handle score = in.peek(); PyCallable_Check(score.ptr())) {
    selection = in.run([&] {
      return tree_select(
          tree, budgets,
          [&](const TreeRows &rows, int64_t level) {
            return callBack(in, score, rows, level);
          },
          in.getTarget(), memory);
    });
  } else {
    TensorRef vip = in.array("score");
    selection = in.run([&] {
      return tree_select(tree, budgets, vip, in.getTarget(), memory);
    });
  }
  return in.giveAll(std::move(selection.level), std::move(selection.index));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

static nb::object callBuildBackward(Reader &in) {
  TensorRef dTree = in.array("d_tree");
  Tree tree = readTree(in);
  const ResultMemory &out = in.getMemory();
  return in.call(
      [&] { return tree_build_backward(dTree, tree, in.getTarget(), out); });
}

static nb::object callMaterializeBackward(Reader &in) {
  TensorRef dC = in.array("d_c");
  Tree tree = readTree(in);
  const ResultMemory &out = in.getMemory();
  return in.call(
      [&] { return tree_materialize_backward(dC, tree, in.getTarget(), out); });
}

static nb::object callFetchBackward(Reader &in) {
  TensorRef dRows = in.array("d_rows");
  Tree tree = readTree(in);
  TensorRef level = in.array("level"), index = in.array("index");
  const ResultMemory &out = in.getMemory();
  return in.call([&] {
    return tree_fetch_backward(dRows, tree, level, index, in.getTarget(), out);
  });
}

static nb::object callUpdateBackward(Reader &in) {
  TensorRef dTree = in.array("d_tree");
  Tree tree = readTree(in);
  TensorRef level = in.array("level"), index = in.array("index");
  const ResultMemory &out = in.getMemory();
  return in.call(
      [&] {
        return tree_update_backward(dTree, tree, level, index, in.getTarget(),
                                    out);
      },
      &TreeUpdateGradients::nodes, &TreeUpdateGradients::rows);
}

void python::defineTree(nb::module_ &m) {
  define<checkTree>(m, "tree_check");
  define<callBuild>(m, "tree_build");
  define<callBuildBackward>(m, "tree_build_backward");
  define<callFetch>(m, "tree_fetch");
  define<callFetchBackward>(m, "tree_fetch_backward");
  define<callMaterialize>(m, "tree_materialize");
  define<callMaterializeBackward>(m, "tree_materialize_backward");
  define<callScore>(m, "tree_score");
  define<callScoreBackward>(m, "tree_score_backward");
  define<callSelect>(m, "tree_select");
  define<callUpdate>(m, "tree_update");
  define<callUpdateBackward>(m, "tree_update_backward");
}
