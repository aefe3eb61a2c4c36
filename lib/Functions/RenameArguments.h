//===- RenameArguments.h - Errors of functions within others ----*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_LIB_FUNCTIONS_RENAMEARGUMENTS_H
#define FOVEA_LIB_FUNCTIONS_RENAMEARGUMENTS_H

#include "llvm/Support/Error.h"

namespace fovea::functions {

struct ArgumentName {
  llvm::StringRef found, own;
};

/// The error of a function that was called on behalf of another one, about an
/// argument of that.
inline llvm::Error renameArguments(llvm::Error error,
                                   llvm::ArrayRef<ArgumentName> names) {
  return llvm::handleErrors(
      std::move(error), [&](const llvm::StringError &found) -> llvm::Error {
        auto [name, text] = llvm::StringRef(found.getMessage()).split(": ");
        for (const ArgumentName &each : names)
          if (each.found == name)
            return llvm::createStringError(found.convertToErrorCode(),
                                           each.own + ": " + text);
        return llvm::createStringError(found.convertToErrorCode(),
                                       found.getMessage());
      });
}

} // namespace fovea::functions

#endif // FOVEA_LIB_FUNCTIONS_RENAMEARGUMENTS_H
