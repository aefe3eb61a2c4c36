//===- ScoreFunction.h - Functions of scores --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_FUNCTIONS_SCOREFUNCTION_H
#define FOVEA_FUNCTIONS_SCOREFUNCTION_H

#include "fovea/ExecutionEngine/Kernel.h"
#include "llvm/ADT/SmallVector.h"
#include <string>

namespace fovea {

/// What takes the place of the scaled product of a query and a key: the `score`
/// region of attn.dense.
struct ScoreFunction {
  /// Operations that end in `attn.yield`. They may use `%score`, in the type of
  /// sums, `%batch`, `%head`, `%query`, `%key`, and `%capture0` and so on,
  /// tensors of any extents.
  std::string body;
  /// Tensors that it reads.
  llvm::SmallVector<TensorRef> captures;
};

/// Which entries there are beside what masks leave: a function as a score is,
/// but without `%score`, that yields an `i1`.
struct AdmitFunction {
  std::string body;
  llvm::SmallVector<TensorRef> captures;
};

/// Numbers of the segment that each query [B,N] and each key [B,M] belongs to,
/// of i32; a batch entry of 1 is that of all. A query reads the keys of its
/// own.
struct Segments {
  TensorRef queries, keys;
};

} // namespace fovea

#endif // FOVEA_FUNCTIONS_SCOREFUNCTION_H
