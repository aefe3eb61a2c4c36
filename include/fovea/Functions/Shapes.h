//===- Shapes.h - Kernels for one length or for all -------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_SHAPES_H
#define FOVEA_FUNCTIONS_SHAPES_H

#include <optional>

namespace fovea {

/// Whether functions compile a kernel for each length (batch and numbers of
/// tokens), or one for each configuration: operation, options, types, numbers
/// of heads and widths. docs/Embedding.md says what to choose when.
enum class Shapes {
  /// A kernel for all lengths wherever it is as fast.
  Auto,
  /// A kernel for each length.
  Static,
  /// A kernel for all lengths wherever there is one.
  Dynamic,
};

/// For calls from now on, of all threads. The default is Auto.
void setShapes(Shapes shapes);
/// What calls of this thread follow.
Shapes getShapes();

/// For calls of this thread alone, while it lives.
class ThreadShapesScope {
public:
  explicit ThreadShapesScope(Shapes shapes);
  ~ThreadShapesScope();
  ThreadShapesScope(const ThreadShapesScope &) = delete;
  ThreadShapesScope &operator=(const ThreadShapesScope &) = delete;

private:
  std::optional<Shapes> before;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_SHAPES_H
