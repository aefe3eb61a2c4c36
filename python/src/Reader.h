//===- Reader.h - Arguments of one call from Python -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The functions of the package pass their arguments on in the order of the
// signatures. What they mean is up to the functions of C++; that they are
// numbers, flags and arrays at all is found here. All raise ValueError that
// starts with the name.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_PYTHON_SRC_READER_H
#define FOVEA_PYTHON_SRC_READER_H

#include "Running.h"
#include "fovea/ExecutionEngine/Compiler.h"
#include "fovea/Functions/ResultMemory.h"
#include "fovea/Functions/ResultScopes.h"
#include "fovea/Functions/ScoreFunction.h"
#include "fovea/Functions/Tokens.h"
#include <forward_list>
#include <utility>

namespace fovea::python {

class Reader {
public:
  /// Of the function `name`. The last of the arguments is the target, and the
  /// one that is `named` says where results go. With an abstract array among
  /// them, the call is described and does not run. `givesTensors` is that of
  /// Placement; None for the target is where the first tensor lies then.
  Reader(const char *name, nanobind::args given, nanobind::kwargs named,
         bool givesTensors);
  /// Arguments without a target, for a call from outside of Python. Results go
  /// to `destinations`, in the order in which they are given.
  Reader(nanobind::args given, const Placement &placement, Target target,
         llvm::ArrayRef<TensorRef> destinations);

  Target getTarget() const { return target; }
  /// Where results go.
  const ResultMemory &getMemory();
  /// Options with the target and the memory set.
  template <typename Options> Options makeOptions() {
    Options options;
    options.target = target;
    setMemory(options, getMemory(), /*overload=*/0);
    return options;
  }
  const Placement &getPlacement() const { return placement; }
  /// Says that the call is of a cache, and on which GPU that is, if any.
  void enterCache(std::optional<int> device = std::nullopt) {
    placement.isOfCache = true;
    placement.device = device;
  }

  // The next argument.

  nanobind::handle object() { return given[next++]; }
  nanobind::handle peek() const { return given[next]; }
  TensorRef array(llvm::StringRef name);
  std::optional<TensorRef> optionalArray(llvm::StringRef name);
  /// `mask` and `lengths`, either of which may be None.
  void readTokens(TokenOptions &options, llvm::StringRef mask = "mask");
  /// A list of arrays, of which `needed` are to be.
  llvm::SmallVector<TensorRef> arrays(llvm::StringRef name, int64_t needed);
  std::optional<llvm::SmallVector<TensorRef>>
  optionalArrays(llvm::StringRef name, int64_t needed);
  /// The same array, contiguous unless it lies on a GPU.
  OwnedTensor view(llvm::StringRef name);
  /// Without data where there is none.
  OwnedTensor optionalView(llvm::StringRef name);
  /// Such views of the arrays of a tuple, called as `state.mean`.
  std::optional<llvm::SmallVector<OwnedTensor>>
  optionalParts(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> names,
                bool needsWrite);

  /// A list of `count` arguments, which `read(i)` reads one after the other.
  template <typename Function>
  void list(llvm::StringRef name, size_t count, Function read) {
    nanobind::args outer = enter(name, count);
    size_t resumed = std::exchange(next, 0);
    for (size_t i = 0; i < count; ++i)
      read(i);
    given = std::move(outer);
    next = resumed;
  }

  /// A function of scores: a text, which may be None, and a list of the arrays
  /// that it reads.
  std::optional<ScoreFunction> score();
  /// A list of arrays that functions read, or None.
  llvm::SmallVector<TensorRef> captures();

  bool flag(llvm::StringRef name);
  int64_t integer(llvm::StringRef name, int64_t least) {
    return toInteger(object(), name, least);
  }
  std::optional<int64_t> optionalInteger(llvm::StringRef name, int64_t least);
  /// `kind` is what errors say is needed.
  double number(llvm::StringRef name, llvm::StringRef kind = "a finite number");
  std::optional<double> optionalNumber(llvm::StringRef name);
  /// The number of one of `choices`.
  template <typename Enum>
  Enum choice(llvm::StringRef name,
              std::initializer_list<llvm::StringRef> choices) {
    return Enum(find(name, object(), llvm::ArrayRef(choices)));
  }

  // What is no argument.

  static int64_t toInteger(nanobind::handle object, llvm::StringRef name,
                           int64_t least);
  OwnedTensor loadView(nanobind::handle object, llvm::StringRef name,
                       bool needsWrite);

  /// Runs `function`, and raises what it fails with.
  template <typename Function> auto run(Function function) {
    return runKernels(placement, [&] {
      std::optional<DescribeScope> description;
      std::optional<DestinationScope> places;
      if (described.is_valid())
        description.emplace();
      else if (destinations)
        places.emplace(*destinations);
      return function();
    });
  }
  /// Runs it, and gives the array that it returns, or these of the arrays.
  template <typename Function, typename... Members>
  nanobind::object call(Function function, Members... members) {
    auto result = run(function);
    if constexpr (sizeof...(Members) == 0)
      return give(std::move(result));
    else
      return giveAll(std::move(result.*members)...);
  }
  /// A tuple of results, in order.
  template <typename... Tensors>
  nanobind::object giveAll(Tensors &&...tensors) {
    nanobind::list found;
    (found.append(give(std::move(tensors))), ...);
    return nanobind::tuple(found);
  }
  /// An array of Python that owns a result or was given for it, an abstract
  /// one, or None for one that is in its destination.
  nanobind::object give(OwnedTensor tensor);

private:
  Target findTarget(nanobind::handle object) const;
  /// Makes the entries of the next argument those that are read, and returns
  /// what was read before.
  nanobind::args enter(llvm::StringRef name, size_t count);
  bool nextIsNone() const { return peek().is_none(); }
  TensorRef load(nanobind::handle object, llvm::StringRef name);
  /// Puts a result into the next destination.
  void place(const OwnedTensor &result);
  ArrayView &loadArray(nanobind::handle object, llvm::StringRef name,
                       bool needsWrite);
  static size_t find(llvm::StringRef name, nanobind::handle object,
                     llvm::ArrayRef<llvm::StringRef> choices);

  /// To options with or without several gradients.
  template <typename Options>
  static auto setMemory(Options &options, const ResultMemory &memory, int)
      -> decltype(options.gradients, void()) {
    options.gradients = memory;
  }
  template <typename Options>
  static void setMemory(Options &options, const ResultMemory &memory, long) {
    options.out = memory;
  }
  /// Adds arrays for results, which may lie in lists.
  void readMemory(nanobind::handle object, const std::string &name);

  nanobind::args given;
  nanobind::kwargs named;
  size_t next = 0;
  /// Once it has been asked for.
  std::optional<ResultMemory> memory;
  /// The arrays in it for which no result has been given yet.
  llvm::SmallVector<std::pair<TensorRef, nanobind::handle>, 2> places;
  Target target;
  Placement placement;
  /// The name and the arguments of a call that is described.
  nanobind::object described;
  std::optional<llvm::ArrayRef<TensorRef>> destinations;
  size_t numGiven = 0;
  std::forward_list<ArrayView> views;
};

} // namespace fovea::python

#endif // FOVEA_PYTHON_SRC_READER_H
