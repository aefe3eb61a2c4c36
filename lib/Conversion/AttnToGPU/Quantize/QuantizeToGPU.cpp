//===- QuantizeToGPU.cpp - GPU kernels of attn.quantize -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A block has up to 64 keys, a warp 16 of them. Codewords pass through shared
// memory in tiles, copied while the tile before is multiplied on the tensor
// cores. Scores `C_s . k - |C_s|^2 / 2` stay in fragments, and every thread
// keeps the best one of its columns and its code; the four threads of a row
// meet at the end.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Interfaces/LoweringInterfaces.h"
#include "fovea/Conversion/Interfaces/Lowerings.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPU/GPURowCopies.h"
#include "fovea/Kernels/GPU/RowAlignment.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/NVGPU/IR/NVGPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

static LogicalResult verifyQuantize(QuantizeOp op) {
  MemRefType key = getMemRefType(op.getKey());
  if (failed(verifyGPUElementTypes(op)) ||
      failed(verifyGPUWidths(op, {op.getKey()})))
    return failure();
  for (int64_t extent :
       {key.getDimSize(2), getMemRefType(op.getCodebook()).getDimSize(1)})
    if (extent >= int64_t(1) << 30)
      return op.emitOpError("has ")
             << extent << " keys or codewords, but GPU kernels take fewer than "
             << "2^30";
  return success();
}

namespace {
/// Warps of a block, codewords of a tile, and where both lie in shared memory.
struct QuantizeLayout {
  int64_t warps, tile;
  int64_t keys, codewords, norms, nearest, bytes; // offsets

  int64_t getNumKeys() const { return warps * kWarpRows; }

  QuantizeLayout(int64_t warps, int64_t tile, int64_t rowBytes)
      : warps(warps), tile(tile), bytes(0) {
    auto place = [&](int64_t size) {
      int64_t offset = bytes;
      bytes += llvm::alignTo(size, 128);
      return offset;
    };
    keys = place(getNumKeys() * rowBytes);
    codewords = place(2 * tile * rowBytes);
    norms = place(2 * tile * sizeof(float));
    nearest = place(getNumKeys() * sizeof(int32_t));
  }
};
} // namespace

/// As many keys as a block can have: they share each tile of codewords.
static QuantizeLayout chooseLayout(QuantizeOp op, int64_t sharedBytes) {
  MemRefType key = getMemRefType(op.getKey());
  int64_t elementBytes = key.getElementTypeBitWidth() / 8;
  int64_t rowBytes =
      SharedMatrix::getChunks(key.getDimSize(3) * elementBytes) * kChunkBytes;
  for (int64_t warps : {4, 2})
    for (int64_t tile : {64, 32}) {
      QuantizeLayout layout(warps, tile, rowBytes);
      // Fragments of f32 numbers that are cut in two take more registers.
      if (layout.bytes <= sharedBytes && tile * elementBytes <= 128)
        return layout;
    }
  return QuantizeLayout(1, 16, rowBytes);
}

namespace {
class QuantizeGPUKernel {
public:
  QuantizeGPUKernel(QuantizeOp op, OpBuilder &builder, F32Math math,
                    const QuantizeLayout &layout)
      : op(op), layout(layout),
        b(op.getLoc(), builder, layout.warps * fovea::attn::kWarpSize),
        math(math),
        type(cast<FloatType>(getMemRefType(op.getKey()).getElementType())),
        width(getMemRefType(op.getKey()).getDimSize(3)),
        numCodes(getMemRefType(op.getCodebook()).getDimSize(1)) {}

  void emit();

private:
  /// The best score and its code so far, for rows `lane / 4` and 8 more.
  struct Best {
    Values scores, codes;
  };

  void computeHalfNorms();
  void emitBlock(ValueRange at);
  void loadTile(Value number, Value stage);
  void compareTile(Value number, Value stage, Best &best);
  void meet(Best &best);
  void store(ValueRange at, const Best &best);
  void copyCodewords(ValueRange at);

  QuantizeOp op;
  QuantizeLayout layout;
  GPUKernelBuilder b;
  F32Math math;
  FloatType type;
  int64_t width, numCodes;

  Value halfNorms; // -|C_s|^2 / 2
  SharedMatrix sharedKeys, sharedCodewords;
  Value sharedNorms, sharedNearest;
  // Of the block.
  Value codewords, norms, firstKey, numKeys;
};
} // namespace

void QuantizeGPUKernel::emit() {
  computeHalfNorms();
  {
    OpBuilder::InsertionGuard guard(b);
    Value key = op.getKey();
    Value extents[] = {b.extent(key, 0), b.extent(key, 1),
                       b.ceilDiv(b.extent(key, 2), layout.getNumKeys())};
    emitBlock(beginBlocks(b, extents, layout.bytes));
  }
  memref::DeallocOp::create(b, halfNorms);
}

/// One chain of products for each codeword, so that equal codewords have equal
/// scores.
void QuantizeGPUKernel::computeHalfNorms() {
  Value codebook = op.getCodebook(), sets = b.extent(codebook, 0);
  int64_t staticSets = getMemRefType(codebook).getDimSize(0);
  SmallVector<Value> dynamicExtents;
  if (ShapedType::isDynamic(staticSets))
    dynamicExtents.push_back(sets);
  halfNorms = memref::AllocOp::create(
      b, MemRefType::get({staticSets, numCodes}, b.getF32Type()),
      dynamicExtents);
  parallelLoop(b, {sets, b.index(numCodes)}, [&](ValueRange at) {
    Value sum = b.loop(b.index(0), b.index(width), 1, {b.scalar(0.0)},
                       [&](Value column, ValueRange sum) -> Values {
                         Value x =
                             b.loadScalar(codebook, {at[0], at[1], column});
                         return {b.fma(x, x, sum[0])};
                       })[0];
    b.storeScalar(b.fmul(sum, b.scalar(-0.5)), halfNorms, at);
  });
}

void QuantizeGPUKernel::emitBlock(ValueRange at) {
  int64_t blockKeys = layout.getNumKeys();
  sharedKeys = b.sharedMatrix(layout.keys, blockKeys, width, type);
  sharedCodewords =
      b.sharedMatrix(layout.codewords, 2 * layout.tile, width, type);
  sharedNorms = b.sharedBuffer(layout.norms, {2 * layout.tile}, b.getF32Type());
  sharedNearest = b.sharedBuffer(layout.nearest, {blockKeys}, b.getI32Type());
  clearPadding(b, sharedKeys, blockKeys, width);
  clearPadding(b, sharedCodewords, 2 * layout.tile, width);

  bool isShared = getMemRefType(op.getCodebook()).getDimSize(0) == 1;
  Value set = isShared ? b.index(0) : at[1];
  codewords = b.rowView(op.getCodebook(), set);
  norms = b.rowView(halfNorms, set);
  Value keys = b.rowView(op.getKey(), at.take_front(2));
  firstKey = b.toI32(b.mul(at[2], blockKeys));
  Value rows = b.toI32(b.extent(op.getKey(), 2));
  numKeys = b.min(b.sub(rows, firstKey), blockKeys);
  int64_t elementBytes = type.getWidth() / 8;
  Value zero = b.i32(0), one = b.i32(1);
  copyRows(b, keys, sharedKeys, zero, blockKeys, {zero, width, width},
           getCopyBytes(op.getKey(), elementBytes), [&](Value row) {
             Value clamped = b.min(row, b.sub(numKeys, one));
             return std::pair(Values{b.add(firstKey, clamped)},
                              b.less(row, numKeys));
           });
  loadTile(zero, zero);
  b.commitCopies();

  Value none = b.scalar(-std::numeric_limits<double>::infinity());
  Value numTiles = b.i32(llvm::divideCeil(numCodes, layout.tile));
  Values carried = b.loop(
      zero, numTiles, 1, {none, none, zero, zero},
      [&](Value number, ValueRange values) -> Values {
        Best best = {Values(values.take_front(2)),
                     Values(values.drop_front(2))};
        Value next = b.add(number, one), stage = b.rem(number, 2);
        b.ifThen(b.less(next, numTiles),
                 [&] { loadTile(next, b.sub(one, stage)); });
        b.commitCopies();
        b.waitCopies(1);
        b.barrier();
        compareTile(number, stage, best);
        b.barrier();
        return {best.scores[0], best.scores[1], best.codes[0], best.codes[1]};
      });
  Best best = {{carried[0], carried[1]}, {carried[2], carried[3]}};
  meet(best);
  store(at, best);
}

void QuantizeGPUKernel::loadTile(Value number, Value stage) {
  Value first = b.mul(number, layout.tile), last = b.i32(numCodes - 1);
  Value sharedRow = b.mul(stage, layout.tile);
  copyRows(b, codewords, sharedCodewords, sharedRow, layout.tile,
           {b.i32(0), width, width},
           getCopyBytes(op.getCodebook(), type.getWidth() / 8), [&](Value row) {
             Value code = b.add(first, row);
             return std::pair(Values{b.min(code, last)},
                              b.less(code, b.i32(numCodes)));
           });
  // A codeword that does not exist is farther than any.
  forEachOwn(b, layout.tile, [&](Value row) {
    Value code = b.add(first, row);
    Value norm = b.select(
        b.less(code, b.i32(numCodes)), b.getF32Type(),
        [&] { return b.loadScalar(norms, b.toIndex(code)); },
        [&] { return b.scalar(-std::numeric_limits<double>::infinity()); });
    memref::StoreOp::create(b, norm, sharedNorms,
                            b.toIndex(b.add(sharedRow, row)));
  });
}

void QuantizeGPUKernel::compareTile(Value number, Value stage, Best &best) {
  SmallVector<GPUKernelBuilder::Sum> sums(layout.tile / 8, b.makeSum());
  Value stageRow = b.mul(stage, layout.tile);
  Value warpRow = b.mul(b.warp(), kWarpRows);
  int64_t stepElements = 2 * sharedKeys.chunkElements;
  for (int64_t step = 0; step * stepElements < width; ++step)
    b.multiplyRows(type, math, b.loadLeft(sharedKeys, warpRow, step),
                   sharedCodewords, stageRow, layout.tile, step, sums);
  Value pairColumn = b.mul(b.rem(b.lane(), 4), 2);
  Value firstCode = b.add(b.mul(number, layout.tile), pairColumn);
  for (auto [tile, sum] : llvm::enumerate(sums)) {
    Values scores = b.getTotal(sum);
    for (int64_t i : {0, 1}) {
      int64_t column = tile * 8 + i;
      Value norm = memref::LoadOp::create(
          b, sharedNorms,
          b.toIndex(b.add(b.add(stageRow, pairColumn), column)));
      Value code = b.add(firstCode, column);
      for (int64_t half : {0, 1}) {
        Value score = b.fadd(scores[2 * half + i], norm);
        // The first of equal ones stays, and NaN is no better.
        Value isBetter = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                               score, best.scores[half]);
        best.scores[half] = b.select(isBetter, score, best.scores[half]);
        best.codes[half] = b.select(isBetter, code, best.codes[half]);
      }
    }
  }
}

/// The best of the four threads of a row.
void QuantizeGPUKernel::meet(Best &best) {
  Value infinity = b.scalar(std::numeric_limits<double>::infinity());
  for (int64_t half : {0, 1}) {
    Value &score = best.scores[half], &code = best.codes[half];
    for (int64_t mask : {1, 2}) {
      Value otherScore = b.shuffleXor(score, mask);
      Value otherCode = b.shuffleXor(code, mask);
      Value isBetter = arith::CmpFOp::create(b, arith::CmpFPredicate::OGT,
                                             otherScore, score);
      Value ties = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ,
                                         otherScore, score);
      isBetter = b.either(isBetter, b.both(ties, b.less(otherCode, code)));
      score = b.select(isBetter, otherScore, score);
      code = b.select(isBetter, otherCode, code);
    }
    // An infinite score is that of an infinite key, far from all codewords.
    Value isFinite =
        arith::CmpFOp::create(b, arith::CmpFPredicate::OLT, score, infinity);
    code = b.select(isFinite, code, b.i32(0));
  }
}

void QuantizeGPUKernel::store(ValueRange at, const Best &best) {
  Value isWriter = b.equal(b.rem(b.lane(), 4), b.i32(0));
  for (int64_t half : {0, 1}) {
    Value row =
        b.add(b.add(b.mul(b.warp(), kWarpRows), b.div(b.lane(), 4)), half * 8);
    b.ifThen(b.both(isWriter, b.less(row, numKeys)), [&] {
      Value position[] = {at[0], at[1], b.toIndex(b.add(firstKey, row))};
      memref::StoreOp::create(b, best.codes[half], op.getCodes(), position);
      if (op.getQuantized())
        memref::StoreOp::create(b, best.codes[half], sharedNearest,
                                b.toIndex(row));
    });
  }
  if (!op.getQuantized())
    return;
  b.barrier();
  copyCodewords(at);
}

/// Neighbouring threads copy neighbouring elements.
void QuantizeGPUKernel::copyCodewords(ValueRange at) {
  b.loop(
      b.thread(), b.mul(numKeys, width), b.getNumThreads(), [&](Value number) {
        Value row = b.div(number, width), column = b.rem(number, width);
        Value code = memref::LoadOp::create(b, sharedNearest, b.toIndex(row));
        Value element =
            memref::LoadOp::create(b, codewords, b.toIndices({code, column}));
        Value key = b.add(firstKey, row);
        memref::StoreOp::create(
            b, element, op.getQuantized(),
            ValueRange{at[0], at[1], b.toIndex(key), b.toIndex(column)});
      });
}

static LogicalResult lowerQuantize(QuantizeOp op, OpBuilder &builder,
                                   GPULowering &lowering) {
  if (failed(verifyQuantize(op)))
    return failure();
  QuantizeGPUKernel(op, builder, lowering.f32,
                    chooseLayout(op, lowering.gpu.sharedBytes))
      .emit();
  return success();
}

void fovea::attn::attachQuantizeToGPU(MLIRContext &context) {
  attachLowerings<GPUModel, lowerQuantize>(context);
}
