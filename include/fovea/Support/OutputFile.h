//===- OutputFile.h - Files that tools write --------------------*- C++ -*-===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef FOVEA_SUPPORT_OUTPUTFILE_H
#define FOVEA_SUPPORT_OUTPUTFILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace llvm {
class raw_ostream;
} // namespace llvm

namespace fovea {

/// Lets `write` fill the file `path`, whose new content appears complete or not
/// at all. A link is followed, and a file that exists keeps its mode and, where
/// that is allowed, its owner. Devices and pipes are written to, and "-" is
/// standard output. The error does not name the path.
llvm::Error writeOutput(llvm::StringRef path,
                        llvm::function_ref<void(llvm::raw_ostream &)> write);

/// Runs `main`, the rest of a tool of that name, and returns its status: 1,
/// after an error, if not everything could be written to standard output, be it
/// full, closed, or a pipe that nobody reads.
int runWithOutput(llvm::StringRef tool, llvm::function_ref<int()> main);

} // namespace fovea

#endif // FOVEA_SUPPORT_OUTPUTFILE_H
