//===- Differentiate.cpp - Vector-Jacobian products of functions ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DifferentiateRules.h"
#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "fovea/Differentiate/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace fovea::attn {
#define GEN_PASS_DEF_DIFFERENTIATEPASS
#include "fovea/Differentiate/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

static bool isFloat(Type type) {
  return isa<FloatType>(getElementTypeOrSelf(type));
}

/// Chains of elementwise operations become one, whose derivative needs nothing
/// but the inputs of the chain. Not where rows are broadcast on the way: what
/// is computed for each row would be computed for each element, and what adds
/// to its output would do so for each.
static bool isWorthFusing(OpOperand *operand) {
  auto producer = operand->get().getDefiningOp<linalg::LinalgOp>();
  auto consumer = dyn_cast<linalg::LinalgOp>(operand->getOwner());
  auto isConstant = [](Operation *op) {
    return op->hasAttr(kStopGradientAttrName);
  };
  return producer && producer->hasOneUse() && consumer &&
         !isConstant(producer) && !isConstant(consumer) &&
         consumer.getMatchingIndexingMap(operand).isPermutation() &&
         !linalg::isaContractionOpInterface(consumer);
}

/// Brings `function` into the form that derivatives are known for: arithmetic
/// on tensors as structured operations.
static void prepare(func::FuncOp function) {
  RewritePatternSet patterns(function.getContext());
  linalg::populateElementwiseToLinalgConversionPatterns(patterns);
  linalg::populateElementwiseOpsFusionPatterns(patterns, isWorthFusing);
  (void)applyPatternsGreedily(function, std::move(patterns));
}

/// What results of `body` depend on and has no gradient, from the last to the
/// first.
static void collectUnknown(Block &body, const Adjoints &adjoints,
                           SmallVectorImpl<Operation *> &unknown) {
  DenseSet<Operation *> needed = {body.getTerminator()};
  for (Operation &op : llvm::reverse(body)) {
    bool isNeeded = needed.contains(&op);
    for (Value result : op.getResults())
      isNeeded |= adjoints.isActive(result) &&
                  llvm::any_of(result.getUsers(), [&](Operation *user) {
                    return needed.contains(body.findAncestorOpInBlock(*user));
                  });
    if (!isNeeded)
      continue;
    needed.insert(&op);
    if (auto loop = dyn_cast<scf::ForOp>(op)) {
      Adjoints inner = adjoints;
      activateBody(loop, inner);
      collectUnknown(*loop.getBody(), inner, unknown);
    } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
      Adjoints inner = adjoints;
      for (Block *block : {branch.thenBlock(), branch.elseBlock()}) {
        for (Operation &op : block->without_terminator())
          inner.activateResults(&op);
        collectUnknown(*block, inner, unknown);
      }
    } else if (!op.hasTrait<OpTrait::IsTerminator>() &&
               !isa<DifferentiableOpInterface>(op)) {
      unknown.push_back(&op);
    }
  }
}

/// Replaces what has no gradient itself and depends on `wanted` arguments by
/// what has: loops of unknown length, and gradients of attention.
static LogicalResult replaceByDifferentiable(func::FuncOp function,
                                             ArrayRef<unsigned> wanted) {
  Block &body = function.getBody().front();
  Adjoints adjoints;
  for (unsigned index : wanted)
    adjoints.activate(body.getArgument(index));
  SmallVector<Operation *> found;
  eraseDeadOps(body);
  for (Operation &op : body.without_terminator()) {
    adjoints.activateResults(&op);
    bool isActive = llvm::any_of(op.getResults(), [&](Value result) {
      return adjoints.isActive(result);
    });
    if (!isActive)
      continue;
    // Inner operations before those around them.
    op.walk([&](Operation *inner) {
      if (isa<scf::WhileOp, DenseBackwardOp>(inner))
        found.push_back(inner);
    });
  }
  for (Operation *op : found) {
    auto loop = dyn_cast<scf::WhileOp>(op);
    if (failed(loop ? countIterations(loop)
                    : expandGradient(cast<DenseBackwardOp>(op))))
      return failure();
  }
  return success();
}

namespace {
class DifferentiatePass
    : public fovea::attn::impl::DifferentiatePassBase<DifferentiatePass> {
public:
  using DifferentiatePassBase::DifferentiatePassBase;

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  LogicalResult run();
  FailureOr<func::FuncOp> findFunction();
  FailureOr<SmallVector<unsigned>> findArguments(func::FuncOp function);
  LogicalResult checkGradients(func::FuncOp function, StringRef name,
                               const Adjoints &adjoints);
  LogicalResult emitGradients(func::FuncOp function, StringRef name,
                              ArrayRef<unsigned> wanted);
};
} // namespace

FailureOr<func::FuncOp> DifferentiatePass::findFunction() {
  StringRef name(function);
  name.consume_front("@");
  for (auto candidate : getOperation().getOps<func::FuncOp>()) {
    bool isWanted = name.empty()
                        ? candidate.isPublic() && !candidate.isExternal()
                        : candidate.getSymName() == name;
    if (!isWanted)
      continue;
    if (candidate.isExternal())
      return candidate.emitOpError("cannot be differentiated: has no body");
    if (!candidate.getBody().hasOneBlock())
      return candidate.emitOpError(
                 "cannot be differentiated: expected one block, but got ")
             << llvm::range_size(candidate.getBody());
    return candidate;
  }
  if (name.empty())
    return getOperation().emitError(
        "no function to differentiate: expected a public function with a body");
  return getOperation().emitError("no function to differentiate: expected one "
                                  "that is called '@")
         << name << "'";
}

FailureOr<SmallVector<unsigned>>
DifferentiatePass::findArguments(func::FuncOp function) {
  ArrayRef<Type> types = function.getArgumentTypes();
  if (llvm::none_of(function.getResultTypes(), isFloat))
    return function.emitOpError(
        "cannot be differentiated: has no result of a floating-point type");
  SmallVector<unsigned> wanted;
  for (auto [index, type] : llvm::enumerate(types))
    if (arguments.empty() && isFloat(type))
      wanted.push_back(index);
  for (int64_t index : arguments) {
    if (index < 0 || index >= static_cast<int64_t>(types.size()))
      return function.emitOpError("cannot be differentiated with respect to "
                                  "argument ")
             << index << ": it has " << types.size() << " arguments";
    if (!isFloat(types[index]))
      return function.emitOpError("cannot be differentiated with respect to "
                                  "argument ")
             << index << ": expected a floating-point type, but got "
             << types[index];
    if (llvm::is_contained(wanted, index))
      return function.emitOpError("cannot be differentiated with respect to "
                                  "argument ")
             << index << " twice";
    wanted.push_back(index);
  }
  if (wanted.empty())
    return function.emitOpError(
        "cannot be differentiated: has no argument of a floating-point type");
  for (Type type : llvm::concat<const Type>(types, function.getResultTypes()))
    if (isFloat(type) && !isa<RankedTensorType, FloatType>(type))
      return function.emitOpError("cannot be differentiated: expected tensors "
                                  "and numbers, but got ")
             << type;
  return wanted;
}

/// One error for everything without a gradient that results depend on.
LogicalResult DifferentiatePass::checkGradients(func::FuncOp function,
                                                StringRef name,
                                                const Adjoints &adjoints) {
  SmallVector<Operation *> unknown;
  collectUnknown(function.getBody().front(), adjoints, unknown);
  if (unknown.empty())
    return success();
  InFlightDiagnostic error =
      unknown.back()->emitOpError("has no gradient, but results of '@");
  error << name << "' depend on it";
  if (isa<func::CallOp>(unknown.back()))
    error.attachNote() << "calls can be inlined by --inline";
  for (Operation *op : llvm::reverse(ArrayRef(unknown).drop_back()))
    error.attachNote(op->getLoc())
        << "'" << op->getName() << "' op has none, either";
  return error;
}

/// Turns `function`, a copy of the one called `name`, into its gradient.
LogicalResult DifferentiatePass::emitGradients(func::FuncOp function,
                                               StringRef name,
                                               ArrayRef<unsigned> wanted) {
  Block &body = function.getBody().front();
  Operation *terminator = body.getTerminator();
  Location loc = terminator->getLoc();
  Adjoints adjoints;
  for (unsigned index : wanted)
    adjoints.activate(body.getArgument(index));
  SmallVector<Operation *> ops;
  for (Operation &op : body.without_terminator()) {
    adjoints.activateResults(&op);
    ops.push_back(&op);
  }
  if (failed(checkGradients(function, name, adjoints)))
    return failure();

  // What comes after this constant runs backwards.
  OpBuilder b(terminator);
  auto boundary = arith::ConstantIndexOp::create(b, loc, 0);
  SmallVector<Value> primals(terminator->getOperands());
  for (Value primal : primals)
    if (isFloat(primal.getType()))
      adjoints.add(b, primal, body.addArgument(primal.getType(), loc));
  if (failed(adjoints.emitVJPs(b, ops)))
    return failure();
  // Operations may have been replaced.
  SmallVector<Value> results;
  if (primalResults)
    llvm::append_range(results, terminator->getOperands());
  for (unsigned index : wanted)
    results.push_back(adjoints.getRounded(b, loc, body.getArgument(index)));
  terminator->setOperands(results);
  eraseDeadOps(body, /*except=*/boundary);
  if (recompute)
    recomputeCheapValues(boundary);
  boundary.erase();
  eraseDeadOps(body);
  return success();
}

LogicalResult DifferentiatePass::run() {
  FailureOr<func::FuncOp> primal = findFunction();
  if (failed(primal))
    return failure();
  FailureOr<SmallVector<unsigned>> wanted = findArguments(*primal);
  if (failed(wanted))
    return failure();
  std::string symbol = name;
  if (symbol.empty())
    symbol = (primal->getSymName() + "_vjp").str();
  if (getOperation().lookupSymbol(symbol))
    return primal->emitOpError("cannot be differentiated: there is a function "
                               "'@")
           << symbol << "' already";

  OpBuilder builder(&getContext());
  builder.setInsertionPointAfter(*primal);
  auto gradient = cast<func::FuncOp>(builder.clone(**primal));
  gradient.setSymName(symbol);
  if (failed(replaceByDifferentiable(gradient, *wanted)))
    return failure();
  prepare(gradient);
  if (failed(emitGradients(gradient, primal->getSymName(), *wanted)))
    return failure();
  Block &body = gradient.getBody().front();
  unsigned numAdded =
      body.getNumArguments() - primal->getFunctionType().getNumInputs();
  gradient.setFunctionType(builder.getFunctionType(
      body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  // Nothing is said about cotangents, nor about results any more.
  if (ArrayAttr attributes = gradient.getArgAttrsAttr()) {
    SmallVector<Attribute> all(attributes.getValue());
    all.append(numAdded, builder.getDictionaryAttr({}));
    gradient.setArgAttrsAttr(builder.getArrayAttr(all));
  }
  gradient.removeResAttrsAttr();
  return success();
}
