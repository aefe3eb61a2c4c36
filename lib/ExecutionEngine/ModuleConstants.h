//===- ModuleConstants.h - Constants beside a module ------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_EXECUTIONENGINE_MODULECONSTANTS_H
#define FOVEA_LIB_EXECUTIONENGINE_MODULECONSTANTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/Error.h"
#include <string>

namespace fovea::detail {

/// Makes the first arguments of `entry` the constants of the file at `path`,
/// which is in the format safetensors and lists names of the other arguments as
/// `fovea.arguments`. `names`, those of the arguments, become these. Floating
/// point is a resource of the module that stays where it is mapped.
llvm::Error bindConstants(mlir::func::FuncOp entry, llvm::StringRef path,
                          llvm::SmallVectorImpl<std::string> &names);

} // namespace fovea::detail

#endif // FOVEA_LIB_EXECUTIONENGINE_MODULECONSTANTS_H
