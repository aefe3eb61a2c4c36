//===- Arguments.h - Checks of the arguments of functions -------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each check says which argument is wrong, what was found and what is needed,
// in the words of the Python package.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_ARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_ARGUMENTS_H

#include "fovea/Dialect/Attn/IR/Contract.h"
#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/Twine.h"
#include <limits>

namespace fovea::functions {

using Shape = llvm::SmallVector<int64_t, 4>;

/// An array and what errors call it.
struct Argument {
  std::string name;
  ElementType elementType = ElementType::F32;
  Shape shape;
  /// In elements; empty when contiguous.
  Shape strides;
  void *data = nullptr;
  bool isReadOnly = false;

  Argument() = default;
  Argument(llvm::StringRef name, const TensorRef &array);

  /// Adds leading axes of extent 1 until there are `rank`, as NumPy does.
  void extendTo(unsigned rank);

  /// Whether elements lie one after the other, aligned to their size.
  bool isContiguous() const;
  /// Whether those of each row do, wherever the rows are.
  bool hasContiguousRows() const;
  /// Valid as long as this object.
  TensorRef getRef() const {
    return {data, elementType, shape, strides, isReadOnly};
  }
};

/// "[1, 2, 3]" and "(1, 2, 3)".
std::string toList(llvm::ArrayRef<int64_t> extents);
std::string toTuple(llvm::ArrayRef<int64_t> extents);
/// The name in NumPy, such as "float32".
std::string getArrayTypeName(ElementType type);
/// The type of sums and of the log-sum-exp.
ElementType getStateType(ElementType type);

/// `error`, marked as one of an argument by std::errc::invalid_argument. What
/// has no memory is marked by std::errc::not_enough_memory.
llvm::Error toArgumentError(llvm::Error error);

/// Runs checks until one fails, and keeps its error. What a check returns after
/// that has the rank that was asked for, and nothing else is certain.
class Checker {
public:
  Checker() = default;
  /// For the arguments of `op`, an operation without its "attn.".
  explicit Checker(llvm::StringRef op);
  ~Checker() { llvm::consumeError(std::move(error)); }

  bool hasFailed() const { return failed; }
  llvm::Error takeError() { return std::move(error); }

  void fail(const llvm::Twine &text);
  void fail(llvm::Error reason);
  /// Fails unless `holds`.
  void check(bool holds, const llvm::Twine &text) {
    if (!holds)
      fail(text);
  }
  void match(llvm::StringRef name, llvm::StringRef what, int64_t found,
             int64_t needed);
  void match(llvm::StringRef name, llvm::StringRef what,
             llvm::ArrayRef<int64_t> found, llvm::ArrayRef<int64_t> needed);
  void elementType(const Argument &argument,
                   llvm::ArrayRef<ElementType> needed);

  int64_t integer(llvm::StringRef name, int64_t value, int64_t least,
                  int64_t most = std::numeric_limits<int64_t>::max());
  /// Fails unless `value` is finite and `holds`; `least` says what it must be.
  double number(llvm::StringRef name, double value, bool holds = true,
                llvm::StringRef least = "");
  /// `value`, or 1/sqrt(width).
  double scale(std::optional<double> value, int64_t width);
  /// Fails unless `value` is from 0 to 1.
  void rate(llvm::StringRef name, double value);

  /// An array of numbers.
  Argument tensor(llvm::StringRef name, const TensorRef &array, unsigned rank,
                  llvm::StringRef layout);
  /// An array of the rank and the element type that the operation declares for
  /// `operand`; the first one of data decides what type data has.
  Argument operand(llvm::StringRef operand, llvm::StringRef name,
                   const TensorRef &array) {
    return this->operand(*contract->find(operand), name, array);
  }
  /// The same of a declaration, which may belong to another contract.
  Argument operand(const attn::OperandSpec &spec, llvm::StringRef name,
                   const TensorRef &array);
  std::optional<Argument> operandIf(llvm::StringRef operand,
                                    llvm::StringRef name,
                                    const std::optional<TensorRef> &array) {
    return array ? std::optional(this->operand(operand, name, *array))
                 : std::nullopt;
  }
  void notEmpty(const Argument &argument);
  /// An array of type `type` and shape `shape`, such as a gradient.
  Argument like(llvm::StringRef name, const TensorRef &array, ElementType type,
                llvm::ArrayRef<int64_t> shape);
  /// The same where there is one.
  std::optional<Argument> likeIf(llvm::StringRef name,
                                 const std::optional<TensorRef> &array,
                                 ElementType type,
                                 llvm::ArrayRef<int64_t> shape) {
    return array ? std::optional(like(name, *array, type, shape))
                 : std::nullopt;
  }

  struct Attention {
    Argument q, k, v;
    Shape rows() const { return {q.shape[0], q.shape[1], q.shape[2]}; }
    Shape output() const {
      return {q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
    }
  };
  /// q [B,H,N,D], k [B,G,M,D] and v [B,G,M,E], whose shapes the operation
  /// compares.
  Attention attention(const TensorRef &q, const TensorRef &k,
                      const TensorRef &v);
  /// Fails unless an array can be written to where it lies.
  void writable(const Argument &argument);
  /// An array that is added to scores of shape `shape`: of the type of `data`
  /// or of sums. Missing leading axes and extents of 1 broadcast.
  Argument scoreTerm(llvm::StringRef name, const TensorRef &array,
                     ElementType data, llvm::ArrayRef<int64_t> shape);

  /// Fails unless extents are those of `shape`, or 1 in the first `numFree`
  /// dimensions. Any will do where `shape` has a negative one.
  void broadcasts(const Argument &argument, llvm::ArrayRef<int64_t> shape,
                  unsigned numFree);

private:
  /// Fails unless there are `rank` extents, and makes it so many.
  void checkRank(Argument &argument, unsigned rank, llvm::StringRef layout);
  /// The types that an operand may have; empty for any of data.
  llvm::SmallVector<ElementType, 4> getTypes(attn::ElementRule rule) const;

  const attn::Contract *contract = nullptr;
  std::optional<ElementType> data;
  bool failed = false;
  llvm::Error error = llvm::Error::success();
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ARGUMENTS_H
