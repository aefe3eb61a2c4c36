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

using namespace mlir;
using namespace mlir::bufferization;
using namespace fovea::attn;

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
    Operation *newOp = rewriter.create(newState);
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

void fovea::attn::registerBufferizableOpInterfaceExternalModels(
    DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, AttnDialect *) {
    DenseOp::attachInterface<AttnOpInterface<DenseOp>>(*context);
    StreamOp::attachInterface<AttnOpInterface<StreamOp>>(*context);
    SummarizeOp::attachInterface<AttnOpInterface<SummarizeOp>>(*context);
    FastMultipoleOp::attachInterface<AttnOpInterface<FastMultipoleOp>>(
        *context);
    FastMultipoleLinearOp::attachInterface<
        AttnOpInterface<FastMultipoleLinearOp>>(*context);
    StreamBackwardOp::attachInterface<AttnOpInterface<StreamBackwardOp>>(
        *context);
    DenseBackwardOp::attachInterface<AttnOpInterface<DenseBackwardOp>>(
        *context);
    SummarizeBackwardOp::attachInterface<AttnOpInterface<SummarizeBackwardOp>>(
        *context);
    FastMultipoleBackwardOp::attachInterface<
        AttnOpInterface<FastMultipoleBackwardOp>>(*context);
    FastMultipoleLinearBackwardOp::attachInterface<
        AttnOpInterface<FastMultipoleLinearBackwardOp>>(*context);
    QuantizeOp::attachInterface<AttnOpInterface<QuantizeOp>>(*context);
    CheckCodesOp::attachInterface<CheckOpInterface<CheckCodesOp>>(*context);
    CheckIntervalsOp::attachInterface<CheckOpInterface<CheckIntervalsOp>>(
        *context);
    CodebookAccumulateOp::attachInterface<
        AttnOpInterface<CodebookAccumulateOp>>(*context);
    CodebookScanOp::attachInterface<AttnOpInterface<CodebookScanOp>>(*context);
    CodebookUpdateOp::attachInterface<AttnOpInterface<CodebookUpdateOp>>(
        *context);
    ConvApplyOp::attachInterface<AttnOpInterface<ConvApplyOp>>(*context);
    ConvRecoverOp::attachInterface<AttnOpInterface<ConvRecoverOp>>(*context);
    ConvOp::attachInterface<AttnOpInterface<ConvOp>>(*context);
    FFTForwardOp::attachInterface<AttnOpInterface<FFTForwardOp>>(*context);
    FFTInverseOp::attachInterface<AttnOpInterface<FFTInverseOp>>(*context);
    FFTMultiplyOp::attachInterface<AttnOpInterface<FFTMultiplyOp>>(*context);
    FFTAccumulateOp::attachInterface<AttnOpInterface<FFTAccumulateOp>>(
        *context);
    LogCountOp::attachInterface<AttnOpInterface<LogCountOp>>(*context);
    RopeOp::attachInterface<AttnOpInterface<RopeOp>>(*context);
    ConvApplyBackwardOp::attachInterface<AttnOpInterface<ConvApplyBackwardOp>>(
        *context);
    ConvRecoverBackwardOp::attachInterface<
        AttnOpInterface<ConvRecoverBackwardOp>>(*context);
    ConvBackwardOp::attachInterface<AttnOpInterface<ConvBackwardOp>>(*context);
    RopeBackwardOp::attachInterface<AttnOpInterface<RopeBackwardOp>>(*context);
    PolynomialFeaturesOp::attachInterface<
        AttnOpInterface<PolynomialFeaturesOp>>(*context);
    PolynomialFeaturesBackwardOp::attachInterface<
        AttnOpInterface<PolynomialFeaturesBackwardOp>>(*context);
    LowRankOp::attachInterface<AttnOpInterface<LowRankOp>>(*context);
    LowRankBackwardOp::attachInterface<AttnOpInterface<LowRankBackwardOp>>(
        *context);
    TreeBuildOp::attachInterface<AttnOpInterface<TreeBuildOp>>(*context);
    TreeFetchOp::attachInterface<AttnOpInterface<TreeFetchOp>>(*context);
    TreeSplitOp::attachInterface<AttnOpInterface<TreeSplitOp>>(*context);
    TreeScoreOp::attachInterface<AttnOpInterface<TreeScoreOp>>(*context);
    TreeUpdateOp::attachInterface<AttnOpInterface<TreeUpdateOp>>(*context);
    TreeMaterializeOp::attachInterface<AttnOpInterface<TreeMaterializeOp>>(
        *context);
    VQOp::attachInterface<AttnOpInterface<VQOp>>(*context);
    VQBackwardOp::attachInterface<AttnOpInterface<VQBackwardOp>>(*context);
    VQDecodeOp::attachInterface<AttnOpInterface<VQDecodeOp>>(*context);
  });
}
