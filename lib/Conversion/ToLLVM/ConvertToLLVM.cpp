//===- ConvertToLLVM.cpp - Buffers and vectors to the LLVM dialect --------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One conversion with the patterns of all dialects that kernels are made of:
// with a pass for each, every one goes through what those before have created.
//
// Most of a kernel is loads and stores. The address of an element is a sum of
// products of indices and strides, a dozen operations if written out. Where the
// strides are known it is one getelementptr into nested arrays instead.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "mlir/Analysis/DataLayoutAnalysis.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ComplexToLLVM/ComplexToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/AMX/Transforms.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/Vector/Transforms/LoweringPatterns.h"
#include "mlir/Dialect/Vector/Transforms/VectorRewritePatterns.h"
#include "mlir/Dialect/X86Vector/Transforms.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

namespace fovea::attn {
#define GEN_PASS_DEF_CONVERTTOLLVMPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;

//===----------------------------------------------------------------------===//
// Loads and stores
//===----------------------------------------------------------------------===//

/// The type to step over with the first index into `buffer`: nested arrays, of
/// which the innermost have `element`s. Null if strides are not known or do not
/// divide each other. `offset` is that of the first element.
static Type getRowType(MemRefType buffer, Type element, int64_t &offset) {
  SmallVector<int64_t> strides;
  if (buffer.getMemorySpace() ||
      failed(buffer.getStridesAndOffset(strides, offset)) ||
      ShapedType::isDynamic(offset) ||
      (!strides.empty() && strides.back() != 1))
    return Type();
  Type row = element;
  for (size_t dim = strides.size(); dim-- > 1;) {
    int64_t outer = strides[dim - 1], inner = strides[dim];
    if (ShapedType::isDynamic(outer) || outer <= 0 || outer % inner != 0)
      return Type();
    row = LLVM::LLVMArrayType::get(row, outer / inner);
  }
  return row;
}

/// Where the elements of a buffer lie. A descriptor that has just been put
/// together is not taken apart.
static Value getPointer(OpBuilder &builder, Location loc, Value descriptor) {
  Value whole = descriptor;
  if (auto cast = whole.getDefiningOp<UnrealizedConversionCastOp>())
    if (auto inverse =
            cast.getOperand(0).getDefiningOp<UnrealizedConversionCastOp>();
        inverse && inverse.getOperandTypes() == cast.getResultTypes())
      whole = inverse.getOperand(0);
  constexpr int64_t kAlignedPointer = 1;
  while (auto insert = whole.getDefiningOp<LLVM::InsertValueOp>()) {
    if (insert.getPosition() == ArrayRef(kAlignedPointer))
      return insert.getValue();
    whole = insert.getContainer();
  }
  return MemRefDescriptor(descriptor).alignedPtr(builder, loc);
}

/// The address of the element of `buffer` at `indices`; null if the patterns
/// for buffers of any kind have to find it. `converted` are descriptor and
/// indices in the LLVM dialect.
static Value getAddress(OpBuilder &builder, Location loc, MemRefType buffer,
                        ValueRange indices, ValueRange converted,
                        const LLVMTypeConverter &converter) {
  Type element = converter.convertType(buffer.getElementType());
  int64_t offset = 0;
  Type row = element ? getRowType(buffer, element, offset) : Type();
  if (!row)
    return Value();
  Value base = getPointer(builder, loc, converted.front());
  Type pointer = base.getType();
  SmallVector<LLVM::GEPArg> steps;
  for (auto [index, value] : llvm::zip(indices, converted.drop_front())) {
    std::optional<int64_t> known = getConstantIntValue(index);
    if (known && llvm::isInt<LLVM::kGEPConstantBitWidth>(*known))
      steps.push_back(static_cast<int32_t>(*known));
    else
      steps.push_back(value);
  }
  Value address = base;
  if (!steps.empty())
    address = LLVM::GEPOp::create(builder, loc, pointer, row, base, steps);
  if (offset == 0)
    return address;
  Value distance = LLVM::ConstantOp::create(builder, loc, builder.getI64Type(),
                                            builder.getI64IntegerAttr(offset));
  return LLVM::GEPOp::create(builder, loc, pointer, element, address, distance);
}

namespace {
/// Of vectors and numbers, to and from buffers whose strides are known.
template <typename OpTy>
struct AccessConversion : ConvertOpToLLVMPattern<OpTy> {
  using OpAdaptor = typename OpTy::Adaptor;
  /// The operand that is the buffer; indices follow.
  static constexpr unsigned kBuffer =
      llvm::is_one_of<OpTy, vector::StoreOp, memref::StoreOp>::value;

  AccessConversion(const LLVMTypeConverter &converter, const DataLayout &layout)
      // Before upstream's patterns.
      : ConvertOpToLLVMPattern<OpTy>(converter, /*benefit=*/2), layout(layout) {
  }

  LogicalResult
  matchAndRewrite(OpTy op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    auto buffer = cast<MemRefType>(op->getOperand(kBuffer).getType());
    if constexpr (llvm::is_one_of<OpTy, vector::LoadOp, vector::StoreOp>::value)
      if (op.getVectorType().getRank() != 1)
        return failure();
    Value address = getAddress(rewriter, op.getLoc(), buffer, op.getIndices(),
                               adaptor.getOperands().drop_front(kBuffer),
                               *this->getTypeConverter());
    if (!address)
      return failure();
    replace(op, adaptor.getOperands().front(), address, rewriter);
    return success();
  }

private:
  /// Elements may lie anywhere, however long the vector.
  unsigned getAlignment(OpTy op) const {
    auto buffer = cast<MemRefType>(op->getOperand(kBuffer).getType());
    return op.getAlignment().value_or(
        layout.getTypeABIAlignment(buffer.getElementType()));
  }

  void replace(OpTy op, Value stored, Value address,
               ConversionPatternRewriter &rewriter) const {
    if constexpr (std::is_same_v<OpTy, memref::PrefetchOp>) {
      rewriter.replaceOpWithNewOp<LLVM::Prefetch>(
          op, address, rewriter.getI32IntegerAttr(op.getIsWrite()),
          op.getLocalityHintAttr(),
          rewriter.getI32IntegerAttr(op.getIsDataCache()));
    } else if constexpr (kBuffer == 1) {
      rewriter.replaceOpWithNewOp<LLVM::StoreOp>(
          op, stored, address, getAlignment(op), /*isVolatile=*/false,
          op.getNontemporal());
    } else {
      Type type = this->getTypeConverter()->convertType(op.getType());
      rewriter.replaceOpWithNewOp<LLVM::LoadOp>(
          op, type, address, getAlignment(op), /*isVolatile=*/false,
          op.getNontemporal());
    }
  }

  const DataLayout &layout;
};
} // namespace

//===----------------------------------------------------------------------===//
// Vectors
//===----------------------------------------------------------------------===//

/// Takes operations on vectors apart that have no counterpart in LLVM, as the
/// pass `convert-vector-to-llvm` does, but looks at no others.
static void lowerVectors(ModuleOp module) {
  RewritePatternSet patterns(module.getContext());
  vector::populateVectorToVectorCanonicalizationPatterns(patterns);
  vector::populateVectorBitCastLoweringPatterns(patterns);
  vector::populateVectorBroadcastLoweringPatterns(patterns);
  vector::populateVectorContractLoweringPatterns(
      patterns, vector::VectorContractLowering::Dot);
  vector::populateVectorMaskOpLoweringPatterns(patterns);
  vector::populateVectorShapeCastLoweringPatterns(patterns);
  vector::populateVectorInterleaveLoweringPatterns(patterns);
  vector::populateVectorTransposeLoweringPatterns(
      patterns, vector::VectorTransposeLowering::EltWise);
  // Those of more dimensions are loops already.
  vector::populateVectorTransferLoweringPatterns(patterns,
                                                 /*maxTransferRank=*/1);
  vector::populateVectorMaskMaterializationPatterns(
      patterns, /*force32BitVectorIndices=*/false);
  vector::populateVectorInsertExtractStridedSliceTransforms(patterns);
  vector::populateVectorStepLoweringPatterns(patterns);
  vector::populateVectorRankReducingFMAPattern(patterns);
  vector::populateVectorGatherLoweringPatterns(patterns);
  vector::populateVectorFromElementsUnrollPatterns(patterns);
  vector::populateVectorToElementsUnrollPatterns(patterns);

  SmallVector<Operation *> vectors;
  module.walk([&](Operation *op) {
    // Most of them need nothing.
    if (isa_and_nonnull<vector::VectorDialect>(op->getDialect()) &&
        !isa<vector::LoadOp, vector::StoreOp>(op))
      vectors.push_back(op);
  });
  GreedyRewriteConfig config;
  config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
  (void)applyOpPatternsGreedily(vectors, std::move(patterns), config);
}

//===----------------------------------------------------------------------===//
// Assertions
//===----------------------------------------------------------------------===//

/// FOVEA_RT_INVALID_ARGUMENT of the runtime.
static constexpr int32_t kInvalidArgument = 1;

namespace {
/// The assertions of frontends, such as that an index is one of a table, are
/// failures of the invocation; upstream's lowering ends the process.
struct AssertConversion : ConvertOpToLLVMPattern<cf::AssertOp> {
  AssertConversion(const LLVMTypeConverter &converter,
                   SymbolTableCollection &symbols)
      : ConvertOpToLLVMPattern(converter), symbols(symbols) {}

  LogicalResult
  matchAndRewrite(cf::AssertOp op, OpAdaptor adaptor,
                  ConversionPatternRewriter &rewriter) const override {
    Location loc = op.getLoc();
    auto module = op->getParentOfType<ModuleOp>();
    Type code = rewriter.getI32Type();
    FailureOr<LLVM::LLVMFuncOp> fail = LLVM::lookupOrCreateFn(
        rewriter, module, "fovea_rt_fail",
        {code, LLVM::LLVMPointerType::get(getContext())},
        LLVM::LLVMVoidType::get(getContext()), /*isVarArg=*/false,
        /*isReserved=*/false, &symbols);
    if (failed(fail))
      return failure();
    Block *before = rewriter.getInsertionBlock();
    Block *after = rewriter.splitBlock(before, std::next(op->getIterator()));
    Block *failing = rewriter.createBlock(after->getParent());
    Value text = getText(rewriter, loc, module, op.getMsg());
    Value status = LLVM::ConstantOp::create(
        rewriter, loc, code, rewriter.getI32IntegerAttr(kInvalidArgument));
    LLVM::CallOp::create(rewriter, loc, *fail, ValueRange{status, text});
    LLVM::UnreachableOp::create(rewriter, loc);
    rewriter.setInsertionPointToEnd(before);
    rewriter.replaceOpWithNewOp<LLVM::CondBrOp>(op, adaptor.getArg(), after,
                                                failing);
    return success();
  }

private:
  /// One for each message: a model checks each of its tables.
  static Value getText(OpBuilder &builder, Location loc, ModuleOp module,
                       StringRef message) {
    std::string name =
        "assertion_" + llvm::utohexstr(llvm::xxh3_64bits(message));
    if (auto global = module.lookupSymbol<LLVM::GlobalOp>(name))
      return LLVM::AddressOfOp::create(builder, loc, global);
    return LLVM::createGlobalString(loc, builder, name, message.str() + '\0',
                                    LLVM::Linkage::Internal);
  }

  SymbolTableCollection &symbols;
};
} // namespace

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
struct ConvertToLLVMPass
    : fovea::attn::impl::ConvertToLLVMPassBase<ConvertToLLVMPass> {
  using ConvertToLLVMPassBase::ConvertToLLVMPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    lowerVectors(module);

    MLIRContext *context = &getContext();
    const auto &layouts = getAnalysis<DataLayoutAnalysis>();
    const DataLayout &layout = layouts.getAtOrAbove(module);
    LowerToLLVMOptions options(context, layout);
    options.allocLowering = LowerToLLVMOptions::AllocLowering::AlignedAlloc;
    // The runtime allocates.
    options.useGenericFunctions = true;
    LLVMTypeConverter converter(context, options, &layouts);
    SymbolTableCollection symbols;
    RewritePatternSet patterns(context);
    patterns.add<
        AccessConversion<vector::LoadOp>, AccessConversion<vector::StoreOp>,
        AccessConversion<memref::LoadOp>, AccessConversion<memref::StoreOp>,
        AccessConversion<memref::PrefetchOp>>(converter, layout);
    populateVectorToLLVMConversionPatterns(converter, patterns);
    populateX86VectorLegalizeForLLVMExportPatterns(converter, patterns);
    populateAMXLegalizeForLLVMExportPatterns(converter, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(converter, patterns,
                                                   &symbols);
    populateFuncToLLVMConversionPatterns(converter, patterns, &symbols);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    populateComplexToLLVMConversionPatterns(converter, patterns);
    index::populateIndexToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    patterns.add<AssertConversion>(converter, symbols);
    ub::populateUBToLLVMConversionPatterns(converter, patterns);

    LLVMConversionTarget target(*context);
    target.addLegalOp<UnrealizedConversionCastOp>();
    configureX86VectorLegalizeForExportTarget(target);
    configureAMXLegalizeForExportTarget(target);
    if (failed(applyPartialConversion(module, target, std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
