//===- SymbolicExtents.h - Extents as products of symbols -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Says which extents are the same whatever they are at run time. An extent is
// written as an integer in which a prime number stands for each that is not
// known: no extent of the program is a multiple of it. So products, quotients
// and comparisons of extents are those of integers, and an integer without such
// primes is the extent itself. A sum with a constant is a symbol of its own,
// which is taken apart where a constant is added to it. Extents that a function
// asserts to be the same before all that it computes are.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_SYMBOLICEXTENTS_H
#define FOVEA_ANALYSIS_SYMBOLICEXTENTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/OpDefinition.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace fovea {

/// Remembers what it has found, of operations that do not change.
class SymbolicExtents {
public:
  /// `root` has all extents that will be asked for.
  explicit SymbolicExtents(mlir::Operation *root);

  /// Extent `dim` of a tensor or memref.
  int64_t get(mlir::Value shaped, unsigned dim);
  llvm::SmallVector<int64_t> getShape(mlir::Value shaped);
  /// What the index is, or the integer that is cast to one.
  int64_t get(mlir::OpFoldResult index);

  /// Whether the extent is known when compiling.
  bool isStatic(int64_t extent) const;
  /// The same, or `ShapedType::kDynamic`, as types have it.
  int64_t getTypeExtent(int64_t extent) const;
  llvm::SmallVector<int64_t> getTypeShape(llvm::ArrayRef<int64_t> shape) const;
  /// The extent as a value at the builder's place, which what is computed from
  /// must dominate.
  mlir::OpFoldResult materialize(mlir::OpBuilder &builder, mlir::Location loc,
                                 int64_t extent) const;

private:
  void readAssertions(mlir::func::FuncOp function);
  /// Whether the index is made up of extents, which are not negative.
  bool isExtent(int64_t index) const;
  /// An index, and a constant that is added to it.
  struct Sum {
    int64_t index;
    int64_t constant;
  };
  Sum getSum(int64_t index) const;
  std::optional<int64_t> add(int64_t index, int64_t constant);
  std::optional<int64_t> getLeast(int64_t a, int64_t b) const;
  int64_t getSymbol(mlir::Value value, std::optional<unsigned> dim,
                    std::optional<Sum> sum = std::nullopt);
  std::optional<int64_t> compute(mlir::Value shaped, unsigned dim);
  std::optional<int64_t> compute(mlir::Value index);
  std::optional<int64_t> computeExpr(mlir::AffineExpr expr,
                                     mlir::ValueRange operands,
                                     unsigned numDims);

  /// An extent of a value, or an index.
  using Source = std::pair<mlir::Value, unsigned>;
  llvm::DenseMap<Source, int64_t> known;
  struct Symbol {
    int64_t prime;
    mlir::Value value;
    std::optional<unsigned> dim;
    /// In place of the value, where there is one.
    std::optional<Sum> sum;
  };
  llvm::SmallVector<Symbol> symbols;
  /// Numbers of the program that may have a factor of a symbol's size.
  llvm::SmallVector<int64_t> large;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_SYMBOLICEXTENTS_H
