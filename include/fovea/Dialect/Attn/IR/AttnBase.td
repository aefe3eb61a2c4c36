//===- AttnBase.td - Shared definitions of the attention dialect -*- tablegen -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM Exceptions.
// See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_ATTNBASE_TD
#define FOVEA_DIALECT_ATTN_IR_ATTNBASE_TD

include "fovea/Dialect/Attn/IR/AttnAttributes.td"
include "fovea/Dialect/Attn/IR/AttnDialect.td"
include "mlir/Interfaces/DestinationStyleOpInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/TilingInterface.td"

/// Element types of data operands. Sums and soft-max state are kept in f32 (f64
/// for f64), whatever the element type.
def Attn_Float : AnyTypeOf<[F32, F64, BF16, F16]>;

def Attn_Rank2 : AnyTypeOf<[2DTensorOf<[Attn_Float]>, MemRefRankOf<[Attn_Float], [2]>],
    "rank-2 tensor or memref of f32, f64, bf16 or f16">;
def Attn_Rank3 : AnyTypeOf<[3DTensorOf<[Attn_Float]>, MemRefRankOf<[Attn_Float], [3]>],
    "rank-3 tensor or memref of f32, f64, bf16 or f16">;
def Attn_Rank4 : AnyTypeOf<[4DTensorOf<[Attn_Float]>, MemRefRankOf<[Attn_Float], [4]>],
    "rank-4 tensor or memref of f32, f64, bf16 or f16">;
def Attn_Rank5 : AnyTypeOf<[TensorRankOf<[Attn_Float], [5]>, MemRefRankOf<[Attn_Float], [5]>],
    "rank-5 tensor or memref of f32, f64, bf16 or f16">;

/// Codes, and counts of tokens.
def Attn_Int2 : AnyTypeOf<[2DTensorOf<[I32]>, MemRefRankOf<[I32], [2]>],
    "rank-2 tensor or memref of i32">;
def Attn_Int3 : AnyTypeOf<[3DTensorOf<[I32]>, MemRefRankOf<[I32], [3]>],
    "rank-3 tensor or memref of i32">;
def Attn_Int4 : AnyTypeOf<[4DTensorOf<[I32]>, MemRefRankOf<[I32], [4]>],
    "rank-4 tensor or memref of i32">;

/// Of an operation that updates its destinations: it reads what they hold before
/// it writes them. All others overwrite them completely.
def Attn_UpdatesInits : NativeOpTrait<"UpdatesInits"> {
  let cppNamespace = "::fovea::attn";
}

/// Of an operation whose destinations share no memory with one another or with
/// other operands, as every gradient: it reads its operands again after it has
/// written some of its results.
def Attn_SeparateInits : NativeOpTrait<"SeparateInits"> {
  let cppNamespace = "::fovea::attn";
}

/// Operands of a source that may have an axis of query blocks.
def Attn_Rank3Or4 : AnyTypeOf<[Attn_Rank3, Attn_Rank4],
    "rank-3 or rank-4 tensor or memref of f32, f64, bf16 or f16">;
def Attn_Rank4Or5 : AnyTypeOf<[Attn_Rank4, Attn_Rank5],
    "rank-4 or rank-5 tensor or memref of f32, f64, bf16 or f16">;

defvar attnOpDefinition = [{
  void $cppClass::getEffects(
      ::llvm::SmallVectorImpl<::mlir::SideEffects::EffectInstance<
          ::mlir::MemoryEffects::Effect>> &effects) {
    detail::getDestinationStyleEffects(
        ::llvm::cast<::mlir::DestinationStyleOpInterface>(getOperation()),
        effects);
  }
  ::llvm::LogicalResult $cppClass::reifyResultShapes(
      ::mlir::OpBuilder &builder,
      ::mlir::ReifiedRankedShapedTypeDims &shapes) {
    return detail::reifyInitShapes(
        builder,
        ::llvm::cast<::mlir::DestinationStyleOpInterface>(getOperation()),
        shapes);
  }
}];

/// Every operation of the dialect is in destination style: the trailing
/// operands are the tensors (or buffers) that the results are written to.
class Attn_Op<string mnemonic, list<Trait> traits = []>
    : Op<Attn_Dialect, mnemonic, !listconcat(traits, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
            ["reifyResultShapes"]>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  let hasVerifier = 1;
  let extraClassDefinition = attnOpDefinition;
}

/// An operation whose iteration domain is the first `numLoops` dimensions of
/// what `domain` returns, all parallel. Every destination starts with these
/// dimensions. The operation itself says what a tile computes.
class Attn_TiledOp<string mnemonic, int numLoops, string domain,
                   list<Trait> traits = []>
    : Attn_Op<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<TilingInterface,
            ["getLoopIteratorTypes", "getIterationDomain",
             "getTiledImplementation", "getResultTilePosition"]>])> {
  let extraClassDefinition = !strconcat(attnOpDefinition, [{
  ::llvm::SmallVector<::mlir::utils::IteratorType>
  $cppClass::getLoopIteratorTypes() {
    return detail::getParallelLoops(}], !cast<string>(numLoops), [{);
  }
  ::llvm::SmallVector<::mlir::Range>
  $cppClass::getIterationDomain(::mlir::OpBuilder &builder) {
    return detail::getDomain(builder, getLoc(), }], domain, ", ",
        !cast<string>(numLoops), [{);
  }
  ::llvm::LogicalResult $cppClass::getResultTilePosition(
      ::mlir::OpBuilder &builder, unsigned number,
      ::llvm::ArrayRef<::mlir::OpFoldResult> offsets,
      ::llvm::ArrayRef<::mlir::OpFoldResult> sizes,
      ::llvm::SmallVector<::mlir::OpFoldResult> &resultOffsets,
      ::llvm::SmallVector<::mlir::OpFoldResult> &resultSizes) {
    return detail::getResultTile(builder, getLoc(), getDpsInits()[number],
                                 offsets, sizes, resultOffsets, resultSizes);
  }
  }]);
}

#endif // FOVEA_DIALECT_ATTN_IR_ATTNBASE_TD
