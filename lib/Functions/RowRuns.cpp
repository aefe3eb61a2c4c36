//===- RowRuns.cpp - Rows that go to caches -------------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowRuns.h"
#include "Call.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/ADT/STLExtras.h"
#include <cstring>

using namespace fovea;
using namespace fovea::functions;
using llvm::ArrayRef, llvm::Error, llvm::SmallVector;

/// More calls of the driver take longer than a kernel, for which the host sends
/// a list.
static constexpr size_t kMostDriverCopies = 8;
/// Numbers of a row in that list: where it is read, and where it goes.
static constexpr int64_t kListWidth = 4;

//===----------------------------------------------------------------------===//
// By the host and by the driver
//===----------------------------------------------------------------------===//

/// Rows of both lie without gaps.
static void copyOnHost(const TensorRef &from, const TensorRef &to,
                       ArrayRef<RowRun> runs) {
  int64_t width = getByteWidth(to.elementType), bytes = width * to.shape[3];
  SmallVector<int64_t, 4> steps = getStrides(from), ownSteps = getStrides(to);
  for (SmallVector<int64_t, 4> *each : {&steps, &ownSteps})
    for (int64_t &step : *each)
      step *= width;
  const auto *source = static_cast<const char *>(from.data);
  auto *target = static_cast<char *>(to.data);
  for (const RowRun &run : runs) {
    bool isWhole =
        run.count == 1 || (steps[2] == bytes && ownSteps[2] == bytes);
    int64_t numPieces = isWhole ? 1 : run.count,
            piece = isWhole ? run.count * bytes : bytes;
    for (int64_t entry = 0; entry < run.numEntries; ++entry)
      for (int64_t head = 0; head < to.shape[1]; ++head) {
        const char *at = source + (run.entry + entry) * steps[0] +
                         head * steps[1] + run.row * steps[2];
        char *place = target + (run.ownEntry + entry) * ownSteps[0] +
                      head * ownSteps[1] + run.ownRow * ownSteps[2];
        for (int64_t i = 0; i < numPieces; ++i)
          std::memcpy(place + i * ownSteps[2], at + i * steps[2], piece);
      }
  }
}

static Error copyByDriver(ArrayRef<StridedView> from, ArrayRef<StridedView> own,
                          ArrayRef<RowRun> runs, Target target) {
  SmallVector<ElementCopy, 4> copies;
  for (const RowRun &run : runs)
    for (auto [source, side] : llvm::zip_equal(from, own))
      copies.push_back({source.slice(0, run.entry, run.numEntries)
                            .slice(2, run.row, run.count),
                        side.slice(0, run.ownEntry, run.numEntries)
                            .slice(2, run.ownRow, run.count)});
  return copyAll(copies, target);
}

//===----------------------------------------------------------------------===//
// By kernels
//===----------------------------------------------------------------------===//

/// Kernels are for any number of rows, of entries and of tokens.
static const attn::Contract &getContract() {
  static const attn::Contract contract("cache_rows", "list: i64[#R, 4]\n"
                                                     "k?: [B, G, N, D!]\n"
                                                     "v?: [B, G, N, E!]\n"
                                                     "keys: [#C, G, M, D!]\n"
                                                     "values?: [#C, G, M, E!]");
  return contract;
}

/// `own` with the rows of a list, those of `from`, or of `own` without it. Each
/// point of the loop is an element, which a thread copies.
static mlir::Value buildRows(mlir::ImplicitLocOpBuilder &b, mlir::Value list,
                             mlir::Value from, mlir::Value own) {
  using namespace mlir;
  auto type = cast<RankedTensorType>(own.getType());
  OpFoldResult one = b.getIndexAttr(1);
  OpFoldResult extents[] = {tensor::getMixedSize(b, b.getLoc(), list, 0),
                            b.getIndexAttr(type.getDimSize(1)),
                            b.getIndexAttr(type.getDimSize(3))};
  auto loop = scf::ForallOp::create(
      b, ArrayRef<OpFoldResult>(extents), own, /*mapping=*/std::nullopt,
      [&](OpBuilder &builder, Location loc, ValueRange arguments) {
        ImplicitLocOpBuilder k(loc, builder);
        Value row = arguments[0], head = arguments[1], column = arguments[2],
              shared = arguments[3];
        auto number = [&](int64_t place) -> Value {
          Value at = arith::ConstantIndexOp::create(k, place);
          Value found = tensor::ExtractOp::create(k, list, ValueRange{row, at});
          return arith::IndexCastOp::create(k, k.getIndexType(), found);
        };
        Value at[] = {number(0), head, number(1), column};
        Value element =
            tensor::ExtractOp::create(k, from ? from : shared, ValueRange(at));
        SmallVector<OpFoldResult> place{number(2), head, number(3), column},
            ones(4, one);
        auto point = RankedTensorType::get({}, type.getElementType());
        Value slice =
            tensor::ExtractSliceOp::create(k, point, shared, place, ones, ones);
        Value filled = linalg::FillOp::create(k, element, slice).getResult(0);
        auto ends = scf::InParallelOp::create(k);
        k.setInsertionPointToStart(ends.getBody());
        tensor::ParallelInsertSliceOp::create(k, filled, shared, place, ones,
                                              ones);
      });
  return loop.getResult(0);
}

static Error copyByKernel(ArrayRef<StridedView> given,
                          ArrayRef<StridedView> own, ArrayRef<RowRun> runs,
                          Target target) {
  SmallVector<int64_t, 0> numbers;
  for (const RowRun &run : runs)
    for (int64_t entry = 0; entry < run.numEntries; ++entry)
      for (int64_t row = 0; row < run.count; ++row)
        numbers.append({run.entry + entry, run.row + row, run.ownEntry + entry,
                        run.ownRow + row});
  Argument list;
  list.name = "list";
  list.elementType = ElementType::I64;
  list.shape = {static_cast<int64_t>(numbers.size()) / kListWidth, kListWidth};
  list.data = numbers.data();
  list.isReadOnly = true;

  auto getSide = [](llvm::StringRef name, ArrayRef<StridedView> sides,
                    size_t side) {
    return side < sides.size() ? std::optional(Argument(name, sides[side]))
                               : std::nullopt;
  };
  Checker check;
  Call call(getContract(), target, ResultMemory());
  call.operand(list);
  call.operandIf(getSide("k", given, 0));
  call.operandIf(getSide("v", given, 1));
  call.update(check, *getSide("keys", own, 0));
  std::optional<Argument> values = getSide("values", own, 1);
  call.update(check, values ? ArrayRef(*values) : ArrayRef<Argument>());
  call.setBody([hasSource = !given.empty()](mlir::OpBuilder &builder,
                                            mlir::ValueRange arguments,
                                            mlir::ValueRange inits) {
    mlir::ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
    SmallVector<mlir::Value> results;
    for (auto [side, init] : llvm::enumerate(inits))
      results.push_back(
          buildRows(b, arguments[0],
                    hasSource ? arguments[side + 1] : mlir::Value(), init));
    return results;
  });
  return call.runChecked(check).takeError();
}

//===----------------------------------------------------------------------===//
// Which of them
//===----------------------------------------------------------------------===//

Error functions::copyRuns(ArrayRef<StridedView> given,
                          ArrayRef<StridedView> own, ArrayRef<RowRun> runs,
                          Target target) {
  if (runs.empty())
    return Error::success();
  ArrayRef<StridedView> from = given.empty() ? own : given;
  // Kernels read rows whose elements lie one after the other.
  bool isReadByKernels = llvm::all_of(from, [](const StridedView &side) {
    return Argument("", side).hasContiguousRows();
  });
  if ((target == Target::GPU || target == Target::GPUEmulator) &&
      isReadByKernels && runs.size() * own.size() > kMostDriverCopies)
    return copyByKernel(given, own, runs, target);
  if (target == Target::GPU)
    return copyByDriver(from, own, runs, target);
  for (auto [source, side] : llvm::zip_equal(from, own))
    copyOnHost(source, side, runs);
  return Error::success();
}
