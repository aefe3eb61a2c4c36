//===- TreeChoice.h - Choosing nodes of trees in one kernel -----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_TREECHOICE_H
#define FOVEA_LIB_FUNCTIONS_TREECHOICE_H

#include "TreeArguments.h"

namespace fovea::functions {

/// The nodes that VIP rows [B,np,F] choose, by one function for all levels: the
/// host reads no candidates between them. `budgets` are those of levels from 1
/// on, which leave `numNodes` nodes.
llvm::Expected<TreeSelection> chooseByRows(const Tree &tree,
                                           llvm::ArrayRef<int64_t> budgets,
                                           int64_t numNodes,
                                           const Argument &vip, Target target,
                                           const ResultMemory &out);

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_TREECHOICE_H
