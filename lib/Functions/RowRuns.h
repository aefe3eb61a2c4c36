//===- RowRuns.h - Rows that go to caches -----------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_ROWRUNS_H
#define FOVEA_LIB_FUNCTIONS_ROWRUNS_H

#include "Memory.h"

namespace fovea::functions {

/// Rows of all heads that follow each other, where they are read and where
/// they go: `count` of each of `numEntries` entries of a batch.
struct RowRun {
  int64_t entry, row;
  int64_t ownEntry, ownRow;
  int64_t count, numEntries = 1;
};

/// Copies rows of arrays [B,G,N,D] to `own` [C,G,M,D], keys and perhaps values,
/// or rows of `own` where there are no `given` arrays. No row that is written
/// is read. On a GPU that is work of the stream of the caller: some copies of
/// the driver, or a kernel for each array if these were too many.
llvm::Error copyRuns(llvm::ArrayRef<StridedView> given,
                     llvm::ArrayRef<StridedView> own,
                     llvm::ArrayRef<RowRun> runs, Target target);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_ROWRUNS_H
