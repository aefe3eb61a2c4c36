//===- KnownData.h - Elements of tensors that are known ---------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_KNOWNDATA_H
#define FOVEA_ANALYSIS_KNOWNDATA_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace fovea {

/// What is known of the elements of values in a function: constants are,
/// arguments whose data is given, and what was computed from these.
class KnownData {
public:
  KnownData() = default;
  /// `arguments` are those of the block `entry`: elements, a number for a
  /// scalar, or null where nothing is known.
  KnownData(mlir::Block *entry, std::vector<mlir::Attribute> arguments)
      : entry(entry), arguments(std::move(arguments)) {}

  /// Null if nothing is known. Elements have the shape that the value has when
  /// it runs, also where its type leaves that open.
  mlir::Attribute lookup(mlir::Value value) const;
  /// Makes the elements of a value known.
  void set(mlir::Value value, mlir::Attribute elements) {
    computed[value] = elements;
  }

  /// Which batch entry and query head to look at, where these have elements of
  /// their own.
  int64_t batch = 0, head = 0;

private:
  mlir::Block *entry = nullptr;
  std::vector<mlir::Attribute> arguments;
  llvm::DenseMap<mlir::Value, mlir::Attribute> computed;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_KNOWNDATA_H
