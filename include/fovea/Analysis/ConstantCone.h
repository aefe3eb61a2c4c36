//===- ConstantCone.h - Numbers known when compiling ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Computes what operations of linalg, arith and tensor make of constants and
// indices, as it would be computed at run time, to the last bit: masks are
// found by their elements, not by the way in which they are written. Functions
// that libraries round differently, such as exp, are not computed.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_CONSTANTCONE_H
#define FOVEA_ANALYSIS_CONSTANTCONE_H

#include "fovea/Analysis/AccessTrace.h"
#include <memory>
#include <vector>

namespace fovea {

/// An element: integers are sign-extended, but i1 is 0 or 1.
union ConstantElement {
  ConstantElement() = default;
  explicit ConstantElement(int64_t integer) : integer(integer) {}
  explicit ConstantElement(double real) : real(real) {}

  int64_t integer;
  double real;
};

struct ConstantTensor {
  mlir::Type elementType;
  llvm::SmallVector<int64_t> shape;
  /// The last index varies fastest.
  std::vector<ConstantElement> elements;

  bool isReal() const { return llvm::isa<mlir::FloatType>(elementType); }
};

/// Remembers tensors that it has computed, of a function that does not change.
class ConstantCones {
public:
  /// No tensor of more elements is computed.
  explicit ConstantCones(int64_t maxElements) : maxElements(maxElements) {}

  /// The number at all values of the indices in `lists`. None if it depends on
  /// other atoms, or on anything that is known at run time only.
  std::optional<ConstantTensor> evaluate(AccessTrace &trace,
                                         const Access &access,
                                         llvm::ArrayRef<IndexList> lists = {});
  /// One number of floating point that depends on nothing.
  std::optional<double> evaluateReal(AccessTrace &trace, const Access &access);

  /// A tensor as a whole.
  const ConstantTensor *getTensor(mlir::Value tensor);

private:
  std::optional<ConstantTensor> compute(AccessTrace &trace,
                                        const Access &access,
                                        llvm::ArrayRef<IndexList> lists);
  std::optional<ConstantTensor> evaluateAll(mlir::Value tensor);
  std::optional<ConstantTensor> compute(mlir::Value tensor);
  std::optional<ConstantTensor> reduce(mlir::OpResult result);

  int64_t maxElements;
  /// Null for those that are not constant.
  llvm::DenseMap<mlir::Value, std::unique_ptr<ConstantTensor>> tensors;
  /// What evaluate() returned for a value, by where it was read.
  llvm::DenseMap<mlir::Value,
                 std::vector<std::pair<llvm::SmallVector<int64_t>,
                                       std::optional<ConstantTensor>>>>
      arrays;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_CONSTANTCONE_H
