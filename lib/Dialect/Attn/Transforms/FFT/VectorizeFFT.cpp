//===- VectorizeFFT.cpp - Vector code of Fourier transforms ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FFT/FFTKernel.h"
#include "VectorOperands.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Dialect/Attn/Transforms/Passes.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZEFFTPASS
#include "fovea/Dialect/Attn/Transforms/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;

using Values = KernelBuilder::Values;

namespace {
/// Rows of two vectors of a memref `[B, rows, columns]`.
class RowAccess {
public:
  RowAccess(KernelBuilder &b, Value memref, Value batch, Value column)
      : b(b), memref(memref), batch(batch), column(column) {
    auto type = cast<MemRefType>(memref.getType());
    isWhole = type.getDimSize(2) % (2 * b.getLanes()) == 0;
  }

  ComplexRow load(Value row) {
    Value re = loadPart(row, 0);
    return {re, loadPart(row, b.getLanes())};
  }
  void store(Value row, ComplexRow numbers) {
    storePart(numbers.re, row, 0);
    storePart(numbers.im, row, b.getLanes());
  }

private:
  Values at(Value row, int64_t offset) {
    return {batch, row, b.add(column, offset)};
  }
  /// True for columns that there are.
  Value mask(int64_t offset) {
    Value left = b.sub(b.extent(memref, 2), b.add(column, offset));
    return vector::CreateMaskOp::create(
        b, VectorType::get({b.getLanes()}, b.getI1Type()), left);
  }
  VectorType getType() {
    return VectorType::get({b.getLanes()},
                           cast<MemRefType>(memref.getType()).getElementType());
  }
  Value loadPart(Value row, int64_t offset) {
    if (isWhole)
      return b.loadVector(memref, at(row, offset));
    Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(getType()));
    Value numbers = vector::MaskedLoadOp::create(
        b, getType(), memref, at(row, offset), mask(offset), zeros);
    if (numbers.getType() == b.getVectorType())
      return numbers;
    return arith::ExtFOp::create(b, b.getVectorType(), numbers);
  }
  void storePart(Value numbers, Value row, int64_t offset) {
    if (isWhole)
      return b.storeVector(numbers, memref, at(row, offset));
    if (getType() != b.getVectorType())
      numbers = arith::TruncFOp::create(b, getType(), numbers);
    vector::MaskedStoreOp::create(b, memref, at(row, offset), mask(offset),
                                  numbers);
  }

  KernelBuilder &b;
  Value memref, batch, column;
  bool isWhole;
};

/// One task for each batch entry and group of columns.
class FFTLoops {
public:
  FFTLoops(OpBuilder &builder, Operation *op, SpectrumAttr form, Value spectrum)
      : b(op->getLoc(), builder,
          cast<FloatType>(
              cast<MemRefType>(spectrum.getType()).getElementType()),
          form.getLanes()),
        op(op), form(form), spectrum(spectrum) {}

  void emit(FFTForwardOp forward) {
    Value twiddles = emitTwiddles(b, op, form.getRadices());
    int64_t numRows =
        cast<MemRefType>(forward.getInput().getType()).getDimSize(1);
    forEachTask([&](Value batch, Value column) {
      RowAccess rows(b, spectrum, batch, column),
          input(b, forward.getInput(), batch, column);
      auto load = [&](Value row) { return rows.load(row); };
      auto store = [&](Value row, ComplexRow numbers) {
        rows.store(row, numbers);
      };
      auto source = [&](Value row) { return loadOrZero(input, row, numRows); };
      FFTKernel::Steps steps = {load, store};
      steps.source = source;
      steps.isHalfZero = 2 * numRows <= form.getLength();
      FFTKernel(b, form.getRadices(), twiddles)
          .forward(steps, [&](Value position, FFTKernel::Rows &values) {
            for (auto [k, value] : llvm::enumerate(values))
              rows.store(b.add(position, k), value);
          });
    });
  }

  void emit(FFTInverseOp inverse) {
    Value twiddles = emitTwiddles(b, op, form.getRadices());
    int64_t first = inverse.getFirst(), length = form.getLength();
    int64_t numRows =
        cast<MemRefType>(inverse.getOutput().getType()).getDimSize(1);
    Value scale = b.splat(1.0 / length);
    forEachTask([&](Value batch, Value column) {
      Value work = b.scratch({1, length, form.getGroup()}, b.getStateType());
      RowAccess input(b, spectrum, batch, column),
          rows(b, work, b.index(0), b.index(0)),
          output(b, inverse.getOutput(), batch, column);
      auto load = [&](Value row) { return rows.load(row); };
      auto store = [&](Value row, ComplexRow numbers) {
        rows.store(row, numbers);
      };
      auto sink = [&](Value at, ComplexRow numbers) {
        Value row = b.sub(at, b.index(first));
        auto write = [&] {
          output.store(row,
                       {b.fmul(numbers.re, scale), b.fmul(numbers.im, scale)});
        };
        if (numRows == length)
          return write();
        Value isIn =
            b.both(b.less(b.index(-1), row), b.less(row, b.index(numRows)));
        b.ifThen(isIn, write);
      };
      FFTKernel::Steps steps = {load, store};
      steps.sink = sink;
      if (first + numRows <= length / 2)
        steps.wanted = FFTKernel::Half::First;
      else if (first >= length / 2)
        steps.wanted = FFTKernel::Half::Second;
      FFTKernel(b, form.getRadices(), twiddles)
          .inverse(steps, [&](Value position, FFTKernel::Rows &values) {
            for (auto [k, value] : llvm::enumerate(values))
              value = input.load(b.add(position, k));
          });
    });
  }

  void emitProduct(Value factor, Value output, bool accumulates) {
    FFTKernel kernel(b, form.getRadices(), /*twiddles=*/Value());
    forEachTask([&](Value batch, Value column) {
      RowAccess input(b, spectrum, batch, column),
          result(b, output, batch, column);
      b.loop(b.index(0), b.index(form.getLength()), 1, [&](Value row) {
        auto part = [&](int64_t at) {
          return b.broadcast(b.loadScalar(
              factor, {b.broadcastIndex(factor, 0, batch), row, b.index(at)}));
        };
        Value re = part(0);
        ComplexRow product =
            kernel.multiply(input.load(row), {re, part(form.getLanes())});
        if (accumulates) {
          ComplexRow old = result.load(row);
          product = {b.fadd(old.re, product.re), b.fadd(old.im, product.im)};
        }
        result.store(row, product);
      });
    });
  }

private:
  ComplexRow loadOrZero(RowAccess &input, Value row, int64_t numRows) {
    int64_t length = form.getLength();
    if (numRows == length || 2 * numRows == length)
      return input.load(row);
    // A row that there is, and its numbers only where it is the one.
    Value isIn = b.less(row, b.index(numRows));
    Value last = b.index(std::max<int64_t>(numRows - 1, 0));
    if (numRows == 0)
      return {b.splat(0.0), b.splat(0.0)};
    ComplexRow numbers = input.load(b.min(row, last));
    return {b.select(isIn, numbers.re, b.splat(0.0)),
            b.select(isIn, numbers.im, b.splat(0.0))};
  }

  void forEachTask(function_ref<void(Value batch, Value column)> body) {
    int64_t width = cast<MemRefType>(spectrum.getType()).getDimSize(2);
    SmallVector<OpFoldResult> bounds = {
        getAsOpFoldResult(b.extent(spectrum, 0)),
        b.getIndexAttr(width / form.getGroup())};
    scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                          /*mapping=*/std::nullopt,
                          [&](OpBuilder &, Location, ValueRange task) {
                            body(task[0], b.mul(task[1], form.getGroup()));
                            b.freeScratch();
                            scf::InParallelOp::create(b);
                          });
  }

  KernelBuilder b;
  Operation *op;
  SpectrumAttr form;
  Value spectrum;
};

struct VectorizeFFTPass
    : fovea::attn::impl::VectorizeFFTPassBase<VectorizeFFTPass> {
  void runOnOperation() override {
    SmallVector<Operation *> ops;
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (!isa<FFTForwardOp, FFTInverseOp, FFTMultiplyOp, FFTAccumulateOp>(op))
        return WalkResult::advance();
      ops.push_back(op);
      return WalkResult(fovea::attn::detail::verifyVectorOperands(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (Operation *op : ops) {
      OpBuilder builder(op);
      llvm::TypeSwitch<Operation *>(op)
          .Case<FFTForwardOp, FFTInverseOp>([&](auto fft) {
            FFTLoops(builder, op, fft.getForm(), fft.getSpectrum()).emit(fft);
          })
          .Case<FFTMultiplyOp, FFTAccumulateOp>([&](auto product) {
            FFTLoops(builder, op, product.getForm(), product.getSpectrum())
                .emitProduct(product.getFactor(), product.getOutput(),
                             isa<FFTAccumulateOp>(op));
          });
      op->erase();
    }
  }
};
} // namespace
