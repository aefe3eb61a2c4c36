//===- PositionMask.h - Masks by the positions of entries -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which mask a comparison of positions is, and several of them together.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_DIALECT_ATTN_IR_POSITIONMASK_H
#define FOVEA_DIALECT_ATTN_IR_POSITIONMASK_H

#include "fovea/Dialect/Attn/IR/AttnDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

namespace fovea::attn {

/// `query * i + key * j + offset`, of the positions of a query and a key.
struct PositionSum {
  int64_t query = 0, key = 0, offset = 0;

  /// Whether it, and what a comparison computes of two such, is far from the
  /// ends of an integer of so many bits, wherever query and key stand.
  bool fits(unsigned bits) const;
};

/// `a + factor * b`.
PositionSum combine(const PositionSum &a, int64_t factor, const PositionSum &b);

/// The comparison with its operands in the other order.
mlir::arith::CmpIPredicate swapOperands(mlir::arith::CmpIPredicate predicate);

/// The entries whose keys stand from `least` to `greatest` positions before
/// their query, and those of keys before `prefix`.
class PositionMask {
public:
  static PositionMask getAll() { return PositionMask(); }
  static PositionMask getNone() { return {1, 0, 0}; }
  /// Those that a mask admits, which has no stride.
  static PositionMask of(MaskAttr mask);
  /// Those for which `sum` is not negative, if they are of this kind.
  static std::optional<PositionMask> ofNonNegative(const PositionSum &sum);

  /// Those that are of both, or of either, if these are of this kind.
  std::optional<PositionMask> intersect(const PositionMask &other) const;
  std::optional<PositionMask> unite(const PositionMask &other) const;
  /// The mask that admits them, if an attribute says it.
  std::optional<MaskAttr> getAttr(mlir::MLIRContext *context) const;

  bool isAll() const { return *this == getAll(); }
  bool isNone() const { return *this == getNone(); }
  bool operator==(const PositionMask &other) const {
    return least == other.least && greatest == other.greatest &&
           prefix == other.prefix;
  }

private:
  /// More than any distance is.
  static constexpr int64_t kFar = int64_t(1) << 40;

  PositionMask() = default;
  PositionMask(int64_t least, int64_t greatest, int64_t prefix);

  bool hasNoBand() const { return least > greatest; }
  bool hasBandOf(const PositionMask &other) const;

  int64_t least = -kFar, greatest = kFar, prefix = 0;
};

} // namespace fovea::attn

#endif // FOVEA_DIALECT_ATTN_IR_POSITIONMASK_H
