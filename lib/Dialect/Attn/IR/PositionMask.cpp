//===- PositionMask.cpp - Masks by the positions of entries ---------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "fovea/Dialect/Attn/IR/PositionMask.h"
#include "fovea/Dialect/Attn/IR/ScoreRegion.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fovea::attn;

//===----------------------------------------------------------------------===//
// Sums of positions
//===----------------------------------------------------------------------===//

bool PositionSum::fits(unsigned bits) const {
  constexpr int64_t kMostFactor = int64_t(1) << 20, kMostOffset = int64_t(1)
                                                                  << 56;
  if (std::abs(query) > kMostFactor || std::abs(key) > kMostFactor ||
      offset > kMostOffset || offset < -kMostOffset)
    return false;
  int64_t most =
      (std::abs(query) + std::abs(key)) * kMaxScorePositions + std::abs(offset);
  return bits > 60 || most < int64_t(1) << (bits - 1);
}

PositionSum fovea::attn::combine(const PositionSum &a, int64_t factor,
                                 const PositionSum &b) {
  return {a.query + factor * b.query, a.key + factor * b.key,
          a.offset + factor * b.offset};
}

arith::CmpIPredicate fovea::attn::swapOperands(arith::CmpIPredicate predicate) {
  switch (predicate) {
  case arith::CmpIPredicate::slt:
    return arith::CmpIPredicate::sgt;
  case arith::CmpIPredicate::sle:
    return arith::CmpIPredicate::sge;
  case arith::CmpIPredicate::sgt:
    return arith::CmpIPredicate::slt;
  case arith::CmpIPredicate::sge:
    return arith::CmpIPredicate::sle;
  case arith::CmpIPredicate::ult:
    return arith::CmpIPredicate::ugt;
  case arith::CmpIPredicate::ule:
    return arith::CmpIPredicate::uge;
  case arith::CmpIPredicate::ugt:
    return arith::CmpIPredicate::ult;
  case arith::CmpIPredicate::uge:
    return arith::CmpIPredicate::ule;
  case arith::CmpIPredicate::eq:
  case arith::CmpIPredicate::ne:
    return predicate;
  }
  llvm_unreachable("no other predicate");
}

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

PositionMask::PositionMask(int64_t least, int64_t greatest, int64_t prefix)
    : least(least), greatest(greatest), prefix(std::max<int64_t>(prefix, 0)) {
  // Keys stand at 0 or behind it, queries up to as many positions before it.
  constexpr int64_t kMost = kMaxScorePositions;
  if (least <= -2 * kMost)
    this->least = -kFar;
  if (greatest >= kMost)
    this->greatest = kFar;
  if (least > greatest || least > kMost || greatest < -2 * kMost) {
    this->least = 1;
    this->greatest = 0;
  }
  if (this->prefix >= kMost ||
      (this->least == -kFar && this->greatest == kFar)) {
    this->least = -kFar;
    this->greatest = kFar;
    this->prefix = 0;
  }
}

PositionMask PositionMask::of(MaskAttr mask) {
  assert(!mask.hasStride() && "positions of rows are not their numbers");
  int64_t least = -kFar, greatest = kFar;
  if (mask.hasWindow()) {
    greatest = std::min(mask.getWindow() - 1, kFar);
    least = -greatest;
  }
  if (mask.getCausal())
    least = 0;
  return {least, greatest, mask.getPrefix()};
}

std::optional<PositionMask>
PositionMask::ofNonNegative(const PositionSum &sum) {
  auto [query, key, offset] = sum;
  if (query == 0 && key == 0)
    return offset >= 0 ? getAll() : getNone();
  if (query == -key) {
    if (query > 0)
      return PositionMask(llvm::divideCeilSigned(-offset, query), kFar, 0);
    return PositionMask(-kFar, llvm::divideFloorSigned(offset, key), 0);
  }
  if (query == 0 && key < 0)
    return PositionMask(1, 0, llvm::divideFloorSigned(offset, -key) + 1);
  return std::nullopt;
}

/// Whether the band holds that of `other`.
bool PositionMask::hasBandOf(const PositionMask &other) const {
  return other.hasNoBand() ||
         (least <= other.least && greatest >= other.greatest);
}

std::optional<PositionMask>
PositionMask::intersect(const PositionMask &other) const {
  if (isAll())
    return other;
  if (other.isAll())
    return *this;
  if (prefix > other.prefix)
    return other.intersect(*this);
  if (prefix == other.prefix)
    return PositionMask(std::max(least, other.least),
                        std::min(greatest, other.greatest), prefix);
  // Of the other one, keys between the prefixes are there besides.
  if (other.hasBandOf(*this))
    return *this;
  return std::nullopt;
}

std::optional<PositionMask>
PositionMask::unite(const PositionMask &other) const {
  int64_t longer = std::max(prefix, other.prefix);
  if (hasNoBand())
    return PositionMask(other.least, other.greatest, longer);
  if (other.hasNoBand())
    return PositionMask(least, greatest, longer);
  if (least > other.greatest + 1 || other.least > greatest + 1)
    return std::nullopt;
  return PositionMask(std::min(least, other.least),
                      std::max(greatest, other.greatest), longer);
}

std::optional<MaskAttr> PositionMask::getAttr(MLIRContext *context) const {
  if (isAll())
    return MaskAttr::get(context, /*causal=*/false, /*window=*/0);
  if (hasNoBand())
    return std::nullopt;
  bool isCausal = least == 0;
  if (!isCausal && least != -greatest)
    return std::nullopt;
  bool hasWindow = greatest != kFar;
  if (prefix > 0 && (!isCausal || hasWindow))
    return std::nullopt;
  return MaskAttr::get(context, isCausal, hasWindow ? greatest + 1 : 0, prefix);
}
