//===- VectorizeFFT.cpp - Vector code of Fourier transforms ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/AttnToVector/FFT/FFTKernel.h"
#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/VectorOperands.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

namespace fovea::attn {
#define GEN_PASS_DEF_VECTORIZEFFTPASS
#include "fovea/Conversion/Passes.h.inc"
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

  /// Row `row` of the group of columns that is `group` groups on.
  ComplexRow load(Value row, Value group) {
    Value re = loadPart(row, group, 0);
    return {re, loadPart(row, group, b.getLanes())};
  }
  void store(Value row, Value group, ComplexRow numbers) {
    storePart(numbers.re, row, group, 0);
    storePart(numbers.im, row, group, b.getLanes());
  }
  /// Asks for `count` columns of a row.
  void prefetch(Value row, int64_t count) {
    int64_t line = 64 / (b.getStateType().getWidth() / 8);
    for (int64_t at = 0; at < count; at += line)
      b.prefetch(memref, {batch, row, b.add(column, at)}, /*locality=*/2);
  }

private:
  Value columnOf(Value group, int64_t offset) {
    return b.add(b.add(column, b.mul(group, 2 * b.getLanes())), offset);
  }
  /// True for columns that there are.
  Value mask(Value first) {
    Value left = b.sub(b.extent(memref, 2), first);
    return vector::CreateMaskOp::create(
        b, VectorType::get({b.getLanes()}, b.getI1Type()), left);
  }
  VectorType getType() {
    return VectorType::get({b.getLanes()},
                           cast<MemRefType>(memref.getType()).getElementType());
  }
  Value loadPart(Value row, Value group, int64_t offset) {
    Value first = columnOf(group, offset);
    Values at = {batch, row, first};
    if (isWhole)
      return b.loadVector(memref, at);
    Value zeros = arith::ConstantOp::create(b, b.getZeroAttr(getType()));
    Value numbers = vector::MaskedLoadOp::create(b, getType(), memref, at,
                                                 mask(first), zeros);
    if (numbers.getType() == b.getVectorType())
      return numbers;
    return arith::ExtFOp::create(b, b.getVectorType(), numbers);
  }
  void storePart(Value numbers, Value row, Value group, int64_t offset) {
    Value first = columnOf(group, offset);
    Values at = {batch, row, first};
    if (isWhole)
      return b.storeVector(numbers, memref, at);
    if (getType() != b.getVectorType())
      numbers = arith::TruncFOp::create(b, getType(), numbers);
    vector::MaskedStoreOp::create(b, memref, at, mask(first), numbers);
  }

  KernelBuilder &b;
  Value memref, batch, column;
  bool isWhole;
};

/// Tasks are batch entries and groups of columns; of a long transform also
/// tiles of one sweep after the other.
class FFTLoops {
public:
  FFTLoops(OpBuilder &builder, Operation *op, SpectrumAttr form, Value spectrum,
           bool separateAdds)
      : b(op->getLoc(), builder,
          cast<FloatType>(
              cast<MemRefType>(spectrum.getType()).getElementType()),
          form.getLanes()),
        op(op), form(form), spectrum(spectrum), separateAdds(separateAdds),
        together(
            FFTKernel::chooseNumGroups(b, form.getLength(), getNumGroups())) {}

  void emit(FFTForwardOp forward) {
    int64_t numRows =
        cast<MemRefType>(forward.getInput().getType()).getDimSize(1);
    forEachTask(FFTKernel::kForward, [&](Value batch, Value column, Emit emit) {
      RowAccess rows(b, spectrum, batch, column),
          input(b, forward.getInput(), batch, column);
      auto load = [&](Value row, Value group) { return rows.load(row, group); };
      auto store = [&](Value row, Value group, ComplexRow numbers) {
        rows.store(row, group, numbers);
      };
      auto prefetch = [&](Value row) {
        rows.prefetch(row, together * form.getGroup());
      };
      auto source = [&](Value row, Value group) {
        return loadOrZero(input, row, group, numRows);
      };
      FFTKernel::Steps steps = {load, store};
      steps.prefetch = prefetch;
      steps.isDense = together == getNumGroups();
      steps.source = source;
      steps.isHalfZero = 2 * numRows <= form.getLength();
      emit(steps, [&](Value position, Value group, FFTKernel::Rows &values) {
        for (auto [k, value] : llvm::enumerate(values))
          rows.store(b.add(position, k), group, value);
      });
    });
  }

  void emit(FFTInverseOp inverse) {
    int64_t first = inverse.getFirst(), length = form.getLength();
    int64_t numRows =
        cast<MemRefType>(inverse.getOutput().getType()).getDimSize(1);
    Value scale = b.splat(1.0 / length), shared;
    auto type = cast<MemRefType>(spectrum.getType()),
         outputType = cast<MemRefType>(inverse.getOutput().getType());
    // Stages may work where the result goes if it has all rows and columns.
    bool isWhole = outputType.getElementType() == type.getElementType() &&
                   numRows == length &&
                   outputType.getDimSize(2) == type.getDimSize(2);
    if (isWhole)
      shared = inverse.getOutput();
    else if (makeKernel().isLong())
      shared = memref::AllocOp::create(
          b, MemRefType::get(type.getShape(), type.getElementType()),
          type.isDynamicDim(0) ? ValueRange(b.extent(spectrum, 0))
                               : ValueRange(),
          b.getI64IntegerAttr(64));
    forEachTask(FFTKernel::kInverse, [&](Value batch, Value column, Emit emit) {
      bool isShared = static_cast<bool>(shared);
      Value work = isShared ? shared
                            : b.scratch({1, length, together * form.getGroup()},
                                        b.getStateType());
      RowAccess input(b, spectrum, batch, column),
          rows(b, work, isShared ? batch : b.index(0),
               isShared ? column : b.index(0)),
          output(b, inverse.getOutput(), batch, column);
      auto load = [&](Value row, Value group) { return rows.load(row, group); };
      auto store = [&](Value row, Value group, ComplexRow numbers) {
        rows.store(row, group, numbers);
      };
      auto sink = [&](Value at, Value group, ComplexRow numbers) {
        Value row = b.sub(at, b.index(first));
        auto write = [&] {
          output.store(row, group,
                       {b.fmul(numbers.re, scale), b.fmul(numbers.im, scale)});
        };
        if (numRows == length)
          return write();
        Value isIn =
            b.both(b.less(b.index(-1), row), b.less(row, b.index(numRows)));
        b.ifThen(isIn, write);
      };
      FFTKernel::Steps steps = {load, store};
      steps.isDense = !isShared || together == getNumGroups();
      steps.sink = sink;
      if (first + numRows <= length / 2)
        steps.wanted = FFTKernel::Half::First;
      else if (first >= length / 2)
        steps.wanted = FFTKernel::Half::Second;
      emit(steps, [&](Value position, Value group, FFTKernel::Rows &values) {
        for (auto [k, value] : llvm::enumerate(values))
          value = input.load(b.add(position, k), group);
      });
    });
    if (shared && !isWhole)
      memref::DeallocOp::create(b, shared);
  }

  void emitProduct(Value factor, Value output, bool accumulates) {
    FFTKernel kernel(b, form.getRadices(), /*twiddles=*/Value(), separateAdds);
    int64_t numGroups = getNumGroups();
    forAll({b.extent(spectrum, 0), b.index(numGroups)}, [&](ValueRange task) {
      Value batch = task[0], column = b.mul(task[1], form.getGroup());
      Value zero = b.index(0);
      RowAccess input(b, spectrum, batch, column),
          result(b, output, batch, column);
      b.loop(b.index(0), b.index(form.getLength()), 1, [&](Value row) {
        auto part = [&](int64_t at) {
          return b.broadcast(b.loadScalar(
              factor, {b.broadcastIndex(factor, 0, batch), row, b.index(at)}));
        };
        Value re = part(0);
        ComplexRow product =
            kernel.multiply(input.load(row, zero), {re, part(form.getLanes())});
        if (accumulates) {
          ComplexRow old = result.load(row, zero);
          product = {b.fadd(old.re, product.re), b.fadd(old.im, product.im)};
        }
        result.store(row, zero, product);
      });
    });
  }

private:
  using Emit =
      function_ref<void(const FFTKernel::Steps &, FFTKernel::VisitSpectrum)>;

  ComplexRow loadOrZero(RowAccess &input, Value row, Value group,
                        int64_t numRows) {
    int64_t length = form.getLength();
    if (numRows == length || 2 * numRows == length)
      return input.load(row, group);
    // A row that there is, and its numbers only where it is the one.
    Value isIn = b.less(row, b.index(numRows));
    Value last = b.index(std::max<int64_t>(numRows - 1, 0));
    if (numRows == 0)
      return {b.splat(0.0), b.splat(0.0)};
    ComplexRow numbers = input.load(b.min(row, last), group);
    return {b.select(isIn, numbers.re, b.splat(0.0)),
            b.select(isIn, numbers.im, b.splat(0.0))};
  }

  int64_t getNumGroups() {
    return cast<MemRefType>(spectrum.getType()).getDimSize(2) / form.getGroup();
  }
  FFTKernel makeKernel() {
    return FFTKernel(b, form.getRadices(), twiddles, separateAdds, together);
  }

  void forAll(ArrayRef<Value> counts, function_ref<void(ValueRange)> body) {
    SmallVector<OpFoldResult> bounds;
    for (Value count : counts)
      bounds.push_back(getAsOpFoldResult(count));
    scf::ForallOp::create(b, bounds, /*outputs=*/ValueRange(),
                          /*mapping=*/std::nullopt,
                          [&](OpBuilder &, Location, ValueRange task) {
                            body(task);
                            b.freeScratch();
                            scf::InParallelOp::create(b);
                          });
  }

  /// `body` is to call `emit` in every task.
  void forEachTask(FFTKernel::Direction direction,
                   function_ref<void(Value batch, Value column, Emit)> body) {
    twiddles = emitTwiddles(b, op, form.getRadices());
    FFTKernel kernel = makeKernel();
    Value batches = b.extent(spectrum, 0),
          groups = b.index(getNumGroups() / together);
    auto columnOf = [&](Value group) {
      return b.mul(group, together * form.getGroup());
    };
    if (!kernel.isLong())
      return forAll({batches, groups}, [&](ValueRange task) {
        body(
            task[0], columnOf(task[1]),
            [&](const FFTKernel::Steps &steps, FFTKernel::VisitSpectrum visit) {
              kernel.emit(direction, steps, visit);
            });
      });
    unsigned numSweeps = kernel.getNumSweeps();
    for (unsigned index = 0; index < numSweeps; ++index) {
      unsigned sweep = direction.forward ? index : numSweeps - 1 - index;
      forAll({batches, groups, b.index(kernel.getNumTiles(sweep))},
             [&](ValueRange task) {
               body(task[0], columnOf(task[1]),
                    [&](const FFTKernel::Steps &steps,
                        FFTKernel::VisitSpectrum visit) {
                      kernel.emitTile(sweep, task[2], direction, steps, visit);
                    });
             });
    }
  }

  KernelBuilder b;
  Operation *op;
  SpectrumAttr form;
  Value spectrum, twiddles;
  bool separateAdds;
  /// Groups of columns that are transformed together.
  int64_t together;
};

struct VectorizeFFTPass
    : fovea::attn::impl::VectorizeFFTPassBase<VectorizeFFTPass> {
  using VectorizeFFTPassBase::VectorizeFFTPassBase;

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
            FFTLoops(builder, op, fft.getForm(), fft.getSpectrum(),
                     separateAdds)
                .emit(fft);
          })
          .Case<FFTMultiplyOp, FFTAccumulateOp>([&](auto product) {
            FFTLoops(builder, op, product.getForm(), product.getSpectrum(),
                     separateAdds)
                .emitProduct(product.getFactor(), product.getOutput(),
                             isa<FFTAccumulateOp>(op));
          });
      op->erase();
    }
  }
};
} // namespace
