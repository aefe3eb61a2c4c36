//===- ResultMemory.h - Where results go ------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_RESULTMEMORY_H
#define FOVEA_FUNCTIONS_RESULTMEMORY_H

#include "fovea/ExecutionEngine/Kernel.h"

namespace fovea {

/// Arrays that the results of a function are written to, one for each in the
/// order of its declaration, where lists and states stand for their parts. They
/// may have strides, but rows are contiguous, and share no memory with other
/// arrays of the call. Results are views of them then. A result without an
/// array, or all without any, are new arrays.
class ResultMemory {
public:
  using Array = std::optional<TensorRef>;
  struct Place {
    /// What errors call it.
    std::string name;
    Array array;
  };

  ResultMemory() = default;
  ResultMemory(const TensorRef &array) : places{{name, array}} {}
  ResultMemory(std::initializer_list<Array> arrays)
      : ResultMemory("out", arrays) {}
  /// For places that `add` names.
  explicit ResultMemory(llvm::StringRef name) : name(name) {}

  void add(std::string place, const Array &array) {
    places.push_back({std::move(place), array});
  }

  /// What errors call all places.
  const std::string &getName() const { return name; }
  llvm::ArrayRef<Place> getPlaces() const { return places; }

protected:
  ResultMemory(llvm::StringRef name, std::initializer_list<Array> arrays)
      : name(name) {
    for (const Array &array : arrays)
      add(this->name + "[" + std::to_string(places.size()) + "]", array);
  }

private:
  std::string name = "out";
  llvm::SmallVector<Place, 1> places;
};

/// The same for several gradients.
class GradientMemory : public ResultMemory {
public:
  GradientMemory() : GradientMemory(std::initializer_list<Array>()) {}
  GradientMemory(std::initializer_list<Array> arrays)
      : ResultMemory("gradients", arrays) {}
  GradientMemory(const ResultMemory &memory) : ResultMemory(memory) {}
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_RESULTMEMORY_H
