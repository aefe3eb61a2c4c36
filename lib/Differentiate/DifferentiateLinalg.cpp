//===- DifferentiateLinalg.cpp - Gradients of structured operations -------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A structured operation writes, for every point of its loops,
//
//   out[o(loops)] (+)= f(in_1[i_1(loops)], in_2[i_2(loops)], ...)
//
// so that the adjoint of an input is a structured operation with the same loops
// and the maps of output and input exchanged:
//
//   d_in_k[i_k(loops)] += df/dx_k * d_out[o(loops)]
//
// where a loop that the input's map does not have is a reduction. Its body is
// f's own, computed again, followed by f's derivative. So the adjoints of a
// product of matrices are two products of matrices, and a chain of elementwise
// operations needs no more than its inputs.
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fovea::attn;

namespace {
class LinalgGradient {
public:
  LinalgGradient(linalg::LinalgOp op, OpBuilder &builder, Adjoints &adjoints)
      : op(op), b(builder), loc(op.getLoc()), adjoints(adjoints),
        body(op.getBlock()), reduces(op.getNumReductionLoops() > 0) {}

  LogicalResult emit();

private:
  /// One result that has an adjoint.
  struct Output {
    OpOperand *init;
    Value result, adjoint;
    /// What the body says the result is made of: all of it, or, where it is
    /// reduced, the term that `combiner` adds to it.
    Value term;
    Operation *combiner = nullptr;
    /// For maxima and minima: how many terms are equal to the result.
    Value ties;

    bool isExtreme() const { return combiner && !isa<arith::AddFOp>(combiner); }
  };

  LogicalResult collectOutputs();
  LogicalResult matchReduction(Output &output);
  LogicalResult checkCaptures();
  LogicalResult emitWithRespectTo(ArrayRef<OpOperand *> operands);
  Value countTies(Output &output);

  /// A structured operation over the loops of `op`. It reads all inputs, then
  /// `extra`, and writes `inits`, all with map `map`; `emitBody` gets the
  /// values of `extra` and of the inits after the body of `op` has been
  /// repeated.
  using BodyBuilder = function_ref<FailureOr<SmallVector<Value>>(
      OpBuilder &, ArrayRef<Operation *> ops, const IRMapping &values,
      ValueRange extra, ValueRange inits)>;
  FailureOr<linalg::GenericOp>
  emitGeneric(ArrayRef<std::pair<Value, AffineMap>> extra, ValueRange inits,
              AffineMap map, BodyBuilder emitBody);
  SmallVector<utils::IteratorType> getIteratorTypes(AffineMap map);
  AffineMap mapOf(OpOperand *operand) {
    return op.getMatchingIndexingMap(operand);
  }
  BlockArgument argumentOf(OpOperand *operand) {
    return op.getMatchingBlockArgument(operand);
  }

  linalg::LinalgOp op;
  OpBuilder &b;
  Location loc;
  Adjoints &adjoints;
  Block *body;
  bool reduces;
  /// What the body reads: inputs and, where nothing is reduced, inits.
  SmallVector<OpOperand *> inputs;
  SmallVector<Output> outputs;
};
} // namespace

LogicalResult LinalgGradient::emit() {
  if (!op.hasPureTensorSemantics())
    return op.emitOpError("has no gradient on memrefs");
  if (failed(checkCaptures()))
    return failure();
  inputs = op.getDpsInputOperands();
  if (!reduces)
    for (OpOperand &init : op.getDpsInitsMutable())
      if (op.payloadUsesValueFromOperand(&init))
        inputs.push_back(&init);
  if (failed(collectOutputs()))
    return failure();

  // Inputs that are read alike share one operation, unless something is
  // reduced: sums are vectorised one by one.
  llvm::MapVector<AffineMap, SmallVector<OpOperand *>> groups;
  SmallVector<SmallVector<OpOperand *>> parts;
  for (OpOperand *input : inputs)
    if (adjoints.isActive(input->get()))
      groups[mapOf(input)].push_back(input);
  for (auto &[map, operands] : groups) {
    if (map.isProjectedPermutation() && map.getNumResults() == map.getNumDims())
      parts.push_back(operands);
    else
      for (OpOperand *operand : operands)
        parts.push_back({operand});
  }
  for (ArrayRef<OpOperand *> part : parts)
    if (failed(emitWithRespectTo(part)))
      return failure();
  return success();
}

/// The body may name values outside of it; nothing accumulates to those.
LogicalResult LinalgGradient::checkCaptures() {
  LogicalResult result = success();
  visitUsedValuesDefinedAbove(op->getRegions(), [&](OpOperand *operand) {
    if (failed(result) || !adjoints.isActive(operand->get()))
      return;
    result = op.emitOpError("has no gradient with respect to a value that its "
                            "body uses without being an input of it");
  });
  return result;
}

LogicalResult LinalgGradient::collectOutputs() {
  for (OpOperand &init : op.getDpsInitsMutable()) {
    Output output;
    output.init = &init;
    output.result = op.getTiedOpResult(&init);
    output.adjoint = adjoints.find(output.result);
    if (!output.adjoint)
      continue;
    output.term = op.getMatchingYieldValue(&init)->get();
    if (reduces && failed(matchReduction(output)))
      return failure();
    outputs.push_back(output);
  }
  return success();
}

LogicalResult LinalgGradient::matchReduction(Output &output) {
  SmallVector<Operation *> combiners;
  ArrayRef<BlockArgument> carried = op.getRegionOutputArgs();
  unsigned position = output.init->getOperandNumber() - op.getNumDpsInputs();
  Value term = mlir::matchReduction(carried, position, combiners);
  if (!term || combiners.size() != 1 ||
      !isa<arith::AddFOp, arith::MaximumFOp, arith::MaxNumFOp,
           arith::MinimumFOp, arith::MinNumFOp>(combiners.front())) {
    InFlightDiagnostic diagnostic =
        op.emitOpError("has no gradient: its body is a reduction that is "
                       "neither a sum nor a maximum or minimum");
    return diagnostic;
  }
  output.term = term;
  output.combiner = combiners.front();
  if (!output.isExtreme()) {
    adjoints.add(b, output.init->get(), output.adjoint);
    return success();
  }
  if (adjoints.isActive(output.init->get()))
    return op.emitOpError("has no gradient with respect to where a maximum or "
                          "minimum starts from");
  output.ties = countTies(output);
  return success();
}

/// Loops that `map` has run in parallel; all others, and all of a map that is
/// not a choice of loops, add up.
SmallVector<utils::IteratorType>
LinalgGradient::getIteratorTypes(AffineMap map) {
  SmallVector<utils::IteratorType> types(op.getNumLoops(),
                                         utils::IteratorType::reduction);
  if (map.isProjectedPermutation())
    for (AffineExpr expr : map.getResults())
      types[cast<AffineDimExpr>(expr).getPosition()] =
          utils::IteratorType::parallel;
  return types;
}

/// Removes what the body of `generic` does not need, except inputs that alone
/// know the extent of a loop.
static void eraseUnused(linalg::GenericOp generic) {
  Block *body = generic.getBody();
  for (Operation &inner : llvm::make_early_inc_range(llvm::reverse(*body)))
    if (isOpTriviallyDead(&inner))
      inner.erase();
  SmallVector<AffineMap> maps = generic.getIndexingMapsArray();
  for (int64_t index = generic.getNumDpsInputs(); index-- > 0;) {
    if (!body->getArgument(index).use_empty())
      continue;
    SmallVector<AffineMap> others(maps);
    others.erase(others.begin() + index);
    if (!inversePermutation(concatAffineMaps(others, generic.getContext())))
      continue;
    maps = others;
    body->eraseArgument(index);
    generic.getInputsMutable().erase(index);
    generic.setIndexingMapsAttr(
        Builder(generic.getContext()).getAffineMapArrayAttr(maps));
  }
}

FailureOr<linalg::GenericOp>
LinalgGradient::emitGeneric(ArrayRef<std::pair<Value, AffineMap>> extra,
                            ValueRange inits, AffineMap map,
                            BodyBuilder emitBody) {
  SmallVector<Value> operands;
  SmallVector<AffineMap> maps;
  for (OpOperand *input : inputs) {
    operands.push_back(input->get());
    maps.push_back(mapOf(input));
  }
  for (auto [value, valueMap] : extra) {
    operands.push_back(value);
    maps.push_back(valueMap);
  }
  maps.append(inits.size(), map);
  LogicalResult result = success();
  auto generic = linalg::GenericOp::create(
      b, loc, inits.getTypes(), operands, inits, maps, getIteratorTypes(map),
      [&](OpBuilder &inner, Location, ValueRange arguments) {
        IRMapping values;
        for (auto [input, argument] : llvm::zip(inputs, arguments))
          values.map(argumentOf(input), argument);
        SmallVector<Operation *> ops;
        for (Operation &original : body->without_terminator()) {
          // What combines terms is not repeated, nor what depends on it.
          bool isKnown = llvm::all_of(original.getOperands(), [&](Value value) {
            return value.getParentBlock() != body || values.contains(value);
          });
          if (isKnown)
            ops.push_back(inner.clone(original, values));
        }
        arguments = arguments.drop_front(inputs.size());
        FailureOr<SmallVector<Value>> yielded =
            emitBody(inner, ops, values, arguments.take_front(extra.size()),
                     arguments.drop_front(extra.size()));
        result = yielded;
        linalg::YieldOp::create(inner, loc,
                                failed(yielded)
                                    ? arguments.drop_front(extra.size())
                                    : ValueRange(*yielded));
      });
  if (failed(result))
    return failure();
  eraseUnused(generic);
  return generic;
}

/// 1 where `value` is what the result holds, which rounds to its own type.
static Value isEqualTo(OpBuilder &b, Location loc, Value value, Value result) {
  value = convertFloat(b, loc, value, result.getType());
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, value,
                               result);
}

Value LinalgGradient::countTies(Output &output) {
  Type type = getElementTypeOrSelf(output.adjoint);
  AffineMap map = mapOf(output.init);
  Value zeros = createZerosLike(b, loc, output.result, type);
  FailureOr<linalg::GenericOp> count = emitGeneric(
      {{output.result, map}}, zeros, map,
      [&](OpBuilder &b, ArrayRef<Operation *>, const IRMapping &values,
          ValueRange extra, ValueRange inits) {
        Value one =
            arith::ConstantOp::create(b, loc, b.getFloatAttr(type, 1.0));
        Value zero =
            arith::ConstantOp::create(b, loc, b.getFloatAttr(type, 0.0));
        Value term = values.lookup(output.term);
        Value share = arith::SelectOp::create(
            b, loc, isEqualTo(b, loc, term, extra[0]), one, zero);
        return SmallVector<Value>{
            arith::AddFOp::create(b, loc, inits[0], share)};
      });
  return count->getResult(0);
}

/// The input that `generic` copies to `result`, if it does nothing else.
static Value getSource(linalg::GenericOp generic, OpResult result) {
  unsigned number = result.getResultNumber();
  auto argument = dyn_cast<BlockArgument>(
      generic.getBody()->getTerminator()->getOperand(number));
  if (!argument || argument.getOwner() != generic.getBody())
    return result;
  OpOperand *input = generic.getMatchingOpOperand(argument);
  OpOperand *init = generic.getDpsInitOperand(number);
  bool isCopy = generic.isDpsInput(input) &&
                input->get().getType() == result.getType() &&
                generic.getMatchingIndexingMap(input) ==
                    generic.getMatchingIndexingMap(init);
  return isCopy ? input->get() : Value(result);
}

/// The adjoints of operands that have one map.
LogicalResult
LinalgGradient::emitWithRespectTo(ArrayRef<OpOperand *> operands) {
  AffineMap map = mapOf(operands.front());
  bool accumulates = !map.isPermutation();
  // A value that is read twice has one adjoint.
  llvm::MapVector<Value, SmallVector<OpOperand *>> wanted;
  for (OpOperand *operand : operands)
    wanted[operand->get()].push_back(operand);
  SmallVector<Value> inits;
  for (auto &[value, reads] : wanted) {
    Type type = getStateType(getElementTypeOrSelf(value));
    bool isNumber = !isa<ShapedType>(value.getType());
    Value init;
    if (isNumber) {
      Value empty = tensor::EmptyOp::create(b, loc, ArrayRef<int64_t>(), type);
      Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(type));
      init = linalg::FillOp::create(b, loc, zero, empty).getResult(0);
    } else if (!accumulates) {
      init = createEmptyLike(b, loc, value, type);
    } else {
      // Sums continue where the last use has stopped.
      init = adjoints.find(value);
      if (!init)
        init = createZerosLike(b, loc, value, type);
    }
    inits.push_back(init);
  }
  SmallVector<std::pair<Value, AffineMap>> extra;
  for (Output &output : outputs) {
    AffineMap outputMap = mapOf(output.init);
    extra.emplace_back(output.adjoint, outputMap);
    if (output.isExtreme()) {
      extra.emplace_back(output.result, outputMap);
      extra.emplace_back(output.ties, outputMap);
    }
  }

  auto emitBody = [&](OpBuilder &b, ArrayRef<Operation *> ops,
                      const IRMapping &values, ValueRange extra,
                      ValueRange inits) -> FailureOr<SmallVector<Value>> {
    Adjoints numbers;
    for (OpOperand *operand : operands)
      numbers.activate(values.lookup(argumentOf(operand)));
    for (Operation *inner : ops)
      numbers.activateResults(inner);
    for (Output &output : outputs) {
      Value adjoint = extra.front(), term = values.lookupOrDefault(output.term);
      extra = extra.drop_front();
      if (output.isExtreme()) {
        Value zero =
            arith::ConstantOp::create(b, loc, b.getZeroAttr(adjoint.getType()));
        Value share = arith::DivFOp::create(b, loc, adjoint, extra[1]);
        adjoint = arith::SelectOp::create(
            b, loc, isEqualTo(b, loc, term, extra[0]), share, zero);
        extra = extra.drop_front(2);
      }
      numbers.add(b, term, adjoint);
    }
    if (failed(numbers.emitVJPs(b, ops)))
      return failure();
    SmallVector<Value> results;
    for (auto [entry, init] : llvm::zip(wanted, inits)) {
      Value sum = accumulates ? Value(init) : Value();
      for (OpOperand *read : entry.second) {
        Value adjoint = numbers.find(values.lookup(argumentOf(read)));
        if (adjoint)
          sum = sum ? arith::AddFOp::create(b, loc, sum, adjoint) : adjoint;
      }
      if (!sum)
        sum = arith::ConstantOp::create(b, loc, b.getZeroAttr(init.getType()));
      results.push_back(sum);
    }
    return results;
  };
  FailureOr<linalg::GenericOp> generic =
      emitGeneric(extra, inits, map, emitBody);
  if (failed(generic))
    return failure();
  for (auto [entry, result] : llvm::zip(wanted, generic->getResults())) {
    Value value = entry.first;
    if (!isa<ShapedType>(value.getType()))
      adjoints.add(b, value,
                   tensor::ExtractOp::create(b, loc, result, ValueRange()));
    else if (accumulates)
      adjoints.set(value, result);
    else
      adjoints.add(b, value, getSource(*generic, result));
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Registration
//===----------------------------------------------------------------------===//

namespace {
template <typename OpTy>
struct LinalgModel
    : DifferentiableOpInterface::ExternalModel<LinalgModel<OpTy>, OpTy> {
  LogicalResult emitVJP(Operation *op, OpBuilder &builder,
                        Adjoints &adjoints) const {
    return LinalgGradient(cast<linalg::LinalgOp>(op), builder, adjoints).emit();
  }
};
} // namespace

template <typename... OpTys> static void attach(MLIRContext *context) {
  (OpTys::template attachInterface<LinalgModel<OpTys>>(*context), ...);
}

void fovea::attn::registerLinalgRules(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, linalg::LinalgDialect *) {
    attach<
#define GET_OP_LIST
#include "mlir/Dialect/Linalg/IR/LinalgStructuredOps.cpp.inc"
        >(context);
  });
}
