//===- ShapeOptions.h - The option --shape of tools -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_TOOLS_SHAPES_SHAPEOPTIONS_H
#define FOVEA_TOOLS_SHAPES_SHAPEOPTIONS_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

namespace fovea {

/// Gives the values of --shape to the arguments with dynamic extents, in order.
class ShapeOptions {
public:
  explicit ShapeOptions(llvm::ArrayRef<std::string> values) : values(values) {}

  /// The extents of an argument: those of its type, or the next value.
  /// `description` is what errors call it.
  llvm::Expected<llvm::SmallVector<int64_t, 4>>
  take(const ValueSpec &spec, const llvm::Twine &description);
  /// An error unless all values were taken by `arguments` with dynamic extents.
  llvm::Error finish(llvm::StringRef arguments = "argument") const;

private:
  llvm::ArrayRef<std::string> values;
  size_t next = 0;
};

} // namespace fovea

#endif // FOVEA_TOOLS_SHAPES_SHAPEOPTIONS_H
