//===- GPUKernelBuilder.cpp - Emission of GPU kernels ---------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/GPUKernelBuilder.h"
#include "mlir/Conversion/LLVMCommon/Pattern.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace fovea::attn;

/// The barriers of groups of threads: of the first ones, and of others.
static constexpr int64_t kGroupBarrier = 1, kOtherBarrier = 2;

GPUKernelBuilder::GPUKernelBuilder(Location loc, OpBuilder &builder,
                                   int64_t numThreads)
    : RowBuilder(loc, builder, builder.getF32Type(), /*lanes=*/0),
      numThreads(numThreads) {}

void GPUKernelBuilder::begin() {
  setThread(toI32(gpu::ThreadIdOp::create(*this, gpu::Dimension::x)));
  sharedMemory = Value();
}

void GPUKernelBuilder::setThread(Value id) {
  laneId = rem(id, kWarpSize);
  warpId = sub(div(id, kWarpSize), i32(firstThread / kWarpSize));
  threadId = sub(id, i32(firstThread));
}

void GPUKernelBuilder::inGroup(int64_t first, int64_t count,
                               function_ref<void()> body) {
  llvm::SaveAndRestore thread(threadId, sub(threadId, i32(first)));
  llvm::SaveAndRestore warp(warpId, sub(warpId, i32(first / kWarpSize)));
  llvm::SaveAndRestore number(numThreads, count);
  llvm::SaveAndRestore start(firstThread, first);
  llvm::SaveAndRestore group(isGroup, true);
  body();
}

/// A number of 32 bits that LLVM knows nothing of: it does not move what
/// follows from it before loops.
static Value moveOpaque(OpBuilder &b, Location loc, StringRef text,
                        ValueRange operands, StringRef constraints) {
  return LLVM::InlineAsmOp::create(
             b, loc, TypeRange(b.getI32Type()), operands, text, constraints,
             /*has_side_effects=*/true, /*is_align_stack=*/false,
             LLVM::tailcallkind::TailCallKind::None,
             LLVM::AsmDialectAttr::get(b.getContext(),
                                       LLVM::AsmDialect::AD_ATT),
             /*operand_attrs=*/ArrayAttr())
      .getResult(0);
}

Value GPUKernelBuilder::recompute(Value number) {
  return moveOpaque(*this, getLoc(), "mov.u32 $0, $1;", number, "=r,r");
}

void GPUKernelBuilder::rarely(function_ref<void()> body) {
  llvm::SaveAndRestore thread(threadId), lane(laneId), warp(warpId);
  setThread(
      moveOpaque(*this, getLoc(), "mov.u32 $0, %tid.x;", ValueRange(), "=r"));
  body();
}

/// Threads of a group have a barrier of their own. With a predicate, the result
/// says whether any thread has one that holds.
Value GPUKernelBuilder::emitBarrier(Value predicate) {
  if (!predicate && !isGroup) {
    gpu::BarrierOp::create(*this);
    return Value();
  }
  Values operands = {i32(!isGroup           ? 0
                         : firstThread == 0 ? kGroupBarrier
                                            : kOtherBarrier)};
  if (isGroup)
    operands.push_back(i32(numThreads));
  if (!predicate) {
    NVVM::BarrierOp::create(*this, TypeRange(), operands[0], operands[1],
                            NVVM::BarrierReductionAttr(), Value());
    return Value();
  }
  operands.push_back(predicate);
  // nvvm.barrier has no predicate for some threads of a block.
  StringRef name = isGroup ? "llvm.nvvm.barrier.cta.red.or.aligned.count"
                           : "llvm.nvvm.barrier.cta.red.or.aligned.all";
  return LLVM::CallIntrinsicOp::create(*this, getI1Type(), getStringAttr(name),
                                       operands)
      .getResult(0);
}

void GPUKernelBuilder::warpBarrier() {
  NVVM::SyncWarpOp::create(*this, i32(-1));
}

Value GPUKernelBuilder::ballot(Value condition) {
  return NVVM::VoteSyncOp::create(*this, getI32Type(), i32(-1), condition,
                                  NVVM::VoteSyncKind::ballot);
}

Value GPUKernelBuilder::matchAny(Value number) {
  return NVVM::MatchSyncOp::create(*this, getI32Type(), i32(-1), number,
                                   NVVM::MatchSyncKind::any);
}

Value GPUKernelBuilder::anyThread(Value condition) {
  return emitBarrier(condition);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

Value GPUKernelBuilder::i32(int64_t value) {
  return arith::ConstantOp::create(*this, getI32IntegerAttr(value));
}
Value GPUKernelBuilder::i1(bool value) {
  return arith::ConstantOp::create(*this, getBoolAttr(value));
}
Value GPUKernelBuilder::toI32(Value value) {
  return createOrFold<arith::IndexCastOp>(getI32Type(), value);
}
Value GPUKernelBuilder::toIndex(Value value) {
  if (value.getType().isIndex())
    return value;
  return createOrFold<arith::IndexCastUIOp>(getIndexType(), value);
}
KernelBuilder::Values GPUKernelBuilder::toIndices(ValueRange values) {
  Values indices;
  for (Value value : values)
    indices.push_back(toIndex(value));
  return indices;
}
Value GPUKernelBuilder::bitXor(Value a, Value b) {
  return createOrFold<arith::XOrIOp>(a, b);
}
Value GPUKernelBuilder::bitAnd(Value a, int64_t b) {
  return createOrFold<arith::AndIOp>(a, like(a, b));
}

Value GPUKernelBuilder::exp2(Value x) { return math::Exp2Op::create(*this, x); }

Value GPUKernelBuilder::maxNum(Value a, Value b) {
  return LLVM::MaxNumOp::create(*this, a, b);
}

Value GPUKernelBuilder::shuffleXor(Value value, int64_t mask) {
  auto shuffle = [&](Value part) -> Value {
    return NVVM::ShflOp::create(*this, part.getType(), i32(-1), part, i32(mask),
                                i32(kWarpSize - 1), NVVM::ShflKind::bfly,
                                UnitAttr());
  };
  if (value.getType().getIntOrFloatBitWidth() == 32)
    return shuffle(value);
  // Two halves, or a word that has more bits.
  SmallVector<Value> words =
      LLVM::decomposeValue(*this, getLoc(), value, getI32Type());
  return LLVM::composeValue(
      *this, getLoc(), llvm::map_to_vector(words, shuffle), value.getType());
}

Value GPUKernelBuilder::shuffleFrom(Value value, Value lane) {
  return NVVM::ShflOp::create(*this, value.getType(), i32(-1), value, lane,
                              i32(kWarpSize - 1), NVVM::ShflKind::idx,
                              UnitAttr());
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

static Attribute getWorkgroupSpace(MLIRContext *context) {
  return gpu::AddressSpaceAttr::get(context, gpu::AddressSpace::Workgroup);
}

int64_t SharedMatrix::getChunks(int64_t bytes) {
  int64_t chunks = llvm::divideCeil(bytes, kChunkBytes);
  return chunks > 8 ? llvm::alignTo(chunks, 8)
                    : std::max<int64_t>(2, llvm::PowerOf2Ceil(chunks));
}

Value GPUKernelBuilder::sharedBuffer(int64_t offset, ArrayRef<int64_t> shape,
                                     Type type) {
  Attribute space = getWorkgroupSpace(getContext());
  if (!sharedMemory)
    sharedMemory = gpu::DynamicSharedMemoryOp::create(
        *this, MemRefType::get({ShapedType::kDynamic}, getI8Type(),
                               MemRefLayoutAttrInterface(), space));
  return memref::ViewOp::create(
      *this, MemRefType::get(shape, type, MemRefLayoutAttrInterface(), space),
      sharedMemory, index(offset), ValueRange());
}

SharedMatrix GPUKernelBuilder::sharedMatrix(int64_t offset, int64_t rows,
                                            int64_t columns, FloatType type) {
  SharedMatrix matrix;
  int64_t bytes = type.getWidth() / 8;
  matrix.chunkElements = kChunkBytes / bytes;
  matrix.chunks = SharedMatrix::getChunks(columns * bytes);
  matrix.memref =
      sharedBuffer(offset, {rows, matrix.chunks * matrix.chunkElements}, type);
  return matrix;
}

Value GPUKernelBuilder::swizzle(const SharedMatrix &matrix, Value row) {
  if (matrix.chunks >= 8)
    return bitAnd(row, 7);
  // Several rows share 128 bytes.
  return bitAnd(div(row, 8 / matrix.chunks), matrix.chunks - 1);
}

KernelBuilder::Values GPUKernelBuilder::loadMatrices(const SharedMatrix &matrix,
                                                     Value row, Value column,
                                                     bool transpose) {
  auto type = cast<FloatType>(
      cast<MemRefType>(matrix.memref.getType()).getElementType());
  int64_t elements = 32 / type.getWidth();
  auto fragments = VectorType::get({4, elements}, type);
  Value loaded = nvgpu::LdMatrixOp::create(*this, fragments, matrix.memref,
                                           toIndices({row, column}), transpose,
                                           /*numTiles=*/4);
  Values result;
  for (int64_t i = 0; i < 4; ++i) {
    Value part = vector::ExtractOp::create(*this, loaded, i);
    if (elements == 1)
      part = vector::ExtractOp::create(*this, part, 0);
    result.push_back(part);
  }
  return result;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value GPUKernelBuilder::roundToTF32(Value x) {
  // To nearest, ties away from zero; NaN stays NaN.
  Value bits = NVVM::ConvertFloatToTF32Op::create(*this, getI32Type(), x,
                                                  NVVM::FPRoundingMode::RNA);
  return arith::BitcastOp::create(*this, getF32Type(), bits);
}

Value GPUKernelBuilder::roundRest(Value x) {
  // Half of the last bit that stays is added, carrying into the exponent where
  // it must.
  Value bits = arith::BitcastOp::create(*this, getI32Type(), x);
  bits = arith::AddIOp::create(*this, bits, i32(0x1000));
  bits = arith::AndIOp::create(*this, bits, i32(~int64_t(0x1fff)));
  return arith::BitcastOp::create(*this, getF32Type(), bits);
}

KernelBuilder::Values GPUKernelBuilder::multiplyOnce(FloatType type,
                                                     ValueRange a, ValueRange b,
                                                     ValueRange c) {
  // Fragments are pairs of f16, or registers with pairs of bf16 or one tf32.
  auto toRegisters = [&](ValueRange values) {
    Values registers(values);
    if (type.isF16())
      return registers;
    for (Value &value : registers) {
      if (isa<VectorType>(value.getType())) {
        value = vector::BitCastOp::create(
            *this, VectorType::get({1}, getI32Type()), value);
        value = vector::ExtractOp::create(*this, value, 0);
      } else {
        value = arith::BitcastOp::create(*this, getI32Type(), value);
      }
    }
    return registers;
  };
  NVVM::MMATypes mmaType = type.isF16()    ? NVVM::MMATypes::f16
                           : type.isBF16() ? NVVM::MMATypes::bf16
                                           : NVVM::MMATypes::tf32;
  SmallVector<Type> fields(4, getF32Type());
  auto resultType = LLVM::LLVMStructType::getLiteral(getContext(), fields);
  Value product = NVVM::MmaOp::create(
      *this, resultType, toRegisters(a), toRegisters(b), c,
      ArrayRef<int64_t>{16, 8, int64_t(256 / type.getWidth())}, std::nullopt,
      std::nullopt, std::array<NVVM::MMATypes, 2>{mmaType, mmaType},
      std::array<NVVM::MMALayout, 2>{NVVM::MMALayout::row,
                                     NVVM::MMALayout::col});
  Values result;
  for (int64_t i = 0; i < 4; ++i)
    result.push_back(LLVM::ExtractValueOp::create(*this, product, i));
  return result;
}

KernelBuilder::Values
GPUKernelBuilder::multiplyByLanes(ValueRange a, ValueRange b, ValueRange c) {
  // Lane 4 r + k has columns k and k + 4 of rows r and r + 8 on the left, and
  // rows k and k + 4 of column r on the right; this lane wants two rows of the
  // left and two columns of the right.
  Value ownRow = mul(div(lane(), 4), 4), ownColumn = mul(rem(lane(), 4), 8);
  Values sums(c);
  for (int64_t depth = 0; depth < 8; ++depth) {
    int64_t from = depth % 4, upper = depth / 4;
    Value left[2], right[2];
    for (int64_t half : {0, 1}) {
      left[half] = shuffleFrom(a[2 * upper + half], add(ownRow, from));
      right[half] = shuffleFrom(b[upper], add(ownColumn, from + 4 * half));
    }
    for (auto [i, sum] : llvm::enumerate(sums))
      sum = fma(left[i / 2], right[i % 2], sum);
  }
  return sums;
}

GPUKernelBuilder::Sum GPUKernelBuilder::makeSum() {
  return {Values(4, scalar(0.0)), {}};
}

void GPUKernelBuilder::multiply(FloatType type, F32Math math, ValueRange a,
                                ValueRange b, Sum &sum) {
  if (!type.isF32()) {
    sum.high = multiplyOnce(type, a, b, sum.high);
    return;
  }
  if (math == F32Math::Exact) {
    sum.high = multiplyByLanes(a, b, sum.high);
    return;
  }
  Values highA, highB, lowA, lowB;
  for (auto [from, high, low] :
       {std::tuple(a, &highA, &lowA), std::tuple(b, &highB, &lowB)})
    for (Value x : from) {
      high->push_back(roundToTF32(x));
      if (math == F32Math::TF32x3)
        low->push_back(roundRest(fsub(x, high->back())));
    }
  sum.high = multiplyOnce(type, highA, highB, sum.high);
  if (math == F32Math::TF32)
    return;
  // The product of the two low parts is below the precision of f32.
  if (sum.low.empty())
    sum.low.assign(4, scalar(0.0));
  sum.low = multiplyOnce(type, lowA, highB, sum.low);
  sum.low = multiplyOnce(type, highA, lowB, sum.low);
}

KernelBuilder::Values GPUKernelBuilder::loadLeft(const SharedMatrix &matrix,
                                                 Value row, int64_t step) {
  // Its 8 x 8 matrices are (rows, chunks) = (0, 0), (8, 0), (0, 1), (8, 1).
  Value chunk = bitXor(div(lane(), 16), swizzle(matrix, rem(lane(), 8)));
  chunk = bitXor(chunk, 2 * step);
  return loadMatrices(matrix, add(row, rem(lane(), 16)),
                      mul(chunk, matrix.chunkElements), /*transpose=*/false);
}

void GPUKernelBuilder::multiplyRows(FloatType type, F32Math math,
                                    ValueRange left, const SharedMatrix &matrix,
                                    Value row, int64_t numRows, int64_t step,
                                    MutableArrayRef<Sum> sums) {
  // Matrices (0, 0), (0, 1), (8, 0), (8, 1) are two second operands.
  Value lane8 = rem(lane(), 8);
  Value chunk = bitXor(rem(div(lane(), 8), 2), swizzle(matrix, lane8));
  chunk = bitXor(chunk, 2 * step);
  row = add(row, add(lane8, mul(div(lane(), 16), 8)));
  for (int64_t first = 0; first < numRows; first += 16) {
    Values right =
        loadMatrices(matrix, add(row, first), mul(chunk, matrix.chunkElements),
                     /*transpose=*/false);
    for (int64_t half : {0, 1})
      multiply(type, math, left, ValueRange(right).slice(2 * half, 2),
               sums[first / 8 + half]);
  }
}

KernelBuilder::Values GPUKernelBuilder::getTotal(const Sum &sum) {
  Values total = sum.high;
  for (auto [i, low] : llvm::enumerate(sum.low))
    total[i] = fadd(total[i], low);
  return total;
}

//===----------------------------------------------------------------------===//
// Copies
//===----------------------------------------------------------------------===//

void GPUKernelBuilder::copyAsync(Value source, ValueRange at, Value shared,
                                 ValueRange sharedAt, int64_t elements,
                                 int64_t bytes, Value valid) {
  Value count = select(valid, index(elements), index(0));
  nvgpu::DeviceAsyncCopyOp::create(
      *this, nvgpu::DeviceAsyncTokenType::get(getContext()), shared,
      toIndices(sharedAt), source, toIndices(at), getIndexAttr(elements), count,
      // Only copies of 16 bytes can pass by the first cache level.
      bytes == kChunkBytes ? getUnitAttr() : UnitAttr());
}

void GPUKernelBuilder::commitCopies() {
  NVVM::CpAsyncCommitGroupOp::create(*this);
}

void GPUKernelBuilder::waitCopies(int64_t pending) {
  NVVM::CpAsyncWaitGroupOp::create(*this, static_cast<uint32_t>(pending));
}
