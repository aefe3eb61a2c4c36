//===- PageLists.h - The pages of each sequence -----------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_PAGELISTS_H
#define FOVEA_LIB_FUNCTIONS_PAGELISTS_H

#include "Memory.h"

namespace fovea::functions {

/// `count` pages of `page` rows. Page x begins at row x `distance` of that many
/// times `page`.
struct Pages {
  int64_t count, page, distance;
};

/// The pages of each sequence [B,1,1,R], as lists of rows have them, of a table
/// [B,R] and lengths [B]. Owns them: lives as long as the call.
class PageLists {
public:
  PageLists(Checker &check, const Argument &table, const Argument &lengths,
            const Pages &pages, Target target);

  /// Whether kernels make them: the host reads neither a table that lies on a
  /// device nor, while a graph is captured, lengths.
  static bool areMadeByKernel(const Argument &table, Target target);

  TensorRef getRef() const {
    return {memory.getData(), ElementType::I32, shape, {}, true};
  }

private:
  void makeOnHost(Checker &check, const Argument &table,
                  const Argument &lengths, const Pages &pages);
  void makeByKernel(Checker &check, const Argument &table,
                    const Argument &lengths, const Pages &pages, Target target);

  OwnedTensor memory;
  Shape shape;
};

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_PAGELISTS_H
