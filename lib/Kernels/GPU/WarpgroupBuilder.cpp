//===- WarpgroupBuilder.cpp - Emission of code for sm_90a -----------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Kernels/GPU/WarpgroupBuilder.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

/// Address spaces of LLVM.
static constexpr unsigned kGlobal = 1, kShared = 3, kSharedCluster = 7;
/// The number of the first group's turn among barriers; those before are of
/// GPUKernelBuilder.
static constexpr int64_t kFirstTurn = 3;
/// Clocks after which a wait looks again.
static constexpr int64_t kWaitTicks = 10000000;

int64_t fovea::attn::getBoxedBytes(int64_t rows, int64_t columns) {
  return rows * kBoxBytes * llvm::divideCeil(columns * 2, kBoxBytes);
}

bool fovea::attn::fitsGradientBoxes(Value memref, FloatType type,
                                    int64_t most) {
  int64_t width = getWidth(memref);
  return type.getWidth() == 16 && width > 0 && width % 8 == 0 &&
         width <= most && getMemRefType(memref).getElementType() == type &&
         getCopyBytes(memref, 2) == kChunkBytes;
}

Value fovea::attn::createBoxMap(OpBuilder &host, Location loc, Value tensor,
                                int64_t rows, int64_t places) {
  MemRefType type = getMemRefType(tensor);
  MLIRContext *context = host.getContext();
  int64_t rank = type.getRank();
  int64_t columns = kBoxBytes * 8 / type.getElementTypeBitWidth();
  SmallVector<int64_t> extents(rank, 1);
  if (places > 1)
    extents[rank - 3] = places;
  extents[rank - 2] = rows;
  extents[rank - 1] = columns;
  SmallVector<Value> box;
  for (int64_t extent : extents)
    box.push_back(arith::ConstantIndexOp::create(host, loc, extent));
  auto boxType = MemRefType::get(
      {places * rows, columns}, type.getElementType(),
      MemRefLayoutAttrInterface(),
      gpu::AddressSpaceAttr::get(context, gpu::AddressSpace::Workgroup));
  auto mapType = nvgpu::TensorMapDescriptorType::get(
      context, boxType, nvgpu::TensorMapSwizzleKind::SWIZZLE_128B,
      nvgpu::TensorMapL2PromoKind::L2PROMO_128B,
      nvgpu::TensorMapOOBKind::OOB_ZERO,
      nvgpu::TensorMapInterleaveKind::INTERLEAVE_NONE);
  Value unranked = memref::CastOp::create(
      host, loc, UnrankedMemRefType::get(type.getElementType(), 0), tensor);
  Value map =
      nvgpu::TmaCreateDescriptorOp::create(host, loc, mapType, unranked, box);
  return UnrealizedConversionCastOp::create(
             host, loc, LLVM::LLVMPointerType::get(context), map)
      .getResult(0);
}

Value WarpgroupBuilder::getShared(int64_t offset) {
  Value bytes = b.sharedBuffer(offset, {kChunkBytes}, b.getI8Type());
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, bytes);
  address = arith::IndexCastOp::create(b, b.getI64Type(), address);
  return LLVM::IntToPtrOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), kShared), address);
}

Value WarpgroupBuilder::advance(Value address, Value bytes) {
  return LLVM::GEPOp::create(b, address.getType(), b.getI8Type(), address,
                             ArrayRef<LLVM::GEPArg>{bytes});
}

//===----------------------------------------------------------------------===//
// Barriers and copies
//===----------------------------------------------------------------------===//

void WarpgroupBuilder::initBarrier(Value barrier, int64_t count) {
  NVVM::MBarrierInitOp::create(b, barrier, b.i32(count), /*predicate=*/Value());
}

void WarpgroupBuilder::publishBarriers() {
  NVVM::FenceMbarrierInitOp::create(b);
  publishWrites();
}

void WarpgroupBuilder::publishWrites() {
  NVVM::FenceProxyOp::create(
      b, NVVM::ProxyKind::async_shared,
      NVVM::SharedSpaceAttr::get(b.getContext(),
                                 NVVM::SharedSpace::shared_cta));
}

void WarpgroupBuilder::arrive(Value barrier) {
  NVVM::MBarrierArriveOp::create(b, b.getI64Type(), barrier, /*count=*/Value());
}

void WarpgroupBuilder::arriveAt(Value barrier, Value rank) {
  Value there = NVVM::MapaOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), kSharedCluster), barrier,
      rank);
  NVVM::MBarrierArriveOp::create(b, /*res=*/Type(), there, /*count=*/Value(),
                                 NVVM::MemScopeKind::CLUSTER);
}

Value WarpgroupBuilder::getRank() {
  return NVVM::ClusterId::create(b, b.getI32Type());
}

void WarpgroupBuilder::meetCluster() {
  // Threads of a warp may come here one by one.
  NVVM::ClusterArriveOp::create(b, /*aligned=*/UnitAttr());
  NVVM::ClusterWaitOp::create(b, /*aligned=*/UnitAttr());
}

void WarpgroupBuilder::arriveAfterCopies(Value barrier) {
  NVVM::CpAsyncMBarrierArriveOp::create(b, barrier, /*noinc=*/true);
}

void WarpgroupBuilder::arriveExpecting(Value barrier, int64_t bytes) {
  NVVM::MBarrierArriveExpectTxOp::create(
      b, /*res=*/Type(), barrier, b.i32(bytes), NVVM::MemScopeKind::CTA,
      /*relaxed=*/false, /*predicate=*/Value());
}

void WarpgroupBuilder::expect(Value barrier, int64_t bytes) {
  NVVM::MBarrierExpectTxOp::create(b, barrier, b.i32(bytes));
}

void WarpgroupBuilder::wait(Value barrier, Value parity) {
  NVVM::MBarrierTryWaitParityOp::create(b, barrier, parity, b.i32(kWaitTicks));
}

/// `name` of the barrier that is the turn of a group: of its own threads, and
/// of those that give it.
static void emitTurn(GPUKernelBuilder &b, StringRef name, Value group) {
  Values operands = {b.add(group, kFirstTurn), b.i32(2 * kWarpgroupSize)};
  LLVM::CallIntrinsicOp::create(b, b.getStringAttr(name), operands);
}

void WarpgroupBuilder::awaitTurn(Value group) {
  emitTurn(b, "llvm.nvvm.barrier.cta.sync.aligned.count", group);
}

void WarpgroupBuilder::giveTurn(Value group) {
  emitTurn(b, "llvm.nvvm.barrier.cta.arrive.aligned.count", group);
}

/// A pointer of another address space.
static Value castSpace(GPUKernelBuilder &b, Value address, unsigned space) {
  return LLVM::AddrSpaceCastOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext(), space), address);
}

void WarpgroupBuilder::copyBytes(Value target, Value memref, ValueRange at,
                                 Value barrier, int64_t bytes) {
  // Rows of a buffer without holes.
  MemRefType type = getMemRefType(memref);
  Value offset = b.index(0);
  for (auto [dim, index] : llvm::enumerate(at))
    offset = b.add(b.mul(offset, b.extent(memref, dim)), index);
  offset = b.mul(offset, type.getElementTypeBitWidth() / 8);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memref);
  address =
      arith::IndexCastOp::create(b, b.getI64Type(), b.add(address, offset));
  Value from = LLVM::IntToPtrOp::create(
      b, LLVM::LLVMPointerType::get(b.getContext()), address);
  NVVM::CpAsyncBulkGlobalToSharedClusterOp::create(
      b, castSpace(b, target, kSharedCluster), castSpace(b, from, kGlobal),
      barrier, b.i32(bytes), /*multicastMask=*/Value(),
      /*l2CacheHint=*/Value());
}

void WarpgroupBuilder::copyBox(Value target, Value tensorMap, Value barrier,
                               ValueRange position, int64_t cluster) {
  Value to = castSpace(b, target, kSharedCluster);
  Value blocks;
  if (cluster > 1)
    blocks = arith::ConstantOp::create(
        b, b.getI16IntegerAttr(llvm::maskTrailingOnes<uint16_t>(cluster)));
  NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp::create(
      b, to, tensorMap, position, barrier, /*im2colOffsets=*/ValueRange(),
      /*multicastMask=*/blocks, /*l2CacheHint=*/Value(),
      NVVM::TMALoadMode::TILE, /*isCTAOnly=*/false, /*group=*/nullptr,
      /*predicate=*/Value());
}

void WarpgroupBuilder::forEachBox(
    Value shared, ValueRange position, int64_t rows, int64_t columns,
    function_ref<void(Value box, ValueRange at)> body) {
  int64_t perBox = kBoxBytes / 2;
  for (int64_t first = 0; first < columns; first += perBox) {
    // Innermost axis first.
    Values at(llvm::reverse(position));
    at[0] = b.add(at[0], first);
    body(advance(shared, first / perBox * rows * kBoxBytes), at);
  }
}

void WarpgroupBuilder::copyBoxes(Value target, Value tensorMap, Value barrier,
                                 ValueRange position, int64_t rows,
                                 int64_t columns, int64_t cluster) {
  forEachBox(target, position, rows, columns, [&](Value box, ValueRange at) {
    copyBox(box, tensorMap, barrier, at, cluster);
  });
}

void WarpgroupBuilder::storeBoxes(Value source, Value tensorMap,
                                  ValueRange position, int64_t boxRows,
                                  int64_t columns) {
  forEachBox(source, position, boxRows, columns, [&](Value box, ValueRange at) {
    NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp::create(
        b, tensorMap, box, at, /*l2CacheHint=*/Value(),
        NVVM::TMAStoreMode::TILE, /*predicate=*/Value());
  });
  NVVM::CpAsyncBulkCommitGroupOp::create(b);
}

void WarpgroupBuilder::awaitStores() {
  NVVM::CpAsyncBulkWaitGroupOp::create(b, b.getI32IntegerAttr(0),
                                       b.getUnitAttr());
}

void WarpgroupBuilder::setRegisters(int64_t count, bool raises) {
  NVVM::SetMaxRegisterOp::create(b, static_cast<uint32_t>(count),
                                 raises ? NVVM::SetMaxRegisterAction::increase
                                        : NVVM::SetMaxRegisterAction::decrease);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// The upper half of all descriptors: the stride between groups of eight rows
/// over 16, and the swizzle of 128 bytes.
static constexpr int64_t kDescriptorStride = 8 * kBoxBytes / 16,
                         kDescriptorSwizzle128 = int64_t(1) << 30;

Value WarpgroupBuilder::getDescriptor(Value address, int64_t boxStride) {
  // 18 bits of the address and the stride between boxes, both over 16.
  Value bits = LLVM::PtrToIntOp::create(b, b.getI32Type(), address);
  bits = b.bitAnd(bits, 0x3ffff);
  bits = arith::ShRUIOp::create(b, bits, b.i32(4));
  return arith::OrIOp::create(b, bits, b.i32((boxStride / 16) << 16));
}

Value WarpgroupBuilder::advanceDescriptor(Value descriptor, int64_t bytes) {
  // The address is in the lowest bits and does not leave them.
  return b.add(descriptor, bytes / 16);
}

/// Both halves. Only the lower one takes registers of the kernel: what loops
/// keep of 64 bits would take two.
static Value widenDescriptor(GPUKernelBuilder &b, Value descriptor) {
  Type type = b.getI64Type();
  Value upper = arith::ConstantOp::create(
      b,
      b.getI64IntegerAttr((kDescriptorSwizzle128 | kDescriptorStride) << 32));
  Value lower = arith::ExtUIOp::create(b, type, descriptor);
  return arith::OrIOp::create(b, lower, upper);
}

void WarpgroupBuilder::beginProducts() { NVVM::WgmmaFenceAlignedOp::create(b); }

void WarpgroupBuilder::commitProducts() {
  NVVM::WgmmaGroupSyncAlignedOp::create(b);
}

/// `$first, $(first + 1), ...`
static std::string listOperands(size_t first, size_t count) {
  std::string list;
  for (size_t i = 0; i < count; ++i)
    list += (i ? ", $" : "$") + std::to_string(first + i);
  return list;
}

/// Inline assembly with `count` results. Those that change `sums` are tied to
/// the first operands; without sums the assembly only writes.
static Values emitAssembly(GPUKernelBuilder &b, StringRef text, size_t count,
                           ValueRange sums, ValueRange operands,
                           StringRef constraints) {
  SmallVector<std::string> all(count, "=f");
  for (size_t i = 0; i < sums.size(); ++i)
    all.push_back(std::to_string(i));
  if (!constraints.empty())
    all.push_back(constraints.str());
  Values values(sums);
  values.append(operands.begin(), operands.end());
  SmallVector<Type> fields(count, b.getF32Type());
  Type type = LLVM::LLVMStructType::getLiteral(b.getContext(), fields);
  auto assembly = LLVM::InlineAsmOp::create(
      b, TypeRange(type), values, text, llvm::join(all, ","),
      /*has_side_effects=*/true,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(b.getContext(), LLVM::AsmDialect::AD_ATT),
      /*operand_attrs=*/ArrayAttr());
  Values results;
  for (size_t i = 0; i < count; ++i)
    results.push_back(
        LLVM::ExtractValueOp::create(b, assembly.getResult(0), int64_t(i)));
  return results;
}

Values WarpgroupBuilder::multiply(FloatType type, ValueRange sums,
                                  ValueRange left, Value right, bool transpose,
                                  bool adds) {
  // The operation of the NVVM dialect takes no operand in registers. What is
  // not added to must not be read either: its registers would be set to zero
  // after the fence.
  size_t count = sums.size(), next = adds ? 2 * count : count;
  bool inRegisters = left.size() > 1;
  std::string first = listOperands(next, left.size());
  if (inRegisters)
    first = "{" + first + "}";
  next += left.size();
  StringRef name = type.isBF16() ? "bf16" : "f16";
  // Adds or not, both factors as they are, A not transposed, B or not.
  std::string text = llvm::formatv(
      "{{ .reg .pred p; setp.ne.b32 p, {0}, 0; "
      "wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {{{3}}, {4}, ${5}, "
      "p, 1, 1, {6}{7}; }",
      adds ? 1 : 0, count * 2, name, listOperands(0, count), first, next,
      inRegisters ? "" : "0, ", transpose ? 1 : 0);
  Values operands(left);
  if (!inRegisters)
    operands[0] = widenDescriptor(b, operands[0]);
  operands.push_back(widenDescriptor(b, right));
  return emitAssembly(b, text, count, adds ? sums : ValueRange(), operands,
                      inRegisters ? "r,r,r,r,l" : "l,l");
}

Values WarpgroupBuilder::waitProducts(int64_t pending, ValueRange sums) {
  std::string text =
      llvm::formatv("wgmma.wait_group.sync.aligned {0};", pending);
  return emitAssembly(b, text, sums.size(), sums, {}, "");
}

Values WarpgroupBuilder::multiplyRows(FloatType type, Value left,
                                      int64_t leftRows, Value right,
                                      int64_t rightRows, int64_t width) {
  Values sums(rightRows / 2, b.scalar(0.0));
  // 16 columns are 32 bytes of a box.
  for (int64_t column = 0; column < width; column += 16) {
    int64_t box = column * 2 / kBoxBytes, inBox = column * 2 % kBoxBytes;
    auto at = [&](Value descriptor, int64_t rows) {
      return advanceDescriptor(descriptor, box * rows * kBoxBytes + inBox);
    };
    sums = multiply(type, sums, at(left, leftRows), at(right, rightRows),
                    /*transpose=*/false, /*adds=*/column != 0);
  }
  return sums;
}

Values WarpgroupBuilder::startScores(FloatType type, Value left,
                                     int64_t leftRows, Value right,
                                     int64_t rightRows, int64_t width) {
  Values sums = multiplyRows(type, left, leftRows, right, rightRows, width);
  commitProducts();
  return sums;
}

Values WarpgroupBuilder::multiplyWeights(FloatType type, ValueRange sums,
                                         ValueRange packed, Value address,
                                         int64_t rows) {
  Values next(sums);
  Value right = getDescriptor(address, /*boxStride=*/rows * kBoxBytes);
  for (int64_t step = 0; step < rows / 16; ++step)
    next = multiply(type, next, packed.slice(4 * step, 4),
                    advanceDescriptor(right, step * 16 * kBoxBytes),
                    /*transpose=*/true, /*adds=*/true);
  return next;
}

Values WarpgroupBuilder::packWeights(FloatType type, ValueRange weights) {
  Values registers;
  for (size_t i = 0; i < weights.size(); i += 2) {
    Value both = vector::FromElementsOp::create(
        b, VectorType::get({2}, b.getF32Type()), weights.slice(i, 2));
    both = arith::TruncFOp::create(b, VectorType::get({2}, type), both);
    both = vector::BitCastOp::create(b, VectorType::get({1}, b.getI32Type()),
                                     both);
    registers.push_back(vector::ExtractOp::create(b, both, 0));
  }
  return registers;
}
