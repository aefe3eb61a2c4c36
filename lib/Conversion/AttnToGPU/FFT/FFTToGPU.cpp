//===- FFTToGPU.cpp - Fourier transforms on a GPU -------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// cuFFT transforms lines of complex numbers that lie one after the other.
// Spectra are gathered from there, and put there, by loops that know which
// columns are complex ones, and in which order the frequencies are.
//
//===----------------------------------------------------------------------===//

#include "fovea/Conversion/Passes.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Kernels/GPU/GPULaunch.h"
#include "fovea/Kernels/GPURuntimeCalls.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace fovea::attn {
#define GEN_PASS_DEF_FFTTOGPUPASS
#include "fovea/Conversion/Passes.h.inc"
} // namespace fovea::attn

using namespace mlir;
using namespace fovea::attn;
using Values = KernelBuilder::Values;

namespace {
class FFTGPULoops {
public:
  FFTGPULoops(OpBuilder &builder, Operation *op, SpectrumAttr form,
              Value spectrum)
      : b(op->getLoc(), builder, builder.getF32Type(), /*lanes=*/0),
        calls(op->getParentOfType<ModuleOp>()), form(form), spectrum(spectrum),
        batches(b.extent(spectrum, 0)),
        pairs(cast<MemRefType>(spectrum.getType()).getDimSize(2) / 2) {}

  void emit(FFTForwardOp op);
  void emit(FFTInverseOp op);
  void emit(FFTMultiplyOp op) {
    emitProduct(op.getFactor(), op.getOutput(), /*accumulates=*/false);
  }
  void emit(FFTAccumulateOp op) {
    emitProduct(op.getFactor(), op.getOutput(), /*accumulates=*/true);
  }

private:
  /// `output` gets the product, and what it had where it accumulates.
  void emitProduct(Value factor, Value output, bool accumulates);
  /// The real column of a complex one; its imaginary part is `lanes` further.
  Value realColumn(Value pair) {
    Value group = b.div(pair, form.getLanes());
    return b.add(b.mul(group, form.getGroup()), b.rem(pair, form.getLanes()));
  }
  /// The frequency of a row: its digits reversed.
  Value frequencyOf(Value row);
  Value allocateLines() {
    return b.allocate({batches}, {pairs, form.getLength(), 2}, b.getF32Type());
  }
  void transform(Value lines, bool inverse) {
    calls.transformLines(b, b.getLoc(), lines, inverse);
  }

  RowBuilder b;
  GPURuntimeCalls calls;
  SpectrumAttr form;
  Value spectrum, batches;
  int64_t pairs;
};
} // namespace

Value FFTGPULoops::frequencyOf(Value row) {
  Value frequency = b.index(0);
  int64_t below = form.getLength(), weight = 1;
  for (int64_t radix : form.getRadices()) {
    below /= radix;
    Value digit = b.rem(b.div(row, below), radix);
    frequency = b.add(frequency, b.mul(digit, weight));
    weight *= radix;
  }
  return frequency;
}

void FFTGPULoops::emit(FFTForwardOp op) {
  Value lines = allocateLines(), input = op.getInput();
  Value rows = b.extent(input, 1), columns = b.extent(input, 2);
  Value length = b.index(form.getLength());
  parallelLoop(b, {batches, b.index(pairs), length}, [&](ValueRange at) {
    for (int64_t i : {0, 1}) {
      Value column = b.add(realColumn(at[1]), i * form.getLanes());
      Value exists = b.both(b.less(at[2], rows), b.less(column, columns));
      Value number = b.select(
          exists, b.getF32Type(),
          [&] { return b.loadScalar(input, {at[0], at[2], column}); },
          [&] { return b.scalar(0.0); });
      b.storeScalar(number, lines, {at[0], at[1], at[2], b.index(i)});
    }
  });
  transform(lines, /*inverse=*/false);
  parallelLoop(b, {batches, length, b.index(pairs)}, [&](ValueRange at) {
    Value frequency = frequencyOf(at[1]);
    for (int64_t i : {0, 1}) {
      Value number = b.loadScalar(lines, {at[0], at[2], frequency, b.index(i)});
      Value column = b.add(realColumn(at[2]), i * form.getLanes());
      b.storeScalar(number, spectrum, {at[0], at[1], column});
    }
  });
  memref::DeallocOp::create(b, lines);
}

void FFTGPULoops::emit(FFTInverseOp op) {
  Value lines = allocateLines(), output = op.getOutput();
  Value length = b.index(form.getLength());
  parallelLoop(b, {batches, length, b.index(pairs)}, [&](ValueRange at) {
    Value frequency = frequencyOf(at[1]);
    for (int64_t i : {0, 1}) {
      Value column = b.add(realColumn(at[2]), i * form.getLanes());
      Value number = b.loadScalar(spectrum, {at[0], at[1], column});
      b.storeScalar(number, lines, {at[0], at[2], frequency, b.index(i)});
    }
  });
  transform(lines, /*inverse=*/true);
  Value extents[] = {batches, b.extent(output, 1), b.extent(output, 2)};
  parallelLoop(b, extents, [&](ValueRange at) {
    Value place = b.rem(at[2], form.getGroup());
    Value group = b.div(at[2], form.getGroup());
    Value pair =
        b.add(b.mul(group, form.getLanes()), b.rem(place, form.getLanes()));
    Value row = b.add(at[1], static_cast<int64_t>(op.getFirst()));
    Value number =
        b.loadScalar(lines, {at[0], pair, row, b.div(place, form.getLanes())});
    b.storeScalar(b.fmul(number, b.scalar(1.0 / form.getLength())), output, at);
  });
  memref::DeallocOp::create(b, lines);
}

void FFTGPULoops::emitProduct(Value factor, Value output, bool accumulates) {
  Value extents[] = {batches, b.index(form.getLength()), b.index(pairs)};
  parallelLoop(b, extents, [&](ValueRange at) {
    Value column = realColumn(at[2]), lanes = b.index(form.getLanes());
    Value realAt[] = {at[0], at[1], column};
    Value imaginaryAt[] = {at[0], at[1], b.add(column, lanes)};
    Value set = b.broadcastIndex(factor, 0, at[0]);
    Value re = b.loadScalar(spectrum, realAt);
    Value im = b.loadScalar(spectrum, imaginaryAt);
    Value factorRe = b.loadScalar(factor, {set, at[1], b.index(0)});
    Value factorIm = b.loadScalar(factor, {set, at[1], lanes});
    Value newRe = b.fsub(b.fmul(re, factorRe), b.fmul(im, factorIm));
    Value newIm = b.fma(re, factorIm, b.fmul(im, factorRe));
    if (accumulates) {
      newRe = b.fadd(newRe, b.loadScalar(output, realAt));
      newIm = b.fadd(newIm, b.loadScalar(output, imaginaryAt));
    }
    b.storeScalar(newRe, output, realAt);
    b.storeScalar(newIm, output, imaginaryAt);
  });
}

namespace {
struct FFTToGPUPass : fovea::attn::impl::FFTToGPUPassBase<FFTToGPUPass> {
  void runOnOperation() override {
    auto emit = [](OpBuilder &builder, auto op) -> LogicalResult {
      if (failed(verifyGPUElementTypes(op)))
        return failure();
      FFTGPULoops(builder, op, op.getForm(), op.getSpectrum()).emit(op);
      return success();
    };
    if (failed(replaceOnMemrefs<FFTForwardOp, FFTInverseOp, FFTMultiplyOp,
                                FFTAccumulateOp>(getOperation(), emit)))
      signalPassFailure();
  }
};
} // namespace
