//===- AccessWriter.h - Numbers of a trace as tensors -*- C++ -*- ===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_CONVERSION_LINALGTOATTN_ACCESSWRITER_H
#define FOVEA_LIB_CONVERSION_LINALGTOATTN_ACCESSWRITER_H

#include "fovea/Analysis/AccessTrace.h"
#include "mlir/IR/Builders.h"

namespace fovea::attn::detail {

/// Writes numbers of a trace as tensors in any layout: the tensor that they are
/// elements of, transposed and reshaped; or, where that repeats numbers or is
/// none, what computes them.
class AccessWriter {
public:
  AccessWriter(mlir::OpBuilder &builder, mlir::Location loc, AccessTrace &trace)
      : builder(builder), loc(loc), trace(trace) {}

  /// Whether `write` can; a scalar inside a body may have no tensor.
  static bool canWrite(AccessTrace &trace, const Access &access);

  /// A tensor with a dimension for each list of atoms, with numbers repeated
  /// along atoms that they do not depend on.
  mlir::Value write(const Access &access, llvm::ArrayRef<IndexList> dims);
  /// The same, with extents of 1 where numbers would all be repeated.
  mlir::Value writeSmallest(const Access &access,
                            llvm::ArrayRef<IndexList> dims);

  /// The tensor with the dimensions `from`, with those of `to` instead, which
  /// have the same atoms.
  mlir::Value relayout(mlir::Value tensor, llvm::ArrayRef<IndexList> from,
                       llvm::ArrayRef<IndexList> to);

  /// A tensor without contents, of extents as the trace has them.
  mlir::Value createEmpty(llvm::ArrayRef<int64_t> shape, mlir::Type element);
  /// An extent of the trace as an index.
  mlir::Value createExtent(int64_t extent);

  /// The tensor with elements of another type of floating point.
  mlir::Value convert(mlir::Value tensor, mlir::Type type);

private:
  mlir::Value writeAtoms(const Access &access, llvm::ArrayRef<Atom> order);
  mlir::Value writeOperation(const Access &access, llvm::ArrayRef<Atom> order);
  mlir::Value writeIndex(llvm::ArrayRef<Atom> list, llvm::ArrayRef<Atom> order);
  IndexLists resolveAll(llvm::ArrayRef<IndexList> dims) const;
  mlir::Value reshape(mlir::Value tensor, llvm::ArrayRef<int64_t> shape);
  /// The type that says of a shape what is known when compiling.
  mlir::RankedTensorType getType(llvm::ArrayRef<int64_t> shape,
                                 mlir::Type element) const;
  llvm::SmallVector<int64_t> getExtents(llvm::ArrayRef<Atom> list) const;
  llvm::SmallVector<int64_t> getShape(llvm::ArrayRef<IndexList> dims) const;

  mlir::OpBuilder &builder;
  mlir::Location loc;
  AccessTrace &trace;
};

} // namespace fovea::attn::detail

#endif // FOVEA_LIB_CONVERSION_LINALGTOATTN_ACCESSWRITER_H
