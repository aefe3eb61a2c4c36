//===- AccessTrace.h - Where the numbers of a tensor come from --*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Follows numbers back through what only moves them: reshapes, transposes,
// broadcasts, and operations of linalg that yield what they read. Two accesses
// are the same number if they end at the same value with the same indices,
// whatever layouts lie between. Nothing is rewritten.
//
// An index is written in mixed radix. Its digits, the atoms, are loop variables
// of the operation that a trace begins with, or parts of these: a reshape that
// cuts a loop of 24 into 4 x 6 splits its atom, for all accesses of the trace.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_ANALYSIS_ACCESSTRACE_H
#define FOVEA_ANALYSIS_ACCESSTRACE_H

#include "fovea/Analysis/SymbolicExtents.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Value.h"
#include "llvm/ADT/SetVector.h"
#include <optional>

namespace fovea {

/// A digit of an index.
using Atom = unsigned;
/// An index: its digits, the most significant first. An extent of 1 has none.
using IndexList = llvm::SmallVector<Atom, 2>;
using IndexLists = llvm::SmallVector<IndexList, 4>;
using AtomSet = llvm::SmallSetVector<Atom, 8>;

/// One number: an element of a tensor, or a scalar in the body of an operation
/// of linalg. The indices are those of the tensor's dimensions, or of the loops
/// around the body; a scalar from elsewhere has none.
struct Access {
  mlir::Value value;
  IndexLists indices;

  bool isTensor() const {
    return llvm::isa<mlir::RankedTensorType>(value.getType());
  }
  mlir::Operation *getDefiningOp() const { return value.getDefiningOp(); }
};

class AccessTrace {
public:
  /// Extents are those of `symbols`; without it, all must be known when
  /// compiling.
  explicit AccessTrace(SymbolicExtents *symbols = nullptr) : symbols(symbols) {}

  /// An index below `extent`: a new atom.
  IndexList addIndex(int64_t extent);
  /// New indices for all dimensions of a tensor.
  Access addAccess(mlir::Value tensor);

  int64_t getExtent(Atom atom) const { return atoms[atom].extent; }
  int64_t getExtent(llvm::ArrayRef<Atom> list) const;
  /// Whether the extent is known when compiling.
  bool isStatic(llvm::ArrayRef<Atom> list) const;
  llvm::SmallVector<int64_t> getShape(mlir::Value tensor) const;
  SymbolicExtents *getSymbols() const { return symbols; }

  /// The list, with the parts of atoms that were split since it was made.
  IndexList resolve(llvm::ArrayRef<Atom> list) const;
  AtomSet resolve(const AtomSet &set) const;
  /// All atoms of the indices, resolved.
  AtomSet getAtoms(const Access &access) const;

  /// The index taken apart into one for each extent, the last of which varies
  /// fastest; splits atoms where an extent falls inside one.
  std::optional<IndexLists> cut(llvm::ArrayRef<Atom> list,
                                llvm::ArrayRef<int64_t> extents);

  /// Follows the number to where it is computed, or where the trace ends.
  Access peel(Access access);
  /// The same, and from a tensor that is computed element by element to the
  /// scalar that is computed in the body.
  Access open(Access access);
  /// Operand `number` of the operation that computes the number: a scalar's
  /// has the same loops around it, that of a tensor the same indices.
  static Access getOperand(const Access &access, unsigned number);

  /// The operation that computes the number from numbers at the same indices,
  /// after `open`; null where there is none.
  static mlir::Operation *getElementwiseOp(const Access &access);

  /// The loops around the body of `op` that yields the element of `result` with
  /// these indices. Reduced loops have new atoms; none for maps that do more
  /// than permute, and where extents are not known.
  std::optional<IndexLists> getLoops(mlir::linalg::LinalgOp op, unsigned result,
                                     llvm::ArrayRef<IndexList> indices);
  /// The element that the body reads from `operand`.
  static std::optional<Access> read(mlir::linalg::LinalgOp op,
                                    mlir::OpOperand *operand,
                                    llvm::ArrayRef<IndexList> loops);

  /// Whether two accesses are the same number, for all values of the atoms.
  /// Atoms of `unknown`, which only `b` has, are those for which this is so:
  /// `bound` says which atom of `a` each of them is.
  bool isSame(const Access &a, const Access &b, const AtomSet &unknown,
              llvm::DenseMap<Atom, Atom> &bound);

  /// The atoms that a change of the number needs: those of the leaves.
  AtomSet getDependencies(const Access &access);

private:
  struct AtomInfo {
    int64_t extent;
    /// The digits it was split into, if it was.
    std::optional<std::pair<Atom, Atom>> parts;
  };
  Atom addAtom(int64_t extent);
  void resolve(Atom atom, IndexList &list) const;
  void split(Atom atom, int64_t inner);
  /// One step back, if the number is only moved.
  std::optional<Access> step(const Access &access);
  bool alignIndices(llvm::ArrayRef<Atom> a, llvm::ArrayRef<Atom> b,
                    const AtomSet &unknown, llvm::DenseMap<Atom, Atom> &bound);
  bool isSame(const Access &a, const Access &b, const AtomSet &unknown,
              llvm::DenseMap<Atom, Atom> &bound, unsigned &budget);
  bool addDependencies(const Access &access, AtomSet &found, unsigned &budget);

  /// Extents of the loops of `op`; none where they may differ from operand to
  /// operand.
  std::optional<llvm::SmallVector<int64_t>>
  getLoopExtents(mlir::linalg::LinalgOp op) const;

  llvm::SmallVector<AtomInfo> atoms;
  SymbolicExtents *symbols;
};

} // namespace fovea

#endif // FOVEA_ANALYSIS_ACCESSTRACE_H
