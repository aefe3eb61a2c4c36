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
#include <vector>

namespace fovea {

/// What is known of the elements of values in a function: constants are, and
/// arguments whose data is given.
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

private:
  mlir::Block *entry = nullptr;
  std::vector<mlir::Attribute> arguments;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_KNOWNDATA_H
