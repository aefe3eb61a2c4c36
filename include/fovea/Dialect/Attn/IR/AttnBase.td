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
include "fovea/Dialect/Attn/IR/AttnInterfaces.td"
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
def Attn_Int1 : AnyTypeOf<[1DTensorOf<[I32]>, MemRefRankOf<[I32], [1]>],
    "rank-1 tensor or memref of i32">;
def Attn_Int2 : AnyTypeOf<[2DTensorOf<[I32]>, MemRefRankOf<[I32], [2]>],
    "rank-2 tensor or memref of i32">;
def Attn_Int3 : AnyTypeOf<[3DTensorOf<[I32]>, MemRefRankOf<[I32], [3]>],
    "rank-3 tensor or memref of i32">;
def Attn_Int4 : AnyTypeOf<[4DTensorOf<[I32]>, MemRefRankOf<[I32], [4]>],
    "rank-4 tensor or memref of i32">;

/// Numbers that are checked at run time: codes, and lists of rows.
def Attn_Int3Or4 : AnyTypeOf<[Attn_Int3, Attn_Int4],
    "rank-3 or rank-4 tensor or memref of i32">;

/// Which tokens of each batch entry are present. Rows of absent ones may hold
/// anything.
def Attn_TokenMask : AnyTypeOf<[2DTensorOf<[I1]>, MemRefRankOf<[I1], [2]>],
    "rank-2 tensor or memref of i1">;

/// What a score region may read beside its entry.
def Attn_Captured : AnyTypeOf<[
    AnyFloat, AnySignlessIntegerOrIndex,
    RankedTensorOf<[AnyFloat, AnySignlessIntegerOrIndex]>,
    MemRefOf<[AnyFloat, AnySignlessIntegerOrIndex]>],
    "number, or ranked tensor or memref of numbers">;

/// The gradient of a tensor that a score region reads.
def Attn_CapturedGradient : AnyTypeOf<[RankedTensorOf<[Attn_Float]>, MemRefOf<[Attn_Float]>],
    "ranked tensor or memref of f32, f64, bf16 or f16">;

/// A factor of scores.
def Attn_FiniteAttr : ConfinedAttr<F64Attr, [
    AttrConstraint<CPred<"::llvm::cast<::mlir::FloatAttr>($_self).getValue().isFinite()">,
                   "which is finite">]>;

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

/// An operand whose element type and extents are declared. The verifier, the
/// checks at run time, the functions and the table of shapes in the operation's
/// documentation derive from `spec`:
///
///   spec     ::= elements? `[` (extent (`,` extent)* | `=` operand | `...`)? `]`
///              | `gradient of` operand (`, or none`)?
///              | `{` part `:` spec (`;` part `:` spec)* `}`
///   elements ::= `T`       that of every operand that holds `T`
///              | `sum`     that of sums: f64 where `T` is, f32 otherwise
///              | `T|sum`   either
///              | `~T`      any whose sums have the same type
///              | `i32` | `i64`
///   extent   ::= `#`? letters (`~` | `!`)? `?`? | number `!` | factor `*` attribute `!` | `_`
///   factor   ::= number | `(` attribute `+` number `)`
///
/// Extents with the same letters are equal. `B`, `N`, `M`, `m` and those with `#`
/// differ from call to call. Lower-case letters belong to one
/// element of a list: element `i` of every list with `m` shares it. With `~` an
/// extent of 1 in the type broadcasts. With `!` the type has to tell the extent,
/// which is at least 1. With `?`, last extents may be missing. `= operand` is the shape of another, and broadcasts where
/// that does; `...` is any shape. A gradient has the shape of its operand, and holds `T|sum` of it;
/// the list of them may be empty with `or none`. Operands of a group that are not
/// alike are parts. What a spec cannot say is code in `verify()`.
class Attn_Arg<TypeConstraint type, string spec, string about = "">
    : Arg<type, spec> {
  string extents = spec;
  string remark = about;
  string multiplicity = !if(!isa<Optional>(type), "?",
                            !if(!isa<Variadic>(type), "*", ""));
}

/// Every operation of the dialect is in destination style: the trailing
/// operands are the tensors (or buffers) that the results are written to.
class Attn_Op<string mnemonic, list<Trait> traits = []>
    : Op<Attn_Dialect, mnemonic, !listconcat(traits, [
        DestinationStyleOpInterface,
        DeclareOpInterfaceMethods<Attn_ContractOpInterface>,
        DeclareOpInterfaceMethods<ReifyRankedShapedTypeOpInterface,
            ["reifyResultShapes"]>,
        DeclareOpInterfaceMethods<MemoryEffectsOpInterface>])> {
  /// Relations between extents: `H % G == 0`, `D % 2 == 0`, `W in {1, H}` and
  /// `K == ceil(N / I) * P`.
  list<string> conditions = [];
  /// The description, in which `$shapes` stands for the table of shapes.
  string details = "";

  string operandSpecs = !foldl("", !range(!size(arguments)), text, i,
      text # !if(!initialized(!getdagarg<Attn_Arg>(arguments, i)),
          !getdagname(arguments, i) # !getdagarg<Attn_Arg>(arguments, i).multiplicity
              # ": " # !getdagarg<Attn_Arg>(arguments, i).extents # "\n",
          !if(!initialized(!getdagarg<TypeConstraint>(arguments, i)),
              !getdagname(arguments, i) # "?:\n", "")));
  string shapeTable = !foldl("| operand | shape | |\n    |---|---|---|\n",
      !range(!size(arguments)), text, i,
      text # !if(!initialized(!getdagarg<Attn_Arg>(arguments, i)),
          "    | `" # !getdagname(arguments, i) # "` | "
              # !if(!empty(!getdagarg<Attn_Arg>(arguments, i).extents), "",
                    "`" # !subst("|", "\\|", !getdagarg<Attn_Arg>(arguments, i).extents) # "`")
              # " | " # !getdagarg<Attn_Arg>(arguments, i).remark # " |\n",
          ""))
      # !if(!empty(conditions), "",
            "\n    where `" # !interleave(conditions, "` and `") # "`");
  let description = !subst("$shapes", shapeTable, details);

  string opDefinition = [{
  const ::fovea::attn::Contract &$cppClass::getContract() {
    static const ::fovea::attn::Contract contract(
        getOperationName(), R"(}] # operandSpecs # [{)",
        R"(}] # !interleave(conditions, "\n") # [{)");
    return contract;
  }
  std::pair<unsigned, unsigned> $cppClass::getOperandGroup(unsigned index) {
    return getODSOperandIndexAndLength(index);
  }
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
  let extraClassDefinition = opDefinition;
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
  let extraClassDefinition = !strconcat(opDefinition, [{
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
