//===- OutlineParallel.cpp - Outline parallel loops to functions ----------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parallel loop becomes a function of one index and a call of the runtime,
// which runs it on its threads. What the body uses from outside travels in a
// struct on the caller's stack. Buffers of static shape that it allocates lie
// in the scratch memory that the runtime keeps for each thread; only others are
// allocated for every index.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "mlir/Conversion/LLVMCommon/MemRefBuilder.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/FunctionCallUtils.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Transforms.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/DataLayoutInterfaces.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

namespace fovea::attn {
#define GEN_PASS_DEF_OUTLINEPARALLELPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

/// What the runtime aligns scratch memory to.
static constexpr int64_t kScratchAlignment = 64;
static constexpr StringLiteral kParallelFor = "fovea_rt_parallel_for";

//===----------------------------------------------------------------------===//
// Buffers of a loop body
//===----------------------------------------------------------------------===//

namespace {
/// An allocation of the body and where it lies in the scratch memory.
struct ScratchBuffer {
  Operation *alloc;
  int64_t offset;
  SmallVector<Operation *> deallocs;
};
} // namespace

/// Collects into `deallocs` where `buffer` or an alias of it is freed. Fails if
/// an alias leaves an iteration of a loop that allocates it: the next iteration
/// would then reuse memory that is still needed.
static LogicalResult followBuffer(Operation *alloc, Block *body,
                                  SmallVectorImpl<Operation *> &deallocs) {
  bool isNested = alloc->getBlock() != body;
  llvm::SmallSetVector<Value, 8> aliases;
  aliases.insert(alloc->getResult(0));
  for (unsigned i = 0; i < aliases.size(); ++i) {
    for (OpOperand &use : aliases[i].getUses()) {
      Operation *user = use.getOwner();
      if (isa<memref::DeallocOp>(user)) {
        deallocs.push_back(user);
        continue;
      }
      bool isPassedOn = user->hasTrait<OpTrait::IsTerminator>();
      if (isNested && isPassedOn && user->getBlock() == alloc->getBlock()) {
        InFlightDiagnostic diag = alloc->emitOpError(
            "expects a buffer allocated in an inner block of a parallel loop "
            "to stay in that block, but it is passed on");
        diag.attachNote(user->getLoc()) << "passed on here";
        return diag;
      }
      // To an operation of the block that allocates, or inside of one.
      if (isPassedOn)
        user = user->getParentOp();
      for (Value result : user->getResults())
        if (isa<MemRefType>(result.getType()))
          aliases.insert(result);
      for (Region &region : user->getRegions())
        for (Value argument : region.getArguments())
          if (isa<MemRefType>(argument.getType()))
            aliases.insert(argument);
    }
  }
  return success();
}

/// Gives every allocation in `body` its place in the scratch memory.
static FailureOr<int64_t>
layOutScratch(Block *body, SmallVectorImpl<ScratchBuffer> &buffers) {
  int64_t size = 0;
  DataLayout layout = DataLayout::closest(body->getParentOp());
  WalkResult result =
      body->walk([&](Operation *op) {
        if (!isa<memref::AllocOp, memref::AllocaOp>(op))
          return WalkResult::advance();
        auto type = cast<MemRefType>(op->getResult(0).getType());
        if (!type.hasStaticShape()) {
          // That is allocated when the body runs.
          if (isa<memref::AllocOp>(op))
            return WalkResult::advance();
          op->emitOpError()
              << "expects a buffer allocated in a parallel loop to "
                 "have a static shape, but got "
              << type;
          return WalkResult::interrupt();
        }
        if (!type.getLayout().isIdentity() || type.getMemorySpace()) {
          op->emitOpError()
              << "expects a buffer allocated in a parallel loop to have the "
                 "identity layout and no memory space, but got "
              << type;
          return WalkResult::interrupt();
        }
        auto alignment = op->getAttrOfType<IntegerAttr>("alignment");
        if (alignment && alignment.getInt() > kScratchAlignment) {
          op->emitOpError()
              << "expects a buffer allocated in a parallel loop to "
                 "be aligned to at most "
              << kScratchAlignment << " bytes, but got " << alignment.getInt();
          return WalkResult::interrupt();
        }
        ScratchBuffer buffer = {op, size, {}};
        if (failed(followBuffer(op, body, buffer.deallocs)))
          return WalkResult::interrupt();
        int64_t bytes =
            type.getNumElements() *
            static_cast<int64_t>(layout.getTypeSize(type.getElementType()));
        size = llvm::alignTo(size + bytes, kScratchAlignment);
        buffers.push_back(std::move(buffer));
        return WalkResult::advance();
      });
  if (result.wasInterrupted())
    return failure();
  return size;
}

/// Replaces the allocations by views of `scratch`.
static void placeInScratch(OpBuilder &builder, ArrayRef<ScratchBuffer> buffers,
                           int64_t size, Value scratch,
                           const LLVMTypeConverter &converter) {
  if (buffers.empty())
    return;
  Location loc = scratch.getLoc();
  auto type = MemRefType::get(size, builder.getI8Type());
  Value descriptor =
      MemRefDescriptor::fromStaticShape(builder, loc, converter, type, scratch);
  Value base =
      UnrealizedConversionCastOp::create(builder, loc, type, descriptor)
          .getResult(0);
  for (const ScratchBuffer &buffer : buffers) {
    Value offset =
        arith::ConstantIndexOp::create(builder, loc, buffer.offset).getResult();
    auto view = memref::ViewOp::create(
        builder, buffer.alloc->getLoc(),
        cast<MemRefType>(buffer.alloc->getResult(0).getType()), base, offset,
        ValueRange());
    buffer.alloc->getResult(0).replaceAllUsesWith(view);
    for (Operation *dealloc : buffer.deallocs)
      dealloc->erase();
    buffer.alloc->erase();
  }
}

//===----------------------------------------------------------------------===//
// Values from outside a loop body
//===----------------------------------------------------------------------===//

/// The type of a buffer whose address says everything; null for other types.
static MemRefType getBufferType(Type type) {
  auto memref = dyn_cast<MemRefType>(type);
  bool isKnown = memref && memref.hasStaticShape() &&
                 memref.getLayout().isIdentity() && !memref.getMemorySpace();
  return isKnown ? memref : MemRefType();
}

/// True for constants and cheap pure functions of constants: repeating them in
/// the body is better than passing them, since what they are stays known there.
static bool isRepeatable(Operation *op) {
  return op && op->getNumRegions() == 0 && isPure(op) &&
         !isa<UnrealizedConversionCastOp>(op) &&
         llvm::all_of(op->getOperands(), [](Value operand) {
           return isRepeatable(operand.getDefiningOp());
         });
}

static Value repeat(OpBuilder &builder, Value value, IRMapping &mapping) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *op = value.getDefiningOp();
  for (Value operand : op->getOperands())
    repeat(builder, operand, mapping);
  builder.clone(*op, mapping);
  return mapping.lookup(value);
}

/// Sorts the outside values that the loop needs in its body into those to
/// repeat and those to pass.
static LogicalResult collectOutsideValues(scf::ForallOp loop,
                                          ArrayRef<OpFoldResult> bounds,
                                          const LLVMTypeConverter &converter,
                                          SmallVectorImpl<Value> &repeated,
                                          SmallVectorImpl<Value> &passed) {
  llvm::SetVector<Value> outside;
  for (OpFoldResult bound : bounds)
    if (auto value = dyn_cast<Value>(bound))
      outside.insert(value);
  getUsedValuesDefinedAbove(loop.getRegion(), outside);
  for (Value value : outside) {
    if (isRepeatable(value.getDefiningOp())) {
      repeated.push_back(value);
      continue;
    }
    if (!converter.convertType(value.getType()))
      return loop.emitOpError()
             << "expects the loop to use buffers and scalars only, but it uses "
                "a value of type "
             << value.getType();
    passed.push_back(value);
  }
  return success();
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

namespace {
class Outliner {
public:
  Outliner(ModuleOp module, SymbolTable &symbols)
      : module(module), symbols(symbols), converter(module.getContext()),
        builder(module.getContext()) {
    pointer = LLVM::LLVMPointerType::get(module.getContext());
  }

  LogicalResult outline(scf::ForallOp loop, func::FuncOp parent,
                        unsigned number);

private:
  /// How many iterations each dimension has. Constants stay constants.
  SmallVector<OpFoldResult> countIterations(scf::ForallOp loop);
  Value materialize(OpFoldResult value) {
    return getValueOrCreateConstantIndexOp(builder, loc, value);
  }
  func::FuncOp createBody(scf::ForallOp loop, func::FuncOp parent,
                          unsigned number, ArrayRef<OpFoldResult> counts,
                          ArrayRef<Value> repeated, ArrayRef<Value> passed,
                          Type contextType, ArrayRef<ScratchBuffer> buffers,
                          int64_t scratchBytes);
  Value packContext(func::FuncOp parent, ArrayRef<Value> passed,
                    Type contextType);

  ModuleOp module;
  SymbolTable &symbols;
  LLVMTypeConverter converter;
  OpBuilder builder;
  Type pointer;
  Location loc = module.getLoc();
};
} // namespace

SmallVector<OpFoldResult> Outliner::countIterations(scf::ForallOp loop) {
  SmallVector<OpFoldResult> counts;
  for (auto [lower, upper, step] :
       llvm::zip(loop.getMixedLowerBound(), loop.getMixedUpperBound(),
                 loop.getMixedStep())) {
    std::optional<int64_t> first = getConstantIntValue(lower),
                           end = getConstantIntValue(upper),
                           stride = getConstantIntValue(step);
    if (first && end && stride) {
      int64_t distance = std::max<int64_t>(*end - *first, 0);
      counts.push_back(
          builder.getIndexAttr(llvm::divideCeil(distance, *stride)));
      continue;
    }
    // An empty loop has no negative number of iterations: two such dimensions
    // would multiply to a positive one.
    Value zero = arith::ConstantIndexOp::create(builder, loc, 0);
    Value distance = arith::SubIOp::create(builder, loc, materialize(upper),
                                           materialize(lower));
    distance = arith::MaxSIOp::create(builder, loc, distance, zero);
    counts.push_back(
        arith::CeilDivSIOp::create(builder, loc, distance, materialize(step))
            .getResult());
  }
  // A loop without dimensions runs once.
  if (counts.empty())
    counts.push_back(builder.getIndexAttr(1));
  return counts;
}

func::FuncOp
Outliner::createBody(scf::ForallOp loop, func::FuncOp parent, unsigned number,
                     ArrayRef<OpFoldResult> counts, ArrayRef<Value> repeated,
                     ArrayRef<Value> passed, Type contextType,
                     ArrayRef<ScratchBuffer> buffers, int64_t scratchBytes) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(parent);
  auto type = builder.getFunctionType({builder.getI64Type(), pointer, pointer},
                                      TypeRange());
  auto body = func::FuncOp::create(
      builder, loc, (parent.getName() + "_parallel_" + Twine(number)).str(),
      type);
  body.setPrivate();
  // Kernels of several modules may be linked together.
  body->setAttr(
      "llvm.linkage",
      LLVM::LinkageAttr::get(builder.getContext(), LLVM::Linkage::Internal));
  for (unsigned argument : {1, 2})
    body.setArgAttr(argument, LLVM::LLVMDialect::getNoAliasAttrName(),
                    builder.getUnitAttr());
  symbols.insert(body);

  Block *entry = body.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  IRMapping mapping;
  if (!passed.empty()) {
    Value context =
        LLVM::LoadOp::create(builder, loc, contextType, body.getArgument(2));
    for (auto [position, value] : llvm::enumerate(passed)) {
      Value field = LLVM::ExtractValueOp::create(
          builder, loc, context, static_cast<int64_t>(position));
      if (MemRefType buffer = getBufferType(value.getType()))
        field = MemRefDescriptor::fromStaticShape(builder, loc, converter,
                                                  buffer, field);
      if (field.getType() != value.getType())
        field = UnrealizedConversionCastOp::create(builder, loc,
                                                   value.getType(), field)
                    .getResult(0);
      mapping.map(value, field);
    }
  }
  for (Value value : repeated)
    repeat(builder, value, mapping);
  auto inBody = [&](OpFoldResult value) {
    if (auto outside = dyn_cast<Value>(value))
      return mapping.lookup(outside);
    return materialize(value);
  };

  // The runtime hands out high indices first, and under a causal mask the last
  // rows have the most to do. So the last dimension, that of the rows, varies
  // slowest: every batch entry and head starts with its heavy blocks.
  unsigned rank = loop.getRank();
  SmallVector<Value> coordinates(rank);
  Value rest = arith::IndexCastOp::create(builder, loc, builder.getIndexType(),
                                          body.getArgument(0));
  for (unsigned dim = counts.size() - 1; dim-- > 0;) {
    Value count = inBody(counts[dim]);
    coordinates[dim] = arith::RemUIOp::create(builder, loc, rest, count);
    rest = arith::DivUIOp::create(builder, loc, rest, count);
  }
  if (rank != 0)
    coordinates.back() = rest;
  for (unsigned dim = 0; dim < rank; ++dim) {
    Value scaled = arith::MulIOp::create(builder, loc, coordinates[dim],
                                         inBody(loop.getMixedStep()[dim]));
    Value variable = arith::AddIOp::create(
        builder, loc, inBody(loop.getMixedLowerBound()[dim]), scaled);
    loop.getInductionVar(dim).replaceAllUsesWith(variable);
  }
  placeInScratch(builder, buffers, scratchBytes, body.getArgument(1),
                 converter);

  loop.getTerminator()->erase();
  entry->getOperations().splice(entry->end(), loop.getBody()->getOperations());
  // One walk: constants may have uses in every other loop, too.
  entry->walk([&](Operation *op) {
    for (OpOperand &operand : op->getOpOperands())
      if (Value inside = mapping.lookupOrNull(operand.get()))
        operand.set(inside);
  });
  builder.setInsertionPointToEnd(entry);
  func::ReturnOp::create(builder, loc);
  return body;
}

Value Outliner::packContext(func::FuncOp parent, ArrayRef<Value> passed,
                            Type contextType) {
  if (passed.empty())
    return LLVM::ZeroOp::create(builder, loc, pointer);
  Value memory;
  {
    // In the entry block, so that a loop around the parallel loop does not grow
    // the stack.
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&parent.getBody().front());
    Value one = LLVM::ConstantOp::create(builder, loc, builder.getI64Type(),
                                         builder.getI64IntegerAttr(1));
    memory = LLVM::AllocaOp::create(builder, loc, pointer, contextType, one);
  }
  Value context = LLVM::UndefOp::create(builder, loc, contextType);
  for (auto [position, value] : llvm::enumerate(passed)) {
    Value field = value;
    Type type = converter.convertType(value.getType());
    if (type != value.getType())
      field = UnrealizedConversionCastOp::create(builder, loc, type, field)
                  .getResult(0);
    if (getBufferType(value.getType()))
      field = MemRefDescriptor(field).alignedPtr(builder, loc);
    context = LLVM::InsertValueOp::create(builder, loc, context, field,
                                          static_cast<int64_t>(position));
  }
  LLVM::StoreOp::create(builder, loc, context, memory);
  return memory;
}

LogicalResult Outliner::outline(scf::ForallOp loop, func::FuncOp parent,
                                unsigned number) {
  if (loop.getNumResults() != 0)
    return loop.emitOpError("expects a parallel loop on buffers, but got one "
                            "with tensor results");
  loc = loop.getLoc();

  // Threads are not nested.
  SmallVector<scf::ForallOp> inner;
  loop.getBody()->walk([&](scf::ForallOp op) { inner.push_back(op); });
  IRRewriter rewriter(builder);
  for (scf::ForallOp op : inner) {
    if (op.getNumResults() != 0)
      return op.emitOpError("expects a parallel loop on buffers, but got one "
                            "with tensor results");
    rewriter.setInsertionPoint(op);
    if (failed(scf::forallToForLoop(rewriter, op)))
      return op.emitOpError("cannot be made a sequential loop");
  }

  SmallVector<ScratchBuffer> buffers;
  FailureOr<int64_t> scratchBytes = layOutScratch(loop.getBody(), buffers);
  if (failed(scratchBytes))
    return failure();

  builder.setInsertionPoint(loop);
  SmallVector<OpFoldResult> counts = countIterations(loop);
  // The count of the slowest dimension is not needed to tell coordinates apart.
  SmallVector<OpFoldResult> bounds(ArrayRef(counts).drop_back());
  llvm::append_range(bounds, loop.getMixedLowerBound());
  llvm::append_range(bounds, loop.getMixedStep());
  SmallVector<Value> repeated, passed;
  if (failed(collectOutsideValues(loop, bounds, converter, repeated, passed)))
    return failure();
  SmallVector<Type> fields;
  for (Value value : passed)
    fields.push_back(getBufferType(value.getType())
                         ? pointer
                         : converter.convertType(value.getType()));
  Type contextType =
      LLVM::LLVMStructType::getLiteral(builder.getContext(), fields);

  FailureOr<LLVM::LLVMFuncOp> runtime = LLVM::lookupOrCreateFn(
      builder, module, kParallelFor,
      {builder.getI64Type(), builder.getI64Type(), pointer, pointer},
      LLVM::LLVMVoidType::get(builder.getContext()));
  if (failed(runtime))
    return failure();

  func::FuncOp body = createBody(loop, parent, number, counts, repeated, passed,
                                 contextType, buffers, *scratchBytes);
  Value total = materialize(counts[0]);
  for (OpFoldResult count : ArrayRef(counts).drop_front())
    total = arith::MulIOp::create(builder, loc, total, materialize(count));
  total = arith::IndexCastOp::create(builder, loc, builder.getI64Type(), total);
  Value bytes =
      LLVM::ConstantOp::create(builder, loc, builder.getI64Type(),
                               builder.getI64IntegerAttr(*scratchBytes));
  Value function = func::ConstantOp::create(
      builder, loc, body.getFunctionType(), SymbolRefAttr::get(body));
  Value address =
      UnrealizedConversionCastOp::create(builder, loc, pointer, function)
          .getResult(0);
  Value context = packContext(parent, passed, contextType);
  LLVM::CallOp::create(builder, loc, *runtime,
                       ValueRange{total, bytes, address, context});
  loop.erase();
  return success();
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

/// Whether only operations that are lowered one by one are in the loop. Others
/// become loops and buffers, for which outside of a parallel loop would be no
/// scratch memory.
static bool isLowered(scf::ForallOp loop) {
  return !loop.walk([](Operation *op) {
                bool isWhole =
                    isa_and_nonnull<AttnDialect, linalg::LinalgDialect>(
                        op->getDialect());
                return isWhole ? WalkResult::interrupt()
                               : WalkResult::advance();
              })
              .wasInterrupted();
}

namespace {
struct OutlineParallelPass
    : fovea::attn::impl::OutlineParallelPassBase<OutlineParallelPass> {
  using OutlineParallelPassBase::OutlineParallelPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    Outliner outliner(module, symbols);
    for (func::FuncOp function :
         llvm::to_vector(module.getOps<func::FuncOp>())) {
      SmallVector<scf::ForallOp> loops;
      function.walk<WalkOrder::PreOrder>([&](scf::ForallOp loop) {
        if (isLowered(loop))
          loops.push_back(loop);
        return WalkResult::skip();
      });
      for (auto [number, loop] : llvm::enumerate(loops))
        if (failed(outliner.outline(loop, function, number)))
          return signalPassFailure();
    }
  }
};
} // namespace
