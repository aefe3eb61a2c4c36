//===- BufferizableOpInterfaceImpl.cpp - Bufferization of attention ops -===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/IR/DstBufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::bufferization;
using namespace fovea::attn;

/// Makes loads from the buffer of a tensor extract from the tensor.
static void extractFrom(BlockArgument tensor) {
  for (Operation *buffer : llvm::make_early_inc_range(tensor.getUsers())) {
    if (!isa<ToBufferOp>(buffer))
      continue;
    for (Operation *user : llvm::make_early_inc_range(buffer->getUsers())) {
      auto load = cast<memref::LoadOp>(user);
      OpBuilder b(load);
      load.replaceAllUsesWith(
          tensor::ExtractOp::create(b, load.getLoc(), tensor, load.getIndices())
              .getResult());
      load.erase();
    }
    buffer->erase();
  }
}

namespace {
/// Every op of the dialect reads its inputs and overwrites its destinations
/// completely, so a destination is never read unless the op says so.
template <typename OpTy>
struct AttnOpInterface
    : DstBufferizableOpInterfaceExternalModel<AttnOpInterface<OpTy>, OpTy> {
  bool bufferizesToMemoryRead(Operation *op, OpOperand &operand,
                              const AnalysisState &) const {
    return cast<DestinationStyleOpInterface>(op).isDpsInput(&operand) ||
           op->hasTrait<UpdatesInits>();
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (!isa<TensorType>(operand.getType())) {
        operands.push_back(operand);
        continue;
      }
      FailureOr<Value> buffer = getBuffer(rewriter, operand, options, state);
      if (failed(buffer))
        return failure();
      operands.push_back(*buffer);
    }
    rewriter.setInsertionPoint(op);
    OperationState newState(op->getLoc(), op->getName(), operands,
                            /*types=*/TypeRange(), op->getAttrs());
    for (unsigned i = 0; i < op->getNumRegions(); ++i)
      newState.addRegion();
    Operation *newOp = rewriter.create(newState);
    // What a score region captures is a tensor in it, whatever upstream makes
    // of reads: in a copy, nothing is to be bufferized.
    for (auto [from, to] : llvm::zip(op->getRegions(), newOp->getRegions())) {
      IRMapping mapping;
      from.cloneInto(&to, mapping);
      for (BlockArgument argument : to.getArguments())
        extractFrom(argument);
    }
    SmallVector<Value> results =
        cast<DestinationStyleOpInterface>(newOp).getDpsInits();
    replaceOpWithBufferizedValues(rewriter, op, results);
    return success();
  }
};

/// A check reads its tensors and has no result.
template <typename OpTy>
struct CheckOpInterface
    : BufferizableOpInterface::ExternalModel<CheckOpInterface<OpTy>, OpTy> {
  bool bufferizesToMemoryRead(Operation *, OpOperand &,
                              const AnalysisState &) const {
    return true;
  }
  bool bufferizesToMemoryWrite(Operation *, OpOperand &,
                               const AnalysisState &) const {
    return false;
  }
  AliasingValueList getAliasingValues(Operation *, OpOperand &,
                                      const AnalysisState &) const {
    return {};
  }

  LogicalResult bufferize(Operation *op, RewriterBase &rewriter,
                          const BufferizationOptions &options,
                          BufferizationState &state) const {
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isa<TensorType>(operand.get().getType()))
        continue;
      FailureOr<Value> buffer =
          getBuffer(rewriter, operand.get(), options, state);
      if (failed(buffer))
        return failure();
      rewriter.modifyOpInPlace(op, [&] { operand.set(*buffer); });
    }
    return success();
  }
};
} // namespace

/// Attaches the model of each operation of the dialect but those that compute
/// on tensors in a region, or end one, which are expanded before.
template <typename... OpTys> static void attachModels(MLIRContext *context) {
  auto attach = [&](auto op) {
    using OpTy = decltype(op);
    if constexpr (std::is_same_v<OpTy, TreeSelectOp> ||
                  OpTy::template hasTrait<OpTrait::IsTerminator>())
      return;
    else if constexpr (OpTy::template hasTrait<
                           DestinationStyleOpInterface::Trait>())
      OpTy::template attachInterface<AttnOpInterface<OpTy>>(*context);
    else
      OpTy::template attachInterface<CheckOpInterface<OpTy>>(*context);
  };
  (attach(OpTys()), ...);
}

void fovea::attn::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    attachModels<
#define GET_OP_LIST
#include "fovea/Dialect/Attn/IR/AttnOps.cpp.inc"
        >(context);
  });
}
