//===- Call.h - One operation on arrays -------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_CALL_H
#define FOVEA_LIB_FUNCTIONS_CALL_H

#include "Arguments.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include <utility>

namespace fovea::functions {

/// Zeroed memory.
llvm::Expected<OwnedTensor> allocate(ElementType type,
                                     llvm::ArrayRef<int64_t> shape);
/// `argument` if it is contiguous and aligned, otherwise a view of a copy of it
/// in `copy`.
llvm::Expected<TensorRef> toContiguous(const Argument &argument,
                                       OwnedTensor &copy);

/// A function that is one operation of the dialect, and its arguments.
class Call {
public:
  /// `op` is the operation without its "attn.".
  Call(llvm::StringRef op, Target target) : op(op), target(target) {}

  /// A value in IR.
  struct Value {
    std::string name, type;
  };
  /// The value of that name in the definitions.
  static Value getValue(llvm::StringRef name, ElementType type,
                        llvm::ArrayRef<int64_t> shape);
  /// Makes `argument` one of the function.
  Value add(const Argument &argument);
  /// Text ahead of the operation.
  void define(const llvm::Twine &text) { definitions += text.str(); }

  /// Operands of the operation; a clause without any is left out.
  void clause(llvm::StringRef name, llvm::ArrayRef<Value> values);
  void clause(llvm::StringRef name, llvm::ArrayRef<Argument> arguments);
  void attribute(const llvm::Twine &text) { attributes.push_back(text.str()); }
  void attribute(llvm::StringRef name, double value);

  /// A result, in the memory of `given` or in new memory. `clause` names the
  /// operation's clause of destinations.
  void result(Checker &check, llvm::StringRef clause, llvm::StringRef name,
              ElementType type, llvm::ArrayRef<int64_t> shape,
              const std::optional<TensorRef> &given = {});
  /// A destination that the operation updates where it lies.
  void update(Checker &check, llvm::StringRef clause, const Argument &argument);

  /// Runs the operation. The results are those of `result`, in order.
  llvm::Expected<llvm::SmallVector<OwnedTensor>> run() const;
  /// The same unless a check has failed. The `count` results are the first
  /// members of a `Result`.
  template <typename Result, size_t count>
  llvm::Expected<Result> runFor(Checker &check) const {
    if (check.hasFailed())
      return check.takeError();
    llvm::Expected<llvm::SmallVector<OwnedTensor>> results = run();
    if (!results)
      return results.takeError();
    return toMembers<Result>(*results, std::make_index_sequence<count>());
  }
  /// What stands for running when there is nothing to compute: every element of
  /// a result is `values[i]`, or 0.
  llvm::Expected<llvm::SmallVector<OwnedTensor>>
  fill(llvm::ArrayRef<double> values = {}) const;

private:
  template <typename Result, size_t... indices>
  static Result toMembers(llvm::MutableArrayRef<OwnedTensor> results,
                          std::index_sequence<indices...>) {
    return Result{std::move(results[indices])...};
  }

  /// A destination; `buffer` is the memory that it must lie in, if any.
  struct Destination {
    std::string clause, name;
    std::optional<Argument> buffer;
    /// What the buffer holds matters.
    bool isUpdated = false;
    ElementType elementType;
    Shape shape;
  };

  /// Whether kernels can write to memory of the caller; results are copied
  /// there otherwise.
  bool writesToBuffers() const;
  bool isInBuffer(const Destination &destination) const {
    return destination.buffer && (destination.isUpdated || writesToBuffers());
  }
  /// Fails where a kernel would write to what it still has to read.
  llvm::Error checkOverlaps() const;
  std::string getText() const;
  std::string getParameters() const;
  std::string getDestinations() const;

  std::string op;
  Target target;
  std::string definitions, clauses;
  llvm::SmallVector<Argument, 8> arguments;
  llvm::SmallVector<std::string, 4> attributes;
  llvm::SmallVector<Destination, 2> destinations;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_CALL_H
