//===- ArrayFile.h - Arrays in files ----------------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files have the format of safetensors, which other programs read: the size of
// a header, the header in JSON, which has the name, type, shape and place of
// each array and a dictionary of texts, and the elements. Among the texts is a
// checksum of the whole file.
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_ARRAYFILE_H
#define FOVEA_LIB_FUNCTIONS_ARRAYFILE_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MemoryBuffer.h"
#include <map>
#include <string>

namespace fovea::functions {

/// What describes arrays: numbers by name.
using FileNumbers = std::map<std::string, int64_t>;

struct NamedArray {
  std::string name;
  TensorRef array;
};

/// Replaces the file at `path` at once, or leaves it as it was. `kind` says
/// what the arrays are.
llvm::Error writeArrays(llvm::StringRef path, llvm::StringRef kind,
                        const FileNumbers &numbers,
                        llvm::ArrayRef<NamedArray> arrays);

/// A file that has been read and is whole.
class ArrayFile {
public:
  /// Fails unless `path` holds arrays of that kind with these numbers and no
  /// others.
  static llvm::Expected<ArrayFile>
  read(llvm::StringRef path, llvm::StringRef kind,
       llvm::ArrayRef<llvm::StringRef> numbers);

  int64_t getNumber(llvm::StringRef name) const {
    return numbers.find(name.str())->second;
  }
  /// The type and the shape of an array, if there is one of that rank.
  llvm::Expected<TensorRef> find(llvm::StringRef name, size_t rank) const;
  /// Copies an array to `to`; fails where type or shape are others.
  llvm::Error load(llvm::StringRef name, const TensorRef &to) const;
  /// That something in it is wrong.
  llvm::Error fail(const llvm::Twine &found) const;

private:
  struct Entry {
    ElementType elementType;
    llvm::SmallVector<int64_t, 4> shape;
    uint64_t begin;
  };
  llvm::Error readHeader(llvm::StringRef kind,
                         llvm::ArrayRef<llvm::StringRef> names);

  std::string path;
  std::unique_ptr<llvm::MemoryBuffer> file;
  llvm::StringRef data;
  FileNumbers numbers;
  std::map<std::string, Entry> entries;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ARRAYFILE_H
