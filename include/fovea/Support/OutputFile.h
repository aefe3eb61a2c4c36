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
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

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

/// Whether the names lead to one file, which writing one of them would take
/// from the other. Devices and pipes may be both.
bool isSameFile(llvm::StringRef lhs, llvm::StringRef rhs);

/// The error of a tool whose output would take the place of its input.
llvm::Error refuseSameFile(llvm::StringRef output, llvm::StringRef input);

/// Runs a program that makes a file of a file: `input` is the content of the
/// one whose name ends in `inputSuffix`, and the content of the other is
/// returned. `getArguments` is given the names of both. The error has what the
/// program has printed.
llvm::Expected<std::string> convertFile(
    llvm::StringRef program, llvm::StringRef inputSuffix, llvm::StringRef input,
    llvm::StringRef outputSuffix,
    llvm::function_ref<llvm::SmallVector<llvm::StringRef>(llvm::StringRef,
                                                          llvm::StringRef)>
        getArguments);

/// Runs `main`, the rest of a tool of that name, and returns its status: 1,
/// after an error, if not everything could be written to standard output, be it
/// full, closed, or a pipe that nobody reads.
int runWithOutput(llvm::StringRef tool, llvm::function_ref<int()> main);

} // namespace fovea

#endif // FOVEA_SUPPORT_OUTPUTFILE_H
