//===- MatchAttention.cpp - From a product with values to an attention
//---------- ===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AccessWriter.h"
#include "Attention.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace fovea;
using namespace fovea::attn;
using namespace fovea::attn::detail;

/// The tensor that the number is an element of, before layouts and constant
/// factors, by which `scale` is multiplied.
static Access peelScales(const MatchContext &context, Access access,
                         double &scale) {
  AccessTrace &trace = context.trace;
  access = trace.peel(access);
  double factor = 1;
  Access inner = trace.open(access);
  while (std::optional<ScaledNumber> scaled = matchScaled(context, inner)) {
    factor *= scaled->factor;
    Access outer = trace.peel(scaled->number);
    inner = trace.open(outer);
    if (outer.isTensor()) {
      access = outer;
      scale *= factor;
      factor = 1;
    }
  }
  return access;
}

static AtomSet getUnion(const AtomSet &a, const AtomSet &b) {
  AtomSet all = a;
  all.insert_range(b);
  return all;
}

static bool intersects(const AtomSet &a, const AtomSet &b) {
  return llvm::any_of(a, [&](Atom atom) { return b.contains(atom); });
}

/// Which loops are rows of queries: of those that keys do not have the last
/// dimension of the weights. Those before it are heads that share keys.
static IndexList findRows(ArrayRef<IndexList> weights, const AtomSet &rows) {
  for (const IndexList &dim : llvm::reverse(weights))
    if (!dim.empty() &&
        llvm::all_of(dim, [&](Atom atom) { return rows.contains(atom); }))
      return dim;
  return llvm::to_vector<2>(rows);
}

namespace {
/// Finds what the loops of both products are.
class RoleFinder {
public:
  RoleFinder(const MatchContext &context, Attention &attention,
             const Product &scores)
      : context(context), trace(context.trace), attention(attention),
        scores(scores) {}

  bool find(const Access &weights, const Access &value, const Access &result);

private:
  bool findKey();
  bool canBeOperand(const Access &access);
  bool canBeSink(const Access &sink);
  bool canBeFunction();
  bool canBeCompiled();
  void sortHeads(const IndexLists &weights, const AtomSet &outside,
                 const AtomSet &ofKeys);
  bool fail(Operation *op, const Twine &reason) {
    context.progress.end(100, op, reason);
    return false;
  }

  const MatchContext &context;
  AccessTrace &trace;
  Attention &attention;
  const Product &scores;
  /// The loops of the keys' factor and of the values, before broadcasts of them
  /// are left out.
  AtomSet keyLoops, valueLoops;
};
} // namespace

bool RoleFinder::findKey() {
  const AtomSet axis = trace.resolve(attention.softmax.axis);
  bool hasAxis[2];
  for (auto [factor, has] : llvm::zip_equal(scores.factors, hasAxis))
    has = intersects(axis, trace.getAtoms(factor));
  if (hasAxis[0] == hasAxis[1])
    return fail(scores.op, "the scores are no product of one factor for each "
                           "query and one for each key");
  const Access &key = scores.factors[hasAxis[0] ? 0 : 1];
  const Access &query = scores.factors[hasAxis[0] ? 1 : 0];
  keyLoops = trace.getAtoms(key);
  attention.query = peelScales(context, query, attention.scale);
  attention.key = peelScales(context, key, attention.scale);
  return true;
}

bool RoleFinder::canBeOperand(const Access &access) {
  if (!AccessWriter::canWrite(trace, access))
    return fail(scores.op, "queries, keys or values are no whole tensor");
  if (!isa<Float16Type, BFloat16Type, Float32Type, Float64Type>(
          getElementTypeOrSelf(access.value)))
    return fail(scores.op, "attn.dense takes no such elements");
  return true;
}

/// A sink is one for all rows of a head.
bool RoleFinder::canBeSink(const Access &sink) {
  const AtomSet found = trace.getDependencies(sink);
  if (!AccessWriter::canWrite(trace, sink) ||
      llvm::any_of(found, [&](Atom atom) {
        return !llvm::is_contained(attention.batch, atom) &&
               !llvm::is_contained(attention.heads(), atom);
      }))
    return fail(attention.softmax.quotient,
                "the sink differs from query to query");
  return true;
}

/// A query of a score region stands behind as many keys as there are more keys
/// than queries: with what differs from row to row that number must be known.
bool RoleFinder::canBeFunction() {
  if ((trace.isStatic(attention.rows) && trace.isStatic(attention.columns)) ||
      trace.getExtent(attention.rows) == trace.getExtent(attention.columns))
    return true;
  AtomSet rows;
  rows.insert_range(attention.rows);
  for (const FunctionStep &step : attention.function.steps)
    if (step.kind == FunctionStep::Kind::Number &&
        dependsOn(trace, step.number, rows))
      return fail(scores.op, "a function of scores and rows needs to know how "
                             "many more keys than queries there are");
  return true;
}

/// Raised, it must compile for the target that it is compiled for as it is.
bool RoleFinder::canBeCompiled() {
  if (!trace.isStatic(attention.depth) || !trace.isStatic(attention.width))
    return fail(scores.op, "the width of a head is not known");
  if (!context.isForGPU)
    return true;
  for (const Access *operand :
       {&attention.query, &attention.key, &attention.value})
    if (getElementTypeOrSelf(operand->value).isF64())
      return fail(scores.op, "GPU kernels of attention take no f64");
  if (std::max(trace.getExtent(attention.depth),
               trace.getExtent(attention.width)) > kMaxHeadWidth)
    return fail(scores.op, "GPU kernels of attention take heads of at most " +
                               Twine(kMaxHeadWidth) + " columns");
  return true;
}

/// Batch and heads, in the order of the weights.
void RoleFinder::sortHeads(const IndexLists &weights, const AtomSet &outside,
                           const AtomSet &ofKeys) {
  // What the query has in its first dimension, before all else, is a batch,
  // also where rows follow it there.
  AtomSet first;
  IndexList leading = trace.resolve(attention.query.indices.front());
  if (attention.query.indices.size() > 2 ||
      llvm::any_of(attention.rows, [&](Atom atom) {
        return llvm::is_contained(leading, atom);
      }))
    first.insert_range(leading);
  bool isBatch = true;
  for (const IndexList &dim : weights) {
    for (Atom atom : dim) {
      if (!outside.contains(atom))
        continue;
      if (!ofKeys.contains(atom)) {
        attention.sharedHeads.push_back(atom);
      } else if (isBatch && first.contains(atom)) {
        attention.batch.push_back(atom);
      } else {
        isBatch = false;
        attention.keyHeads.push_back(atom);
      }
    }
  }
}

bool RoleFinder::find(const Access &weightsAccess, const Access &value,
                      const Access &result) {
  if (!findKey())
    return false;
  valueLoops = trace.getAtoms(value);
  attention.value = trace.peel(value);
  for (const Access *operand :
       {&attention.query, &attention.key, &attention.value})
    if (!canBeOperand(*operand))
      return false;
  // All atoms are split as far as they will be.
  auto resolveAll = [&](const Access &access) {
    return llvm::map_to_vector<4>(access.indices, [&](const IndexList &list) {
      return trace.resolve(list);
    });
  };
  IndexLists weights = resolveAll(weightsAccess);
  attention.result = resolveAll(result);
  const AtomSet axis = trace.resolve(attention.softmax.axis);
  const AtomSet ofWeights = trace.getAtoms(weightsAccess);
  const AtomSet ofKeys =
      getUnion(trace.getAtoms(attention.key), trace.getAtoms(attention.value));
  keyLoops = trace.resolve(keyLoops);
  valueLoops = trace.resolve(valueLoops);

  AtomSet rows;
  for (const IndexList &dim : weights)
    for (Atom atom : dim)
      if (!axis.contains(atom) && !keyLoops.contains(atom))
        rows.insert(atom);
  attention.rows = findRows(weights, rows);
  AtomSet outside;
  for (Atom atom : ofWeights)
    if (!axis.contains(atom) && !llvm::is_contained(attention.rows, atom))
      outside.insert(atom);
  if (llvm::any_of(attention.rows,
                   [&](Atom atom) { return ofKeys.contains(atom); }))
    return fail(attention.op, "keys or values differ from query to query");
  // Repeated here, what the program shares would not be shared any more.
  if (llvm::any_of(outside, [&](Atom atom) {
        return ofKeys.contains(atom) &&
               !(keyLoops.contains(atom) && valueLoops.contains(atom));
      }))
    return fail(attention.op, "keys and values have other heads");
  sortHeads(weights, outside, ofKeys);

  for (const IndexList &dim : weights)
    for (Atom atom : dim)
      if (axis.contains(atom))
        attention.columns.push_back(atom);
  for (const IndexList &dim : attention.result)
    for (Atom atom : dim)
      if (!ofWeights.contains(atom))
        attention.width.push_back(atom);
  const AtomSet depth = trace.resolve(scores.reduced);
  AtomSet ordered = trace.getAtoms(attention.key);
  ordered.insert_range(depth);
  for (Atom atom : ordered)
    if (depth.contains(atom))
      attention.depth.push_back(atom);

  // Every row of the result is a row of the weights.
  const AtomSet ofResult = trace.getAtoms(result);
  if (llvm::any_of(getUnion(outside, {}),
                   [&](Atom atom) { return !ofResult.contains(atom); }) ||
      llvm::any_of(attention.rows,
                   [&](Atom atom) { return !ofResult.contains(atom); }))
    return fail(attention.op, "the product sums over more than the keys");
  if (attention.softmax.sink && !canBeSink(*attention.softmax.sink))
    return false;
  return canBeFunction() && canBeCompiled();
}

std::optional<Attention> fovea::attn::detail::matchAttention(
    const MatchContext &context, linalg::LinalgOp op, FullyMasked fullyMasked) {
  AccessTrace &trace = context.trace;
  Progress &progress = context.progress;
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  if (llvm::is_contained(type.getShape(), 0))
    return std::nullopt;
  Access result = trace.addAccess(op->getResult(0));
  std::optional<Product> product = matchProduct(trace, result);
  if (!product)
    return std::nullopt;
  for (unsigned side : {0, 1}) {
    const Access &weights = product->factors[side];
    std::optional<Softmax> softmax = matchSoftmax(context, weights);
    if (!softmax)
      continue;
    Attention attention;
    attention.op = op;
    attention.softmax = *softmax;
    AtomSet reduced = trace.resolve(product->reduced);
    AtomSet axis = trace.resolve(softmax->axis);
    if (reduced.size() != axis.size() ||
        !llvm::all_of(axis, [&](Atom atom) { return reduced.contains(atom); }))
      return progress.end(
          2, op, "the product does not sum over the axis of the soft-max");
    if (context.cones.evaluateReal(trace, product->init) != 0.0)
      return progress.end(2, op, "the product adds to other numbers");
    std::optional<Product> scores = matchScores(context, attention);
    if (!scores)
      return std::nullopt;
    if (!RoleFinder(context, attention, *scores)
             .find(weights, product->factors[1 - side], result) ||
        !matchMasks(context, attention, fullyMasked))
      return std::nullopt;
    return attention;
  }
  return std::nullopt;
}
