//===- TokenMask.cpp - Masks of tokens that are present -------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TokenMask.h"
#include "Call.h"
#include "fovea/Dialect/Attn/IR/AttnOps.h"
#include "fovea/Functions/ResultScopes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <algorithm>
#include <limits>
#include <utility>

using namespace llvm;
using namespace fovea;
using namespace fovea::functions;

static thread_local bool areBounded = false;

BoundedLengthsScope::BoundedLengthsScope()
    : outer(std::exchange(areBounded, true)) {}
BoundedLengthsScope::~BoundedLengthsScope() { areBounded = outer; }

/// Whether kernels alone check lengths. The host could not read them, or would
/// have to wait; their error is one of the next call.
static bool areLeftToKernels(const void *lengths, Target target) {
  return isCaptured(lengths, target) ||
         (areBounded && isOnDevice(lengths, target));
}

TokenMask::TokenMask(Checker &check, const TokenOptions &options, int64_t batch,
                     int64_t length, Target target, StringRef name)
    : name(name) {
  check.check(!options.mask || !options.lengths,
              "lengths: found " + name + " as well, needed one of the two");
  if (check.hasFailed())
    return;
  if (options.mask)
    this->check(check, *options.mask, batch, length);
  if (!options.lengths)
    return;
  makeOfLengths(check, Argument("lengths", *options.lengths), batch, length,
                target);
}

void TokenMask::check(Checker &check, const TensorRef &mask, int64_t batch,
                      int64_t length) {
  argument.emplace(name, mask);
  check.elementType(*argument, {ElementType::I1});
  check.match(name, "shape", argument->shape, {batch, length});
}

/// Calls `take` with the entries of lengths, which are at most `most`.
static void forEachLength(Checker &check, const Argument &lengths, int64_t most,
                          Target target,
                          function_ref<void(int64_t, int64_t)> take) {
  OwnedTensor copy;
  Expected<TensorRef> values = prepareOnHost(lengths, target, copy);
  if (!values)
    return check.fail(values.takeError());
  for (int64_t entry = 0; entry < lengths.shape[0]; ++entry) {
    int64_t found = values->elementType == ElementType::I32
                        ? static_cast<const int32_t *>(values->data)[entry]
                        : static_cast<const int64_t *>(values->data)[entry];
    check.check(found >= 0 && found <= most,
                lengths.name + ": found " + Twine(found) + " for batch entry " +
                    Twine(entry) + ", needed 0 to " + Twine(most));
    if (check.hasFailed())
      return;
    take(entry, found);
  }
}

/// Checks the type and the shape of lengths.
static void checkLengths(Checker &check, const Argument &lengths,
                         int64_t batch) {
  check.elementType(lengths, {ElementType::I32, ElementType::I64});
  check.match(lengths.name, "shape", lengths.shape, {batch});
}

void TokenMask::makeOfLengths(Checker &check, const Argument &lengths,
                              int64_t batch, int64_t length, Target target) {
  checkLengths(check, lengths, batch);
  if (check.hasFailed())
    return;
  if (DescribeScope::isActive()) {
    memory = DescribeScope::makeAbstract(ElementType::I1, {batch, length});
    argument.emplace(name, memory.getRef());
    return;
  }
  bool isOnGPU = isOnDevice(lengths.data, target) && lengths.isContiguous();
  if (isOnGPU || isNarrowedByKernel(lengths.getRef(), target))
    return makeByKernel(check, lengths, batch, length, target);
  Expected<OwnedTensor> mask = allocate(ElementType::I1, {batch, length});
  if (!mask)
    return check.fail(mask.takeError());
  memory = std::move(*mask);
  forEachLength(
      check, lengths, length, target, [&](int64_t entry, int64_t present) {
        std::fill_n(memory.getDataAs<char>() + entry * length, present, 1);
      });
  if (!check.hasFailed())
    argument.emplace(name, memory.getRef());
}

static const attn::Contract &getMaskContract() {
  static const attn::Contract contract("token_mask", "lengths: [B]\n"
                                                     "mask: [B, N]");
  return contract;
}

/// The mask of `lengths`, whatever they are, and a check of these.
static mlir::Value buildMask(mlir::OpBuilder &builder, mlir::Value lengths,
                             mlir::Value init, int64_t most) {
  using namespace mlir;
  ImplicitLocOpBuilder b(builder.getUnknownLoc(), builder);
  Value narrow = narrowIntegers(b, lengths);
  AffineMap all = b.getMultiDimIdentityMap(2);
  SmallVector<utils::IteratorType> loops(2, utils::IteratorType::parallel);
  AffineMap entries = AffineMap::get(2, 0, all.getResult(0), b.getContext());
  auto mask = linalg::GenericOp::create(
      b, init.getType(), narrow, init, ArrayRef{entries, all}, loops,
      [&](OpBuilder &nested, Location loc, ValueRange elements) {
        Value token = linalg::IndexOp::create(nested, loc, /*dim=*/1);
        Value present = arith::IndexCastOp::create(
            nested, loc, nested.getIndexType(), elements[0]);
        Value isPresent = arith::CmpIOp::create(
            nested, loc, arith::CmpIPredicate::slt, token, present);
        linalg::YieldOp::create(nested, loc, isPresent);
      });
  auto type = cast<RankedTensorType>(narrow.getType());
  ReassociationIndices dims = {0, 1, 2};
  auto list = tensor::ExpandShapeOp::create(
      b, RankedTensorType::get({1, 1, type.getDimSize(0)}, b.getI32Type()),
      narrow, dims);
  Value bound = arith::ConstantIndexOp::create(b, most + 1);
  attn::CheckCodesOp::create(b, list, bound, "lengths");
  return mask.getResult(0);
}

void TokenMask::makeByKernel(Checker &check, const Argument &lengths,
                             int64_t batch, int64_t length, Target target) {
  // An error of this call, where the kernel's would be one of the next.
  if (target == Target::GPU && !areLeftToKernels(lengths.data, target))
    forEachLength(check, lengths, length, target, [](int64_t, int64_t) {});
  check.check(length < std::numeric_limits<int32_t>::max(),
              lengths.name + ": found " + Twine(length) +
                  " tokens, needed at most 2147483646");
  if (check.hasFailed())
    return;
  Call call(getMaskContract(), target, {});
  call.operands({lengths});
  call.result(check, "mask", ElementType::I1, {batch, length});
  call.setBody([&](mlir::OpBuilder &b, mlir::ValueRange arguments,
                   mlir::ValueRange inits) {
    return SmallVector<mlir::Value>{
        buildMask(b, arguments[0], inits[0], length)};
  });
  Expected<OwnedTensor> mask =
      call.runFor<OwnedTensor, 1>(check, batch == 0 || length == 0);
  if (!mask)
    return check.fail(mask.takeError());
  memory = std::move(*mask);
  argument.emplace(name, memory.getRef());
}

MutableArrayRef<int32_t>
SequenceLengths::allocate(Checker &check, StringRef name, int64_t batch) {
  Expected<OwnedTensor> made = functions::allocate(ElementType::I32, {batch});
  if (!made) {
    check.fail(made.takeError());
    return {};
  }
  memory = std::move(*made);
  argument.emplace(name, memory.getRef());
  return {memory.getDataAs<int32_t>(), static_cast<size_t>(batch)};
}

SequenceLengths::SequenceLengths(Checker &check, StringRef name,
                                 const std::optional<TensorRef> &given,
                                 int64_t batch, int64_t most, Target target,
                                 bool isRead) {
  if (!given || check.hasFailed())
    return;
  Argument lengths(name, *given);
  checkLengths(check, lengths, batch);
  check.check(most <= std::numeric_limits<int32_t>::max(),
              name + ": found " + Twine(most) +
                  " rows, needed at most 2147483647");
  if (check.hasFailed())
    return;
  if (DescribeScope::isActive()) {
    memory = DescribeScope::makeAbstract(ElementType::I32, {batch});
    argument.emplace(name, memory.getRef());
    return;
  }
  bool isLeft = areLeftToKernels(lengths.data, target);
  bool isKernels = lengths.elementType == ElementType::I64
                       ? isNarrowedByKernel(*given, target)
                       : isLeft && lengths.isContiguous();
  if (!isRead && isKernels) {
    argument = lengths;
    // An error of this call, where the kernel's would be one of the next.
    if (!isLeft && target == Target::GPU)
      forEachLength(check, lengths, most, target, [](int64_t, int64_t) {});
    return;
  }
  MutableArrayRef<int32_t> numbers = allocate(check, name, batch);
  if (!check.hasFailed())
    forEachLength(check, lengths, most, target,
                  [&](int64_t entry, int64_t found) {
                    numbers[entry] = static_cast<int32_t>(found);
                  });
}

SequenceLengths SequenceLengths::makeZeros(Checker &check, StringRef name,
                                           int64_t batch) {
  SequenceLengths lengths;
  for (int32_t &number : lengths.allocate(check, name, batch))
    number = 0;
  return lengths;
}
