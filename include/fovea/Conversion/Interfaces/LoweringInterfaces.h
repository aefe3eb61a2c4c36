//===- LoweringInterfaces.h - Operations that have code ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A lowering of an operation is a function in the folder of its family. The
// folder attaches it to the operation by a model of one of these interfaces.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_H
#define FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_H

#include "fovea/Kernels/TargetFacts.h"
#include "fovea/Kernels/VectorOperands.h"
#include "fovea/Support/F32Math.h"
#include "mlir/Analysis/AliasAnalysis.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"

namespace fovea::attn {

/// What lowerings to vector code know besides their operation.
struct VectorLowering {
  mlir::ModuleOp module;
  CPUFacts cpu;
  /// Whether to manage the caches: prefetches, streaming stores.
  bool manageCache;
  /// Tasks of a parallel loop to aim at.
  int64_t minTasks;
  mlir::AliasAnalysis &aliases;
  /// Operations that are lowered together with an earlier one, and those of
  /// each such.
  llvm::DenseSet<mlir::Operation *> claimed = {};
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<mlir::Operation *>>
      groups{};
};

/// What lowerings to GPU code know besides their operation.
struct GPULowering {
  GPUFacts gpu;
  F32Math f32;
  mlir::SymbolTableCollection symbols = {};
};

} // namespace fovea::attn

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h.inc"

namespace fovea::attn {

/// Finds the operations in `root` that have an interface, which `hasForm` tells
/// by their name, in their order, and lowers them; then those that they were
/// lowered to. With `names`, only these.
llvm::LogicalResult lowerOps(
    mlir::Operation *root, llvm::ArrayRef<std::string> names,
    llvm::function_ref<bool(mlir::OperationName)> hasForm,
    llvm::function_ref<llvm::LogicalResult(llvm::ArrayRef<mlir::Operation *>)>
        lower);

namespace detail {
template <typename ResultTy, typename OpTy, typename... ArgTys>
OpTy getLoweredOp(ResultTy (*)(OpTy, ArgTys...));
} // namespace detail

/// The operation that a function lowers.
template <auto emit> using LoweredOp = decltype(detail::getLoweredOp(emit));

/// Lowers by `emit(op, builder, lowering)`, and erases the operation.
template <auto emit>
struct VectorModel : LowerToVectorOpInterface::ExternalModel<VectorModel<emit>,
                                                             LoweredOp<emit>> {
  llvm::LogicalResult lowerToVector(mlir::Operation *op,
                                    mlir::OpBuilder &builder,
                                    VectorLowering &lowering) const {
    if (failed(detail::verifyVectorOperands(op)) ||
        failed(emit(llvm::cast<LoweredOp<emit>>(op), builder, lowering)))
      return llvm::failure();
    op->erase();
    return llvm::success();
  }
};
template <auto emit>
struct GPUModel
    : LowerToGPUOpInterface::ExternalModel<GPUModel<emit>, LoweredOp<emit>> {
  llvm::LogicalResult lowerToGPU(mlir::Operation *op, mlir::OpBuilder &builder,
                                 GPULowering &lowering) const {
    if (failed(emit(llvm::cast<LoweredOp<emit>>(op), builder, lowering)))
      return llvm::failure();
    op->erase();
    return llvm::success();
  }
};
/// `emit(op)` erases the operation, or fails where it returns a result.
template <auto emit>
struct ReferenceModel
    : LowerToReferenceOpInterface::ExternalModel<ReferenceModel<emit>,
                                                 LoweredOp<emit>> {
  llvm::LogicalResult lowerToReference(mlir::Operation *op) const {
    auto lowered = llvm::cast<LoweredOp<emit>>(op);
    if constexpr (std::is_void_v<decltype(emit(lowered))>) {
      emit(lowered);
      return llvm::success();
    } else {
      return emit(lowered);
    }
  }
};

/// Attaches the lowering of one operation by each function.
template <template <auto> typename ModelTy, auto... emit>
void attachLowerings(mlir::MLIRContext &context) {
  (LoweredOp<emit>::template attachInterface<ModelTy<emit>>(context), ...);
}

} // namespace fovea::attn

#endif // FOVEA_CONVERSION_INTERFACES_LOWERINGINTERFACES_H
