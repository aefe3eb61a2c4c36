//===- LowerToLLVM.cpp - What the pipelines share -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Pipelines/LowerToLLVM.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/VectorToSCF/VectorToSCF.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Bufferization/Pipelines/Passes.h"
#include "mlir/Dialect/Bufferization/Transforms/Passes.h"
#include "mlir/Dialect/Linalg/Passes.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

void fovea::addInputPasses(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(attn::createDecomposeLinalgPass());
  pm.addPass(attn::createPrepareInputPass());
}

void fovea::addBufferizationPasses(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(attn::createCheckMemoryPass());
  pm.addNestedPass<func::FuncOp>(attn::createPrepareEntryPointsPass());
  bufferization::OneShotBufferizePassOptions options;
  options.bufferizeFunctionBoundaries = true;
  options.functionBoundaryTypeConversion =
      bufferization::LayoutMapOption::IdentityLayoutMap;
  // States of loops that no iteration can write in place.
  options.allowReturnAllocsFromLoops = true;
  pm.addPass(bufferization::createOneShotBufferizePass(options));
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
}

void fovea::addDeallocationPasses(OpPassManager &pm) {
  pm.addNestedPass<func::FuncOp>(attn::createSeparateResultsPass());
  bufferization::buildBufferDeallocationPipeline(pm);
  pm.addPass(createConvertBufferizationToMemRefPass());
  pm.addPass(createCanonicalizerPass());
}

void fovea::addLowerToLoopsPasses(OpPassManager &pm) {
  pm.addPass(createConvertLinalgToLoopsPass());
  VectorTransferToSCFOptions transfers;
  transfers.enableFullUnroll();
  pm.addPass(createConvertVectorToSCFPass(transfers));
}

void fovea::addLowerToLLVMPasses(OpPassManager &pm) {
  pm.addPass(attn::createLowerChecksPass());
  pm.addNestedPass<func::FuncOp>(attn::createLowerCopiesPass());
  pm.addPass(attn::createLowerReshapesPass());
  pm.addPass(attn::createInsertInterruptChecksPass());
  pm.addPass(memref::createExpandStridedMetadataPass());
  // Expanding subviews creates affine maps.
  pm.addPass(createLowerAffinePass());
  pm.addPass(createConvertComplexToStandardPass());
  // Powers to integers, which would be calls of the compiler's own library.
  pm.addPass(createConvertMathToFuncs());
  pm.addPass(createSCFToControlFlowPass());

  arith::ArithExpandOpsPassOptions expand;
  expand.includeBf16 = true;
  expand.includeF8E8M0 = true;
  expand.includeF4E2M1 = true;
  pm.addPass(arith::createArithExpandOpsPass(expand));
  pm.addPass(createConvertMathToLLVMPass());
  // Takes vectors apart, by operations of the vector dialect.
  pm.addPass(createConvertMathToLibmPass());
  pm.addPass(attn::createConvertToLLVMPass());
  // LLVM's passes clean up sooner than those of MLIR.
  pm.addPass(createReconcileUnrealizedCastsPass());
  pm.addPass(attn::createCheckLoweredPass());
}
